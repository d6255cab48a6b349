"""``rrg-rewards score --metrics ct_finebench``: questions of the references, or of a column."""

import json
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.cli.main import main
from rrg_rewards.metrics import CTFineBench

LEFT, LARGER = (f"Nodule of {size} mm in the left upper lobe." for size in (8, 10))
ITEM = {
    "finding": "Lung nodule",
    "attribute": "size",
    "question": "What is the size of the nodule?",
    "answer": "8 mm",
    "answer_type": "numeric",
}
ROWS: list[dict[str, Any]] = [
    {"prediction": LEFT, "reference": LEFT, "questions": [ITEM]},
    {"prediction": LARGER, "reference": LEFT, "questions": [ITEM]},
    {"prediction": LEFT, "reference": "Normal chest CT.", "questions": []},
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def summary(pairs: Path, *options: str) -> Any:
    path = pairs.parent / "summary.json"
    arguments = ["score", str(pairs), "--metrics", "ct_finebench", "--bootstrap", "0", "--json", str(path)]
    assert main([*arguments, "--overwrite", *options]) == 0
    return json.loads(path.read_text())["metrics"]["ct_finebench"]


def test_the_summary_holds_what_the_metric_gives(pairs: Path) -> None:
    entry = summary(pairs)
    metric = CTFineBench()
    metric.update([row["prediction"] for row in ROWS], [row["reference"] for row in ROWS])
    assert entry["value"] == pytest.approx(metric.compute().item()) == pytest.approx((1 + 2.5 / 3) / 2)
    assert (entry["scored"], entry["unscorable"]) == (2, 1)
    means = {name: value.item() for name, value in metric.statistics().items()}
    assert entry["means"] == {name: pytest.approx(value) if value == value else None for name, value in means.items()}
    assert entry["signature"] == metric.signature
    assert summary(pairs, "--set", "ct_finebench.mode=f1")["scored"] == 3


def test_questions_of_a_column(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(pairs, "--context", "items=questions")["value"] == 0.75
    # A CSV file contains them as JSON.
    table = pairs.with_suffix(".csv")
    lines = ["prediction,reference,questions"]
    for row in ROWS:
        cell = json.dumps(row["questions"]).replace('"', '""')
        lines.append(f'{row["prediction"]},{row["reference"]},"{cell}"')
    table.write_text("\n".join(lines) + "\n")
    assert summary(table, "--context", "items=questions")["value"] == 0.75
    pairs.write_text(json.dumps({**ROWS[0], "questions": [{**ITEM, "answer": "12 parsecs"}]}) + "\n")
    capsys.readouterr()
    assert main(["score", str(pairs), "--metrics", "ct_finebench", "--context", "items=questions"]) != 0
    assert "items[0][0]: the answer of Lung nodule, size, cannot be compared as numeric" in capsys.readouterr().err
