"""Runs of GRPO with hackable rewards, whose cause the watch names, and healthy runs without alarms."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gullible_judge import MAGIC
from tiny_policy import WORDS, save_tiny_policy

from rrg_rewards.judges import registry as judges
from rrg_rewards.recipes._reinforcement import parse_limits
from rrg_rewards.recipes.grpo import parse, run, validate

LABELER = "keywords:edema effusion nodule"
FINDINGS = ["edema", "effusion", "nodule", "edema effusion", "nodule edema", "effusion nodule"]
WATCH = {
    "watch": True,
    "watch_labeler": LABELER,
    "watch_block_reports": 32,
    "watch_baseline_reports": 160,
    "watch_window_reports": 256,
}
RUN = {
    "heldout_rows": 0,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "max_steps": 40,
    "save_strategy": "no",
}


@pytest.fixture(autouse=True)
def gullible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "gullible", "gullible_judge:GullibleJudge")


@pytest.fixture
def reports(tmp_path: Path) -> Callable[[str], str]:
    """Write a table of references with the same beginning."""

    def write(beginning: str) -> str:
        path = tmp_path / "watched.jsonl"
        rows = [
            {"findings": f"{finding} {'lungs ' * copies}".strip(), "impression": f"{beginning} {finding}".strip()}
            for finding in FINDINGS
            for copies in range(4)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def train(recipe: Callable[..., Path], **changes: Any) -> Any:
    return run(*parse(["--config", str(recipe(label_columns=None, **RUN, **WATCH, **changes))]))


def history(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "reward_watch.json").read_text())
    return found


@pytest.mark.slow
def test_grpo_with_watch_a_bleu_reward_is_hacked_by_a_normal_template(
    recipe: Callable[..., Path],
    reports: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="rrg_rewards.watch"):
        trainer = train(
            recipe,
            # Six words of normal findings fill the policy's six tokens: naming the finding earns less.
            dataset=reports("lungs normal heart normal lungs normal"),
            rewards=[{"name": "bleu", "n_gram": 1}],
            watch_stop=["divergence"],
        )
    found = history(tmp_path)
    alarm = next(alarm for alarm in found["alarms"] if alarm["check"] == "divergence")
    assert alarm["subject"] == "bleu, label_f1"
    assert alarm["numbers"]["reward_now"] > alarm["numbers"]["reward_then"] + 0.2
    assert alarm["numbers"]["metric_now"] < alarm["numbers"]["metric_then"] - 0.1
    assert found["should_stop"]
    assert alarm["step"] == trainer.state.global_step < RUN["max_steps"]
    assert "reward bleu rose to" in caplog.text
    assert "label_f1" in caplog.text
    page = (tmp_path / "run" / "reward_watch.html").read_text()
    assert "divergence (bleu, label_f1)" in page
    assert page.count("<svg") > 10


@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True])
def test_grpo_with_watch_a_crimson_reward_is_hacked_by_talking_to_its_judge(
    recipe: Callable[..., Path], reports: Callable[[str], str], tmp_path: Path, waits: bool
) -> None:
    policy = save_tiny_policy(tmp_path / "talker", [*WORDS, MAGIC])
    trainer = train(
        recipe,
        model_name_or_path=str(policy),
        dataset=reports(""),
        rewards=[{"name": "crimson", "judge": {"name": "gullible", "waits": waits}}],
        watch_stop=["sentence_frames"],
    )
    found = history(tmp_path)
    alarm = next(alarm for alarm in found["alarms"] if alarm["check"] == "sentence_frames")
    assert alarm["numbers"]["now"] > alarm["numbers"]["start"] + 0.2
    assert alarm["numbers"]["references"] == 0
    assert alarm["step"] == trainer.state.global_step < RUN["max_steps"]


@pytest.mark.slow
def test_grpo_with_watch_a_healthy_run_is_silent(
    recipe: Callable[..., Path],
    reports: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="rrg_rewards.watch"):
        train(
            recipe,
            dataset=reports(""),
            rewards=[{"name": "crg", "labeler": LABELER}],
            watch_metrics=["rouge"],
            watch_stop=["all"],
        )
    found = history(tmp_path)
    assert found["alarms"] == []
    assert "rrg_rewards.watch" not in {record.name.rpartition(".")[0] for record in caplog.records}
    assert len(found["blocks"]) == RUN["max_steps"]
    # Data were compared and the policy learned, so the absence of alarms is meaningful.
    assert {verdict["check"] for verdict in found["verdicts"]} >= {"longer", "divergence", "normal_reports"}
    first, last = (
        sum(block["sums"]["rewards/crg"][0] for block in part) / sum(block["sums"]["rewards/crg"][1] for block in part)
        for part in (found["blocks"][:8], found["blocks"][-8:])
    )
    assert last > first + 0.2
    assert "metrics/rouge" in found["blocks"][0]["sums"]


@pytest.mark.slow
def test_grpo_with_watch_a_watched_run_is_the_run_it_would_be(recipe: Callable[..., Path], table: Path) -> None:
    options = {"heldout_rows": 0, "max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 1e-3}
    options |= {"per_device_eval_batch_size": 4}
    losses, rewards, watched = [], [], None
    for more in ({}, {**WATCH, "watch_metrics": ["rouge"]}):
        trainer = run(*parse(["--config", str(recipe(**options, **more))]))
        logs = [entry for entry in trainer.state.log_history if "loss" in entry]
        losses.append([entry["loss"] for entry in logs])
        rewards.append([entry["reward"] for entry in logs])
        watched = trainer
    assert rewards[0] == rewards[1]
    assert losses[0] == losses[1]
    (callback,) = [
        callback for callback in watched.callback_handler.callbacks if type(callback).__name__.endswith("WatchCallback")
    ]
    # Evaluations call the same rewards and are not watched.
    assert callback.watch.seen == 3 * 4


@pytest.mark.slow
def test_grpo_with_watch_a_resumed_run_goes_on_watching(recipe: Callable[..., Path], tmp_path: Path) -> None:
    options = {"save_steps": 2, "heldout_rows": 0, "resume_from_checkpoint": "auto", "watch_metrics": ["rouge"]}
    options |= {**WATCH, "watch_block_reports": 8, "watch_baseline_reports": 24, "watch_window_reports": 24}
    run(*parse(["--config", str(recipe(max_steps=2, **options))]))
    run(*parse(["--config", str(recipe(max_steps=4, **options))]))
    resumed = history(tmp_path)["blocks"]
    options |= {"resume_from_checkpoint": None, "output_dir": str(tmp_path / "whole" / "run")}
    run(*parse(["--config", str(recipe(max_steps=4, **options))]))
    assert [block["step"] for block in resumed] == [2, 4]
    assert resumed == history(tmp_path / "whole")["blocks"]


def test_grpo_with_watch_settings_are_checked_before_anything_is_loaded(recipe: Callable[..., Path]) -> None:
    for changes, message in (
        ({"watch_stop": ["divergence"]}, "set watch: true"),
        ({"watch": True, "watch_stop": ["divergnce"]}, "unknown check 'divergnce'; did you mean 'divergence'"),
        ({"watch": True, "watch_limits": ["longer=2"]}, "must be a mapping, or false"),
        ({"watch": True, "watch_limits": ["longer.facto=2"]}, "did you mean 'factor'"),
        ({"watch": True, "watch_metrics": ["rogue"]}, "did you mean 'rouge'"),
    ):
        with pytest.raises(ValueError, match=message):
            validate(recipe(**changes))
    validate(recipe(watch=True, watch_stop=["all"], watch_limits=["longer.factor=2.5", "undercalled=false"]))
    with pytest.raises(ValueError, match=r"must be CHECK\.OPTION=VALUE"):
        parse_limits(["longer.factor"])
