"""The ASGI application of a reward server: endpoints, who may use them, bodies, scoring, and metrics of Prometheus."""

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import math
import os
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rrg_rewards.integrations.common.background import without_exits
from rrg_rewards.integrations.common.batching import BatchQueue, QueueFullError
from rrg_rewards.integrations.serve.requests import (
    DIALECTS,
    Dialect,
    RequestError,
    Sample,
    ScoredSample,
    busy,
    error_place,
    scoring_error,
)
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.judges.server.usage import Usage, UsageMeter
from rrg_rewards.utilities.concurrency import LoopThread
from rrg_rewards.version import __version__

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the folder in which workers share their metrics; prometheus_client reads it when imported."""

_log = logging.getLogger(__name__)

# The status that nginx logs for a client that left before the reply.
_CLIENT_LEFT = 499
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# Numbers of `Usage`, for their description.
_JUDGE_COUNTS = {
    "calls": "Requests, including repeated ones,",
    "retries": "Repeated requests",
    "prompt_tokens": "Tokens of prompts",
    "cached_prompt_tokens": "Tokens of prompts from the prefix cache of the server",
    "completion_tokens": "Tokens of answers",
    "cost": "Cost, in the currency of the price,",
}

# Bytes of a body that takes about a millisecond to parse.
_SMALL = 64 * 1024
# Of the most completions that may wait: messages, parts and columns that are lists.
_VALUES_PER_COMPLETION = 64

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
        # First, because routes are tried in this order.
        *(
            Route(dialect.path, server.endpoint(dialect.path, server.scores(dialect)), methods=["POST"])
            for dialect in DIALECTS
        ),
        Route("/health", server.health),
        Route("/info", server.endpoint("/info", server.info)),
        Route("/metrics", server.endpoint("/metrics", server.metrics)),
    ]
    refusals = dict.fromkeys((404, 405), _no_such_endpoint)
    return Starlette(routes=routes, lifespan=server.lifespan, exception_handlers=refusals)


class _Server:
    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._metrics = _ServerMetrics()
        self._bodies = _Bodies(options)
        # Before the first evaluation, which the start of the scorer makes.
        self._judges = UsageMeter(options.reward.judges())
        self._scorer = _Scorer(options, self._count_batch)
        self._scorer.start()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:  # noqa: ARG002 (Starlette's)
        yield
        self._bodies.close()
        self._scorer.close()

    def _count_batch(self, scored: Sequence[ScoredSample]) -> None:
        self._metrics.count_batch(scored)
        self._metrics.count_usage(self._judges.take())
        self._metrics.waiting.set(self._scorer.num_waiting)

    def endpoint(
        self, path: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Check where the request is from, count it, and reply to errors without repeating text."""
        seconds = self._metrics.seconds.labels(path)

        async def reply(request: Request) -> Response:
            began = time.perf_counter()
            try:
                _check_access(request, self._options.token)
                response = await answer(request)
            except RequestError as error:
                response = _error_reply(error)
            except ClientDisconnect:
                response = Response(status_code=_CLIENT_LEFT)
            except Exception as error:  # uvicorn would log its message, which may quote a report.
                _log.error("%s: %s", path, error_place(error))
                response = _error_reply(RequestError(500, f"error of the server: {error_place(error)}"))
            self._metrics.requests.labels(path, response.status_code).inc()
            seconds.observe(time.perf_counter() - began)
            return response

        return reply

    def scores(self, dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            async with self._bodies.read(request) as body:
                samples = await self._bodies.samples(dialect, body)
                scored = await _unless_client_leaves(request, self._scorer.score(samples))
            return JSONResponse(dialect.render(scored, self._options))

        return answer

    async def health(self, request: Request) -> Response:  # noqa: ARG002 (Starlette's)
        if (problem := self._scorer.problem) is not None:
            return JSONResponse({"status": "failed", "reason": problem}, 503)
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
        self._metrics.count_usage(self._judges.take())
        return Response(self._metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def _no_such_endpoint(request: Request, error: Exception) -> Response:  # noqa: ARG001 (Starlette's)
    assert isinstance(error, HTTPException)
    scoring = ", ".join(dialect.path for dialect in DIALECTS)
    message = f"no such path or method; the server has POST {scoring}, and GET /health, /info, /metrics"
    return _error_reply(RequestError(error.status_code, message, error.headers))


def _error_reply(error: RequestError) -> Response:
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)


async def _unless_client_leaves(request: Request, scoring: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, or cancel it if the client disconnects.

    Raises:
        starlette.requests.ClientDisconnect: If the client disconnects.
    """
    task = asyncio.current_task()
    assert task is not None
    has_left = has_ended = False

    def leave(_: Any) -> None:
        nonlocal has_left
        if not has_ended:
            has_left = True
            task.cancel()

    # The body is complete, so the next message is the end of the connection.
    gone = asyncio.ensure_future(request.receive())
    gone.add_done_callback(leave)
    try:
        return await scoring
    except asyncio.CancelledError:
        if has_left:
            raise ClientDisconnect from None
        raise
    finally:
        has_ended = True
        gone.cancel()


class _Scorer:
    """Scores samples in batches. The event loop of the server stays free while a reward computes.

    A reward that does not return cannot be interrupted, because it computes in a thread. It is logged, and
    :attr:`problem` names it until it returns.

    Args:
        options: The reward and its limits.
        on_batch: Called with the results of each batch.
    """

    def __init__(self, options: ServerOptions, on_batch: Callable[[Sequence[ScoredSample]], None]) -> None:
        self._reward = options.reward
        self._timeout = options.timeout
        self._on_batch = on_batch
        self._thread = LoopThread("rrg-rewards-scoring", on_death=_log_death)
        self._queue: BatchQueue[Sample, ScoredSample] = BatchQueue(self._process, options.batch_limits)
        # Batches that have taken longer than the limit.
        self._overdue: set[object] = set()

    @property
    def num_waiting(self) -> int:
        """Number of samples that wait for a batch."""
        return self._queue.num_waiting

    @property
    def problem(self) -> str | None:
        """Why requests get no rewards at present, or will not soon; ``None`` if nothing is known to be wrong."""
        if not self._thread.is_alive:
            return "the thread that scores has ended; restart the server"
        if self._overdue:
            return (
                f"the reward has not returned from {len(self._overdue)} batches within {self._timeout:g} s "
                "(`timeout`); if it never does, restart the server"
            )
        return None

    def start(self) -> None:
        """Check that the reward can score, and load its model.

        Raises:
            Exception: The error of the reward.
        """
        columns = self._reward.columns
        self._in_thread(self._reward.score_async([], **{column: [] for column in columns})).result()
        # Other columns have values that are not known here.
        if len(columns) <= 1:
            self._in_thread(self._score([Sample("Clear lungs.", dict.fromkeys(columns, "Clear lungs."))])).result()

    async def score(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Score the samples of a request.

        Raises:
            RequestError: If too many samples are waiting, the deadline passes, the reward raises an error, or no batch
                can begin.
        """
        if not self._thread.is_alive or len(self._overdue) >= self._queue.limits.max_concurrent:
            raise RequestError(503, str(self.problem))
        try:
            outcomes = await self._queue.submit_all(samples, self._timeout)
        except QueueFullError as error:
            raise busy(str(error)) from None
        except asyncio.TimeoutError:
            raise RequestError(504, f"no reward within {self._timeout:g} s") from None
        if not self._thread.is_alive:
            raise RequestError(503, str(self.problem))
        scored = []
        for row, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                raise scoring_error(row, outcome)
            scored.append(outcome)
        return scored

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    async def _process(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        batch = object()
        alarm = asyncio.get_running_loop().call_later(self._timeout, self._report_overdue, batch, len(samples))
        try:
            scored = await asyncio.wrap_future(self._in_thread(self._score(samples)))
        finally:
            alarm.cancel()
            if batch in self._overdue:
                self._overdue.discard(batch)
                _log.warning("a batch that took longer than %g s has ended", self._timeout)
        self._on_batch(scored)
        return scored

    def _report_overdue(self, batch: object, num_samples: int) -> None:
        self._overdue.add(batch)
        _log.error("a batch of %d completions has no rewards after %g s: %s", num_samples, self._timeout, self.problem)

    def _in_thread(self, scoring: Coroutine[Any, Any, T]) -> "Future[T]":
        return self._thread.submit(without_exits(scoring))

    async def _score(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        columns: dict[str, list[Any]] = {"prompts": [sample.opened for sample in samples]}
        columns |= {name: [sample.columns[name] for sample in samples] for name in self._reward.columns}
        scores = await self._reward.score_async([sample.completion for sample in samples], **columns)
        rewards = self._reward.rewards(scores)
        if not all(reward is None or math.isfinite(reward) for reward in rewards):
            raise ArithmeticError("a reward is infinite or NaN")
        details = {name: _or_none(values.tolist()) for name, values in scores.details.items()}
        failures: list[str | None] = [None] * len(samples)
        for kind, rows in scores.failures.items():
            for row in rows.nonzero().flatten().tolist():
                failures[row] = kind
        return [
            ScoredSample(reward, {name: values[row] for name, values in details.items()}, failure)
            for row, (reward, failure) in enumerate(zip(rewards, failures, strict=True))
        ]


def _or_none(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _log_death(error: BaseException) -> None:
    _log.error("the thread that scores has ended: %s", error_place(error))


class _ServerMetrics:
    """The metrics of a worker, and their sums over all workers."""

    def __init__(self) -> None:
        _forget_dead_workers()
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "rrg_rewards_requests", "Requests by path and HTTP status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "rrg_rewards_request_seconds", "Duration of requests by path.", ["path"], registry=registry
        )
        self.completions = Counter(
            "rrg_rewards_completions",
            "Completions by outcome: scored, unscorable, or failed with the kind of failure of the judge.",
            ["outcome"],
            registry=registry,
        )
        self.batches = Histogram(
            "rrg_rewards_batch_completions", "Completions per batch.", buckets=_BATCH_SIZES, registry=registry
        )
        self.waiting = Gauge(
            "rrg_rewards_waiting_completions",
            "Completions that wait for a batch.",
            registry=registry,
            multiprocess_mode="livesum",
        )

        self.judges = {
            name: Counter(f"rrg_rewards_judge_{name}", f"{what} of judges.", ["judge"], registry=registry)
            for name, what in _JUDGE_COUNTS.items()
        }

    def count_usage(self, used: Mapping[str, Usage]) -> None:
        """Add what judges have used, by what they do."""
        for judge, usage in used.items():
            for name, number in usage.numbers().items():
                self.judges[name].labels(judge).inc(number)

    def count_batch(self, scored: Sequence[ScoredSample]) -> None:
        """Count the completions of a batch by outcome."""
        self.batches.observe(len(scored))
        for outcome, count in Tally(sample.outcome for sample in scored).items():
            self.completions.labels(outcome).inc(count)

    def render(self) -> bytes:
        """Return the metrics of all workers as text."""
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        text: bytes = generate_latest(registry)
        return text


def _forget_dead_workers() -> None:
    """Remove the gauges of workers that were killed. Their counts are kept."""
    for path in Path(os.environ.get(SHARED_FOLDER, os.devnull)).glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)


def _check_access(request: Request, token: str | None) -> None:
    """Check that a request comes from a client that may use the server.

    A web page in a browser on this machine can send requests to any local port. It cannot keep the browser from adding
    ``Origin``, nor send JSON under its own media type without asking the server first. A page whose name is bound to
    this machine's address after it was loaded has its own name in ``Host``; it knows no token.

    Args:
        request: The request.
        token: Token of the server; ``None`` for none, which is possible on this machine only.

    Raises:
        RequestError: If the request comes from a web page or lacks the token, or its content is not declared as JSON.
    """
    if "origin" in request.headers:
        raise RequestError(403, "requests of web pages, which have the header Origin, are refused")
    if token is not None:
        _check_token(request.headers.get("authorization", ""), token)
    elif not _is_local_name(request.headers.get("host", "")):
        raise RequestError(
            403,
            "the header Host must be localhost or the number of an address, because the server has no token; for other "
            "names start it with the environment variable RRG_REWARDS_TOKEN",
        )
    if request.method == "POST" and not _is_json(request.headers.get("content-type", "")):
        raise RequestError(415, "the body must be JSON; send the header Content-Type: application/json")


def _check_token(authorization: str, token: str) -> None:
    """Accept ``Bearer TOKEN``, and ``Basic`` with the token as password, which clients send for ``http://x:TOKEN@…``."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            value = ""
    if scheme.lower() not in ("basic", "bearer") or not hmac.compare_digest(value.encode(), token.encode()):
        raise RequestError(401, "the request lacks the server's token", {"WWW-Authenticate": "Bearer"})


def _is_local_name(host: str) -> bool:
    """Whether a ``Host`` is ``localhost`` or the number of an address, to which no name of a web page can be bound.

    Example:
        >>> [_is_local_name(host) for host in ("localhost:8787", "127.0.0.1:1", "[::1]:8787", "rebound.example:8787")]
        [True, True, True, False]
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_json(content_type: str) -> bool:
    """Whether a media type is that of JSON.

    Example:
        >>> [_is_json(one) for one in ("application/json; charset=utf-8", "text/plain", "")]
        [True, False, False]
    """
    return content_type.partition(";")[0].strip().lower() == "application/json"


class _Bodies:
    """Reads bodies, and limits the memory that they take together.

    Args:
        options: Limits of the server.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._held = 0
        # One thread, so that several long bodies do not take the memory of their contents at a time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rrg-rewards-bodies")

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Read a body, which counts as held until the block ends.

        Raises:
            RequestError: If the body is too long or compressed, or other bodies take all memory.
            starlette.requests.ClientDisconnect: If the client leaves, or is too slow.
        """
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestError(415, "the body is compressed; send plain JSON")
        body = bytearray()
        try:
            await self._receive(request, body)
            yield body
        finally:
            self._held -= len(body)

    async def samples(self, dialect: Dialect, body: bytearray) -> list[Sample]:
        """Return the samples of a request, without blocking the event loop for long.

        Raises:
            RequestError: If the body is no JSON, or not that of the dialect.
        """
        if len(body) <= _SMALL:
            return dialect.samples(_json_object(body), self._options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._samples, dialect, body)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _samples(self, dialect: Dialect, body: bytearray) -> list[Sample]:
        most = _VALUES_PER_COMPLETION * self._options.max_pending
        if _has_more_values(body, most):
            raise RequestError(413, f"the body has more than {most} values; send fewer completions")
        return dialect.samples(_json_object(body), self._options)

    async def _receive(self, request: Request, body: bytearray) -> None:
        limit = self._options.max_request_bytes
        error: RequestError | None = None
        discarded = 0
        async for chunk in request.stream():
            if error is None and len(body) + len(chunk) > limit:
                error = RequestError(413, f"the body is longer than {limit} bytes; send fewer completions")
            if error is None and self._held + len(chunk) > self._options.max_total_bytes:
                error = busy("the bodies of other requests take all memory that requests may take")
            if error is None:
                self._held += len(chunk)
                body += chunk
                continue
            # A client reads the reply only after it has sent the body.
            discarded += len(chunk)
            if discarded > self._options.max_total_bytes:
                raise error
        if error is not None:
            raise error


def _has_more_values(body: bytes | bytearray, most: int) -> bool:
    """Whether JSON has more values than ``most``, without parsing it.

    A megabyte of JSON can have half a million values, which take a hundred times its memory and seconds to parse.

    Example:
        >>> _has_more_values(b'{"completions": ["a, [b]", []], "reference": ["c", null]}', most=7)
        False
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * most:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most


def _json_object(body: bytes | bytearray) -> Mapping[str, Any]:
    """Parse a body that must be a JSON object.

    Raises:
        RequestError: If it is not.

    Example:
        >>> _json_object(b'{"completions": []}')
        {'completions': []}
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body must be JSON in UTF-8 ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise RequestError(400, f"the body must be a JSON object, got {type(content).__name__}")
    return content
