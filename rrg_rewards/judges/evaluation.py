"""One batch of items put to a model: what is known already, what another asks, what has to be asked, what failed."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rrg_rewards.judges.base import AnswerError, JudgeFailure, JudgeTask
from rrg_rewards.judges.batches import for_each
from rrg_rewards.judges.cache import AnswerCache
from rrg_rewards.judges.progress import progress_bar
from rrg_rewards.judges.retries import CallError, ServerWatch
from rrg_rewards.judges.session import Session, Sessions
from rrg_rewards.judges.usage import UsageCounter

__all__ = ["Evaluation", "Limits"]

# Items looked up in the cache before others in the event loop have their turn.
_LOOK_UPS = 64

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """Bounds of a batch.

    Args:
        concurrency: Items asked at a time.
        batch_deadline: Seconds for the whole batch, or ``None``.
        max_reasks: Further answers asked for where the task rejects one.
    """

    concurrency: int
    batch_deadline: float | None
    max_reasks: int


class Evaluation(Generic[Item, Result]):
    """Evaluate items with a model that is called over a network.

    Args:
        task: What to ask, and what answers count.
        items: The items; equal ones are asked once.
        key: Names what an item's answer depends on.
        call: Gets an answer's text: of a session, what is known of the server, an item, and how many answers of it
            were rejected; raises :class:`CallError` where there is none, or :class:`AnswerError` for one without text.
        limits: Bounds of the batch.
        usage: Where to count.
        cache: Where good answers are kept, if they are.

    """

    def __init__(
        self,
        task: JudgeTask[Item, Result],
        items: Sequence[Item],
        *,
        key: Callable[[Item], str],
        call: Callable[[Session, ServerWatch, Item, int], Awaitable[str]],
        limits: Limits,
        usage: UsageCounter,
        cache: AnswerCache | None,
    ) -> None:
        self._outcomes: dict[Item, Result | JudgeFailure] = {}
        self._task = task
        self._items = items
        self._key = key
        self._call = call
        self._limits = limits
        self._usage = usage
        self._cache = cache

    async def run(self, sessions: Sessions, show_progress: bool = False) -> list[Result | JudgeFailure]:
        """Evaluate the items.

        Returns:
            For each item its result, or why there is none.
        """
        seconds = self._limits.batch_deadline
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        unique = list(dict.fromkeys(self._items))
        with progress_bar("judging", len(unique), show_progress) as done:
            try:
                unknown = await self._recall(unique, done)
                if unknown:
                    async with sessions.session() as session:
                        await self._ask_all(unknown, session, deadline, done)
            finally:
                if self._cache is not None:
                    self._cache.close()
        for item in unique:
            if item not in self._outcomes:
                self._fail(item, JudgeFailure("deadline", f"the batch was not done within {seconds:g} s"))
        return [self._outcomes[item] for item in self._items]

    async def _recall(self, items: Sequence[Item], done: Callable[[], None]) -> list[Item]:
        """Take what the cache holds, and return the items that it does not."""
        if self._cache is None:
            return list(items)
        unknown = []
        for number, item in enumerate(items):
            if self._is_cached(item, self._key(item)):
                done()
            else:
                unknown.append(item)
            if number % _LOOK_UPS == 0:
                await asyncio.sleep(0)
        return unknown

    async def _ask_all(
        self, items: Sequence[Item], session: Session, deadline: float | None, done: Callable[[], None]
    ) -> None:
        watch = ServerWatch(self._limits.concurrency, asyncio.get_running_loop().time)

        async def ask(item: Item) -> None:
            await self._ask(item, session, watch)
            done()

        await for_each(items, ask, workers=self._limits.concurrency, deadline=deadline)

    async def _ask(self, item: Item, session: Session, watch: ServerWatch) -> None:
        """Get an item's answer, of another evaluation that asks for it, or of the model."""
        key = self._key(item)
        text = await session.answer_of_another(key)
        if text is not None and self._is_accepted(item, text):
            return
        with session.asking(key) as publish:
            # Another evaluation or process may have asked since this one began.
            if self._is_cached(item, key):
                return
            text = await self._good_answer(item, session, watch)
            if text is None:
                return
            if self._cache is not None:
                self._cache.put(key, text)
            publish(text)

    async def _good_answer(self, item: Item, session: Session, watch: ServerWatch) -> str | None:
        """Ask until an answer counts; note its result, or why there is none."""
        failure = JudgeFailure("malformed", "no answer was asked for")
        for rejected in range(self._limits.max_reasks + 1):
            if rejected:
                self._usage.add(retries=1)
            try:
                text = await self._call(session, watch, item, rejected)
                self._outcomes[item] = self._task.parse(item, text)
            except AnswerError as error:
                failure = JudgeFailure(error.kind, str(error))
            except CallError as error:
                failure = JudgeFailure(error.kind, str(error))
                break
            else:
                return text
        self._fail(item, failure)
        return None

    def _is_cached(self, item: Item, key: str) -> bool:
        """Whether the cache holds an answer that counts; one that does not is dropped."""
        text = None if self._cache is None else self._cache.get(key)
        if self._cache is None or text is None:
            return False
        if self._is_accepted(item, text):
            return True
        self._cache.drop(key)
        return False

    def _is_accepted(self, item: Item, text: str) -> bool:
        """Whether an answer that was asked for elsewhere counts for an item."""
        try:
            self._outcomes[item] = self._task.parse(item, text)
        except AnswerError:
            return False
        self._usage.add(cached=1)
        return True

    def _fail(self, item: Item, failure: JudgeFailure) -> None:
        self._outcomes[item] = failure
        self._usage.fail(failure.kind)
