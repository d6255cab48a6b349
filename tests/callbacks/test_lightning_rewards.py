"""The watch in Lightning, its common parts with the watch for TRL, and states of rewards in checkpoints."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
from words import WordLabeler

from rrg_rewards.callbacks import (
    RewardWatchCallback,
    TrainerRewardWatchCallback,
)
from rrg_rewards.rewards import make_reward
from rrg_rewards.training.policy.rewards import RewardSet
from rrg_rewards.watch import RewardWatch

SETTINGS: dict[str, Any] = {
    "labeler": WordLabeler(),
    "block_reports": 16,
    "baseline_reports": 80,
    "window_reports": 80,
}
REFERENCES = ["effusion", "nodule", "hernia", "nodule and effusion"] * 4


class Policy(LightningModule):
    """Returns the references at first and normal reports later."""

    def __init__(self, way: str, hacked: bool = True) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.way = way
        self.hacked = hacked
        self.watch: RewardWatchCallback | None = None
        self.rollout: Any = None
        self.rewards = SimpleNamespace(names=["bleu", "form"])

    def write(self) -> tuple[list[str], list[float]]:
        draw = random.Random(self.global_step)
        late = self.hacked and self.global_step >= 10
        texts = ["normal" if late and draw.random() < 0.9 else text for text in REFERENCES]
        return texts, [self.global_step + draw.random() for _ in texts]

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # As in PolicyModule: one rollout for two steps.
        if self.way == "rollout" and batch_idx % 2 == 0:
            texts, rewards = self.write()
            table = torch.tensor([rewards, [float("nan")] * len(rewards)]).T
            self.rollout = SimpleNamespace(
                texts=texts,
                batch={"reference": REFERENCES, "pixels": torch.zeros(len(texts), 2, 2, 2)},
                rewards=table,
                weights=[1.0, 0.0],
                statistics={"crimson/failed": 0.25, "reward": 1.0},
            )

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.weight * 0.0
        if self.way == "returned":
            texts, rewards = self.write()
            return {
                "loss": loss,
                "prediction": [[{"role": "assistant", "content": text}] for text in texts],
                "reference": REFERENCES,
                "rewards": {"bleu": torch.tensor(rewards)},
                "judge_failures": {"crimson": 4},
            }
        if self.way == "observed":
            texts, rewards = self.write()
            assert self.watch is not None
            failures = {"crimson": 4.0}
            columns = {"reference": REFERENCES}
            self.watch.observe(texts, columns, rewards={"bleu": rewards}, judge_failures=failures)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: Policy, callback: Any, folder: Path, steps: int = 20, **options: Any) -> Trainer:
    module.watch = callback
    trainer = Trainer(
        max_steps=steps,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, DataLoader(list(range(100)), batch_size=1), **options)
    return trainer


@pytest.mark.parametrize(
    "way",
    ["returned", *(pytest.param(way, marks=pytest.mark.slow) for way in ("observed", "rollout"))],
)
def test_reward_watch_callback_each_way_is_watched_and_stopped(way: str, tmp_path: Path) -> None:
    rouge = make_reward("rouge")
    callback = RewardWatchCallback([rouge], stop=["divergence"], folder=tmp_path / "page", **SETTINGS)
    trainer = fit(Policy(way), callback, tmp_path, steps=40)
    assert "divergence (bleu, rouge)" in callback.watch.causes
    assert "normal_reports" in callback.watch.causes
    assert trainer.global_step < 40
    stopped = next(alarm for alarm in callback.watch.alarms if alarm.check == "divergence")
    assert trainer.global_step == stopped.step
    # Each rollout is counted once, although it is used in two steps.
    assert callback.watch.seen == 16 * (-(-trainer.global_step // 2) if way == "rollout" else trainer.global_step)
    sums = callback.watch.blocks[0].sums
    assert sums["completions/failed/crimson"] == (4, 16)
    assert set(sums) & {"rewards/form", "rewards/total"} == set()
    assert ("metrics/form" in sums) == (way == "rollout")
    history = json.loads((tmp_path / "page" / "reward_watch.json").read_text())
    assert [alarm["cause"] for alarm in history["alarms"]] == [alarm.cause for alarm in callback.watch.alarms]


def test_reward_watch_callback_an_honest_policy_runs_to_its_end(tmp_path: Path) -> None:
    callback = RewardWatchCallback([make_reward("rouge")], stop=True, **SETTINGS)
    trainer = fit(Policy("returned", hacked=False), callback, tmp_path)
    assert trainer.global_step == 20
    assert callback.watch.alarms == []
    assert callback.watch.verdicts


def test_reward_watch_callback_a_module_that_shows_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no completions"):
        fit(Policy("nothing"), RewardWatchCallback(**SETTINGS), tmp_path, steps=2)


def test_reward_watch_callback_a_resumed_run_goes_on(tmp_path: Path) -> None:
    whole = RewardWatchCallback(**SETTINGS)
    fit(Policy("returned"), whole, tmp_path, steps=24)
    first, second = RewardWatchCallback(**SETTINGS), RewardWatchCallback(**SETTINGS)
    trainer = fit(Policy("returned"), first, tmp_path, steps=11)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    fit(Policy("returned"), second, tmp_path, steps=24, ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert second.watch.history()["blocks"] == whole.watch.history()["blocks"]
    assert second.watch.causes == whole.watch.causes != []


@pytest.mark.parametrize("callback", [RewardWatchCallback, TrainerRewardWatchCallback])
def test_reward_watch_callback_a_watch_or_its_options(callback: Any) -> None:
    watch = RewardWatch(labeler=None)
    assert callback(watch=watch).watch is watch
    with pytest.raises(ValueError, match="not both"):
        callback(watch=watch, block_reports=8)
    with pytest.raises(ValueError, match="not both"):
        callback(watch=watch, stop=True)
    with pytest.raises(ValueError, match="metric_every"):
        callback(metric_every=0)
    with pytest.raises(ValueError, match="metrics"):
        callback([make_reward("rouge"), make_reward("rouge")])


def test_watch_callback_several_rewards_are_watched_with_their_sum() -> None:
    session = RewardWatchCallback([make_reward("rouge")], watch=RewardWatch(labeler=None), metric_every=2)
    for step in (1, 2):
        session.observe_step(
            ["a b", "a"],
            {"reference": ["a b", "b"]},
            step=step,
            rewards={"one": [1.0, 2.0], "two": [3.0, None], "seen": [5.0, 5.0]},
            weights={"one": 2.0, "two": 1.0, "seen": 0.0},
        )
    session.end_step(2)
    sums = session.watch._open.sums
    assert sums["rewards/total"] == (10, 2)
    assert sums["rewards/one"] == (6, 4)
    # A reward of weight 0 is held out.
    assert sums["metrics/seen"] == (20, 4)
    # Scored in the second step only.
    assert sums["metrics/rouge"] == (1, 2)


@pytest.mark.parametrize("names", [("crg", "crg"), ("crg", "crg/recall")])
def test_reward_set_refuses_two_rewards_of_one_logged_name(names: tuple[str, str]) -> None:
    rewards = [make_reward("crg", prior=0.2, name=name) for name in names]
    with pytest.raises(ValueError, match=f"must differ in name, got 'crg' and '{names[1]}'"):
        RewardSet(rewards)
