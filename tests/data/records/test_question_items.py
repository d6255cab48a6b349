"""Question items by report: known layouts, named columns, and unknown layouts."""

import json

import pytest

from rrg_rewards.data import ReportItems, TableError, load_question_items, read_question_items, write_question_items
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.questions.schema import QAItem

SIZE = QAItem("Lung nodule", "size", "How large is the nodule?", "12 mm", "numeric", "Its diameter.", ("3 mm", "1 cm"))
THERE = QAItem("Lung nodule", "existence", "Is there a nodule?", "yes", "existence")
REPORTS = [
    ReportItems("a", (SIZE, THERE), "Nodule of 12 mm.", {"split": "test"}),
    ReportItems("b", (), "Clear.", {"split": "test"}),
]
ROW = {"report_id": "7", "finding": "Lung nodule", "attribute": "size", "question": "How large?", "answer": "12 mm"}


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_question_items_written_items_are_read_again(tmp_path, ending):
    path = tmp_path / f"items.{ending}"
    write_question_items(REPORTS, path)
    assert read_question_items(path) == REPORTS


def test_question_items_nothing_is_replaced_unasked(tmp_path):
    path = tmp_path / "items.jsonl"
    write_question_items(REPORTS, path)
    with pytest.raises(TableError, match="exists already"):
        write_question_items(REPORTS, path)
    write_question_items(REPORTS[:1], path, overwrite=True)
    assert len(read_question_items(path)) == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_question_items_one_row_an_item(tmp_path, ending):
    rows = [
        {**ROW, "answer_type": "numeric", "examples": '["3 mm", "1 cm"]', "report": "Nodule of 12 mm."},
        {**ROW, "report_id": "8", "answer_type": "Numeric", "examples": "3 mm, 1 cm", "report": None},
        {**ROW, "attribute": "existence", "answer": "yes", "answer_type": "existence", "report": "Nodule of 12 mm."},
    ]
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    path = tmp_path / f"items.{ending}"
    write_table(Table(columns), path)
    seven, eight = read_question_items(path)
    assert [item.attribute for item in seven.items] == ["size", "existence"]
    assert (seven.report_id, seven.report, eight.report) == ("7", "Nodule of 12 mm.", None)
    assert seven.items[0].examples == eight.items[0].examples == ("3 mm", "1 cm")
    assert eight.items[0].answer_type == "numeric"


def test_question_items_columns_and_types_are_named(tmp_path):
    names = {"report_id": "VolumeName", "finding": "disease", "question": "Q", "answer": "A", "attribute": "attr"}
    path = write_rows(tmp_path / "x.jsonl", [{names[name]: value for name, value in ROW.items()}])
    read = read_question_items(path, names, answer_types={"Size": "numeric", "*": "categorical"})
    assert read == [ReportItems("7", (QAItem("Lung nodule", "size", "How large?", "12 mm", "numeric"),))]
    other = write_rows(tmp_path / "y.jsonl", [{**ROW, "attribute": "margin", "answer": "smooth"}])
    assert read_question_items(other, answer_types={"*": "categorical"})[0].items[0].answer_type == "categorical"


def test_question_items_keys_of_a_list_are_named(tmp_path):
    path = write_rows(
        tmp_path / "x.jsonl", [{"qa": [{"f": "Atelectasis", "a": "type", "q": "Which?", "gold": "linear"}]}]
    )
    names = {"items": "qa", "finding": "f", "attribute": "a", "question": "q", "answer": "gold"}
    read = read_question_items(path, names, answer_types={"*": "categorical"})
    assert read == [ReportItems("1", (QAItem("Atelectasis", "type", "Which?", "linear", "categorical"),))]


def test_question_items_unknown_layout_shows_its_columns_and_how_to_name_them(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [{"id": 1, "Disease": "x", "Q": "y", "A": "z"}])
    with pytest.raises(TableError) as caught:
        read_question_items(path)
    message = str(caught.value)
    for part in ("'id', 'Disease', 'Q', 'A'", "columns={", "'finding': '...'", "answer_types={", "no column 'items'"):
        assert part in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer": "  "}, "data row 1 .line 1.: is no question item: answer must be a text"),
        ({"answer": None}, "answer must be a text"),
        ({"answer_type": "number"}, "unknown answer_type 'number'"),
        ({"answer_type": None}, "no type of the answer to 'size'"),
        ({"report_id": None}, "column 'report_id': is missing"),
        ({"examples": 3}, "examples must be a list"),
    ],
)
def test_question_items_what_is_no_item_is_told_by_row(tmp_path, change, words):
    path = write_rows(tmp_path / "x.jsonl", [{**ROW, "answer_type": "numeric", **change}])
    with pytest.raises(TableError, match=words):
        read_question_items(path)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("{no json", "is no JSON list of items"),
        ([3], "item 1: must be an object, got int"),
        ([{"finding": "x"}], "item 1: lacks 'attribute', 'question', 'answer'; keys found: 'finding'"),
        (3, "must be a list of items, got int"),
        ({"finding": ["a"], "attribute": []}, "lists must have the same length"),
    ],
)
def test_question_items_what_is_no_list_of_items_is_told_by_row(tmp_path, cell, words):
    path = write_rows(tmp_path / "x.jsonl", [{"report_id": "a", "items": []}, {"report_id": "b", "items": cell}])
    with pytest.raises(TableError, match=f"data row 2.*{words}"):
        read_question_items(path)


def test_question_items_report_that_differs_and_a_name_that_is_none(tmp_path):
    rows = [{**ROW, "answer_type": "numeric", "report": text} for text in ("One.", "Another.")]
    with pytest.raises(TableError, match=r"data row 2.*another report of the same 'report_id'"):
        read_question_items(write_rows(tmp_path / "x.jsonl", rows))
    with pytest.raises(ValueError, match="unknown part of an item in columns 'qustion'; did you mean 'question'"):
        read_question_items(tmp_path / "x.jsonl", {"qustion": "Q"})


def test_question_items_data_set_is_read_as_its_table_is(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    write_rows(
        folder / "test.jsonl", [{**{key: value for key, value in ROW.items() if key != "answer"}, "gold": "12 mm"}]
    )
    read = load_question_items(str(folder), {"answer": "gold"}, answer_types={"size": "numeric"})
    assert read[0].items[0].answer == "12 mm"
    with pytest.raises(TableError, match=r"set \(test\): has no question items.*'gold'"):
        load_question_items(str(folder))
    with pytest.raises(ValueError, match="train"):
        load_question_items(str(folder), split="train")
