"""Distributed sampling without padding, so that each report is scored exactly once."""

from collections.abc import Iterator, Mapping, Sized
from typing import Any

from torch.utils.data import DistributedSampler

from rrg_rewards.utilities.processes import num_processes, process_index


class UnpaddedDistributedSampler(DistributedSampler[Any]):
    """Assigns every ``world_size``-th report to each process, in order and without repetition.

    The sampler that Lightning inserts into a validation loader repeats reports so that every process has the same
    number of reports. The corpus value then counts the repeated reports twice. With this sampler the numbers of reports
    may differ by one, which the metrics support. The sampler reads the process group when it is iterated. A loader can
    therefore be built before the processes start. A single process gets all reports.

    With fewer reports than processes, a process without a report gets the first one (:attr:`is_repeated`), because
    Lightning rejects a process without a batch, and hooks of the others would wait for it.
    :class:`~rrg_rewards.callbacks.ReportMetricsCallback` does not count it. Do not use this sampler for training,
    because all processes must then run the same number of steps.

    Args:
        dataset: Data set with a length.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> reports = ["No effusion.", "Cardiomegaly.", "Hiatal hernia."]
        >>> list(DataLoader(reports, sampler=UnpaddedDistributedSampler(reports), batch_size=2))
        [['No effusion.', 'Cardiomegaly.'], ['Hiatal hernia.']]
    """

    def __init__(self, dataset: Sized) -> None:
        # With one replica there is no padding. `_rows` reads the actual number of processes.
        super().__init__(dataset, num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # only its length

    @property
    def is_repeated(self) -> bool:
        """Whether this process has no report of its own and gets one of another process."""
        return process_index() >= self.total_size > 0

    def _rows(self) -> range:
        return range(1) if self.is_repeated else range(process_index(), self.total_size, num_processes())

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())


def samplers_of(loaders: object) -> list[Any]:
    """Return the samplers of a data loader, or of lists and dicts of loaders in their order; ``None`` without one."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return [sampler for loader in loaders for sampler in samplers_of(loader)]
    return [getattr(loaders, "sampler", None)]


def count_misshared(loaders: object) -> int:
    """Return the number of reports that distributed samplers repeat, or leave out with ``drop_last``.

    Args:
        loaders: Data loader, or lists and dicts of data loaders.

    Example:
        >>> from torch.utils.data import DataLoader, DistributedSampler
        >>> reports = ["No effusion."] * 11
        >>> count_misshared(DataLoader(reports, sampler=DistributedSampler(reports, num_replicas=2, rank=0)))
        1
    """
    return sum(
        abs(sampler.total_size - len(sampler.dataset))
        for sampler in samplers_of(loaders)
        if isinstance(sampler, DistributedSampler) and isinstance(sampler.dataset, Sized)
    )
