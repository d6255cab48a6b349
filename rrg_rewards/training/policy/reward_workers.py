"""Rewards in the background: a thread or a process that scores completions while the policy computes."""

import pickle
import signal
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Literal

import torch
from lightning.pytorch import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from rrg_rewards.training.policy.rewards import RewardSet, RewardTable

OverlapName = Literal["thread", "process"]
"""What scores completions in the background."""

# The share of a run above which rewards in the background are proposed, and the rollouts after which it is computed.
_SHARE, _ROLLOUTS = 0.01, 5


class RewardWorker:
    """Calls reward functions in a background thread, one call at a time and in the order of :meth:`submit`.

    Args:
        rewards: The reward functions.
        kind: ``"thread"``; or ``"process"`` for functions that hold Python's global lock, which the thread then calls
            in a process of their own. The process gets the states of the functions before a call and returns them after
            it.

    Raises:
        TypeError: If a reward function cannot be pickled for the process; the message names it.
    """

    def __init__(self, rewards: RewardSet, kind: OverlapName) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewards")
        self._process = _RewardProcess(rewards) if kind == "process" else None
        self._call: Callable[[dict[str, Any]], RewardTable] = self._process or rewards.score

    def submit(self, arguments: dict[str, Any]) -> Callable[[], RewardTable]:
        """Start a call with :meth:`RewardSet.arguments`; return a function that waits for the result.

        An exception of a reward function is raised there.
        """
        return self._executor.submit(self._without_gradient, arguments).result

    def close(self) -> None:
        """End the process, and the thread after its current call."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.close()

    def _without_gradient(self, arguments: dict[str, Any]) -> RewardTable:
        # The setting belongs to a thread.
        with torch.no_grad():
            return self._call(arguments)


class _RewardProcess:
    def __init__(self, rewards: RewardSet) -> None:
        self._rewards = rewards
        for name, function in zip(rewards.names, rewards.functions, strict=True):
            try:
                pickle.dumps(function)
            except Exception as error:
                raise TypeError(
                    f"reward {name!r} cannot be pickled for the process of overlap_rewards='process': {error}; define "
                    "it at the top level of a module, or set overlap_rewards='thread'"
                ) from error
        # A forked process could inherit locks of torch's threads.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, rewards), daemon=True, name="rewards")
        self._process.start()
        theirs.close()

    def __call__(self, arguments: dict[str, Any]) -> RewardTable:
        self._connection.send((arguments, self._rewards.state_dict()))
        try:
            table, state, error, trace = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the process of the rewards ended with exit code {self._process.exitcode}") from None
        if error is not None:
            raise error from RuntimeError(f"in the process of the rewards:\n{trace}")
        self._rewards.load_state_dict(state)
        scored: RewardTable = table
        return scored

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _serve(connection: Connection, rewards: RewardSet) -> None:
    """Answer the calls of :class:`_RewardProcess` until it closes the connection."""
    # An interrupt from the keyboard reaches all processes. The main process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            arguments, state = connection.recv()
        except EOFError:
            return
        try:
            rewards.load_state_dict(state)
            with torch.no_grad():
                table = rewards.score(arguments)
            connection.send((table, rewards.state_dict(), None, ""))
        except Exception as error:
            connection.send((None, {}, _sendable(error), traceback.format_exc()))


def _sendable(error: Exception) -> Exception:
    """Return the exception, or an error with its name and message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class CloseRewards(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Ends the worker of a policy module's rewards with the run, also after an exception or an interrupt."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Close the worker."""
        pl_module.close_rewards()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Close the worker."""
        pl_module.close_rewards()


class RewardClock:
    """Measures the share of rewards in the time of a run, and proposes once to compute them in the background."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._rollouts = 0
        self._started = 0.0

    def time(self, call: Callable[[], RewardTable]) -> RewardTable:
        """Return the result of a call, and add its duration."""
        start = time.perf_counter()
        table = call()
        self._seconds += time.perf_counter() - start
        return table

    def count_rollout(self) -> None:
        """Count a rollout that begins. The first one, in which functions may load models, does not count."""
        now = time.perf_counter()
        if self._rollouts == 1:
            self._started, self._seconds = now, 0.0
        if self._rollouts == _ROLLOUTS + 1:
            share = self._seconds / (now - self._started)
            if share > _SHARE:
                rank_zero_info(
                    f"rewards take {share:.0%} of the time; overlap_rewards='thread' (judges) or 'process' (rules) "
                    "computes them while the policy computes"
                )
        self._rollouts += 1


def check_overlap(kind: Any) -> None:
    """Raise ``ValueError`` unless the setting is known."""
    if kind not in (None, "thread", "process"):
        raise ValueError(f"overlap_rewards must be None, 'thread' or 'process', got {kind!r}")
