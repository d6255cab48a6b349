"""What the trainings of CREPE and ER²Score have in common: resumption, the command, splits, and wrong settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_backbone import PROMPT, save_tiny_backbone
from tiny_records import save_tiny_encoder, tiny_records, write_records
from training_runs import assert_same_run, interrupted_in_second_epoch, trained

from rrg_rewards.cli.main import main
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.training import CrepeDataModule, ER2ScoreDataModule, JsonlRecords
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.splits import report_key

MakeRecipe = Callable[[str], Callable[..., Path]]
TASKS = pytest.mark.parametrize("task", ["crepe", "er2score"])
LORA = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], "lora_dropout": 0.1}


@TASKS
def test_training_no_report_text_is_in_what_is_told(make_recipe: MakeRecipe, tmp_path: Path, task: str) -> None:
    cli.run(cli.build(task, ["--config", str(make_recipe(task)(trainer__max_epochs=1))]))
    references = {json.loads(line)["reference"] for line in (tmp_path / "errors.jsonl").read_text().splitlines()}
    for name in ("report.json", "report.md", "run.json", "model/config.json", "model/README.md"):
        text = (tmp_path / "run" / name).read_text()
        assert not any(reference in text for reference in references)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("crepe", {}),
        ("er2score", {}),
        pytest.param("er2score", {"model__lora": LORA}, marks=pytest.mark.slow),
    ],
)
def test_training_a_resumed_run_ends_as_one_that_was_not_stopped(
    make_recipe: MakeRecipe, tmp_path: Path, task: str, settings: dict[str, Any]
) -> None:
    recipe, settings = make_recipe(task), {"trainer__max_epochs": 3, **settings}
    whole = trained(task, recipe(**settings, output_dir=str(tmp_path / "whole")))
    stopped = recipe(**settings, output_dir=str(tmp_path / "stopped"))
    with interrupted_in_second_epoch(cli.TASKS[task].module):
        trained(task, stopped)
    resumed = trained(task, stopped, "--resume_from_checkpoint", "auto")
    assert_same_run(resumed, whole)
    if task == "er2score":
        assert torch.equal(resumed.model.offset, whole.model.offset)


@TASKS
def test_data_module_no_reference_stands_on_two_sides(tmp_path: Path, task: str) -> None:
    records = tiny_records(60, per_reference=3)
    copies = [{**record, "reference": record["reference"].upper() + "."} for record in records]
    crossing = [{**records[0], "candidate": other["reference"]} for other in records]
    write_records(tmp_path / "errors.jsonl", [*records, *copies, *crossing])
    source, options = JsonlRecords(str(tmp_path / "errors.jsonl")), {"validation_fraction": 0.3}
    data: Any
    if task == "crepe":
        data = CrepeDataModule([source], str(save_tiny_encoder(tmp_path / "encoder")), **options)
    else:
        save_tiny_backbone(tmp_path / "backbone")
        data = ER2ScoreDataModule([source], str(tmp_path / "backbone"), prompt=PROMPT, **options)
    data.setup()
    split = data.split
    parts = (split.train, split.validation, split.test)
    sides = [{report_key(record.reference) for record in side} for side in parts]
    assert all(sides)
    assert len(set.union(*sides)) == sum(map(len, sides)) == len({report_key(r["reference"]) for r in records})
    for place, side in enumerate(parts):
        others = set.union(*(references for other, references in enumerate(sides) if other != place))
        assert not any(report_key(record.candidate) in others for record in side)
    assert data.describe()["duplicates_left_out"] == split.duplicates >= len(copies)
    assert split.crossing > 0
    assert sum(map(len, parts)) + split.duplicates + split.crossing == len(records) + len(copies) + len(crossing)
    if task == "er2score":
        assert {report_key(pair.reference) for pair in data.preferences.made.pairs} <= sides[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "option", "plots"),
    [
        (
            "crepe",
            "presence_loss_weight",
            {"counts.svg", "curve.svg", *map("training_{}.svg".format, ERROR_CATEGORIES)},
        ),
        ("er2score", "num_layers", {"curve.svg", "totals.svg"}),
    ],
)
def test_train_the_command_trains_a_tiny_recipe(
    make_recipe: MakeRecipe,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    option: str,
    plots: set[str],
) -> None:
    command = ["train", task, "--config", str(make_recipe(task)())]
    assert main([*command, "--trainer.max_epochs=1", f"--model.{option}", "1"]) == 0
    out, err = capsys.readouterr()
    assert "Kendall's tau of predicted" in " ".join(out.split())
    assert "epoch 1 of 1, train/loss" in err
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (written["trainer"]["max_epochs"], written["model"][option]) == (1, 1)
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())[option] == 1
    assert plots | {"report.md"} <= {path.name for path in (tmp_path / "run").iterdir()}


UNKNOWN_KEY = [{"class_path": "JsonlRecords", "init_args": {"file": "x"}}]


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("crepe", {"trainer__max_epochz": 3}, "trainer.*max_epochz"),
        ("crepe", {"model__learning_rate": "fast"}, r"model\.learning_rate.*fast"),
        ("crepe", {"model__schedule": "line"}, r"model\.schedule"),
        ("crepe", {"data__sources": [{"class_path": "Nowhere"}]}, r"data\.sources.*Nowhere"),
        ("crepe", {"data__sources": UNKNOWN_KEY}, r"data\.sources"),
        ("crepe", {"surplus": 1}, "surplus"),
        ("er2score", {"model__backbon": "x"}, r"model.*backbon"),
        ("er2score", {"model__quantization": "8bit"}, r"model\.quantization"),
        ("er2score", {"model__lora": "q_proj"}, r"model\.lora"),
        ("er2score", {"data__sources": UNKNOWN_KEY}, r"data\.sources"),
        ("crep", {}, "unknown task 'crep'; did you mean 'crepe'"),
    ],
)
def test_parse_a_wrong_key_is_named(make_recipe: MakeRecipe, task: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cli.validate(task, make_recipe(task)(**changes))


@pytest.mark.parametrize(
    ("task", "changes", "named"),
    [
        ("crepe", {"model__learning_rate": -1.0}, "learning_rate"),
        ("crepe", {"model__warmup_ratio": 1.0}, "warmup_ratio"),
        ("crepe", {"model__presence_loss_weight": 2.0}, "presence_loss_weight"),
        ("crepe", {"data__sources": []}, "sources"),
        ("crepe", {"resume_from_checkpoint": "nowhere.ckpt"}, "resume_from_checkpoint: nowhere.ckpt"),
        ("crepe", {"data__validation_fraction": 0.99}, "validation_fraction"),
        ("crepe", {"data__test_fraction": 0.0}, "none of 120 records is in test"),
        ("crepe", {"data__batch_size": 0}, "batch_size"),
        ("er2score", {"model__lam": -1.0}, "lam must"),
        ("er2score", {"model__individual": False, "model__total": False}, "nothing to minimise"),
        ("er2score", {"model__quantization": "4bit"}, "quantization 4bit"),
        ("er2score", {"model__head_learning_rate": 0.0}, "head_learning_rate"),
        ("er2score", {"model__scoring_system": "radclic"}, "did you mean 'radcliq'"),
        ("er2score", {"model__num_layers": 0}, "num_layers"),
        ("er2score", {"model__prompt": "{reference} only"}, "prompt must contain {candidate}"),
        ("er2score", {"model__max_length": 4}, "max_length 4"),
        ("er2score", {"model__max_length": 65}, "max_length is 65"),
        ("er2score", {"data__sources": []}, "sources"),
        ("er2score", {"data__min_margin": 100.0}, "training reports form no pair"),
        ("er2score", {"data__test_fraction": 0.0}, "none of 180 records is in test"),
    ],
)
def test_parse_a_wrong_value_is_told(make_recipe: MakeRecipe, task: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, OSError), match=named):
        trained(task, make_recipe(task)(**changes))
