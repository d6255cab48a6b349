"""HTTP calls to an OpenAI-compatible server, and their counts."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from datetime import datetime, timezone
from functools import partial
from typing import Any

from rrg_rewards.judges.base import STOPPED, Item, JudgeTask
from rrg_rewards.judges.server.http_client import Hook, ReplyRefusedError, make_http_client
from rrg_rewards.judges.server.rate_limit import RateLimiter, RateStoppedError, expected_tokens
from rrg_rewards.judges.server.requests import FormatChoice, is_format_refusal, reply_text, reply_tokens, request_body
from rrg_rewards.judges.server.retries import CallError, Retries, ServerHealth, retry_after_seconds
from rrg_rewards.judges.server.settings import ServerSettings
from rrg_rewards.judges.server.usage import UsageCounter
from rrg_rewards.utilities.concurrency import within
from rrg_rewards.utilities.imports import require

# Maximum size of a reply. An answer of 2,048 tokens has about 10 KB, with log-probabilities up to 4 MB.
_MOST_BYTES = 8 * 2**20
# Statuses other than 5xx after which a retry may succeed.
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
# An error code such as model_not_found. Other text of the server may repeat the report.
_ERROR_CODE = re.compile(r"[a-z0-9_.-]{1,40}", re.IGNORECASE)


class Session:
    """A client of one event loop, with a limit of simultaneous calls and with the pending answers.

    Args:
        open_client: Function that opens a client of the package openai, whose connections belong to the event loop. It
            takes a hook that the client awaits before it sends a request.
        concurrency: Maximum number of simultaneous calls.
    """

    def __init__(self, open_client: Callable[[Hook], Any], concurrency: int) -> None:
        self.client = open_client(self._end_turn)
        self.users = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._turn = asyncio.Lock()
        self._starting: object = None
        self._pending: dict[str, asyncio.Future[str | None]] = {}

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free slot, and until the call before has prepared its request.

        The event loop would otherwise switch between calls that start together, so that all requests are sent when the
        last one is ready. The server would wait for them, and then this process for the answers, which arrive together
        (with 32 simultaneous calls of 100 ms, 270 answers per second instead of 310).
        """
        async with self._slots:
            await self._turn.acquire()
            call = self._starting = object()
            try:
                yield
            finally:
                # A call may fail before it sends a request.
                if self._starting is call:
                    await self._end_turn()

    async def _end_turn(self, *_: Any) -> None:
        """Let the next call start."""
        if self._starting is not None:
            self._starting = None
            self._turn.release()

    async def pending_answer(self, key: str) -> str | None:
        """Return an answer that another evaluation is requesting, or ``None`` if no evaluation gets one."""
        while (pending := self._pending.get(key)) is not None:
            # Awaiting the future itself would cancel it for all evaluations if this caller is cancelled.
            await asyncio.wait([pending])
            if (text := pending.result()) is not None:
                return text
        return None

    @contextmanager
    def announced(self, key: str) -> Iterator[Callable[[str], None]]:
        """Let other evaluations wait for an answer that is requested inside the block.

        Yields:
            A function that publishes the answer. If it is not called, one of the waiting evaluations requests the
            answer.
        """
        pending: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._pending[key] = pending
        try:
            yield pending.set_result
        finally:
            del self._pending[key]
            if not pending.done():
                pending.set_result(None)


class _Sessions:
    """One session per event loop, which is closed after its last use.

    A client works only in the event loop in which it was created. A trainer has one loop for all rewards, and a metric
    creates a loop for each call.

    Args:
        open_client: Function that opens a client, as in :class:`Session`.
        concurrency: Maximum number of simultaneous calls in each loop.
    """

    def __init__(self, open_client: Callable[[Hook], Any], concurrency: int) -> None:
        self._open_client = open_client
        self._concurrency = concurrency
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Use the session of the running event loop inside a block."""
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None:
                session = self._sessions[loop] = Session(self._open_client, self._concurrency)
            session.users += 1
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                is_last = session.users == 0
                if is_last:
                    del self._sessions[loop]
            if is_last:
                await session.client.close()


class _FormatError(CallError):
    """The server refuses the requested response format."""


class ChatClient:
    """Calls a chat server with the limits and retries of its settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.usage = UsageCounter(settings.price, settings.price_cached)
        self.sessions = _Sessions(self._open, settings.concurrency)
        self._format = FormatChoice(settings.response_format)
        self._retries = Retries(settings.max_retries, settings.first_pause, longest_hold=settings.timeout)
        self._rate = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)

    def with_settings(self, settings: ServerSettings) -> "ChatClient":
        """Return a client with other settings of requests, and the same connections, limits and counters."""
        client = copy(self)
        client.settings = settings
        return client

    def stop(self) -> None:
        """Start no further call. Running calls are finished."""
        self._rate.stop()

    async def answer(
        self, task: JudgeTask[Item, Any], item: Item, rejected: int, session: Session, health: ServerHealth
    ) -> str:
        """Return the text of an answer, in the strictest response format that the server accepts.

        Args:
            task: The task.
            item: The item.
            rejected: Number of rejected answers to this item.
            session: Session of the running event loop.
            health: State of the server in this evaluation.

        Raises:
            CallError: If the server does not answer.
            AnswerError: If its reply contains no answer.
        """
        response_format = self._format.first
        while True:
            body = request_body(self.settings, task, item, response_format, rejected)
            try:
                reply = await self._retries.run(
                    partial(self._send, session, body), health, lambda: self.usage.add(retries=1)
                )
            except _FormatError:
                looser = self._format.after(response_format)
                if looser is None:
                    raise
                response_format = looser
            else:
                # An answer in free text does not show which formats the server accepts.
                if "response_format" in body or response_format == "text":
                    self._format.settle(response_format)
                tokens = reply_tokens(reply)
                self.usage.add(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
                if tokens.cached is not None:
                    self.usage.add(cached_prompt_tokens=tokens.cached)
                return reply_text(reply)

    async def _send(self, session: Session, body: Mapping[str, Any]) -> object:
        """Return the server's reply as JSON, or ``None`` if it is not JSON.

        Raises:
            CallError: If there is no reply.
        """
        openai = require("openai", extra="judge")
        if self._rate.is_stopped:
            raise _stopped()
        async with session.slot():
            try:
                admission = await self._rate.admit(expected_tokens(body))
            except RateStoppedError:
                raise _stopped() from None
            self.usage.add(calls=1)
            try:
                # `chat.completions.create` also validates request and reply, which takes as long as the rest of the
                # call (1.3 against 0.9 ms).
                post = session.client.post("/chat/completions", cast_to=object, body=body)
                reply: object = await within(self.settings.timeout, post)
                # The expected number of tokens stays if the reply contains no counts.
                if taken := reply_tokens(reply).total:
                    admission.settle(taken)
                return reply
            except asyncio.TimeoutError:
                raise CallError("deadline", f"no answer within {self.settings.timeout:g} s") from None
            except ReplyRefusedError as error:
                raise _refused(error) from None
            except openai.APIStatusError as error:
                admission.settle(0)
                raise _status_error(error, self.settings) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, ReplyRefusedError):
                    raise _refused(error.__cause__) from None
                cause = type(error.__cause__ or error).__name__
                address = self.settings.address.url
                raise CallError("connection", f"the connection to {address} failed ({cause})") from None
            except (ValueError, RecursionError):
                return None

    def _open(self, before_request: Hook) -> Any:
        openai = require("openai", extra="judge")
        settings = self.settings
        http_client = make_http_client(
            openai.DefaultAsyncHttpxClient,
            type(openai.DEFAULT_CONNECTION_LIMITS),
            connections=settings.concurrency,
            before_request=before_request,
            most_bytes=_MOST_BYTES,
            trust_env=not settings.address.is_loopback,
            # Plain HTTP has no certificate to verify, and loading the system's certificates takes 35 ms per client.
            verify=settings.address.is_encrypted,
        )
        return openai.AsyncOpenAI(
            # The client requires a key, even if the server needs none.
            api_key=settings.key() or "none",
            base_url=settings.base_url,
            timeout=None,
            max_retries=0,
            http_client=http_client,
        )


def _stopped() -> CallError:
    return CallError(STOPPED.kind, STOPPED.reason, passing=False)


def _refused(error: ReplyRefusedError) -> CallError:
    return CallError("status", str(error), passing=False)


def _status_error(error: Any, settings: ServerSettings) -> CallError:
    """Describe a reply with an HTTP status other than 200."""
    status, code = error.status_code, error.code
    # Do not quote the server's message, which may repeat the request.
    named = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
    if 300 <= status < 400:
        named = " (a redirect, which is not followed)"
    reason = f"the server answered HTTP {status}{named}"
    if status == 401 and not settings.key():
        reason += f"; {settings.api_key_variable} is not set"
    if is_format_refusal(status, error.body):
        return _FormatError("status", reason, passing=False)
    passing = status in _PASSING_STATUSES or status >= 500
    retry_after = retry_after_seconds(error.response.headers.get("retry-after"), datetime.now(timezone.utc))
    return CallError("status", reason, passing=passing, retry_after=retry_after)
