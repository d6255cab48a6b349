"""Reading tables, and the error of each kind of malformed file."""

import csv
import io
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from rrg_rewards.data.tables import readers
from rrg_rewards.data.tables.readers import BatchedTable, read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import write_table


def test_read_table_csv_keeps_text_untouched_and_reads_empty_cells_as_missing(tmp_path):
    path = tmp_path / "reports.csv"
    path.write_bytes('\ufeffid,report\r\n1,"Small ""nodule"",\r\n benign"\r\n\r\n2,\r\n3, spaced \r\n'.encode())
    table = read_table(path)
    assert table.columns == {"id": ["1", "2", "3"], "report": ['Small "nodule",\r\n benign', None, " spaced "]}
    assert table.where(0) == f"{path}: data row 1 (line 2)"
    assert table.where(1) == f"{path}: data row 2 (line 5)"


def test_read_table_csv_of_a_header_alone_is_a_table_without_rows(tmp_path):
    path = tmp_path / "reports.csv"
    path.write_text("id,report\n")
    table = read_table(path)
    assert (len(table), table.names) == (0, ("id", "report"))


def test_read_table_jsonl_keeps_types_and_reads_missing_keys_as_missing(tmp_path):
    path = tmp_path / "reports.jsonl"
    path.write_text('{"id": 1, "report": ""}\n\n{"report": "a\u2028b", "labels": [0, 1]}\n', encoding="utf-8")
    table = read_table(path)
    assert table.columns == {"id": [1, None], "report": ["", "a\u2028b"], "labels": [None, [0, 1]]}
    assert table.where(1) == f"{path}: data row 2 (line 3)"


@pytest.mark.parametrize("quoted", [True, False])
def test_read_table_report_of_a_megabyte_is_read_and_the_limit_of_the_csv_module_is_left_alone(tmp_path, quoted):
    report = "Normal. " * 131_072
    path = tmp_path / "reports.csv"
    path.write_text(f'report\n"{report}"\n' if quoted else f"report\n{report}\n")
    before = csv.field_size_limit()
    assert read_table(path).columns == {"report": [report]}
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"", r"a.csv: is empty; a table has a header line"),
        ("a.csv", b"\n\n", r"a.csv: is empty"),
        ("a.csv", b"id,id\n1,2\n", r"a.csv: the header holds 'id' more than once"),
        ("a.csv", b"id,t\n1,a\n2,b,c\n", r"a.csv: data row 2 \(line 3\): has 3 cells where the header has 2 columns"),
        ("a.csv", b"id,t\n1\n", r"a.csv: data row 1 \(line 2\): has 1 cells where"),
        ("a.csv", b'id,t\n1,"a\nb"\n2\n', r"a.csv: data row 2 \(line 4\): has 1 cells"),
        ("a.csv", b'id,t\n1,"open\n2,b\n', r"a.csv: line 3: .*in the row that starts on line 2; is a quote"),
        ("a.csv", b'id,t\n1,"a"b\n', r"a.csv: line 2: .*in the row that starts on line 2"),
        ("a.csv", b"id,t\n1,caf\xe9\n", r"a.csv: line 2, byte 10 of the file: not UTF-8 \(0xe9\); save it as UTF-8"),
        ("a.csv", "id,t\n1,a\n".encode("utf-16"), r"a.csv: line 1, byte 0 of the file: not UTF-8.*UTF-16"),
        ("a.csv", b"id,t\n1,a\0b\n", r"a.csv: line 2: holds a NUL byte"),
        ("a.jsonl", b"", r"a.jsonl: is empty"),
        ("a.jsonl", b'{"a": 1}\n\n{"a": }\n', r"a.jsonl: data row 2 \(line 3\): not a line of JSON"),
        ("a.jsonl", b"[1]\n", r"a.jsonl: data row 1 \(line 1\): must be a JSON object.*got list"),
        ("a.jsonl", b'{"a": 1, "a": 2}\n', r"data row 1 \(line 1\): .*the key 'a' stands more than once"),
        ("a.jsonl", b'{"a": "b"}\n{"a": "caf\xe9"}\n', r"a.jsonl: line 2, byte 10 of the line: not UTF-8"),
        ("a.jsonl", b"[" * 100_000, r"a.jsonl: data row 1 \(line 1\): not a line of JSON"),
        ("a.parquet", b"PAR1 no", r"a.parquet: not a readable Parquet file"),
        ("a.parquet", b"", r"a.parquet: not a readable Parquet file"),
        ("a.txt", b"id\n1\n", r"a.txt: the ending '.txt' does not tell"),
    ],
)
def test_read_table_damage_is_named_by_file_line_and_row(tmp_path, name, data, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / name)


def test_read_table_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(TableError, match=r"none.csv: no such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match=r"folder.csv: is a folder"):
        read_table(tmp_path / "folder.csv")


@pytest.mark.parametrize(
    ("table_format", "data"), [(None, b"id,report\n1,Normal.\n"), ("jsonl", b'{"id": "1", "report": "Normal."}\n')]
)
def test_read_table_standard_input_is_csv_unless_told_otherwise(monkeypatch, table_format, data):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert read_table("-", table_format).columns == {"id": ["1"], "report": ["Normal."]}


def test_read_table_parquet_without_pyarrow_names_the_pip_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[parquet\]"):
        read_table(tmp_path / "a.parquet")


def merged(batches):
    return {name: [cell for batch in batches for cell in batch.columns[name]] for name in batches[0].names}


CSV = '\ufeff\r\n"a ""b""";t\r\n1;"x\r\n;y"\r\r\n2;\r3;z\n\n4;"\r"\n'.encode()
JSONL = '{"a": 1}\n\n{"t": "x\u2028y"}\r\n{"a": null, "n": [0]}\n{"a": 4.5}'.encode()


@pytest.mark.parametrize(("name", "data"), [("a.csv", CSV), ("a.jsonl", JSONL), ("a.parquet", None)])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_batched_table_has_the_rows_of_the_table(tmp_path, name, data, rows):
    path = tmp_path / name
    if data is None:
        pytest.importorskip("pyarrow")
        write_table(Table({"a": [1, None, 3, 4], "t": ["x", "y", None, ""]}), path)
    else:
        path.write_bytes(data)
    table = read_table(path)
    with BatchedTable(path, rows=rows) as batched:
        batches = list(batched)
        assert merged(batches) == dict(table.columns)
        assert len(table) == 4
        assert [len(batch) for batch in batches] == [rows] * (4 // rows) + ([4 % rows] if 4 % rows else [])
        places = [batch.where(row) for batch in batches for row in range(len(batch))]
        assert places == [table.where(row) for row in range(4)]
        assert [batch.types for batch in batches] == [table.types] * len(batches)
        assert merged(list(batched)) == dict(table.columns)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_batched_table_without_rows_is_one_batch(tmp_path, name):
    if name == "a.parquet":
        pytest.importorskip("pyarrow")
    write_table(Table({"id": [], "t": []}), tmp_path / name)
    with BatchedTable(tmp_path / name) as batched:
        assert [(batch.names, len(batch)) for batch in batched] == [(("id", "t"), 0)]


def test_batched_table_reads_a_pipe_twice(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[b"id\n1\n2\n3\n"])
    writer.start()
    with BatchedTable(path, rows=2) as batched:
        twice = [[batch.columns["id"] for batch in batched] for _ in range(2)]
    writer.join()
    assert twice == [[["1", "2"], ["3"]]] * 2


@pytest.mark.parametrize(("name", "data"), [("a.csv", CSV), ("a.jsonl", JSONL)])
@pytest.mark.parametrize("rows", [2, None])
def test_batched_table_reads_its_file_once(tmp_path, name, data, rows, monkeypatch):
    parse, read = readers._parse, []
    monkeypatch.setattr(readers, "_parse", lambda *given: (read.append(len(one)) or one for one in parse(*given)))
    (tmp_path / name).write_bytes(data)
    with BatchedTable(tmp_path / name, rows=rows) as batched:
        # Also if an iteration ends before the last batch.
        first = next(iter(batched))
        twice = [[dict(batch.columns) for batch in batched] for _ in range(2)]
    assert twice[0] == twice[1]
    assert twice[0][0] == dict(first.columns)
    assert sum(read) == 4


def test_batched_table_tells_a_bad_row_when_its_batch_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,t\n" + b"1,a\n" * 4 + b"2,b,c\n")
    with BatchedTable(tmp_path / "a.csv", rows=2) as batched:
        batches = iter(batched)
        assert [next(batches).first, next(batches).first] == [0, 2]
        with pytest.raises(TableError, match=r"a.csv: data row 5 \(line 6\): has 3 cells"):
            next(batches)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'id,t\n1,"open' + b"x\n" * 60,
            r"field larger than field limit.*in the row that starts on line 2; is a quote",
        ),
        (b"id,t\n1," + b"x" * 200, r"a.csv: line 2: is longer than 0 MiB; is this a table\?"),
    ],
)
def test_read_table_cell_without_end_does_not_fill_the_memory(tmp_path, monkeypatch, data, message):
    monkeypatch.setattr(readers, "_MOST_BYTES", 100)
    before = csv.field_size_limit(50)
    try:
        (tmp_path / "a.csv").write_bytes(data)
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / "a.csv")
    finally:
        csv.field_size_limit(before)
