"""Training of ER²Score: learning, resumption, and reports on held-out data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from tiny_records import tiny_records, write_records
from training_runs import trained, weights

from rrg_rewards.functional import margin_reward_enforcement_loss
from rrg_rewards.metrics import ER2Score
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy
from rrg_rewards.models.er2score.model import ER2ScoreModel
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate
from rrg_rewards.training.metrics import cli

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
def recipe(make_recipe: Callable[[str], Callable[..., Path]]) -> Callable[..., Path]:
    return make_recipe("er2score")


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
        trainer__max_epochs=250,
        trainer__check_val_every_n_epoch=250,
        checkpoint={"every_n_epochs": 250},
        early_stopping={"monitor": "val/accuracy", "strict": False},
        model__learning_rate=3e-3 if lora is None else 1e-2,
        model__head_learning_rate=1e-2,
        model__lora=lora,
        model__c=0.1,
        data__batch_size=16,
    )
    run = trained("er2score", path)
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
    low, high = test["kendall_interval"]
    assert low <= test["kendall"] <= high
    assert f"{test['kendall']:.3f} ({low:.3f} to {high:.3f})" in (folder / "report.md").read_text()


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


def test_er2score_training_a_checkpoint_holds_no_frozen_weight(recipe: Callable[..., Path], tmp_path: Path) -> None:
    trained("er2score", recipe(trainer__max_epochs=1, model__lora=LORA))
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
        weights(trained("er2score", recipe(**settings, model__gradient_checkpointing=on))) for on in (False, True)
    )
    start = weights(trained("er2score", recipe(**settings, model__learning_rate=1e-9)))
    moved = max(float((plain[name] - start[name]).abs().max()) for name in plain)
    apart = max(float((plain[name] - checkpointed[name]).abs().max()) for name in plain)
    assert moved > 1e-3
    # Where a gradient is nothing but rounding, Adam makes whole steps of it: less than all of the way.
    assert apart < 0.2 * moved


@pytest.mark.parametrize(("individual", "total"), [(True, False), (False, True)])
def test_er2score_training_either_term_can_be_left_out(
    recipe: Callable[..., Path], individual: bool, total: bool
) -> None:
    run = trained("er2score", recipe(trainer__max_epochs=1, model__individual=individual, model__total=total))
    row = cli.history_of(run).rows[-1]
    for stage in ("train", "val"):
        kept, other = ("individual", "total") if individual else ("total", "individual")
        assert row[f"{stage}/loss"] == pytest.approx(row[f"{stage}/{kept}"])
        assert row[f"{stage}/{other}"] > 0


def test_er2score_training_the_totals_loss_is_weighed(recipe: Callable[..., Path]) -> None:
    row = cli.history_of(trained("er2score", recipe(trainer__max_epochs=1, model__lam=3.0))).rows[-1]
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


def test_er2score_data_module_a_system_that_says_nothing_of_counted_errors_is_told(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN_SYSTEM))
    with pytest.raises(ValueError, match="'errors' counts errors, but no criterion of own lists error categories"):
        trained("er2score", recipe(model__scoring_system=str(tmp_path / "own.yaml")))


def test_er2score_data_module_a_sub_score_out_of_range_is_told_by_its_row(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN_SYSTEM))
    rows = graded(tiny_records(4))
    rows[2]["scores"]["clarity"] = 5
    write_records(tmp_path / "graded.jsonl", rows)
    sources = [{"class_path": "GradedReports", "init_args": {"path": str(tmp_path / "graded.jsonl")}}]
    with pytest.raises(ValueError, match=r"clarity must lie in \[0, 4\], got 5"):
        trained("er2score", recipe(data__sources=sources, model__scoring_system=str(tmp_path / "own.yaml")))
