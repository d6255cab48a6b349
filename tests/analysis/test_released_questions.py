"""The released attributes and questions of CT-FineBench, converted."""

import json
from pathlib import Path

import pytest

from rrg_rewards.analysis import ReleasedQuestionSettings, ReleasedSchemaSettings, convert_questions, convert_schema
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.utilities.run_log import RunWarning

COLUMNS = ("Finding", "Feature", "Explanation", "Examples")
ROWS = [
    ("renal_cyst", "Size", "Largest diameter.", "4 mm, 12 mm"),
    ("renal_cyst", "Wall", "Look of the wall.", "zigzag"),
    ("gut_feeling", "Kind", "Kind of feeling.", "good, bad"),
]


def table(*rows: tuple[str, ...]) -> Table:
    return Table({name: list(cells) for name, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True)}, "a.csv")


def test_convert_schema_lists_what_only_a_judge_can_read() -> None:
    with pytest.warns(RunWarning) as told:
        schema = convert_schema(table(*ROWS), ReleasedSchemaSettings(name="own"))
    assert [str(one.message) for one in told] == [
        "1 of 2 findings are no label of the lexicon abdomen and need a judge that makes and answers the questions: "
        "gut feeling",
        "1 attributes cannot be read by the finding engine and need a judge that makes and answers the questions: "
        "Renal cyst, wall",
    ]
    assert (schema.name, [finding.name for finding in schema.findings]) == ("own", ["Renal cyst", "gut feeling"])
    with pytest.warns(RunWarning, match="and are left out: "):
        schema = convert_schema(table(*ROWS), ReleasedSchemaSettings(readable_only=True))
    assert [[spec.name for spec in finding.attributes] for finding in schema.findings] == [["existence", "size"]]


def test_convert_schema_names_what_is_wrong() -> None:
    with pytest.raises(TableError, match=r"a\.csv: data row 2: examples must not be blank"):
        convert_schema(table(ROWS[0], ("a", "b", "c", "")))
    with pytest.raises(TableError, match=r"a\.csv: unknown column 'Feature'"):
        convert_schema(Table({"Finding": ["a"], "Attribute": ["b"]}, "a.csv"))
    with pytest.raises(TableError, match="unknown answer_type 'number'"):
        convert_schema(table(*ROWS), ReleasedSchemaSettings(answer_type={"size": "number"}))


def test_convert_questions_tells_of_numbers_in_words(tmp_path: Path) -> None:
    path = tmp_path / "qa.json"
    asked = {"finding": "renal_cyst", "attribute": "size", "question": "How large?", "gt": "huge"}
    path.write_text(json.dumps({"a": [asked]}))
    settings = ReleasedQuestionSettings(schema="merlin", column={"answer": "gt"})
    with pytest.warns(RunWarning, match="1 answers on numeric attributes are no numbers"):
        found = convert_questions(path, settings)
    assert found.reports[0].items[0].answer_type == "categorical"
