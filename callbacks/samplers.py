"""Sharing reports out to processes so that each one is scored exactly once."""

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.distributed as dist
from torch.utils.data import DistributedSampler

__all__ = ["UnpaddedDistributedSampler", "count_misshared"]


class UnpaddedDistributedSampler(DistributedSampler[Any]):
    """Gives each process every ``world_size``-th report, in order, without repeating any.

    The sampler that Lightning puts into a validation loader gives every process the same number of reports by
    repeating some, so the corpus value counts those twice. Processes may get one report more or less here, which is
    what the metrics are made for. It looks up the process group when it is iterated, so a loader may be built before
    the processes start, and a single process gets all reports.

    There must be at least as many reports as processes: Lightning refuses a process without data, unless the module
    sets ``allow_zero_length_dataloader_with_multiple_devices``. Not for training, where every process must run as many
    steps as the others.

    Args:
        dataset: Anything with a length.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> reports = ["No effusion.", "Cardiomegaly.", "Hiatal hernia."]
        >>> list(DataLoader(reports, sampler=UnpaddedDistributedSampler(reports), batch_size=2))
        [['No effusion.', 'Cardiomegaly.'], ['Hiatal hernia.']]
    """

    def __init__(self, dataset: Sized) -> None:
        # One replica: no padding is planned. The real number of processes is asked for when it is needed.
        super().__init__(dataset, num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # only its length

    def _rows(self) -> range:
        running = dist.is_available() and dist.is_initialized()
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if running else (0, 1)
        return range(rank, self.total_size, world_size)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())


def count_misshared(loaders: object) -> int:
    """Count the reports that distributed samplers repeat (or, with ``drop_last``, leave out).

    Args:
        loaders: A data loader, or lists and dicts of them.

    Example:
        >>> from torch.utils.data import DataLoader, DistributedSampler
        >>> reports = ["No effusion."] * 11
        >>> count_misshared(DataLoader(reports, sampler=DistributedSampler(reports, num_replicas=2, rank=0)))
        1
    """
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return sum(count_misshared(loader) for loader in loaders)
    sampler = getattr(loaders, "sampler", None)
    dataset = getattr(sampler, "dataset", None)
    if not isinstance(sampler, DistributedSampler) or not isinstance(dataset, Sized):
        return 0
    return abs(sampler.total_size - len(dataset))
