"""A language model behind an OpenAI-compatible server as a judge."""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic

from rrg_rewards.judges.base import AnswerError, Item, Judge, JudgeFailure, JudgeTask, Result, in_request_order
from rrg_rewards.judges.server.cache import LOCK_SECONDS, AnswerCache
from rrg_rewards.judges.server.client import ChatClient, Session
from rrg_rewards.judges.server.requests import answer_key, hash_json
from rrg_rewards.judges.server.retries import CallError, ServerHealth
from rrg_rewards.judges.server.settings import ServerSettings
from rrg_rewards.judges.server.usage import Usage
from rrg_rewards.utilities.concurrency import for_each
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.signature import format_signature

# Number of cache look-ups between yields to the event loop.
_LOOK_UPS = 64


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

    **Rate limits.** ``requests_per_minute`` and ``tokens_per_minute`` apply to all calls of this object, including
    retries (:class:`rrg_rewards.judges.server.rate_limit.RateLimiter`). A copy in another process has its own limits.

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
        options: Further fields of :class:`rrg_rewards.judges.server.settings.ServerSettings`, such as ``base_url``,
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
        settings = ServerSettings.from_options(model=model, **options)
        self._set(settings, ChatClient(settings))

    def _set(self, settings: ServerSettings, client: ChatClient) -> None:
        self.settings = settings
        self.address = settings.address
        self._client = client
        self._reruns: dict[int, OpenAIJudge] = {}

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

    def rerun(self, run: int) -> "OpenAIJudge":
        """Return this judge with the seed and the cache entries of another run, and the same limits and counters.

        At temperature 0 each run is requested as well: servers batch requests, and many do not return the same answer
        twice.
        """
        if run == 0:
            return self
        if run not in self._reruns:
            settings = replace(self.settings, run=self.settings.run + run)
            # The constructor would make limits and counters of its own.
            judge = OpenAIJudge.__new__(OpenAIJudge)
            judge._set(settings, self._client.with_settings(settings))
            self._reruns[run] = judge
        return self._reruns[run]

    def stop(self) -> None:
        """See :meth:`rrg_rewards.judges.Judge.stop`."""
        super().stop()
        self._client.stop()

    @cached_property
    def _cache(self) -> AnswerCache | None:
        settings = self.settings
        if settings.cache is None:
            return None
        # The cache waits for a lock at most once in an evaluation.
        deadline = math.inf if settings.batch_deadline is None else settings.batch_deadline
        lock_seconds = min(LOCK_SECONDS, deadline / 10)
        return AnswerCache(settings.cache, size_limit=settings.cache_size_limit, lock_seconds=lock_seconds)


class _Evaluation(Generic[Item, Result]):
    """Evaluates items with a chat server.

    Args:
        task: The task.
        items: The items; equal ones are evaluated once.
        client: Client of the server.
        cache: Cache of accepted answers, or ``None``.
    """

    def __init__(
        self, task: JudgeTask[Item, Result], items: Sequence[Item], client: ChatClient, cache: AnswerCache | None
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
        with _progress_bar("judging", len(unique), self._settings.progress) as done:
            try:
                unknown = await self._recall(unique, deadline, done)
                if unknown:
                    async with self._client.sessions.session() as session:
                        await self._call_server(unknown, session, deadline, done)
            finally:
                if self._cache is not None:
                    self._cache.close()
        for item in unique:
            if item not in self._outcomes:
                self._fail(item, JudgeFailure("deadline", f"the batch was not done within {seconds:g} s"))
        return [self._outcomes[item] for item in self._items]

    async def _recall(self, items: Sequence[Item], deadline: float | None, done: Callable[[], None]) -> list[Item]:
        """Read results from the cache until the deadline, and return the items that it does not contain."""
        clock = asyncio.get_running_loop().time
        if self._cache is None:
            return list(items)
        unknown = []
        for number, item in enumerate(items):
            if deadline is not None and clock() > deadline:
                return []
            if self._is_cached(item, self._key(item)):
                done()
            else:
                unknown.append(item)
            if number % _LOOK_UPS == 0:
                await asyncio.sleep(0)
        return unknown

    async def _call_server(
        self, items: Sequence[Item], session: Session, deadline: float | None, done: Callable[[], None]
    ) -> None:
        health = ServerHealth(self._settings.concurrency, asyncio.get_running_loop().time)

        async def evaluate(item: Item) -> None:
            await self._evaluate(item, session, health)
            done()

        await for_each(items, evaluate, workers=self._settings.concurrency, deadline=deadline)

    async def _evaluate(self, item: Item, session: Session, health: ServerHealth) -> None:
        """Get an item's answer from another evaluation that is requesting it, or from the server."""
        key = self._key(item)
        text = await session.pending_answer(key)
        if text is not None and self._is_accepted(item, text):
            return
        with session.announced(key) as publish:
            # Another evaluation or process may have stored the answer since this one began.
            if self._is_cached(item, key):
                return
            text = await self._accepted_answer(item, session, health)
            if text is None:
                return
            if self._cache is not None:
                self._cache.put(key, text)
            publish(text)

    async def _accepted_answer(self, item: Item, session: Session, health: ServerHealth) -> str | None:
        """Request answers until the task accepts one. Record the result or the last failure."""
        failure = JudgeFailure("malformed", "no answer was requested")
        for rejected in range(self._settings.max_reasks + 1):
            if rejected:
                self._client.usage.add(retries=1)
            try:
                text = await self._client.answer(self._task, item, rejected, session, health)
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
        if self._is_accepted(item, text):
            return True
        self._cache.drop(key)
        return False

    def _is_accepted(self, item: Item, text: str) -> bool:
        """Whether the task accepts an answer that was not requested by this evaluation. Record its result."""
        try:
            self._outcomes[item] = self._task.parse(item, text)
        except AnswerError:
            return False
        self._client.usage.add(cached=1)
        return True

    def _fail(self, item: Item, failure: JudgeFailure) -> None:
        self._outcomes[item] = failure
        self._client.usage.fail(failure.kind)


@contextmanager
def _progress_bar(description: str, total: int, show: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if ``show`` is set and standard error is a terminal.

    Yields:
        A function to call after each item.
    """
    if not show:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
