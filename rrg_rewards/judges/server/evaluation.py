"""Evaluation of a batch with answers from the cache, from other evaluations or from the server."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic

from rrg_rewards.judges.base import AnswerError, Item, JudgeFailure, JudgeTask, Result
from rrg_rewards.judges.server.cache import AnswerCache
from rrg_rewards.judges.server.client import ChatClient
from rrg_rewards.judges.server.concurrency import for_each
from rrg_rewards.judges.server.progress import progress_bar
from rrg_rewards.judges.server.requests import answer_key
from rrg_rewards.judges.server.retries import CallError, ServerWatch
from rrg_rewards.judges.server.session import Session

__all__ = ["Evaluation"]

# Number of cache look-ups between yields to the event loop.
_LOOK_UPS = 64


class Evaluation(Generic[Item, Result]):
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
        unique = [item for item in dict.fromkeys(self._items) if not self._is_refused(item)]
        with progress_bar("judging", len(unique), self._settings.progress) as done:
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
        watch = ServerWatch(self._settings.concurrency, asyncio.get_running_loop().time)

        async def evaluate(item: Item) -> None:
            await self._evaluate(item, session, watch)
            done()

        await for_each(items, evaluate, workers=self._settings.concurrency, deadline=deadline)

    async def _evaluate(self, item: Item, session: Session, watch: ServerWatch) -> None:
        """Get an item's answer from another evaluation that is requesting it, or from the server."""
        key = self._key(item)
        text = await session.pending_answer(key)
        if text is not None and self._is_accepted(item, text):
            return
        with session.announced(key) as publish:
            # Another evaluation or process may have stored the answer since this one began.
            if self._is_cached(item, key):
                return
            text = await self._accepted_answer(item, session, watch)
            if text is None:
                return
            if self._cache is not None:
                self._cache.put(key, text)
            publish(text)

    async def _accepted_answer(self, item: Item, session: Session, watch: ServerWatch) -> str | None:
        """Request answers until the task accepts one. Record the result or the last failure."""
        failure = JudgeFailure("malformed", "no answer was requested")
        for rejected in range(self._settings.max_reasks + 1):
            if rejected:
                self._client.usage.add(retries=1)
            try:
                text = await self._client.answer(self._task, item, rejected, session, watch)
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
