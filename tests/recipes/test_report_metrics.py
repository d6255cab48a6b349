"""Report metrics of held-out rows during a training with TRL."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from tiny_policy import WORDS, save_tiny_policy, tiny_tokenizer
from transformers import AutoModelForCausalLM
from transformers.integrations.integration_utils import DVCLiveCallback, TrackioCallback
from trl import GRPOConfig, GRPOTrainer

from rrg_rewards import make_reward
from rrg_rewards.recipes._evaluate import GreedyPolicy, evaluate_reports, greedy_reports
from rrg_rewards.recipes.report_metrics import TrainerReportMetricsCallback
from rrg_rewards.utilities.run_log import RunWarning

ROWS = Dataset.from_list(
    [{"prompt": f"{first} {second}", "report": "edema effusion"} for first, second in pairwise(WORDS[:6])]
)
METRICS = [make_reward("crg", reference_column="report", prior=0.3)]


def grpo(folder: Path, policy: Path, **changes: Any) -> GRPOTrainer:
    options = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 5, "max_steps": 3}
    options |= {"report_to": "none", **changes}
    return GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(policy),
        lambda completions, **_: [float(len(text)) for text in completions],
        GRPOConfig(
            str(folder),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
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
            # Undefined values are not logged.
            found = row.get(f"eval_crg/{key}", float("nan"))
            assert found == pytest.approx(cell["estimate"], nan_ok=True)
    assert train_rows(watched) == train_rows(plain)


class RecordingTracker(TrackioCallback):
    """Records what it would log."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        table = lambda columns, data: {"columns": columns, "data": data}  # noqa: E731
        self._trackio = SimpleNamespace(log=self.logged.append, Table=table)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start no run."""

    on_train_end = on_log = on_train_begin


class OtherTracker(DVCLiveCallback):
    """A tracker that takes no tables."""

    def __init__(self) -> None:
        self._initialized = True

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start no run."""

    on_train_end = on_log = on_save = on_train_begin


def test_trainer_report_metrics_log_the_worst_reports_with_trackers_that_take_tables(tmp_path: Path) -> None:
    policy = save_tiny_policy(tmp_path / "policy")
    trainer = grpo(tmp_path / "run", policy, log_completions=True)
    tracker = RecordingTracker()
    trainer.add_callback(tracker)
    trainer.add_callback(OtherTracker())
    callback = TrainerReportMetricsCallback(trainer, METRICS, ROWS, every=2, log_tables=True, num_worst=2)
    trainer.add_callback(callback)
    with pytest.warns(RunWarning, match="OtherTracker takes no tables") as warned:
        trainer.train()
    assert len([one for one in warned if "takes no tables" in str(one.message)]) == 1
    assert [entry["train/global_step"] for entry in tracker.logged] == [0, 2, 3]
    columns, data = tracker.logged[-1]["eval/crg_worst"].values()
    reports = greedy_reports(GreedyPolicy.of_trainer(trainer), ROWS, 4)
    values = evaluate_reports(reports, METRICS, ROWS).scores["crg"].value.tolist()
    order = sorted(range(len(ROWS)), key=lambda row: values[row])[:2]
    assert [row[columns.index("index")] for row in data] == order
    assert [row[columns.index("prediction")] for row in data] == [reports[row] for row in order]
    assert [row[columns.index("reference")] for row in data] == ["edema effusion"] * 2
    # Neither before the first step, when there are no completions, nor twice.
    logged_steps = [row["step"] for row in trainer.state.log_history if "loss" in row]
    written = sorted(path.stem for path in (tmp_path / "run" / "completions").iterdir())
    assert written == [f"completions_{step:05d}" for step in (*logged_steps, 3)]


def test_trainer_report_metrics_without_a_tracker_warn_of_tables(tmp_path: Path) -> None:
    trainer = grpo(tmp_path / "run", save_tiny_policy(tmp_path / "policy"))
    trainer.add_callback(TrainerReportMetricsCallback(trainer, METRICS, ROWS, every=3, log_tables=True))
    with pytest.warns(RunWarning, match="report_to"):
        trainer.train()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"num_worst": 0}, "num_worst must be at least 1, got 0"),
        ({"metrics": METRICS * 2}, "metrics: the names must differ, got crg, crg"),
        ({"rows": ROWS.select([])}, "rows: there are none"),
        ({"rows": ROWS.remove_columns("prompt")}, "rows: the column 'prompt' is missing; there are "),
    ],
)
def test_trainer_report_metrics_refuses_what_cannot_be_evaluated(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainerReportMetricsCallback(**{"trainer": None, "metrics": METRICS, "rows": ROWS, "every": 1, **changes})
