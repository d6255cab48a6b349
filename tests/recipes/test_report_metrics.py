"""Report metrics of held-out rows during a training with TRL."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from tiny_policy import WORDS, save_tiny_policy, tiny_tokenizer
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from rrg_rewards import make_reward
from rrg_rewards.recipes._evaluate import GreedyPolicy, evaluate_reports, greedy_reports
from rrg_rewards.recipes.report_metrics import TrainerReportMetricsCallback

ROWS = Dataset.from_list(
    [{"prompt": f"{first} {second}", "report": "edema effusion"} for first, second in pairwise(WORDS[:6])]
)
METRICS = [make_reward("crg", reference_column="report", prior=0.3)]


def grpo(folder: Path, policy: Path) -> GRPOTrainer:
    options = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 5, "max_steps": 3}
    return GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(policy),
        lambda completions, **_: [float(len(text)) for text in completions],
        GRPOConfig(
            str(folder),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            logging_steps=2,
            learning_rate=0.1,
            seed=3,
            **options,
        ),
        ROWS,
        processing_class=tiny_tokenizer(),
    )


def train_rows(trainer: GRPOTrainer) -> list[dict[str, Any]]:
    times = ("time", "runtime", "second", "throughput", "flos")
    rows = (row for row in trainer.state.log_history if not any(key.startswith("eval_") for key in row))
    return [{key: value for key, value in row.items() if not any(word in key for word in times)} for row in rows]


def test_trainer_report_metrics_are_those_of_greedy_reports_and_change_no_training(tmp_path: Path) -> None:
    policy = save_tiny_policy(tmp_path / "policy")
    plain = grpo(tmp_path / "plain", policy)
    plain.train()
    # The trainer sets the seed when it is made.
    watched = grpo(tmp_path / "watched", policy)
    watched.add_callback(TrainerReportMetricsCallback(watched, METRICS, ROWS, every=2, batch_size=3))
    watched.train()

    logged = [row for row in watched.state.log_history if "eval_crg/crg" in row]
    assert [row["step"] for row in logged] == [0, 2, 3]
    for trainer, row in ((grpo(tmp_path / "start", policy), logged[0]), (watched, logged[-1])):
        reports = greedy_reports(GreedyPolicy.of_trainer(trainer), ROWS, 4)
        expected = evaluate_reports(reports, METRICS, ROWS).summary()["crg"]
        assert row["eval_crg/unscorable"] == expected.pop("unscorable")
        for key, cell in expected.items():
            found = row[f"eval_crg/{key}"]
            assert cell["estimate"] != cell["estimate"] if found is None else found == pytest.approx(cell["estimate"])
    assert train_rows(watched) == train_rows(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"metrics": METRICS * 2}, "metrics: the names must differ, got crg, crg"),
        ({"rows": ROWS.select([])}, "rows: there are none"),
        ({"rows": ROWS.remove_columns("prompt")}, "rows: the column 'prompt' is missing; there are "),
    ],
)
def test_trainer_report_metrics_refuses_what_cannot_be_evaluated(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainerReportMetricsCallback(**{"trainer": None, "metrics": METRICS, "rows": ROWS, "every": 1, **changes})
