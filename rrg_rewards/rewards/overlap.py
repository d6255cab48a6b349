"""When rewards are computed in the background: their share of the time, and the cores that the policy leaves."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rrg_rewards.utilities.processes import num_processes
from rrg_rewards.utilities.worker_pool import worker_count

SHARE = 0.01
"""The share of a run above which rewards in the background are proposed, or chosen."""

PART = 1 / 4
"""Fraction of a batch that must have ended before it is scored: smaller parts cost more switches between threads."""

# The number of batches after which the share is computed.
_BATCHES = 5


class RewardClock:
    """Measures the share of rewards in the time of the first batches of completions, without the very first.

    Example:
        >>> clock = RewardClock()
        >>> for batch in range(9):
        ...     if clock.count_batch():
        ...         print(batch, 0 <= clock.share <= 1)
        ...     with clock.timed():
        ...         rewards = [0.5]
        6 True
    """

    def __init__(self) -> None:
        self.share = 0.0
        """Time of the rewards over all time, once :meth:`count_batch` has returned true."""
        self._seconds = 0.0
        self._batches = 0
        self._started = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the duration of the block, in which rewards are computed."""
        start = time.perf_counter()
        yield
        self._seconds += time.perf_counter() - start

    def count_batch(self) -> bool:
        """Count a batch whose sampling begins; return whether the share is known now, which happens once.

        The first batch, in which functions may load models, does not count.
        """
        now = time.perf_counter()
        if self._batches == 1:
            self._started, self._seconds = now, 0.0
        is_known = self._batches == _BATCHES + 1
        if is_known:
            self.share = self._seconds / (now - self._started)
        self._batches += 1
        return is_known


def has_free_core(uses_cpu: bool) -> bool:
    """Return whether the policies of this machine's processes leave a core for rewards.

    Args:
        uses_cpu: Whether the policy computes on the CPU.
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes()))
    return not uses_cpu or worker_count(0) > processes * torch.get_num_threads()
