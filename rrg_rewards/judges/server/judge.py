"""A language model behind an OpenAI-compatible server as a judge."""

import asyncio
import inspect
import math
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import fields, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any, Generic

from rrg_rewards.judges.base import AnswerError, Item, Judge, JudgeFailure, JudgeTask, Result, in_request_order
from rrg_rewards.judges.server.cache import LOCK_SECONDS, AnswerCache
from rrg_rewards.judges.server.calls import (
    CallError,
    Hook,
    ReplyRefusedError,
    Retries,
    make_http_client,
    retry_after_seconds,
)
from rrg_rewards.judges.server.requests import (
    RESPONSE_FORMATS,
    ResponseFormat,
    ServerSettings,
    answer_key,
    hash_json,
    is_format_refusal,
    reply_text,
    reply_tokens,
    request_body,
)
from rrg_rewards.judges.server.usage import Usage, UsageCounter
from rrg_rewards.utilities.concurrency import for_each, within
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.signature import format_signature

# Number of cache look-ups between yields to the event loop.
_LOOK_UPS = 64
# Maximum size of a reply. An answer of 2,048 tokens has about 10 KB, with log-probabilities up to 4 MB.
_MOST_BYTES = 8 * 2**20
# Statuses other than 5xx after which a retry may succeed.
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
# An error code such as model_not_found. Other text of the server may repeat the report.
_ERROR_CODE = re.compile(r"[a-z0-9_.-]{1,40}", re.IGNORECASE)


class OpenAIJudge(Judge):
    """Judge with a language model behind an OpenAI-compatible server, such as vLLM, SGLang, llama.cpp or a cloud API.

    **Failures.** An item without a valid answer gets a :class:`JudgeFailure` of kind ``deadline``, ``connection``,
    ``status`` (refused by the server), or ``malformed`` or ``inconsistent`` (rejected by the task). Other exceptions of
    the task are raised.

    **Retries.** A call is retried after HTTP 408, 409, 425, 429 and 5xx, time-outs and broken connections. The pause
    before a retry grows, or is the server's ``Retry-After``, which pauses all calls of the batch. Other statuses are
    final. While the server answers no call, further items get one attempt each; after twice ``concurrency`` items (at
    least 8) without an answer, the rest of the batch fails. After an answer that the task rejects, another is requested
    with the next seed and a temperature of at least 0.5, because at 0 the seed has no effect.

    **No repeated calls.** Equal items are evaluated once, also by evaluations that run at the same time in one event
    loop. ``cache`` stores accepted answers under a hash of the conversation, the task, the model and the settings of
    sampling. The task checks cached answers again.

    A cache that cannot be opened, read or written is as good as none; the judge warns once.

    **Order.** Items that share a part of their prompts (:meth:`rrg_rewards.judges.JudgeTask.shared_part`), such as the
    reference, are requested one after the other, for the prefix cache of the server.

    **Privacy.** Report text is sent only to ``base_url``, which must be on this machine unless ``allow_remote`` is set.
    Redirects are not followed, and proxies from the environment are not used for loopback addresses. Messages,
    signatures and pickles contain neither keys nor report text.

    Args:
        model: Name of the model on the server.
        options: Further fields of :class:`rrg_rewards.judges.server.requests.ServerSettings`, such as ``base_url``,
            ``concurrency``, ``cache`` and ``batch_deadline``.

    Raises:
        ValueError: If the address is not a plain HTTP address, or is on another machine without ``allow_remote``; if
            another argument is out of its range.
        TypeError: For an unknown argument, with the nearest known one.
        ModuleNotFoundError: When evaluating, if openai is not installed, naming the pip command.

    Example:
        >>> judge = OpenAIJudge("medgemma-4b", base_url="http://localhost:8000/v1", concurrency=64)
        >>> judge.signature
        'openai|model:medgemma-4b|host:loopback|temperature:0.0|max_tokens:2048|seed:0|response_format:auto|...'
        >>> judge.usage.calls
        0
        >>> OpenAIJudge("gpt", base_url="https://api.example.org/v1")
        Traceback (most recent call last):
        ...
        ValueError: base_url is on another machine, 'api.example.org', ... pass allow_remote=True
    """

    has_independent_rows = True

    # For help() and inspect.signature().
    __signature__ = inspect.signature(ServerSettings)

    def __init__(self, model: str, **options: Any) -> None:
        known = [setting.name for setting in fields(ServerSettings)]
        if unknown := [name for name in options if name not in known]:
            raise TypeError(unknown_name_message("argument", unknown[0], known))
        self._set(_Client(ServerSettings(model, **options)))

    def _set(self, client: "_Client") -> None:
        self._client = client
        self.settings = client.settings
        self.address = client.settings.address

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge, without its key."""
        return self.settings.arguments()

    @property
    def signature(self) -> str:
        """Model, host unless it is this machine, and settings of sampling."""
        settings = self.settings
        extra: dict[str, Any] = {"extra_body": hash_json(settings.extra_body)[:8]} if settings.extra_body else {}
        extra |= {"run": settings.run} if settings.run else {}
        extra |= {} if settings.seed_per_run else {"seed_per_run": False}
        return format_signature(
            "openai",
            model=settings.model,
            host="loopback" if settings.address.is_loopback else settings.address.host,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=settings.seed,
            response_format=settings.response_format,
            **extra,
        )

    @property
    def usage(self) -> Usage:
        """Calls, tokens, cost and failures since the judge was made. An unpickled copy starts at 0."""
        return self._client.usage.usage()

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """See :meth:`rrg_rewards.judges.Judge.evaluate`."""
        # Raise before any call, and even if there are no items.
        require("openai", extra="judge")
        return await _Evaluation(task, items, self._client, self._cache).run()

    def _make_rerun(self, run: int) -> "OpenAIJudge":
        """Return a judge with the seed and the cache entries of another run, and the same limits and counters.

        At temperature 0 each run is requested as well: servers batch requests, and many do not return the same answer
        twice.
        """
        # The constructor would make limits and counters of its own.
        judge, client = OpenAIJudge.__new__(OpenAIJudge), copy(self._client)
        client.settings = replace(self.settings, run=self.settings.run + run)
        judge._set(client)
        return judge

    @cached_property
    def _cache(self) -> AnswerCache | None:
        settings = self.settings
        if settings.cache is None:
            return None
        # The cache waits for a lock at most once in an evaluation.
        deadline = math.inf if settings.batch_deadline is None else settings.batch_deadline
        lock_seconds = min(LOCK_SECONDS, deadline / 10)
        return AnswerCache(settings.cache, lock_seconds=lock_seconds)


class Session:
    """A client of one event loop, with a limit of simultaneous calls.

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


class _FormatError(CallError):
    """The server refuses the requested response format."""


class _Client:
    """Calls a chat server with the limits of its settings.

    It has one session per event loop, which is closed after its last use: a client of openai works only in the event
    loop in which it was created. A trainer has one loop for all rewards, and a metric creates a loop for each call.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.usage = UsageCounter(settings.price, settings.price_cached)
        # Formats to request, the strictest first; only one as soon as the server has accepted it.
        chosen = settings.response_format
        self._formats: list[ResponseFormat] = [*RESPONSE_FORMATS] if chosen == "auto" else [chosen]
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Use the session of the running event loop inside a block."""
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None:
                session = self._sessions[loop] = Session(self._open, self.settings.concurrency)
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

    async def answer(
        self, task: JudgeTask[Item, Any], item: Item, rejected: int, session: Session, retries: Retries
    ) -> str:
        """Return the text of an answer, in the strictest response format that the server accepts.

        Args:
            task: The task.
            item: The item.
            rejected: Number of rejected answers to this item.
            session: Session of the running event loop.
            retries: Retries of the evaluation.

        Raises:
            CallError: If the server does not answer.
            AnswerError: If its reply contains no answer.
        """
        response_format = self._formats[0]
        while True:
            body = request_body(self.settings, task, item, response_format, rejected)
            try:
                reply = await retries.run(partial(self._send, session, body), lambda: self.usage.add(retries=1))
                break
            except _FormatError:
                # Another call may have found the accepted format in the meantime.
                stricter = RESPONSE_FORMATS[: RESPONSE_FORMATS.index(response_format) + 1]
                looser = [one for one in self._formats if one not in stricter]
                if not looser:
                    raise
                response_format = looser[0]
        # An answer in free text does not show which formats the server accepts.
        if ("response_format" in body or response_format == "text") and len(self._formats) > 1:
            self._formats[:] = [response_format]
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
        async with session.slot():
            self.usage.add(calls=1)
            try:
                # `chat.completions.create` also validates request and reply, which takes as long as the rest of the
                # call (1.3 against 0.9 ms).
                post = session.client.post("/chat/completions", cast_to=object, body=body)
                reply: object = await within(self.settings.timeout, post)
                return reply
            except asyncio.TimeoutError:
                raise CallError("deadline", f"no answer within {self.settings.timeout:g} s") from None
            except openai.APIStatusError as error:
                raise _status_error(error, self.settings) from None
            except (ReplyRefusedError, openai.APIConnectionError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, ReplyRefusedError):
                    raise CallError("status", str(cause), passing=False) from None
                reason = f"the connection to {self.settings.address.url} failed ({type(cause).__name__})"
                raise CallError("connection", reason) from None
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


class _Evaluation(Generic[Item, Result]):
    """Evaluates items with a chat server.

    Args:
        task: The task.
        items: The items; equal ones are evaluated once.
        client: Client of the server.
        cache: Cache of accepted answers, or ``None``.
    """

    def __init__(
        self, task: JudgeTask[Item, Result], items: Sequence[Item], client: _Client, cache: AnswerCache | None
    ) -> None:
        self._outcomes: dict[Item, Result | JudgeFailure] = {}
        self._task = task
        self._items = items
        self._client = client
        self._settings = client.settings
        self._cache = cache

    async def run(self) -> list[Result | JudgeFailure]:
        """Return for each item its result or its failure."""
        seconds = self._settings.batch_deadline
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        sent = (item for item in dict.fromkeys(self._items) if not self._is_refused(item))
        unique = in_request_order(self._task, sent)
        try:
            unknown = await self._recall(unique, deadline)
            if unknown:
                async with self._client.session() as session:
                    await self._call_server(unknown, session, deadline)
        finally:
            if self._cache is not None:
                self._cache.close()
        for item in unique:
            if item not in self._outcomes:
                self._fail(item, JudgeFailure("deadline", f"the batch was not done within {seconds:g} s"))
        return [self._outcomes[item] for item in self._items]

    async def _recall(self, items: Sequence[Item], deadline: float | None) -> list[Item]:
        """Read results from the cache until the deadline, and return the items that it does not contain."""
        clock = asyncio.get_running_loop().time
        if self._cache is None:
            return list(items)
        unknown = []
        for number, item in enumerate(items):
            if deadline is not None and clock() > deadline:
                return []
            if not self._is_cached(item, self._key(item)):
                unknown.append(item)
            if number % _LOOK_UPS == 0:
                await asyncio.sleep(0)
        return unknown

    async def _call_server(self, items: Sequence[Item], session: Session, deadline: float | None) -> None:
        given, clock = self._settings, asyncio.get_running_loop().time
        retries = Retries(given.max_retries, given.first_pause, given.timeout, given.concurrency, clock)
        evaluate = partial(self._evaluate, session=session, retries=retries)
        await for_each(items, evaluate, workers=given.concurrency, deadline=deadline)

    async def _evaluate(self, item: Item, session: Session, retries: Retries) -> None:
        """Get an item's answer from the cache, in which another evaluation may have put it, or from the server."""
        key = self._key(item)
        if self._is_cached(item, key):
            return
        text = await self._accepted_answer(item, session, retries)
        if text is not None and self._cache is not None:
            self._cache.put(key, text)

    async def _accepted_answer(self, item: Item, session: Session, retries: Retries) -> str | None:
        """Request answers until the task accepts one. Record the result or the last failure."""
        failure = JudgeFailure("malformed", "no answer was requested")
        for rejected in range(self._settings.max_reasks + 1):
            if rejected:
                self._client.usage.add(retries=1)
            try:
                text = await self._client.answer(self._task, item, rejected, session, retries)
                self._outcomes[item] = self._task.parse(item, text)
                return text
            except AnswerError as error:
                failure = JudgeFailure(error.kind, str(error))
            except CallError as error:
                failure = JudgeFailure(error.kind, str(error))
                break
        self._fail(item, failure)
        return None

    def _is_refused(self, item: Item) -> bool:
        """Whether the task forbids to send an item. Record its failure."""
        failure = self._task.refusal(item)
        if failure is not None:
            self._fail(item, failure)
        return failure is not None

    def _key(self, item: Item) -> str:
        return answer_key(self._settings, self._task, item)

    def _is_cached(self, item: Item, key: str) -> bool:
        """Whether the cache contains a valid answer. Record its result, or delete an invalid answer."""
        text = None if self._cache is None else self._cache.get(key)
        if self._cache is None or text is None:
            return False
        try:
            self._outcomes[item] = self._task.parse(item, text)
        except AnswerError:
            self._cache.drop(key)
            return False
        self._client.usage.add(cached=1)
        return True

    def _fail(self, item: Item, failure: JudgeFailure) -> None:
        self._outcomes[item] = failure
        self._client.usage.fail(failure.kind)
