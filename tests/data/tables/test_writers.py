"""Writing tables: exact round trips, and no partly written files."""

import datetime
import json
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import check_output, open_output, open_table, write_json, write_table
from rrg_rewards.utilities.run_log import RunWarning

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
AWKWARD = st.lists(st.sampled_from(['"', ",", "\n", "\r", " ", "a", "\ufeff", "\u2028", "\x85", "'"])).map("".join)
PLAIN = st.none() | TEXT | AWKWARD
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda cells: st.lists(cells, max_size=3) | st.dictionaries(st.text(), cells, max_size=3),
    max_leaves=5,
)


def tables(cells, names=TEXT, min_rows=0):
    def of_shape(shape):
        columns, rows = shape
        return st.tuples(*(st.lists(cells, min_size=rows, max_size=rows) for _ in columns)).map(
            lambda values: dict(zip(columns, values, strict=True))
        )

    return st.tuples(st.lists(names | AWKWARD, min_size=1, max_size=4, unique=True), st.integers(min_rows, 4)).flatmap(
        of_shape
    )


def round_trip(columns, ending):
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"table{ending}"
        write_table(Table(columns), path)
        return read_table(path).columns


@given(tables(PLAIN))
def test_write_table_csv_round_trip_is_exact_but_for_empty_text(columns):
    expected = {name: [cell or None for cell in cells] for name, cells in columns.items()}
    assert round_trip(columns, ".csv") == expected


@given(tables(JSON, min_rows=1))
def test_write_table_jsonl_round_trip_is_exact(columns):
    assert round_trip(columns, ".jsonl") == columns


@given(tables(st.none() | TEXT))
def test_write_table_parquet_round_trip_is_exact(columns):
    pytest.importorskip("pyarrow")
    assert round_trip(columns, ".parquet") == columns


def test_write_table_parquet_columns_keep_their_types(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "n": arrow.array([1, None], arrow.int8()),
        "day": arrow.array([datetime.date(2024, 2, 29), None], arrow.date32()),
        "tokens": arrow.array([[1], []], arrow.list_(arrow.int32())),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "in.parquet")
    table = read_table(tmp_path / "in.parquet").with_columns({"crg": [0.5, None]})
    write_table(table, tmp_path / "out.parquet")
    written = parquet.read_table(tmp_path / "out.parquet")
    assert {name: written.schema.field(name).type for name in columns} == {n: a.type for n, a in columns.items()}
    assert written.column("crg").to_pylist() == [0.5, None]
    write_table(table, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "n,day,tokens,crg\n1,2024-02-29,[1],0.5\n,,[],\n"


def test_write_table_cells_that_a_format_cannot_hold_are_named(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(TableError, match=r"table: data row 2: cannot be written as JSON: a cell of type bytes"):
        write_table(Table({"a": ["x", b"x"]}), tmp_path / "a.jsonl")
    with pytest.raises(TableError, match=r"table: data row 1: cannot be written as CSV: a cell of type bytes"):
        write_table(Table({"a": [b"x"]}), tmp_path / "a.csv")
    with pytest.raises(TableError, match=r"table, column 'a': cannot be written as Parquet"):
        write_table(Table({"a": ["x", 1]}), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_write_table_characters_that_a_format_cannot_hold_are_replaced(tmp_path, ending):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a{ending}"
    write_table(Table({"a": ["x\0y", "half \ud800", "\udc00,"], "b": [["\udfff"], None, None]}), path)
    # JSON lines hold every character, as an escape sequence.
    kept = {".csv": ["x\ufffdy", "half \ufffd", "\ufffd,"], ".parquet": ["x\0y", "half \ufffd", "\ufffd,"]}
    assert read_table(path).columns["a"] == kept.get(ending, ["x\0y", "half \ud800", "\udc00,"])
    write_json({"a": "x\0 \ud800"}, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"a": "x\0 \ud800"}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_open_output_leaves_what_was_there_at_a_failure_midway(tmp_path, ending):
    path = tmp_path / f"out{ending}"
    path.write_text("old")

    class Failing:
        def __len__(self):
            return 2

        def __iter__(self):
            yield "first"
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        write_table(Table({"a": Failing()}), path, overwrite=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_open_output_leaves_nothing_at_an_interrupt_midway(tmp_path):
    def interrupted():
        with open_output(tmp_path / "out.csv") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_write_table_existing_file_needs_leave_to_be_replaced(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")
    with pytest.raises(TableError, match=r"out.csv: exists already"):
        write_table(Table({"a": ["x"]}), path)
    assert path.read_text() == "old"
    write_table(Table({"a": ["x"]}), path, overwrite=True)
    assert path.read_text() == "a\nx\n"


def test_open_output_writes_through_a_link(tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    write_table(Table({"a": ["x"]}), link, overwrite=True)
    assert link.is_symlink()
    assert target.read_text() == "a\nx\n"


def test_check_output_tells_what_cannot_be_written(tmp_path):
    with pytest.raises(TableError, match=r"the folder .*none does not exist"):
        check_output(tmp_path / "none" / "out.csv")
    with pytest.raises(TableError, match="is a folder"):
        check_output(tmp_path)
    check_output("-")
    check_output("/dev/null")


def test_check_output_names_what_a_killed_process_left(tmp_path):
    pytest.importorskip("fcntl")
    left = tmp_path / f".scores.csv.{'0' * 32}.tmp"
    left.touch()
    with pytest.warns(RunWarning, match=f"{left} is an unfinished output of a process that was killed"):
        check_output(tmp_path / "other.csv")


def test_check_output_refuses_a_name_that_is_too_long_before_any_work(tmp_path):
    with pytest.raises(TableError, match=r"its name is too long; it may have \d+ bytes"):
        check_output(tmp_path / ("ä" * 121 + ".csv"))
    for name in ("n" * 237 + ".csv", "ä" * 118 + ".csv"):
        check_output(tmp_path / name)
        with open_table(tmp_path / name, report_partial=lambda *_: None) as writer:
            writer.write(Table({"a": ["x"]}))
        assert (tmp_path / name).exists()


def test_open_output_writes_to_a_device_and_does_not_replace_it():
    write_table(Table({"a": ["x"]}), "/dev/null", "csv")
    assert Path("/dev/null").is_char_device()


def test_write_table_standard_output_takes_a_table(capsysbinary):
    write_table(Table({"a": ["ä\n", None]}), "-")
    assert capsysbinary.readouterr().out == 'a\n"ä\n"\n""\n'.encode()
    write_table(Table({"a": ["ä", None]}), "-", "jsonl")
    assert capsysbinary.readouterr().out == '{"a": "ä"}\n{"a": null}\n'.encode()


def test_write_table_parquet_without_pyarrow_names_the_pip_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[parquet\]"):
        write_table(Table({"a": ["x"]}), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_write_table_standard_output_gets_a_whole_table_or_nothing(capsysbinary):
    with pytest.raises(TableError, match="type bytes"):
        write_table(Table({"a": ["x", b"y"]}), "-")
    assert capsysbinary.readouterr().out == b""


def test_write_json_has_no_nan(tmp_path):
    write_table(Table({"a": [math.nan, 1.0], "b": [[math.inf], {"c": math.nan}]}), tmp_path / "t.jsonl")
    write_json({"value": math.nan, "interval": (1.0, math.inf)}, tmp_path / "s.json")
    strict = {"parse_constant": lambda constant: pytest.fail(constant)}
    rows = [json.loads(line, **strict) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert rows == [{"a": None, "b": [None]}, {"a": 1.0, "b": {"c": None}}]
    assert json.loads((tmp_path / "s.json").read_text(), **strict) == {"value": None, "interval": [1.0, None]}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_open_table_makes_the_table_of_batches(tmp_path, ending):
    pytest.importorskip("pyarrow")
    batches = [
        Table({"id": [1, None], "t": ["a,\n", None]}),
        Table({"id": [], "t": []}),
        Table({"id": [3], "t": ["c"]}),
    ]
    with open_table(tmp_path / f"batches{ending}", types={"id": "int64", "t": "string"}) as writer:
        for batch in batches:
            writer.write(batch)
        assert writer.rows == 3
    write_table(Table({"id": [1, None, 3], "t": ["a,\n", None, "c"]}), tmp_path / f"whole{ending}")
    assert read_table(tmp_path / f"batches{ending}").columns == read_table(tmp_path / f"whole{ending}").columns
    if ending != ".parquet":
        assert (tmp_path / f"batches{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("keep", [True, False])
def test_open_table_keeps_a_partial_table_if_asked_for(tmp_path, ending, keep):
    pytest.importorskip("pyarrow")

    reported = []

    def fail_midway():
        report_partial = (lambda *kept: reported.append(kept)) if keep else None
        with open_table(tmp_path / f"o{ending}", report_partial=report_partial) as writer:
            writer.write(Table({"id": ["a", "b"]}))
            writer.write(Table({"other": ["c"]}))

    with pytest.raises(TableError, match=r"table: data rows 1 to 1: has other columns than the rows before: other"):
        fail_midway()
    assert [file.name for file in tmp_path.iterdir()] == ([f"o.partial{ending}"] if keep else [])
    if keep:
        assert reported == [(str(tmp_path / f"o.partial{ending}"), 2)]
        assert read_table(tmp_path / f"o.partial{ending}").columns == {"id": ["a", "b"]}


def test_write_table_spreadsheet_safe_marks_what_a_spreadsheet_would_compute(tmp_path):
    computed = ["=1+1", "+A1", "-No effusion.", "@SUM(1)", "\t=1", "\r=1", "\uff1d1", "-1-cmd"]
    plain = ["No effusion.", "-1.5", "+.5e-3", "'=1", "", -0.5, 3, None, ["=1"]]
    table = Table({"=name": computed + plain})
    write_table(table, tmp_path / "a.csv", spreadsheet_safe=True)
    cells = read_table(tmp_path / "a.csv").columns["'=name"]
    assert cells[: len(computed)] == [f"'{cell}" for cell in computed]
    assert cells[len(computed) :] == ["No effusion.", "-1.5", "+.5e-3", "'=1", None, "-0.5", "3", None, '["=1"]']
    write_table(table, tmp_path / "b.csv")
    assert read_table(tmp_path / "b.csv").columns["=name"][: len(computed)] == computed
