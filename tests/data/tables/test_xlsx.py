"""Excel workbooks, written with openpyxl."""

import sys
from datetime import datetime

import pytest

from rrg_rewards.data import TableError, read_table
from rrg_rewards.data.tables import readers
from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import open_table, write_table

ROWS = [
    ["study id", "Findings", "Split", "Read"],
    ["AC1", "LUNG BASES: Clear.\nIMPRESSION: Normal.", "train", datetime(2024, 1, 31)],
    [None, None, None, None],
    ["AC2", None, "test", True],
    [7, "Ascites.", "test", datetime(2024, 1, 31, 12)],
]


@pytest.fixture
def openpyxl():
    return pytest.importorskip("openpyxl", reason="the extra xlsx is not installed")


@pytest.fixture
def write(openpyxl, tmp_path):
    def writer(*sheets, name="reports.xlsx"):
        book = openpyxl.Workbook()
        for number, rows in enumerate(sheets):
            sheet = book.create_sheet(f"Sheet{number + 1}") if number else book.active
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / name)
        return tmp_path / name

    return writer


def test_parse_xlsx_reads_cells_and_skips_empty_rows(write):
    table = read_table(write(ROWS, []))
    assert table.columns == {
        "study id": ["AC1", "AC2", 7],
        "Findings": ["LUNG BASES: Clear.\nIMPRESSION: Normal.", None, "Ascites."],
        "Split": ["train", "test", "test"],
        "Read": ["2024-01-31", True, "2024-01-31T12:00:00"],
    }
    # The second row of data is the fourth of the sheet.
    assert table.where(1).endswith("reports.xlsx: data row 2 (line 4)")


def test_parse_xlsx_reads_batches_with_the_same_columns(write):
    with BatchedTable(write(ROWS), rows=2) as batches:
        for _ in range(2):  # each iteration reads the workbook again
            assert [(batch.columns["study id"], batch.first) for batch in batches] == [(["AC1", "AC2"], 0), ([7], 2)]
    with BatchedTable(write(ROWS[:1]), rows=2) as batches:
        assert [dict(batch.columns) for batch in batches] == [{name: [] for name in ROWS[0]}]


def test_parse_xlsx_reads_the_sheet_after_the_path(write):
    path = write([["a"], [1]], [["b"], [2]])
    assert read_table(f"{path}#Sheet2").columns == {"b": [2]}
    with BatchedTable(f"{path}#Sheet") as batches:
        assert [dict(batch.columns) for batch in batches] == [{"a": [1]}]
    with pytest.raises(TableError, match="unknown sheet with content 'Sheet3'"):
        read_table(f"{path}#Sheet3")


def test_parse_xlsx_accepts_the_unnamed_index_of_pandas(write):
    assert read_table(write([[None, "report"], [0, "Normal."]])).columns == {"": [0], "report": ["Normal."]}


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        (([],), "is empty; a table has a row of names at least"),
        (([["a"], [1]], [["b"]]), "2 sheets have content, 'Sheet', 'Sheet2'; name one: "),
        (([["a", None, "b"], [1, 2, 3]],), "column 2 has no name"),
        (([["a", "a"], [1, 2]],), "the header holds 'a' more than once"),
        (([["a"], [1], [1, 2]],), r"data row 2 \(line 3\): has a cell beyond the last column, 'a'"),
    ],
)
def test_parse_xlsx_names_what_is_wrong(write, sheets, message):
    with pytest.raises(TableError, match=message):
        read_table(write(*sheets))


def test_parse_xlsx_refuses_a_file_of_another_kind(openpyxl, tmp_path):
    (tmp_path / "reports.xlsx").write_text("id,report\n1,Normal.\n")
    with pytest.raises(TableError, match=r"reports\.xlsx: not a readable Excel workbook"):
        read_table(tmp_path / "reports.xlsx")


def test_parse_xlsx_without_openpyxl_names_the_extra(monkeypatch, tmp_path):
    def missing(module, extra):
        raise ModuleNotFoundError(f"{module} is not installed; run: python -m pip install rrg-rewards[{extra}]")

    monkeypatch.setattr(readers, "require", missing)
    (tmp_path / "reports.xlsx").write_bytes(b"PK")
    with pytest.raises(ModuleNotFoundError, match=r"openpyxl is not installed.*rrg-rewards\[xlsx\]"):
        read_table(tmp_path / "reports.xlsx")


def test_write_table_writes_workbooks_that_are_read_again(openpyxl, tmp_path):
    path = tmp_path / "a.xlsx"
    texts = ["=1+1", " -No effusion.\n", "\x1b\ud800\ufffe", "ä" * 32767, "007"]
    columns = {"=id": texts, "n": [1, -0.5, float("nan"), 10**17, True], "more": [["a"], {"b": 1}, None, "", "x"]}
    with open_table(path) as writer:
        writer.write(Table({name: cells[:2] for name, cells in columns.items()}))
        writer.write(Table({name: cells[2:] for name, cells in columns.items()}))
    assert read_table(path).columns == {
        "=id": ["=1+1", " -No effusion.\n", "\ufffd" * 3, "ä" * 32767, "007"],
        "n": [1, -0.5, None, "1" + "0" * 17, True],
        "more": ['["a"]', '{"b": 1}', None, None, "x"],
    }
    cells = [cell for row in openpyxl.load_workbook(path).active.iter_rows() for cell in row]
    assert "f" not in {cell.data_type for cell in cells}


def test_write_table_refuses_what_excel_cannot_contain(openpyxl, tmp_path):
    for columns, message in (
        ({"a": ["x", "y" * 32768]}, "table: data row 2: cannot be written as Excel: a text has 32768 characters"),
        ({str(number): [1] for number in range(16385)}, "table: Excel has at most 1048575 rows and 16384 columns"),
        ({"a": [b"x"]}, "table: data row 1: cannot be written as Excel: a cell of type bytes"),
    ):
        with pytest.raises(TableError, match=message):
            write_table(Table(columns), tmp_path / "a.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_write_table_without_openpyxl_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ModuleNotFoundError, match="xlsx"):
        write_table(Table({"a": ["x"]}), tmp_path / "a.xlsx")
    assert list(tmp_path.iterdir()) == []
