"""Heads of CREPE: labels of records, and training with one and two heads."""

import math
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from tiny_records import save_tiny_encoder, tiny_records, write_records
from training_runs import write_recipe

from rrg_rewards.data import ErrorRecord
from rrg_rewards.metrics import CREPE
from rrg_rewards.training import CrepeDataModule, JsonlRecords, ReportErrors
from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.tokenized import HEADS, head_labels

SIX = (2, 1, 0, 0, 1, 0)
FULL = ErrorRecord("a", "b", SIX, significant=(2, 0, 0, 0, 0, 0), other=3)
PARTLY = ErrorRecord("a", "b", (2, 1, 0, 0, None, None), significant=(1, 0, 0, 0, None, None))
NO_CATEGORY = ErrorRecord("a", "b", (None,) * 6, other=2)


@pytest.mark.parametrize(
    ("record", "heads", "labels"),
    [
        (FULL, "categories", list(SIX)),
        (FULL, "significance", [2, 2]),
        (FULL, "total", [7]),
        (PARTLY, "categories", [2, 1, 0, 0, math.nan, math.nan]),
        (PARTLY, "significance", [math.nan] * 2),
        (PARTLY, "total", [math.nan]),
        (NO_CATEGORY, "categories", [math.nan] * 6),
        (NO_CATEGORY, "total", [2]),
        (ErrorRecord("a", "b", SIX), "significance", [math.nan] * 2),
    ],
)
def test_head_labels_labels(record: ErrorRecord, heads: str, labels: list[float]) -> None:
    assert head_labels(record, heads) == pytest.approx(labels, nan_ok=True)


def test_crepe_data_module_records_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [{**record, "significant": record["counts"]} for record in tiny_records(20)]
    for line in lines[::4]:
        del line["significant"]
    write_records(tmp_path / "errors.jsonl", lines)
    save_tiny_encoder(tmp_path / "encoder")
    data = CrepeDataModule([JsonlRecords(str(tmp_path / "errors.jsonl"))], str(tmp_path / "encoder"), "significance")
    data.setup()
    found = data.describe()
    assert found["unlabelled_left_out"] == 10
    assert found["train"]["pairs"] + found["validation"]["pairs"] + found["test"]["pairs"] == 30
    assert data.pairs["train"].labels.shape[1] == 2


def test_crepe_data_module_a_source_without_any_label_is_named(tmp_path: Path) -> None:
    write_records(tmp_path / "errors.jsonl", tiny_records(4))
    data = CrepeDataModule([JsonlRecords(str(tmp_path / "errors.jsonl"))], "unused", "significance")
    with pytest.raises(ValueError, match="no record of source 'errors' has a label for heads='significance'"):
        data.read()


@pytest.mark.parametrize("heads", ["significance", "total"])
def test_crepe_module_a_model_of_few_heads_trains_and_scores(
    tmp_path: Path, heads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if heads == "total":
        monkeypatch.setitem(HEADS, heads, ("../all errors",))
    save_tiny_encoder(tmp_path / "encoder")
    lines = [{**record, "significant": [record["counts"][0], 0, 0, 0, 0, 0]} for record in tiny_records(30)]
    write_records(tmp_path / "errors.jsonl", lines)
    recipe = write_recipe(tmp_path, {"encoder": str(tmp_path / "encoder"), "heads": heads}, {"trainer__max_epochs": 1})
    run = cli.build("crepe", ["--config", str(recipe)])
    report = cli.run(run)
    assert report is not None
    assert tuple(report["test"]["categories"]) == HEADS[heads]
    labels = run.datamodule.pairs["train"].labels
    # False findings are the significant errors, and omitted ones the others.
    counts = [record["counts"][:2] for record in lines]
    expected = Counter(tuple(one) if heads == "significance" else (sum(one),) for one in counts)
    assert Counter(map(tuple, labels.tolist())) <= expected
    for column, name in zip(labels.T.tolist(), HEADS[heads], strict=True):
        assert report["counts_of_training"][name] == {number: column.count(number) for number in sorted({*column})}
    links = re.findall(r"\]\((.*?)\)", (tmp_path / "run" / "report.md").read_text())
    assert len(links) == 2 + len(HEADS[heads])
    assert all((tmp_path / "run" / unquote(link)).is_file() and "/" not in unquote(link) for link in links)
    metric = CREPE(tmp_path / "run" / "model", device="cpu")
    scores = metric.score(["mass mass"], ["nodule"])
    assert tuple(scores.details) == HEADS[heads]
    assert torch.allclose(scores.value, torch.stack(list(scores.details.values())).sum(0))


def test_crepe_module_unknown_heads_are_told(tmp_path: Path) -> None:
    save_tiny_encoder(tmp_path / "encoder")
    write_records(tmp_path / "errors.jsonl", tiny_records(4))
    recipe = write_recipe(tmp_path, {"encoder": str(tmp_path / "encoder"), "heads": "severity"}, {})
    with pytest.raises(ValueError, match=r"model\.heads"):
        cli.validate("crepe", recipe)


def test_report_errors_injected_errors_are_significant_if_their_finding_is(tmp_path: Path) -> None:
    write_records(
        tmp_path / "r.jsonl", [{"report": "Large left pneumothorax. Calcified granuloma in the right upper lobe."}]
    )
    records = ReportErrors(str(tmp_path / "r.jsonl"), per_report=40, seed=1).read()
    assert len(records) > 30
    for record in records:
        assert record.significant is not None
        assert all(part <= count for part, count in zip(record.significant, record.counts, strict=True))
    # A dropped pneumothorax is significant; a dropped granuloma is not.
    dropped = {
        ("pneumothorax" in record.candidate, record.significant[1])
        for record in records
        if record.counts[1] == 1 and record.significant is not None
    }
    assert dropped == {(False, 1), (True, 0)}
