"""Communicate between the processes of a distributed job, and run coroutines from synchronous code."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


def gather_objects(own: T) -> list[T]:
    """Return the objects of all processes, in the order of ranks. Every process must call this function.

    Args:
        own: Object of this process; it must be picklable.

    Example:
        >>> gather_objects({"reports": 3})
        [{'reports': 3}]
    """
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    parts: list[T] = [own] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    return parts


def num_processes() -> int:
    """Return the number of processes of the job, or 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_index() -> int:
    """Return the rank of this process, or 0 without a process group."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def any_process(value: bool, device: torch.device) -> bool:
    """Return whether the value is true in any process of the job. Every process must call this function.

    Args:
        value: Value of this process.
        device: Device of the process, on which its backend communicates.

    Example:
        >>> any_process(True, torch.device("cpu"))
        True
    """
    if num_processes() == 1:
        return value
    flag = torch.tensor(int(value), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code and return its result.

    If this thread already runs an event loop, as in a notebook, the coroutine runs in another thread. An interrupt of
    this thread cancels it.

    Example:
        >>> async def answer():
        ...     return 42
        >>> run_coroutine(answer())
        42
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    tasks: list[asyncio.Task[Any]] = []

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        return await coroutine

    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rrg-rewards")
    try:
        return executor.submit(asyncio.run, cancellable()).result()
    except KeyboardInterrupt:
        for task in tasks:
            with suppress(RuntimeError):  # The event loop may be closed by now.
                task.get_loop().call_soon_threadsafe(task.cancel)
        executor.shutdown(wait=True)
        raise
    finally:
        executor.shutdown(wait=False)
