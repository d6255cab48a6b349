"""A time limit of the rewards of a training step, after which a run ends instead of waiting forever."""

import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rrg_rewards.rewards.base import is_asynchronous
from rrg_rewards.utilities.processes import num_processes, process_index

REWARD_TIMEOUT = 1200.0
"""Default number of seconds: less than the 1,800 s for which processes wait for each other."""
# A reward may catch the first error, for example to repeat a request.
_REPEAT = 60.0


class RewardTimeoutError(RuntimeError):
    """The rewards of a training step took too long."""


def check_reward_timeout(seconds: float | None) -> None:
    """Raise ``ValueError`` unless a time limit is positive or ``None``."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"reward_timeout must be a positive number of seconds, or None (null), got {seconds}")


class RewardDeadline:
    """Raises :class:`RewardTimeoutError` in the block if rewards take too long.

    It uses the alarm of the process (``SIGALRM``), which also ends waits in the system. Only the main thread can set
    it; in another thread, and on Windows, there is no limit. The limit does not end code that never returns to Python.

    Args:
        seconds: Time limit; ``None`` for no limit.
        names: Names of the rewards, for the message.

    Raises:
        ValueError: If the limit is not positive.

    Example:
        >>> import time
        >>> with RewardDeadline(0.1, ["crimson"]):
        ...     time.sleep(60)
        Traceback (most recent call last):
        ...
        rrg_rewards.rewards.deadline.RewardTimeoutError: rank 0 of 1 ...: the reward crimson has not returned after ...
    """

    def __init__(self, seconds: float | None, names: Sequence[str]) -> None:
        check_reward_timeout(seconds)
        self.seconds = seconds
        self.waiting = list(names)
        self._before: tuple[Any, tuple[float, float]] | None = None

    def __enter__(self) -> "RewardDeadline":
        is_main = threading.current_thread() is threading.main_thread()
        if self.seconds is not None and is_main and hasattr(signal, "setitimer"):
            handler = signal.signal(signal.SIGALRM, self._end)
            timer = signal.setitimer(signal.ITIMER_REAL, self.seconds, min(self.seconds, _REPEAT))
            self._before = (handler, timer)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            # None is a handler that was not set by Python.
            signal.signal(signal.SIGALRM, self._before[0] or signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, *self._before[1])
            self._before = None

    def watched(self, functions: Sequence[Any]) -> list[Callable[..., Any]]:
        """Wrap functions, one for each name, so that the limit ends when the last of them has returned.

        What follows them in the block, such as the wait for other processes, then has no limit.
        """
        return [self._watched(function, name) for function, name in zip(functions, list(self.waiting), strict=True)]

    def _watched(self, function: Any, name: str) -> Callable[..., Any]:
        async def call_async(*args: Any, **arguments: Any) -> Any:
            rewards = await function(*args, **arguments)
            self._returned(name)
            return rewards

        def call(*args: Any, **arguments: Any) -> Any:
            rewards = function(*args, **arguments)
            self._returned(name)
            return rewards

        return call_async if is_asynchronous(function) else call

    def _returned(self, name: str) -> None:
        self.waiting.remove(name)
        if not self.waiting and self._before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _end(self, *_: Any) -> None:
        which = "the reward" if len(self.waiting) == 1 else "one of the rewards"
        raise RewardTimeoutError(
            f"rank {process_index()} of {num_processes()} on {socket.gethostname()}: {which} "
            f"{', '.join(self.waiting)} has not returned after {self.seconds:g} s; other processes would wait for it. "
            "If rewards may take so long, set reward_timeout to a larger number of seconds, or to null (None) for no "
            "limit, and the timeout of the process group (ddp_timeout) as well"
        )
