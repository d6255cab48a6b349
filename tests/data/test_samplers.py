"""Distributed sampling: each report exactly once, and the count of repeated reports."""

from unittest.mock import patch

import pytest
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from rrg_rewards.data.samplers import UnpaddedDistributedSampler, count_misshared


@pytest.mark.parametrize(("reports", "processes"), [(11, 2), (12, 2), (11, 3), (2, 3), (0, 2)])
def test_sampler_each_report_exactly_once(reports: int, processes: int) -> None:
    # Built before there is a process group, as a loader given to `trainer.fit` is.
    sampler = UnpaddedDistributedSampler(range(reports))
    loader = DataLoader(range(reports), sampler=sampler, batch_size=2)
    drawn = []
    with patch.multiple(dist, is_initialized=lambda: True, get_world_size=lambda: processes):
        for rank in range(processes):
            with patch.object(dist, "get_rank", lambda rank=rank: rank):
                batches = [batch.tolist() for batch in loader]
                assert len(batches) == len(loader)
                assert batches or not reports
                if sampler.is_repeated:
                    assert batches == [[0]]
                else:
                    drawn += [place for batch in batches for place in batch]
    assert sorted(drawn) == list(range(reports))


def test_sampler_one_process_draws_all_in_order() -> None:
    sampler = UnpaddedDistributedSampler(range(5))
    assert list(sampler) == [0, 1, 2, 3, 4]
    assert len(sampler) == 5


def padded(reports: int, drop_last: bool = False) -> "DataLoader[int]":
    sampler = DistributedSampler(range(reports), num_replicas=2, rank=0, drop_last=drop_last)
    return DataLoader(range(reports), sampler=sampler)


def test_sampler_counts_repeated_and_dropped_reports() -> None:
    assert count_misshared(padded(11)) == 1
    assert count_misshared(padded(11, drop_last=True)) == 1
    assert count_misshared(padded(12)) == 0
    assert count_misshared({"a": padded(11), "b": [padded(13), padded(12)]}) == 2


def test_sampler_counts_nothing_it_cannot_know() -> None:
    exact = DataLoader(range(11), sampler=UnpaddedDistributedSampler(range(11)))
    assert count_misshared([DataLoader(range(11)), exact, iter([1, 2]), None]) == 0
