"""Training of CREPE: learning, resumption, and reports on held-out data."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from lightning.pytorch.callbacks import LambdaCallback
from scipy.stats import kendalltau
from tiny_records import save_tiny_encoder, tiny_records, write_records
from training_runs import assert_same_run, interrupted_in_second_epoch, same, weights, write_recipe

from rrg_rewards.cli.main import main
from rrg_rewards.metrics import CREPE
from rrg_rewards.models.crepe.model import CrepeModel
from rrg_rewards.training import CrepeDataModule, CrepeModule, JsonlRecords
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.crepe import CountCorrelation
from rrg_rewards.training.metrics.splits import report_key

COUNTS = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 4 - 0.5
TRUE_COUNTS = torch.randint(0, 4, (50, 3), generator=torch.Generator().manual_seed(1)).float()


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe on a tiny encoder; dotted keys change it."""
    save_tiny_encoder(tmp_path / "encoder", dropout=0.1)
    write_records(tmp_path / "errors.jsonl", tiny_records(60))

    model = {"encoder": str(tmp_path / "encoder")}
    return lambda **changes: write_recipe(tmp_path, model, changes)


def trained(recipe: Path, *options: str) -> cli.TrainCLI:
    run = cli.build("crepe", ["--config", str(recipe), *options])
    cli.fit(run)
    return run


@pytest.mark.slow
def test_crepe_training_32_pairs_are_learned_by_heart(recipe: Callable[..., Path], tmp_path: Path) -> None:
    write_records(tmp_path / "errors.jsonl", tiny_records(28))
    path = recipe(
        trainer__max_epochs=150,
        trainer__check_val_every_n_epoch=50,
        checkpoint={"every_n_epochs": 50},
        early_stopping={"monitor": "val/tau", "strict": False},
        model__learning_rate=3e-3,
        seed_everything=1,
    )
    save_tiny_encoder(tmp_path / "encoder", dropout=0.0)
    run = trained(path)
    pairs = run.datamodule.pairs["train"]
    assert len(pairs) >= 32
    batch = pairs[list(range(len(pairs)))]
    run.model.eval()
    with torch.no_grad():
        output = run.model.model(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    assert (output.counts - batch["labels"]).abs().max() < 0.3


def test_crepe_training_an_exported_model_is_the_best_one_to_the_bit(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    run = cli.build("crepe", ["--config", str(recipe())])
    report = cli.run(run)
    folder = tmp_path / "run"
    loaded = CrepeModel.from_pretrained(folder / "model")
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert same({f"model.{name}": value for name, value in loaded.state_dict().items()}, best)
    # The report describes the exported model.
    pairs = run.datamodule.pairs["test"]
    batch = pairs[list(range(len(pairs)))]
    with torch.no_grad():
        counts = loaded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]).counts
    mae = (counts.clamp(min=0) - batch["labels"]).abs().mean(0)
    told = [row["mae"] for row in report["test"]["categories"].values()]
    torch.testing.assert_close(mae, torch.tensor(told), atol=1e-5, rtol=0)
    assert json.loads((folder / "report.json").read_text())["test"]["tau"] == report["test"]["tau"]
    assert report["best"]["val/tau"] == max(row["val/tau"] for row in report["history"])
    # So does its card, in figures that the Hub reads.
    assert report["test"]["tau_interval"][0] <= report["test"]["tau"] <= report["test"]["tau_interval"][1]
    card = ModelCard.load(folder / "model" / "README.md")
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results == {key: report["test"][key] for key in ("tau", "mae")}
    assert CREPE(str(folder / "model")).signature == report["signature"]
    assert report["signature"] in card.text


def test_crepe_training_no_report_text_is_in_what_is_told(recipe: Callable[..., Path], tmp_path: Path) -> None:
    cli.run(cli.build("crepe", ["--config", str(recipe(trainer__max_epochs=1))]))
    references = {record["reference"] for record in tiny_records(60)}
    for name in ("report.json", "report.md", "run.json", "model/README.md"):
        text = (tmp_path / "run" / name).read_text()
        assert not any(reference in text for reference in references)


def test_crepe_training_a_resumed_run_ends_as_one_that_was_not_stopped(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    whole = trained(recipe(trainer__max_epochs=3, output_dir=str(tmp_path / "whole")))
    stopped = recipe(trainer__max_epochs=3, output_dir=str(tmp_path / "stopped"))
    with interrupted_in_second_epoch(CrepeModule):
        trained(stopped)
    resumed = trained(stopped, "--resume_from_checkpoint", "auto")
    assert_same_run(resumed, whole)


def test_crepe_training_a_run_that_the_system_ends_within_an_epoch_is_resumed_there(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    whole = trained(recipe(output_dir=str(tmp_path / "whole")))
    stopped = recipe(output_dir=str(tmp_path / "stopped"))

    def end(self: Any, *_: Any) -> None:
        if (self.current_epoch, self.trainer.global_step) == (1, whole.trainer.global_step // 2 + 2):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrepeModule, "on_train_batch_end", end, raising=False)
        assert main(["train", "crepe", "--config", str(stopped)]) == 143
    resumed = cli.build("crepe", ["--config", str(stopped), "--resume_from_checkpoint", "auto"])
    steps = []
    resumed.trainer.callbacks.append(
        LambdaCallback(on_train_batch_start=lambda trainer, *_: steps.append(trainer.global_step))
    )
    cli.fit(resumed)
    assert 0 < len(steps) < whole.trainer.global_step // 2
    assert resumed.trainer.global_step == whole.trainer.global_step
    assert same(weights(resumed), weights(whole))
    # The logged training losses are means over the steps since the start.
    validations = [
        [{name: value for name, value in row.items() if "train/" not in name} for row in cli.history_of(run).rows]
        for run in (resumed, whole)
    ]
    assert validations[0] == validations[1]


def test_crepe_training_the_seed_decides_and_nothing_else(recipe: Callable[..., Path]) -> None:
    path = recipe(trainer__max_epochs=1)
    first = weights(trained(path))
    torch.rand(7)
    assert same(first, weights(trained(path)))
    assert not same(first, weights(trained(path, "--seed_everything", "1")))


def test_crepe_training_sources_are_told_apart_and_unknown_totals_left_out(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    partly = [{**record, "counts": [*record["counts"][:4], None, None]} for record in tiny_records(60, seed=1)]
    write_records(tmp_path / "partly.jsonl", partly)
    sources = [
        {"class_path": "JsonlRecords", "init_args": {"path": str(tmp_path / f"{name}.jsonl")}}
        for name in ("errors", "partly")
    ]
    report = cli.run(cli.build("crepe", ["--config", str(recipe(data__sources=sources, trainer__max_epochs=1))]))
    own = report["test_by_source"]
    assert set(own) == {"errors", "partly"}
    assert report["test"]["pairs_with_total"] == own["errors"]["pairs"] < report["test"]["pairs"]
    assert (own["partly"]["tau"], own["partly"]["categories"]["false_comparison"]["mae"]) == (None, None)


def test_crepe_data_module_no_reference_stands_on_two_sides(tmp_path: Path) -> None:
    records = tiny_records(60)
    copies = [{**record, "reference": record["reference"].upper() + "."} for record in records]
    crossing = [{**records[0], "candidate": other["reference"]} for other in records]
    write_records(tmp_path / "errors.jsonl", [*records, *copies, *crossing])
    save_tiny_encoder(tmp_path / "encoder")
    data = CrepeDataModule(
        [JsonlRecords(str(tmp_path / "errors.jsonl"))], str(tmp_path / "encoder"), validation_fraction=0.3
    )
    data.setup()
    split = data.split
    sides = [{report_key(record.reference) for record in side} for side in (split.train, split.validation, split.test)]
    assert len(set.union(*sides)) == sum(map(len, sides)) == len({report_key(r["reference"]) for r in records})
    for place, side in enumerate((split.train, split.validation, split.test)):
        others = set.union(*(references for other, references in enumerate(sides) if other != place))
        assert not any(report_key(record.candidate) in others for record in side)
    assert split.duplicates >= len(copies)
    assert split.crossing > 0
    kept = len(split.train) + len(split.validation) + len(split.test)
    assert kept + split.duplicates + split.crossing == len(records) + len(copies) + len(crossing)


@pytest.mark.slow
def test_train_the_command_trains_a_tiny_recipe(recipe: Callable[..., Path], tmp_path: Path) -> None:
    path = recipe()
    command = [sys.executable, "-m", "rrg_rewards", "train", "crepe", "--config", str(path)]
    done = subprocess.run(
        [*command, "--trainer.max_epochs=1", "--model.learning_rate", "1e-3"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Kendall's tau of predicted" in " ".join(done.stdout.split())
    assert "epoch 1 of 1, train/loss" in done.stderr
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (written["trainer"]["max_epochs"], written["model"]["learning_rate"]) == (1, 1e-3)
    assert {"counts.png", "curve.png", "mae.png", "report.md"} <= {p.name for p in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer__max_epochz": 3}, "trainer.*max_epochz"),
        ({"model__learning_rate": "fast"}, r"model\.learning_rate.*fast"),
        ({"model__schedule": "line"}, r"model\.schedule"),
        ({"data__sources": [{"class_path": "Nowhere"}]}, r"data\.sources.*Nowhere"),
        ({"data__sources": [{"class_path": "JsonlRecords", "init_args": {"file": "x"}}]}, r"data\.sources"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_parse_a_wrong_key_is_named(recipe: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cli.validate("crepe", recipe(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__learning_rate": -1.0}, "learning_rate must be positive"),
        ({"model__warmup_ratio": 1.0}, r"warmup_ratio must lie in \[0, 1\)"),
        ({"model__presence_loss_weight": 2.0}, r"presence_loss_weight must lie in \[0, 1\]"),
        ({"data__sources": []}, "sources must contain at least one source"),
        ({"resume_from_checkpoint": "nowhere.ckpt"}, "resume_from_checkpoint: nowhere.ckpt: no such file"),
        ({"data__validation_fraction": 0.99}, "their sum must be less than 1"),
        ({"data__test_fraction": 0.0}, "none of 120 records is in test"),
        ({"data__batch_size": 0}, "batch_size must be positive"),
    ],
)
def test_parse_a_wrong_value_is_told(recipe: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        trained(recipe(**changes))


def test_parse_an_unknown_task_is_told() -> None:
    with pytest.raises(ValueError, match="unknown task 'crep'; did you mean 'crepe'"):
        cli.validate("crep", "any.yaml")


def test_crepe_training_count_correlation_adds_up_over_batches() -> None:
    metric = CountCorrelation("ABC")
    for start in range(0, 50, 7):
        metric.update(COUNTS[start : start + 7], TRUE_COUNTS[start : start + 7])
    clipped = COUNTS.clamp(min=0)
    assert float(metric.compute()) == pytest.approx(kendalltau(clipped.sum(1), TRUE_COUNTS.sum(1)).statistic)
    found = metric.statistics()
    for place, name in enumerate("ABC"):
        assert float(found[f"mae_{name}"]) == pytest.approx(float((clipped - TRUE_COUNTS).abs()[:, place].mean()))
    assert float(found["mae"]) == pytest.approx(float((clipped.sum(1) - TRUE_COUNTS.sum(1)).abs().mean()))
    metric.reset()
    assert math.isnan(metric.compute())


def test_crepe_training_count_correlation_excludes_counts_that_are_not_annotated() -> None:
    metric, whole = CountCorrelation("ABC"), CountCorrelation("ABC")
    partly = TRUE_COUNTS.clone()
    partly[:20, 2] = math.nan
    metric.update(COUNTS, partly)
    whole.update(COUNTS[20:], TRUE_COUNTS[20:])
    assert metric.compute() == whole.compute()
    ours, theirs = metric.statistics(), whole.statistics()
    assert (ours["mae"], ours["mae_C"]) == (theirs["mae"], theirs["mae_C"])
    assert ours["mae_A"] == pytest.approx(float((COUNTS.clamp(min=0) - TRUE_COUNTS).abs()[:, 0].mean()))


def test_crepe_training_count_correlation_names_wrong_input() -> None:
    with pytest.raises(ValueError, match="must be distinct names, at least one, got"):
        CountCorrelation(["A", "A"])
    metric = CountCorrelation("ABC")
    with pytest.raises(ValueError, match=r"must both be \(N, 3\), got \(50, 2\) and \(50, 3\)"):
        metric.update(COUNTS[:, :2], TRUE_COUNTS)
    with pytest.raises(ValueError, match="preds must be finite"):
        metric.update(COUNTS / 0, TRUE_COUNTS)
