"""TRL's own command line, which finds the reward by its import path."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_policy import WORDS, save_tiny_policy

from rrg_rewards.integrations import trl
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards import make_reward


@pytest.mark.slow
def test_trls_script_trains_with_the_reward_of_the_settings(
    tmp_path: Path, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.scripts import grpo

    configure(reward={"name": "crg", "prior": 0.2}, reference_column="report", missing=None)
    pairs = zip(WORDS[:8], ["edema", None] * 4, strict=True)
    rows = [{"prompt": f"report {word}", "report": report} for word, report in pairs]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    direct = make_reward("crg", prior=0.2, reference_column="report")
    score, calls = type(direct).score, []

    def recorded(self: Any, completions: list[str], **columns: Any) -> Scores:
        calls.append((completions, columns["report"]))
        return score(self, completions, **columns)

    monkeypatch.setattr(type(direct), "score", recorded)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    options = {
        "model_name_or_path": save_tiny_policy(tmp_path / "policy"),
        "dataset_name": tmp_path / "data",
        "reward_funcs": "rrg_rewards.integrations.trl.reward",
        "output_dir": tmp_path / "run",
        "max_steps": 2,
        "save_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 5,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]

    grpo.main(*grpo.make_parser().parse_args_and_config(arguments))

    monkeypatch.undo()
    state = json.loads((tmp_path / "run" / "checkpoint-2" / "trainer_state.json").read_text())
    logged = [row["rewards/crg/mean"] for row in state["log_history"] if "rewards/crg/mean" in row]
    assert len(logged) == len(calls) == 2
    for mean, (completions, reports) in zip(logged, calls, strict=True):
        rewards = [one for one in direct(completions, report=reports) if one is not None]
        assert 0 < len(rewards) < len(completions)
        assert mean == pytest.approx(sum(rewards) / len(rewards))
    assert all("crg/unscorable" in row for row in state["log_history"] if "reward" in row)


def test_trl_gets_a_list_as_one_reward_and_no_settings_that_it_cannot_keep(configure: Callable[..., None]) -> None:
    configure(reward=[{"name": "crg", "prior": 0.2}, "repetition"], missing=None)
    assert len(trl.reward.parts) == 2
    configure()
    with pytest.raises(ValueError, match="missing: not for TRL"):
        _ = trl.reward
