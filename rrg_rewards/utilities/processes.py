"""What processes of one job tell each other besides tensors."""

from typing import TypeVar

import torch.distributed as dist

__all__ = ["gather_objects", "num_processes", "process_index"]

_T = TypeVar("_T")


def gather_objects(own: _T) -> list[_T]:
    """Give every process what each has, by rank; every process must call it.

    Args:
        own: What this process has; it must pickle. It stays among the job's own processes.

    Example:
        >>> gather_objects({"reports": 3})
        [{'reports': 3}]
    """
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    parts: list[_T] = [own] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    return parts


def num_processes() -> int:
    """Number of the job's processes, 1 where there is no group of them."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_index() -> int:
    """This process' place among the job's processes, 0 where it is alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
