"""Batches: every row where it must be, and no more than once."""

import pytest
import torch
from epochs import check_epochs, of_process

from rrg_rewards.training.metrics import data
from rrg_rewards.training.metrics.data import LengthGroupedBatches, LengthSortedBatches

LENGTHS = torch.randint(1, 100, (103,), generator=torch.Generator().manual_seed(0)).tolist()


def test_length_grouped_batches_an_epoch_holds_each_row_once_at_most_and_another_epoch_others() -> None:
    check_epochs(LengthGroupedBatches(LENGTHS, 10), num_rows=103, per_epoch=100)


def test_length_grouped_batches_batches_pad_less_than_shuffled_ones() -> None:
    def padded(batches: list[list[int]]) -> int:
        return sum(max(LENGTHS[row] for row in batch) * len(batch) for batch in batches)

    grouped = list(LengthGroupedBatches(LENGTHS, 10))
    rows = [row for batch in grouped for row in batch]
    shuffled = torch.tensor(rows)[torch.randperm(100, generator=torch.Generator().manual_seed(1))]
    assert padded(grouped) < 0.75 * padded([part.tolist() for part in shuffled.split(10)])


def test_length_grouped_batches_two_processes_share_each_batch_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = LengthGroupedBatches(LENGTHS, 10)
    alone = of_process(monkeypatch, data, batches, 0, 1)
    first, second = (of_process(monkeypatch, data, batches, rank, 2) for rank in (0, 1))
    assert [sorted(a + b) for a, b in zip(first, second, strict=True)] == [sorted(batch) for batch in alone]
    assert all(len(a) == len(b) for a, b in zip(first, second, strict=True))
    with pytest.raises(ValueError, match="3 processes cannot share batches of 10 rows evenly"):
        of_process(monkeypatch, data, batches, 0, 3)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_length_sorted_batches_an_evaluation_holds_each_row_once(
    monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    batches = LengthSortedBatches(LENGTHS[:5], 2)
    shares = []
    for rank in range(world_size):
        share = of_process(monkeypatch, data, batches, rank, world_size)
        assert len(batches) == len(share)
        shares += [row for batch in share for row in batch]
    assert sorted(shares) == list(range(5))


def test_length_grouped_batches_fewer_rows_than_a_batch_make_one() -> None:
    assert [sorted(batch) for batch in LengthGroupedBatches([3, 1, 2], 10)] == [[0, 1, 2]]


@pytest.mark.parametrize("batches", [LengthGroupedBatches, LengthSortedBatches])
def test_batches_wrong_arguments_are_told(batches: type) -> None:
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        batches([1, 2], 0)
    with pytest.raises(ValueError, match="no row to sample"):
        batches([], 2)


def test_length_grouped_batches_rows_of_a_reference_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together = torch.arange(120) // 4
    lengths = (together * 7 % 11 + 1).tolist()
    batches = LengthGroupedBatches(lengths, 10, together=together)
    whole = of_process(monkeypatch, data, batches, 0, 1)
    shares = [of_process(monkeypatch, data, batches, rank, 2) for rank in (0, 1)]
    assert sorted(row for batch in whole for row in batch) == list(range(120))
    assert [first + second for first, second in zip(*shares, strict=True)] == whole
    # A batch of 10 rows has 3 references at least, and 4 where both ends are cut.
    assert all(len(set(together[batch].tolist())) <= 4 for batch in whole)
    batches.set_epoch(1)
    assert of_process(monkeypatch, data, batches, 0, 1) != whole
