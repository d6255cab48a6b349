"""Tests of the helper: real processes, results by rank, and failures."""

import os

import pytest
import torch
import torch.distributed as dist

from tests.distributed.helpers import run_distributed


def total_of_ranks(rank: int, world_size: int, offset: int) -> tuple[int, int]:
    total = torch.tensor(rank + offset)
    dist.all_reduce(total)
    return int(total), os.getpid()


def fails_on_one(rank: int, world_size: int) -> None:
    if rank == 1:
        raise ValueError("only here")
    dist.barrier()


def hangs_on_one(rank: int, world_size: int) -> None:
    while rank == 1:
        pass
    dist.barrier()


def test_results_of_real_processes() -> None:
    results = run_distributed(total_of_ranks, 2, 10)
    assert [total for total, _ in results] == [21, 21]
    assert len({os.getpid(), *(pid for _, pid in results)}) == 3


def test_failing_rank_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 1 failed.*ValueError: only here"):
        run_distributed(fails_on_one, 2)


@pytest.mark.distributed
def test_hanging_rank_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"still running after 4\.0 s"):
        run_distributed(hangs_on_one, 2, timeout=4.0)
