"""A judge that answers with texts, one item after another, without a server."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rrg_rewards.judges.base import AnswerError, Judge, JudgeFailure, JudgeTask


class AnsweringJudge(Judge):
    """Answers items with the texts of a function, which may raise an error or send a signal.

    Args:
        answer: Function that returns the answer of an item.
        name: Signature of the judge.
        in_thread: Whether the answers are made in a thread, as those of a local model.
    """

    def __init__(self, answer: Callable[[Any], str], name: str = "answering", in_thread: bool = False) -> None:
        self.answer = answer
        self.name = name
        self.in_thread = in_thread
        self.asked: list[Any] = []
        self._is_cancelled = threading.Event()

    def arguments(self) -> dict[str, Any]:
        return {"answer": self.answer, "name": self.name, "in_thread": self.in_thread}

    @property
    def signature(self) -> str:
        return self.name

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C from the thread of the answers, and wait until their caller is cancelled."""
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1200):
            if self._is_cancelled.wait(0.05):
                return
            # A loop that was about to wait when the signal came handles it with the next call.
            self._loop.call_soon_threadsafe(lambda: None)
        raise TimeoutError("the interrupt did not cancel the call in a minute")

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        if self.in_thread:
            self._loop = asyncio.get_running_loop()
            try:
                return await asyncio.to_thread(lambda: [self._result(task, item) for item in items])
            except asyncio.CancelledError:
                # The caller's handlers of the error have run when the loop calls this.
                self._loop.call_soon(self._is_cancelled.set)
                raise
        results = []
        for item in items:
            await asyncio.sleep(0)
            results.append(self._result(task, item))
        return results

    def _result(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        self.asked.append(item)
        try:
            return task.parse(item, self.answer(item))
        except AnswerError as error:
            return JudgeFailure(error.kind, str(error))
