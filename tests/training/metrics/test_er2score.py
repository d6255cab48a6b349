"""Training of ER²Score: learning, resumption, and reports on held-out data."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from tiny_backbone import PROMPT, save_tiny_backbone
from tiny_records import tiny_records, write_records
from training_runs import assert_same_run, interrupted_in_second_epoch, weights, write_recipe

from rrg_rewards.functional import margin_reward_enforcement_loss
from rrg_rewards.metrics import ER2Score
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy
from rrg_rewards.models.er2score.model import ER2ScoreModel
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate
from rrg_rewards.training import ER2ScoreDataModule, ER2ScoreModule, JsonlRecords
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.splits import report_key

LORA = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]}
OWN_SYSTEM = {
    "name": "own",
    "base": 10,
    "direction": "deduct",
    "criteria": [
        {"name": "false", "description": "Masses that are not there.", "kind": "count", "weight": 2},
        {"name": "omitted", "description": "Is a nodule missing?", "kind": "yes_no", "weight": 3},
        {"name": "clarity", "description": "How unclear it is.", "kind": "grade", "range": [0, 4]},
    ],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe on a tiny backbone; dotted keys change it."""
    save_tiny_backbone(tmp_path / "backbone")
    write_records(tmp_path / "errors.jsonl", tiny_records(60, per_reference=3))

    model = {"backbone": str(tmp_path / "backbone"), "prompt": PROMPT, "max_length": 64}
    return lambda **changes: write_recipe(tmp_path, model, changes)


@pytest.mark.parametrize(
    ("fast", "precision", "dtype", "remedy"),
    [
        (False, "bf16-mixed", "float32", "set trainer.precision: 32-true"),
        (False, "32-true", "bfloat16", "set trainer.precision: 32-true and backbone_dtype: float32"),
        (False, "32-true", "float32", None),
        (True, "bf16-mixed", "bfloat16", None),
        (None, "bf16-mixed", "bfloat16", None),
    ],
)
def test_er2score_training_warns_of_a_type_that_is_slow_on_the_processor(
    recipe: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fast: bool | None,
    precision: str,
    dtype: str,
    remedy: str | None,
) -> None:
    monkeypatch.setattr(cli, "cpu_computes_in_bfloat16", lambda: fast)
    cli.build("er2score", ["--config", str(recipe(trainer__precision=precision, model__backbone_dtype=dtype))])
    warnings = (record for record in caplog.records if record.levelname == "WARNING")
    messages = [record.message for record in warnings if "bfloat16" in record.message]
    assert [message.endswith(str(remedy)) for message in messages] == ([] if remedy is None else [True])


def trained(recipe: Path, *options: str) -> cli.TrainCLI:
    run = cli.build("er2score", ["--config", str(recipe), *options])
    cli.fit(run)
    return run


def rewards_of(model: ER2ScoreModel, tokenizer: Any, records: list[dict[str, Any]]) -> torch.Tensor:
    """Return the rewards of whole prompts, which training never computes in this way."""
    template = PromptTemplate(model.config.prompt).with_criteria(model.scoring_system)
    encode = PromptEncoder(tokenizer, template, model.config.max_prompt_length)
    batch = encode.collate(encode([r["reference"] for r in records], [r["candidate"] for r in records]))
    with torch.no_grad():
        return model.eval()(**batch).rewards


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"r": 16, "target_modules": "all-linear"}], ids=["full", "lora"])
def test_er2score_training_16_pairs_are_learned_to_zero_loss_and_kept(
    recipe: Callable[..., Path], tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    write_records(tmp_path / "errors.jsonl", tiny_records(13, per_reference=3))
    path = recipe(
        trainer__max_epochs=400,
        trainer__check_val_every_n_epoch=400,
        checkpoint={"every_n_epochs": 400},
        early_stopping={"monitor": "val/accuracy", "strict": False},
        model__learning_rate=3e-3 if lora is None else 1e-2,
        model__head_learning_rate=1e-2,
        model__lora=lora,
        model__c=0.1,
        data__batch_size=16,
    )
    run = trained(path)
    pairs = run.datamodule.preferences
    assert len(pairs) >= 16
    batch = pairs[list(range(len(pairs)))]
    model = run.model.model.eval()

    def loss(model: ER2ScoreModel) -> float:
        names = ("prefix_ids", "prefix_mask", "suffix_ids", "suffix_mask", "owner")
        with torch.no_grad():
            rewards = model.forward_shared(*(batch[name] for name in names)).rewards
        rows = (batch["accepted"], batch["rejected"])
        scores = [batch["contributions"][row] for row in rows]
        return float(margin_reward_enforcement_loss(*(rewards[row] for row in rows), *scores, c=0.1, reduction="mean"))

    assert loss(model) == 0.0
    # What is saved is what was trained.
    saved = ER2ScoreModel.from_pretrained(run.model.export(tmp_path / "exported"))
    records = tiny_records(5, seed=3)
    tokenizer = run.datamodule.loaded_tokenizer
    scored = rewards_of(saved, tokenizer, records)
    torch.testing.assert_close(scored, rewards_of(model, tokenizer, records) + run.model.offset, atol=1e-5, rtol=0)
    again = ER2ScoreModel.from_pretrained(tmp_path / "exported")
    assert torch.equal(rewards_of(again, tokenizer, records), scored)


def test_er2score_training_an_exported_model_is_the_best_one_and_scores_as_the_report_says(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    run = cli.build("er2score", ["--config", str(recipe())])
    report = cli.run(run)
    folder = tmp_path / "run"
    loaded = ER2ScoreModel.from_pretrained(folder / "model")
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for name, value in loaded.backbone.state_dict().items():
        assert torch.equal(best[f"model.backbone.{name}"], value)
    reports = run.datamodule.reports["test"]
    records = [{"reference": r.reference, "candidate": r.candidate} for r in reports.reports]
    rewards = rewards_of(loaded, run.datamodule.loaded_tokenizer, records)
    agreement = PreferenceAccuracy(loaded.scoring_system.names)
    agreement.update(rewards, reports.contributions, reports.reference)
    test = report["test"]
    assert test["accuracy"] == pytest.approx(float(agreement.compute()))
    assert test["kendall"] == pytest.approx(float(agreement.statistics()["kendall"]), abs=1e-3)
    mae = (rewards - reports.contributions).abs().mean(0)
    assert [row["mae"] for row in test["criteria"].values()] == pytest.approx(mae.tolist(), abs=1e-4)
    differ = {name: row["pairs"] for name, row in test["criteria"].items()}
    assert differ["false_finding"] > 0
    assert differ["wrong_location"] == 0
    assert test["criteria"]["wrong_location"]["accuracy"] is None
    assert report["best"]["val/accuracy"] == max(row["val/accuracy"] for row in report["history"])
    assert json.loads((folder / "report.json").read_text())["test"] == test
    assert f"| false_finding | {differ['false_finding']} |" in (folder / "report.md").read_text()
    assert test["accuracy_interval"][0] <= test["accuracy"] <= test["accuracy_interval"][1]
    card = ModelCard.load(folder / "model" / "README.md")
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results == {key: test[key] for key in ("accuracy", "kendall", "spearman")}
    assert ER2Score(str(folder / "model")).signature in card.text
    sub_scores, counts = (-values[:, 0] for values in (rewards, reports.contributions))
    row = test["criteria"]["false_finding"]
    assert row["binary"] == pytest.approx(float(((sub_scores >= 0.5) == (counts >= 0.5)).double().mean()))
    low, high = row["binary_interval"]
    assert low <= row["binary"] <= high
    assert f"{row['binary']:.3f} ({low:.3f} to {high:.3f})" in (folder / "report.md").read_text()


def test_er2score_training_sub_scores_are_on_their_scale_after_training(recipe: Callable[..., Path]) -> None:
    run = cli.build("er2score", ["--config", str(recipe(trainer__max_epochs=1))])
    cli.fit(run)
    reports = run.datamodule.reports["validation"]
    records = [{"reference": r.reference, "candidate": r.candidate} for r in reports.reports]

    def mean_gap(model: ER2ScoreModel) -> float:
        rewards = rewards_of(model, run.datamodule.loaded_tokenizer, records)
        return float((rewards.mean(0) - reports.contributions.mean(0)).abs().max())

    folder = Path(run.config.output_dir)
    run.model.export(folder / "first")
    # A second export shifts no further.
    calibrated = ER2ScoreModel.from_pretrained(run.model.export(folder / "second"))
    assert mean_gap(calibrated) < 1e-5 < mean_gap(run.model.model)


def test_er2score_training_no_report_text_is_in_what_is_told(recipe: Callable[..., Path], tmp_path: Path) -> None:
    cli.run(cli.build("er2score", ["--config", str(recipe(trainer__max_epochs=1))]))
    references = {record["reference"] for record in tiny_records(60, per_reference=3)}
    for name in ("report.json", "report.md", "run.json", "model/config.json", "model/README.md"):
        text = (tmp_path / "run" / name).read_text()
        assert not any(reference in text for reference in references)


@pytest.mark.parametrize("lora", [None, pytest.param(LORA, marks=pytest.mark.slow)], ids=["full", "lora"])
def test_er2score_training_a_resumed_run_ends_as_one_that_was_not_stopped(
    recipe: Callable[..., Path], tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    settings = {"trainer__max_epochs": 3, "model__lora": lora and {**lora, "lora_dropout": 0.1}}
    whole = trained(recipe(**settings, output_dir=str(tmp_path / "whole")))
    stopped = recipe(**settings, output_dir=str(tmp_path / "stopped"))
    with interrupted_in_second_epoch(ER2ScoreModule):
        trained(stopped)
    resumed = trained(stopped, "--resume_from_checkpoint", "auto")
    assert_same_run(resumed, whole)
    assert torch.equal(resumed.model.offset, whole.model.offset)


def test_er2score_training_a_checkpoint_holds_no_frozen_weight(recipe: Callable[..., Path], tmp_path: Path) -> None:
    trained(recipe(trainer__max_epochs=1, model__lora=LORA))
    kept = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    backbone = {name for name in kept if name.startswith("model.backbone.")}
    assert backbone
    assert all("lora_" in name for name in backbone)
    assert {"model.head.weight", "offset"} <= kept.keys()


def test_er2score_training_embeddings_may_be_left_as_they_are(recipe: Callable[..., Path], tmp_path: Path) -> None:
    start = ER2ScoreModel.from_backbone(tmp_path / "backbone").get_input_embeddings().weight
    for train in (True, False):
        path = recipe(trainer__max_epochs=1, model__train_embeddings=train, output_dir=str(tmp_path / str(train)))
        cli.run(cli.build("er2score", ["--config", str(path)]))
        loaded = ER2ScoreModel.from_pretrained(tmp_path / str(train) / "model")
        assert torch.equal(loaded.get_input_embeddings().weight, start) is not train


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_er2score_training_gradient_checkpointing_changes_no_step(
    recipe: Callable[..., Path], lora: dict[str, Any] | None
) -> None:
    settings = {"trainer__max_epochs": 1, "trainer__limit_train_batches": 3, "model__lora": lora}
    plain, checkpointed = (
        weights(trained(recipe(**settings, model__gradient_checkpointing=on))) for on in (False, True)
    )
    start = weights(trained(recipe(**settings, model__learning_rate=1e-9)))
    moved = max(float((plain[name] - start[name]).abs().max()) for name in plain)
    apart = max(float((plain[name] - checkpointed[name]).abs().max()) for name in plain)
    assert moved > 1e-3
    # Where a gradient is nothing but rounding, Adam makes whole steps of it: less than all of the way.
    assert apart < 0.2 * moved


@pytest.mark.parametrize(("individual", "total"), [(True, False), (False, True)])
def test_er2score_training_either_term_can_be_left_out(
    recipe: Callable[..., Path], individual: bool, total: bool
) -> None:
    run = trained(recipe(trainer__max_epochs=1, model__individual=individual, model__total=total))
    row = cli.history_of(run).rows[-1]
    for stage in ("train", "val"):
        kept, other = ("individual", "total") if individual else ("total", "individual")
        assert row[f"{stage}/loss"] == pytest.approx(row[f"{stage}/{kept}"])
        assert row[f"{stage}/{other}"] > 0


def test_er2score_training_the_totals_loss_is_weighed(recipe: Callable[..., Path]) -> None:
    row = cli.history_of(trained(recipe(trainer__max_epochs=1, model__lam=3.0))).rows[-1]
    for stage in ("train", "val"):
        expected = row[f"{stage}/individual"] + 3.0 * row[f"{stage}/total"]
        assert row[f"{stage}/loss"] == pytest.approx(expected, rel=1e-5)


def graded(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records graded under OWN_SYSTEM, with clarity annotated for some of them."""
    return [
        {
            "reference": record["reference"],
            "candidate": record["candidate"],
            "scores": {
                "false": record["counts"][0],
                "omitted": record["counts"][1],
                "clarity": None if row % 3 == 0 else row % 5 / 2,
            },
        }
        for row, record in enumerate(records)
    ]


def test_er2score_training_a_users_own_system_trains_and_scores(recipe: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN_SYSTEM))
    write_records(tmp_path / "graded.jsonl", graded(tiny_records(60, per_reference=3)))
    sources = [{"class_path": "GradedReports", "init_args": {"path": str(tmp_path / "graded.jsonl")}}]
    path = recipe(data__sources=sources, model__scoring_system=str(tmp_path / "own.yaml"), trainer__max_epochs=8)
    report = cli.run(cli.build("er2score", ["--config", str(path)]))
    assert list(report["test"]["criteria"]) == ["false", "omitted", "clarity"]
    assert report["test"]["criteria"]["false"]["accuracy"] > 0.8
    assert report["data"]["train"]["pairs_that_differ"]["clarity"] > 0
    loaded = ER2ScoreModel.from_pretrained(tmp_path / "run" / "model")
    assert loaded.scoring_system.names == ("false", "omitted", "clarity")
    assert loaded.scoring_system.base == 10


def test_er2score_training_sources_are_told_apart(recipe: Callable[..., Path], tmp_path: Path) -> None:
    write_records(tmp_path / "others.jsonl", tiny_records(40, per_reference=3, seed=1))
    sources = [
        {"class_path": "JsonlRecords", "init_args": {"path": str(tmp_path / f"{name}.jsonl")}}
        for name in ("errors", "others")
    ]
    run = cli.build("er2score", ["--config", str(recipe(data__sources=sources, trainer__max_epochs=1))])
    report = cli.run(run)
    own = report["test_by_source"]
    assert set(own) == {"errors", "others"}
    assert sum(part["reports"] for part in own.values()) == report["test"]["reports"]
    pairs = [own[name]["pairs"] for name in own]
    mean = sum(n * own[name]["accuracy"] for n, name in zip(pairs, own, strict=True)) / sum(pairs)
    assert mean == pytest.approx(report["test"]["accuracy"])
    assert report["history"][-1]["val/errors/accuracy"] is not None


def test_er2score_data_module_each_report_of_a_batch_is_read_once(recipe: Callable[..., Path]) -> None:
    run = cli.build("er2score", ["--config", str(recipe())])
    data = run.datamodule
    data.setup()
    pairs = data.preferences
    for rows in data.train_dataloader().sampler:
        batch = pairs[rows]
        texts = {pair for row in rows for pair in _texts(pairs.made.pairs[row])}
        assert len(batch["suffix_ids"]) == len(batch["contributions"]) == len(texts)
        assert len(batch["prefix_ids"]) == len({reference for reference, _ in texts})
        for row, accepted, rejected in zip(rows, batch["accepted"], batch["rejected"], strict=True):
            pair = pairs.made.pairs[row]
            assert batch["contributions"][accepted].tolist() == list(pair.accepted_scores)
            assert batch["contributions"][rejected].tolist() == list(pair.rejected_scores)


def _texts(pair: Any) -> list[tuple[str, str]]:
    return [(pair.reference, pair.accepted), (pair.reference, pair.rejected)]


def test_er2score_data_module_no_reference_stands_on_two_sides(tmp_path: Path) -> None:
    save_tiny_backbone(tmp_path / "backbone")
    records = tiny_records(60, per_reference=3)
    copies = [{**record, "reference": record["reference"].upper() + "."} for record in records]
    write_records(tmp_path / "errors.jsonl", [*records, *copies])
    source = JsonlRecords(str(tmp_path / "errors.jsonl"))
    data = ER2ScoreDataModule([source], str(tmp_path / "backbone"), prompt=PROMPT, validation_fraction=0.3)
    data.setup()
    trained_on = {report_key(pair.reference) for pair in data.preferences.made.pairs}
    held_out = [{report_key(r.reference) for r in data.reports[side].reports} for side in ("validation", "test")]
    assert trained_on
    assert not trained_on & (held_out[0] | held_out[1])
    assert not held_out[0] & held_out[1]
    assert data.describe()["duplicates_left_out"] >= len(copies)


@pytest.mark.slow
def test_train_the_command_trains_a_tiny_recipe(recipe: Callable[..., Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rrg_rewards", "train", "er2score", "--config", str(recipe())]
    done = subprocess.run(
        [*command, "--trainer.max_epochs=1", "--model.num_layers", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Kendall's tau of predicted" in " ".join(done.stdout.split())
    assert "epoch 1 of 1, train/loss" in done.stderr
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (written["trainer"]["max_epochs"], written["model"]["num_layers"]) == (1, 1)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"accuracy.png", "curve.png", "totals.png", "report.md"} <= names
    assert ER2ScoreModel.from_pretrained(tmp_path / "run" / "model").config.num_layers == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__backbon": "x"}, r"model.*backbon"),
        ({"model__quantization": "8bit"}, r"model\.quantization"),
        ({"model__lora": "q_proj"}, r"model\.lora"),
        ({"data__sources": [{"class_path": "GradedReports", "init_args": {"file": "x"}}]}, r"data\.sources"),
    ],
)
def test_parse_a_wrong_key_is_named(recipe: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cli.validate("er2score", recipe(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__lam": -1.0}, "lam must be a finite number of at least 0"),
        ({"model__individual": False, "model__total": False}, "there is nothing to minimise"),
        ({"model__quantization": "4bit"}, "4-bit weights cannot be trained"),
        ({"model__head_learning_rate": 0.0}, "head_learning_rate must be positive"),
        ({"model__scoring_system": "radclic"}, "did you mean 'radcliq'"),
        ({"model__num_layers": 0}, "num_layers"),
        ({"model__prompt": "{reference} only"}, "prompt must contain {candidate} once"),
        ({"model__max_length": 4}, "max_length 4 leaves no room"),
        ({"model__max_length": 65}, "max_length is 65, but the backbone takes 64 tokens at most"),
        ({"data__sources": []}, "sources must contain at least one source"),
        ({"data__min_margin": 100.0}, "training reports form no pair"),
        ({"data__test_fraction": 0.0}, "none of 180 records is in test"),
    ],
)
def test_parse_a_wrong_value_is_told(recipe: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        trained(recipe(**changes))


def test_er2score_data_module_a_system_that_says_nothing_of_counted_errors_is_told(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN_SYSTEM))
    with pytest.raises(ValueError, match="'errors' counts errors, but no criterion of own lists error categories"):
        trained(recipe(model__scoring_system=str(tmp_path / "own.yaml")))


def test_er2score_data_module_a_sub_score_out_of_range_is_told_by_its_row(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN_SYSTEM))
    rows = graded(tiny_records(4))
    rows[2]["scores"]["clarity"] = 5
    write_records(tmp_path / "graded.jsonl", rows)
    sources = [{"class_path": "GradedReports", "init_args": {"path": str(tmp_path / "graded.jsonl")}}]
    with pytest.raises(ValueError, match=r"clarity must lie in \[0, 4\], got 5"):
        trained(recipe(data__sources=sources, model__scoring_system=str(tmp_path / "own.yaml")))
