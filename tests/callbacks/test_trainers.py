"""Callbacks for the trainers of transformers: states of rewards in checkpoints, and recorded rewards."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rrg_rewards.callbacks import TrainerRewardStateCallback, TrainerRewardWatchCallback
from rrg_rewards.rewards import Reward, make_reward

BATCH = {"completions": ["Cardiomegaly.", "Normal."], "reference": ["Cardiomegaly.", "Hiatal hernia."]}


def rewards() -> list[Reward]:
    return [
        make_reward("composed", parts=[{"name": "crg", "prior": 0.2, "normalize": True}]),
        make_reward("repetition"),
    ]


def _step(folder: Path, number: int) -> tuple[SimpleNamespace, SimpleNamespace]:
    (folder / f"checkpoint-{number}").mkdir(exist_ok=True)
    arguments = SimpleNamespace(output_dir=str(folder), resume_from_checkpoint=None)
    return arguments, SimpleNamespace(global_step=number, is_world_process_zero=True)


def test_trainer_reward_state_callback_the_trainer_goes_on_from_its_checkpoint(tmp_path):
    learned, fresh = TrainerRewardStateCallback(rewards()), TrainerRewardStateCallback(rewards())
    learned.rewards[0](**BATCH)
    step = _step(tmp_path, 3)
    learned.on_step_end(*step, None)
    learned.on_save(*step, None)
    fresh.on_train_begin(*step, None)
    expected = learned.rewards[0](**BATCH)
    assert fresh.rewards[0](**BATCH) == expected
    # A new run ignores the checkpoints of an earlier run in the folder.
    other = TrainerRewardStateCallback(rewards())
    other.on_train_begin(*_step(tmp_path, 0), None)
    assert other.rewards[0](**BATCH) != expected


def test_trainer_reward_state_callback_a_checkpoint_without_states_is_told_of(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"reward_state\.json"):
        TrainerRewardStateCallback(rewards()).on_train_begin(*_step(tmp_path, 3), None)
    # Rewards without states require no file.
    TrainerRewardStateCallback([make_reward("repetition")]).on_train_begin(*_step(tmp_path, 3), None)


class RLOOConfig(SimpleNamespace):
    """TRL's arguments, which have no aggregation but the sum."""


class GRPOConfig(SimpleNamespace):
    """TRL's arguments, which have a second aggregation."""


@pytest.mark.parametrize(
    ("arguments", "number", "warned"), [(RLOOConfig, 2, 1), (RLOOConfig, 1, 0), (GRPOConfig, 2, 0)]
)
def test_callbacks_warn_if_a_missing_reward_counts_as_zero(caplog, arguments, number, warned):
    watch = TrainerRewardWatchCallback(labeler=None)
    watch.record(rewards()[:number])
    for callback in (TrainerRewardStateCallback(rewards()[:number]), watch):
        caplog.clear()
        callback.on_train_begin(arguments(), SimpleNamespace(global_step=0), None)
        found = [record.getMessage() for record in caplog.records]
        assert len(found) == warned
        assert all("composed, repetition" in one and "one composed reward" in one for one in found)


def test_trainer_reward_watch_callback_a_trainer_without_recorded_rewards_is_told() -> None:
    with pytest.raises(ValueError, match=r"reward_funcs=callback.record\(rewards\)"):
        TrainerRewardWatchCallback(labeler=None).on_train_begin(None, SimpleNamespace(global_step=0), None)
