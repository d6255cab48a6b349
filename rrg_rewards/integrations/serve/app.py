"""The ASGI application of a reward server."""

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rrg_rewards.integrations.serve.bodies import Bodies, json_object
from rrg_rewards.integrations.serve.dialects import DIALECTS, Dialect
from rrg_rewards.integrations.serve.errors import RequestError, error_place
from rrg_rewards.integrations.serve.metrics import CONTENT_TYPE, ServerMetrics
from rrg_rewards.integrations.serve.scorer import ScoredSample, Scorer
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.version import __version__

__all__ = ["make_app"]

_log = logging.getLogger(__name__)

# The status that nginx logs for a client that left before the reply.
_CLIENT_LEFT = 499

T = TypeVar("T")


def make_app(options: ServerOptions) -> Starlette:
    """Make the application that serves a reward.

    Args:
        options: The reward and its limits.

    Raises:
        Exception: The error of the reward, if it cannot load its model or score.
    """
    server = _Server(options)
    routes = [
        Route("/health", server.health),
        Route("/info", server.endpoint("/info", server.info)),
        Route("/metrics", server.endpoint("/metrics", server.metrics)),
        *(
            Route(dialect.path, server.endpoint(dialect.path, server.scores(dialect)), methods=["POST"])
            for dialect in DIALECTS
        ),
    ]
    refusals = dict.fromkeys((404, 405), _no_such_endpoint)
    return Starlette(routes=routes, lifespan=server.lifespan, exception_handlers=refusals)


class _Server:
    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._metrics = ServerMetrics()
        self._bodies = Bodies(options)
        self._scorer = Scorer(options, self._count_batch)
        self._scorer.start()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:  # noqa: ARG002 (Starlette's)
        yield
        self._scorer.close()

    def _count_batch(self, scored: Sequence[ScoredSample]) -> None:
        self._metrics.count_batch(scored)
        self._metrics.waiting.set(self._scorer.num_waiting)

    def endpoint(
        self, path: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Check the token, count the request, and reply to errors without repeating text."""

        async def reply(request: Request) -> Response:
            began = time.perf_counter()
            try:
                _check_token(request, self._options.token)
                response = await answer(request)
            except RequestError as error:
                response = _error_reply(error)
            except ClientDisconnect:
                response = Response(status_code=_CLIENT_LEFT)
            except Exception as error:  # uvicorn would log its message, which may quote a report.
                _log.error("%s: %s", path, error_place(error))
                response = _error_reply(RequestError(500, f"error of the server: {error_place(error)}"))
            self._metrics.requests.labels(path, response.status_code).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - began)
            return response

        return reply

    def scores(self, dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            async with self._bodies.read(request) as body:
                samples = dialect.samples(json_object(body), self._options)
                scored = await _unless_client_leaves(request, self._scorer.score(samples))
            return JSONResponse(dialect.render(scored, self._options))

        return answer

    async def health(self, request: Request) -> Response:  # noqa: ARG002 (Starlette's)
        return JSONResponse({"status": "ok"})

    async def info(self, request: Request) -> Response:  # noqa: ARG002 (Starlette's)
        reward = self._options.reward
        return JSONResponse(
            {
                "reward": reward.__name__,
                "signature": reward.signature,
                "columns": list(reward.columns),
                "max_completions": self._options.max_pending,
                "max_request_bytes": self._options.max_request_bytes,
                "version": __version__,
            }
        )

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 (Starlette's)
        self._metrics.waiting.set(self._scorer.num_waiting)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)


async def _no_such_endpoint(request: Request, error: Exception) -> Response:  # noqa: ARG001 (Starlette's)
    assert isinstance(error, HTTPException)
    scoring = ", ".join(dialect.path for dialect in DIALECTS)
    message = f"no such path or method; the server has POST {scoring}, and GET /health, /info, /metrics"
    return _error_reply(RequestError(error.status_code, message, error.headers))


def _error_reply(error: RequestError) -> Response:
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)


def _check_token(request: Request, token: str | None) -> None:
    """Accept ``Bearer TOKEN``, and ``Basic`` with the token as password, which clients send for ``http://x:TOKEN@…``."""
    if token is None:
        return
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            value = ""
    if scheme.lower() not in ("basic", "bearer") or not hmac.compare_digest(value.encode(), token.encode()):
        raise RequestError(401, "the request lacks the server's token", {"WWW-Authenticate": "Bearer"})


async def _unless_client_leaves(request: Request, scoring: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, or cancel it if the client disconnects.

    Raises:
        starlette.requests.ClientDisconnect: If the client disconnects.
    """
    work = asyncio.ensure_future(scoring)
    # The body is complete, so the next message is the end of the connection.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
