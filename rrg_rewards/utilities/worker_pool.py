"""Worker processes: each calls one function. All processes of this package that compute are started here."""

import gc
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver, get_context, parent_process
from typing import Any, Generic, TypeVar

from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.settings import MAX_WORKERS, SettingError

Key = TypeVar("Key")
Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks per worker that are sent, or computed and not yet taken, so that memory does not grow with their number.
_AHEAD = 8

# Seconds within which a signal to all processes of a job reaches all of them.
_SIGNAL_DELAY = 1.0

# What the function of most pools needs, imported once by the process that workers are forked from.
_PRELOADED = ("torch", "torchmetrics", "rrg_rewards.metrics.base", "rrg_rewards.metrics.registry")


LABELER_MODULES = ("torch", "rrg_rewards.labelers.rules")
"""What workers need that only label reports: no torchmetrics."""


def worker_count(workers: int) -> int:
    """Return the number of worker processes of a setting, in which 0 is one for each available core.

    Raises:
        SettingError: If the number is negative or no integer.

    Example:
        >>> worker_count(2), worker_count(0) >= 1
        (2, True)
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= MAX_WORKERS:
        raise SettingError("workers", f"must be 0 or a positive integer, at most {MAX_WORKERS}, got {workers!r}")
    if workers:
        return workers
    # A container or a batch system may give fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_workers(modules: Sequence[str] = _PRELOADED) -> None:
    """Start to import what workers need, in the background, where workers are forked from a process for this purpose.

    A command calls it before its own imports, so that both take place at the same time. The first call in a process
    decides what is imported; workers import what is missing themselves.

    Args:
        modules: Names of modules. Default: those of metrics.
    """
    if _start_method() == "forkserver":
        forkserver.set_forkserver_preload([*modules])
        forkserver.ensure_running()


class WorkerPool(Generic[Task, Result]):
    """Processes that call a function of tasks. They end with the ``with`` block.

    Each process gets one copy of the function by pickling. Warnings of the function are raised again in this process,
    each different one once. An interrupt from the keyboard does not reach the processes.

    Args:
        function: A picklable function.
        workers: Number of processes, or 0 for one for each available core.
        modules: Modules that the function needs, as for :func:`prepare_workers`.
        name: What the function is, for the error if it cannot be pickled.

    Raises:
        SettingError: If the function cannot be pickled, or several workers would have copies of a model or of a
            language model (:attr:`~rrg_rewards.utilities.backend.Backend.worker_refusal`).

    Example:
        >>> with WorkerPool(len, workers=1) as pool:                                            # doctest: +SKIP
        ...     [(word, length()) for word, length in pool.map((word, word) for word in ("one", "three"))]
        [('one', 3), ('three', 5)]
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        workers: int,
        modules: Sequence[str] = _PRELOADED,
        name: str = "a function",
    ) -> None:
        self.workers = worker_count(workers)
        content = _pickled(function, name, is_copied=self.workers > 1)
        prepare_workers(modules)
        context = get_context(_start_method())
        # One for each process, so that a task can be given to one of them.
        self._executors = [
            ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(content,))
            for _ in range(self.workers)
        ]
        self._unfinished: list[deque[Future[bytes]]] = [deque() for _ in self._executors]
        # A process starts with its first task, and imports while this one reads its input.
        for executor in self._executors:
            executor.submit(_ready)
        self._warned: set[tuple[type[Warning], str]] = set()

    def __enter__(self) -> "WorkerPool[Task, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        # All are cancelled before the first process is waited for.
        for wait in (False, True):
            for executor in self._executors:
                executor.shutdown(wait=wait, cancel_futures=True)

    def submit(self, task: Task, place: int | None = None) -> Callable[[], Result]:
        """Start to compute a result, and return a function that waits for it.

        The function returns the result, or raises the exception of the pool's function, and raises its warnings in this
        process. It raises ``ChildProcessError`` if a worker was killed.

        Args:
            task: The task.
            place: A number. The tasks of one number are computed by the same process, which remembers what it has read;
                ``None`` for the process with the fewest tasks.
        """
        content = _pickled(task, "a task of workers", is_copied=False)
        counts = list(map(self._count, range(self.workers)))
        number = counts.index(min(counts)) if place is None else place % self.workers
        try:
            future = self._executors[number].submit(_call, content)
        except BrokenProcessPool as error:
            # Raised in the place of the result, after those that are complete.
            future = Future()
            future.set_exception(error)
        self._unfinished[number].append(future)
        return partial(self._result, future)

    def _result(self, future: "Future[bytes]") -> Result:
        try:
            content = future.result()
        except BrokenProcessPool as error:
            # A system that ends a job sends the signal to all its processes; that of this one may come a moment later.
            time.sleep(_SIGNAL_DELAY)
            raise ChildProcessError(
                "a worker process was killed, perhaps because memory was full, or could not start (a script starts "
                'workers below if __name__ == "__main__":). Results are missing: run again, with fewer workers'
            ) from error
        # Pickled by the worker, because torch sends tensors between processes as open files.
        result, failure, caught = pickle.loads(content)
        for message, category, place in caught:
            if (category, str(message)) not in self._warned:
                self._warned.add((category, str(message)))
                warnings.warn_explicit(message, category, *place)
        if failure is not None:
            raised, trace = failure
            raise raised from RuntimeError(f"in a worker process:\n{trace}")
        returned: Result = result
        return returned

    def _count(self, number: int) -> int:
        """Return how many tasks a process has not finished, and forget the others; it computes them in turn."""
        futures = self._unfinished[number]
        while futures and futures[0].done():
            futures.popleft()
        return len(futures)

    def map(
        self, tasks: Iterable[tuple[Key, Task]], place: Callable[[Key], int] | None = None
    ) -> Iterator[tuple[Key, Callable[[], Result]]]:
        """Yield the key of each task with a function that waits for its result, in order.

        Some tasks ahead of the yielded one are read and computed, but no more than memory should hold. The exceptions
        of the function and of ``tasks`` are raised in their place in the order, as one process would raise them.

        Args:
            tasks: Keys and tasks.
            place: Returns the number of a key, as for :meth:`submit`.
        """
        waiting: deque[tuple[Key, Callable[[], Result]]] = deque()
        failure: Exception | None = None
        remaining = iter(tasks)
        is_complete = False
        while waiting or not is_complete:
            while not is_complete and len(waiting) < _AHEAD * self.workers:
                try:
                    key, task = next(remaining)
                except StopIteration:
                    is_complete = True
                except Exception as error:
                    failure, is_complete = error, True
                else:
                    waiting.append((key, self.submit(task, None if place is None else place(key))))
            if waiting:
                yield waiting.popleft()
        if failure is not None:
            raise failure


@contextmanager
def optional_pool(
    function: Callable[[Task], Result], workers: int, modules: Sequence[str] = _PRELOADED, name: str = "a function"
) -> Iterator[WorkerPool[Task, Result] | None]:
    """Start a pool for :func:`calls`, or yield ``None`` if the number of workers is 1.

    Args:
        function: As for :class:`WorkerPool`.
        workers: As for :class:`WorkerPool`.
        modules: As for :class:`WorkerPool`.
        name: As for :class:`WorkerPool`.
    """
    if worker_count(workers) == 1:
        yield None
    else:
        with WorkerPool(function, workers, modules, name) as pool:
            yield pool


def calls(
    function: Callable[[Task], Result],
    tasks: Iterable[tuple[Key, Task]],
    pool: WorkerPool[Task, Result] | None,
    place: Callable[[Key], int] | None = None,
) -> Iterator[tuple[Key, Callable[[], Result]]]:
    """Yield the key of each task with a function that returns its result, as :meth:`WorkerPool.map`.

    Args:
        function: The function of the pool.
        tasks: Keys and tasks.
        pool: The pool; ``None`` to call the function in this process.
        place: As for :meth:`WorkerPool.map`.

    Example:
        >>> [(key, result()) for key, result in calls(len, [("a", "one"), ("b", "three")], None)]
        [('a', 3), ('b', 5)]
    """
    if pool is not None:
        yield from pool.map(tasks, place)
        return
    for key, task in tasks:
        yield key, partial(function, task)


class _Pickler(pickle.Pickler):
    """Refuses backends of which processes must not have a copy each."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Backend) and obj.worker_refusal is not None:
            raise SettingError("workers", obj.worker_refusal)
        return NotImplemented


def _pickled(value: Any, name: str, is_copied: bool) -> bytes:
    """Return an object as workers get it; it is refused if several would get a copy that they must not have."""
    content = io.BytesIO()
    try:
        (_Pickler if is_copied else pickle.Pickler)(content, pickle.HIGHEST_PROTOCOL).dump(value)
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            "workers",
            f"{name} cannot be pickled for worker processes: {error}. Define it at the top level of a module, or "
            "compute in this process",
        ) from error
    return content.getvalue()


def _start_method() -> str:
    # Workers are not forked from this process: a fork inherits the locks of torch's and OpenMP's threads in whatever
    # state they are. They are forked from a process that has imported torch and never computes, so that it has no such
    # threads, and all workers share the memory of its imports. On macOS, system libraries do not work after a fork.
    return "forkserver" if sys.platform == "linux" else "spawn"


# The function of a worker.
_functions: list[Callable[[Any], Any]] = []


def _start(function: bytes) -> None:
    # An interrupt from the keyboard reaches all processes. The main process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # This process has reports in memory.
    when_parent_ends(lambda: os._exit(1))
    # A collection would write to all inherited objects, and copy their memory.
    gc.freeze()
    import torch

    # The other cores have workers.
    torch.set_num_threads(1)
    _functions.append(pickle.loads(function))


def _ready() -> None:
    pass


def _call(task: bytes) -> bytes:
    """Return the pickled result, the exception with its traceback, and the warnings of a call."""
    result = failure = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = _functions[0](pickle.loads(task))
        except Exception as error:
            failure = _sendable(error), traceback.format_exc()
    raised = [(one.message, one.category, (one.filename, one.lineno)) for one in caught]
    return pickle.dumps((result, failure, raised), pickle.HIGHEST_PROTOCOL)


def _sendable(error: Exception) -> Exception:
    """Return the exception, or an error with its name and message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def when_parent_ends(action: Callable[[], object]) -> None:
    """Call a function, in a thread of this worker, when the process that started it has ended or was killed."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        action()

    threading.Thread(target=wait, name="rrg-rewards-parent-process", daemon=True).start()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread in the block, or in the decorated function.

    Many operations on small tensors are slower with several threads, above all if other processes use the cores. Sums
    of long tensors do not depend on the number of cores.

    Example:
        >>> import torch
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def divided(count: int, size: int) -> Sequence[slice]:
    """Return slices of at most ``size`` of ``count`` items, in order.

    Example:
        >>> divided(5, 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    return [slice(start, start + size) for start in range(0, count, size)]
