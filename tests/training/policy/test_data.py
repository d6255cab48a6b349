"""Rows are handed out once for each rollout, to one process, and go on where a checkpoint stopped."""

import pytest
import torch
from epochs import check_epochs, of_process

from rrg_rewards.training import PolicyDataModule
from rrg_rewards.training.base import ResumableLoader
from rrg_rewards.training.policy import data
from rrg_rewards.training.policy.data import PromptBatches, collate_rows


def test_prompt_batches_processes_share_the_rows_of_one(monkeypatch):
    batches = PromptBatches(23, batch_size=3, repeats=2)
    parts = [of_process(monkeypatch, data, batches, rank, 2) for rank in (0, 1)]
    assert [len(rows) for rows in parts[0]] == [len(rows) for rows in parts[1]] == [3, 0] * 3
    alone = of_process(monkeypatch, data, PromptBatches(23, batch_size=6, repeats=2), 0, 1)
    assert [first + second for first, second in zip(*parts, strict=True)] == alone


def test_prompt_batches_an_epoch_holds_each_row_once_at_most_and_another_epoch_others():
    check_epochs(PromptBatches(11, batch_size=2, seed=5), num_rows=11, per_epoch=10)


def _loader():
    class Places(torch.utils.data.Dataset):
        def __getitem__(self, rows):
            return rows

    return ResumableLoader(Places(), sampler=PromptBatches(10, batch_size=2, repeats=3), batch_size=None)


@pytest.mark.parametrize("given", [0, 1, 7, 14])
def test_resumable_loader_a_loader_goes_on_behind_what_it_gave(given):
    loader = _loader()
    whole = list(_loader())
    batches = iter(loader)
    assert [next(batches) for _ in range(given)] == whole[:given]
    other = _loader()
    other.load_state_dict(loader.state_dict())
    assert list(other) == whole[given:]
    assert other.state_dict() == {"given": 0}
    # The next epoch begins at its beginning.
    assert list(other) == whole


def test_resumable_loader_an_epoch_that_is_over_leaves_nothing_to_skip():
    loader = _loader()
    assert len(list(loader)) == len(loader) == 15
    assert loader.state_dict() == {"given": 0}


def test_collate_rows_rows_that_differ_in_columns_are_named():
    with pytest.raises(ValueError, match=r"row 0 has \['a'\], row 1 \['b'\]"):
        collate_rows([{"a": 1}, {"b": 1}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 3}, "train has 2 rows, fewer than batch_size=3"),
        ({"batch_size": 1, "num_workers": -1}, "num_workers must be at least 0"),
    ],
)
def test_policy_data_module_settings_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        PolicyDataModule([{"report": "a"}, {"report": "b"}], **options)


def test_prompt_batches_processes_need_a_batch_each(monkeypatch):
    with pytest.raises(ValueError, match="batch_size=3"):
        of_process(monkeypatch, data, PromptBatches(5, batch_size=3), 0, 2)
