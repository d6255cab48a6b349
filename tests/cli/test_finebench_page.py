"""Commands of docs/ct_finebench.md, word for word, on small files."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from answering_judge import AnsweringJudge

from rrg_rewards.data import read_table
from rrg_rewards.judges import registry
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import build_items
from rrg_rewards.schemas import CT_RATE, MERLIN
from tests.helpers.question_items import read_items

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ct_finebench.md"


def commands(heading: str) -> list[list[str]]:
    """Return the commands of the blocks of a section."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"\n#{2,3} ", text[text.index(heading) :], maxsplit=2)
    blocks = re.findall(r"```bash\n(.*?)```", "".join(section[:1]), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    return [shlex.split(line) for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(run: Any, lines: list[list[str]]) -> list[Any]:
    results = []
    for program, *arguments in lines:
        assert program == "rrg-rewards"
        results.append(run(*arguments))
        assert results[-1].code == 0, results[-1].err
    return results


def labels(names: tuple[str, ...], positive: str, other: int = 0) -> list[int]:
    return [1 if name == positive else other for name in names]


def test_commands_for_ct_rate(run: Any, write_csv: Any, folder: Path) -> None:
    header = ["VolumeName", "ClinicalInformation_EN", "Technique_EN", "Findings_EN", "Impressions_EN"]
    rows = [
        ("valid_1_a_1.nii.gz", "", "", "Nodule of 5 mm in the left lung.", "Nodule."),
        ("valid_3_a_1.nii.gz", "", "", "Small left pleural effusion. Nodule.", ""),
    ]
    write_csv("validation_reports.csv", header, *rows)
    positive = ["Lung nodule", "Pleural effusion"]
    label_rows = [(row[0], *labels(CT_RATE.labels, label)) for row, label in zip(rows, positive, strict=True)]
    write_csv("valid_predicted_labels.csv", ["VolumeName", *CT_RATE.labels], *label_rows)

    line, _ = commands("### Findings with a positive label")
    (result,) = run_all(run, [line])
    assert "2 of 2 positive labels have an item" in result.err
    found = read_items("ct_rate_items.jsonl")
    assert [(row.report_id, {item.finding for item in row.items}) for row in found] == [
        ("valid_1_a_1.nii.gz", {"Lung nodule"}),
        ("valid_3_a_1.nii.gz", {"Pleural effusion"}),
    ]
    assert found[0].report == "Nodule of 5 mm in the left lung. Nodule."


@pytest.mark.parametrize("is_workbook", [True, False])
def test_commands_for_merlin(run: Any, write_csv: Any, folder: Path, is_workbook: bool) -> None:
    _, line = commands("### Findings with a positive label")
    header = ("study id", "Findings", "Split", "Few Shot")
    row = ("AC1", "KIDNEYS: Renal cyst of 12 mm. IMPRESSION: Renal cyst.", "test", 0)
    if is_workbook:
        openpyxl = pytest.importorskip("openpyxl", reason="Merlin's reports are a workbook (extra xlsx)")
        book = openpyxl.Workbook()
        book.active.append(header)
        book.active.append(row)
        book.save(folder / "reports_final.xlsx")
    else:
        write_csv("reports_final.csv", header, row)
        line = [word.replace(".xlsx", ".csv") for word in line]
    names = [label.lower().replace(" ", "_") for label in MERLIN.labels]
    states = labels(MERLIN.labels, "Renal cyst", -1)
    write_csv("zero_shot_findings_disease_cls.csv", ["study id", *names], ("AC1", *states))
    (result,) = run_all(run, [line])
    assert "29 labels of zero_shot_findings_disease_cls.csv are -1, not mentioned" in result.err
    (found,) = read_items("merlin_items.jsonl", "merlin")
    assert (found.report_id, [(item.finding, item.attribute, item.answer) for item in found.items]) == (
        "AC1",
        [("Renal cyst", "existence", "yes"), ("Renal cyst", "size", "12 mm")],
    )


ATTRIBUTES = [
    ("lung_nodule", "Size", "Largest diameter.", "4 mm, 1.5 cm, 12 mm"),
    ("lung_nodule", "Location", "Lobe.", "right upper lobe, left lung"),
    ("lung_nodule", "Mood", "Of the nodule.", "sunny, gloomy"),
    ("air_guitar", "Tuning", "Of the strings.", "drop D, open G"),
]
QUESTIONS = {
    "valid_1_a_1.nii.gz": [
        {"finding": "lung_nodule", "attribute": "Size", "question": "How large is the nodule?", "answer": "12 mm"},
        {"finding": "lung_nodule", "attribute": "Mood", "question": "What mood has it?", "answer": "gloomy"},
        {"finding": "lung_nodule", "attribute": "presence", "question": "Is there a nodule?", "answer": "Yes"},
    ],
    "valid_2_a_1.nii.gz": [
        {"finding": "air_guitar", "attribute": "Tuning", "question": "How is it tuned?", "answer": "open G"}
    ],
}


def answered(item: Any) -> str:
    """The judge's answers and grades, by the question."""
    question = item.items[0].question
    if not hasattr(item, "answers"):
        return {"How large is the nodule?": "It measures 15 mm.", "What mood has it?": "no answer"}.get(
            question, "Yes."
        )
    assert item.answers[0] != "no answer"
    return {"How large is the nodule?": "Score: 0.5", "Is there a nodule?": "1", "How is it tuned?": "0"}[question]


@pytest.fixture
def release(write_csv: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the layouts of the release, and a server that answers."""
    write_csv("ctrate_attributes.csv", ["Finding", "Feature", "Explanation", "Examples"], *ATTRIBUTES)
    (folder / "ctrate_qa_test.json").write_text(json.dumps(QUESTIONS))
    predictions = [("valid_1_a_1.nii.gz", "Nodule."), ("valid_2_a_1.nii.gz", "Normal.")]
    write_csv("predictions.csv", ["VolumeName", "report"], *predictions)
    write_csv("reports.csv", ["report_text"], ("Nodule of 5 mm in the left lung.",))
    (folder / "answer_prompt.txt").write_text(
        "<report>\n<question> (<attribute> of <disease>: <explanation> <example>)"
    )
    (folder / "grade_prompt.txt").write_text("Score the answer with 0, 0.5 or 1.")
    server = ModuleType("answering_server")
    server.Server = lambda **settings: AnsweringJudge(answered, name=settings["model"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "answering_server", server)
    monkeypatch.setitem(registry._JUDGES, "openai", "answering_server:Server")


@pytest.mark.usefixtures("release")
def test_commands_for_the_authors_release(run: Any) -> None:
    lines = commands("## The authors' release")
    assert [line[1:3] for line in lines] == [
        ["finebench", "schema"],
        ["finebench", "questions"],
        ["score", "predictions.csv"],
        ["finebench", "schema"],
        ["finebench", "build"],
    ]
    converted, questions, _, readable, _ = run_all(run, lines)
    assert "1 of 2 findings are no label of the lexicon chest_ct and need a judge" in converted.err
    assert "air guitar" in converted.err
    assert "Lung nodule, mood" in converted.err
    assert "2 findings with 6 attributes: existence 2, numeric 1, location 1, categorical 2" in converted.err
    assert "4 questions on 2 reports" in questions.err
    scores = read_table("scores.csv")
    assert list(scores.column("ct_finebench")) == ["0.5", "0.0"]
    assert list(scores.column("ct_finebench_answered")) == ["2.0", "1.0"]
    # Of the first report 0.5, 0 for no answer, and 1; of the second 0.
    assert json.loads(Path("summary.json").read_text())["metrics"]["ct_finebench"]["value"] == 0.25
    assert "are left out: air guitar" in readable.err
    schema = get_question_schema("readable.yaml")
    assert [[spec.name for spec in finding.attributes] for finding in schema.findings] == [
        ["existence", "size", "location"]
    ]
    (row,) = read_items("items.jsonl")
    assert row.items == build_items("Nodule of 5 mm in the left lung.", "readable.yaml")
    assert len(row.items) == 3
