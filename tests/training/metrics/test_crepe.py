"""Training of CREPE: learning, resumption, and reports on held-out data."""

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from lightning.pytorch.callbacks import LambdaCallback
from scipy.stats import kendalltau
from tiny_records import save_tiny_encoder, tiny_records, write_records
from training_runs import same, trained, weights

from rrg_rewards.cli.main import main
from rrg_rewards.metrics import CREPE
from rrg_rewards.models.crepe.model import CrepeModel
from rrg_rewards.training import CrepeModule
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.crepe import CountCorrelation

COUNTS = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 4 - 0.5
TRUE_COUNTS = torch.randint(0, 4, (50, 3), generator=torch.Generator().manual_seed(1)).float()


@pytest.fixture
def recipe(make_recipe: Callable[[str], Callable[..., Path]]) -> Callable[..., Path]:
    return make_recipe("crepe")


@pytest.mark.slow
def test_crepe_training_32_pairs_are_learned_by_heart(recipe: Callable[..., Path], tmp_path: Path) -> None:
    write_records(tmp_path / "errors.jsonl", tiny_records(28))
    path = recipe(
        trainer__max_epochs=100,
        trainer__check_val_every_n_epoch=50,
        checkpoint={"every_n_epochs": 50},
        early_stopping={"monitor": "val/tau", "strict": False},
        model__learning_rate=3e-3,
        seed_everything=1,
    )
    save_tiny_encoder(tmp_path / "encoder", dropout=0.0)
    run = trained("crepe", path)
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


def test_crepe_training_a_run_that_the_system_ends_within_an_epoch_is_resumed_there(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    whole = trained("crepe", recipe(output_dir=str(tmp_path / "whole")))
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
    first = weights(trained("crepe", path))
    torch.rand(7)
    assert same(first, weights(trained("crepe", path)))
    assert not same(first, weights(trained("crepe", path, "--seed_everything", "1")))


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
