"""Tables that workers of a Ray cluster read and write: what a killed run leaves, and what the next one does with it."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.integrations.ray_cluster import Cluster
from rrg_rewards.integrations.ray_tables import (
    ROW,
    TableFiles,
    TableWork,
    _checked,
    _claimed,
    _finished,
    _identity,
    _Part,
    run_table,
)
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


# Of the cluster: one worker, and the tasks that read and write.
NUM_CPUS = 4


@dataclass(frozen=True, kw_only=True)
class Lengths(TableWork):
    """The length of a text; fails once at the text ``end``."""

    folder: str
    block_bytes = 2**12

    def identity(self) -> dict[str, Any]:
        return {"work": "lengths"}

    def check(self, batches: Iterable[Table], source: str, log: RunLog) -> None:
        for table in batches:
            table.required_texts("text")
        log.note(f"{source} is read")

    def started(self) -> Callable[[Table], Any]:
        return self._apply

    def _apply(self, table: Table) -> dict[str, Any]:
        failed = Path(self.folder) / "failed"
        if "end" in table.columns["text"] and not failed.exists():
            failed.touch()
            raise TableError("the end")
        return {"length": arrow.array([len(text) for text in table.columns["text"]])}


def write_files(folder: Path) -> list[str]:
    """Write 600 texts to a CSV and to a Parquet file with two row groups, and return them."""
    texts = ["end" if row == 570 else "a" * (row % 50) + "." for row in range(600)]
    folder.mkdir()
    (folder / "0.csv").write_text("text\n" + "".join(f"{text}\n" for text in texts[:300]))
    parquet.write_table(arrow.table({"text": texts[300:]}), folder / "1.parquet", row_group_size=200)
    (folder / "notes.txt").write_text("no table")
    return texts


@pytest.mark.ray
def test_run_table_continues_a_run_that_failed(ray: Any, tmp_path: Path) -> None:
    # Workers would look for this module in another package that has tests, such as verl's, before this checkout.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    texts = write_files(tmp_path / "texts")
    work, files, output = Lengths(folder=str(tmp_path)), TableFiles(path=tmp_path / "texts"), tmp_path / "out"
    with pytest.raises(TableError, match=r"^the end$"):
        run_table(work, files, output, Cluster(workers=1), batch_size=10)
    first = _finished(output)
    assert 0 < len(first) < 600
    # What a process leaves that is killed before it commits a file.
    (committed, *_) = sorted((output / "checkpoint").glob("*.parquet"))
    committed.rename(committed.with_name(f"{committed.stem}.pending.parquet"))
    outcome = run_table(work, files, output, Cluster(workers=1), batch_size=10)
    assert 0 < outcome.held < len(first)
    assert (outcome.rows, outcome.done) == (600, 600)
    table = parquet.read_table(outcome.folder).sort_by(ROW).to_pydict()
    assert (table["text"], table["length"]) == (texts, [len(text) for text in texts])
    assert table[ROW] == [*range(300), *range(2**40, 2**40 + 300)]
    again = run_table(work, files, output, Cluster(workers=1))
    assert again.held == again.done == 600
    (tmp_path / "empty.csv").write_text("text\n")
    with pytest.raises(TableError, match=r"empty\.csv: has no rows"):
        run_table(work, TableFiles(path=tmp_path / "empty.csv"), tmp_path / "none", Cluster(workers=1))


def test_part_reads_a_row_group_and_adds_columns_of_other_files(tmp_path: Path) -> None:
    write_files(tmp_path / "texts")
    files = TableFiles(path=tmp_path / "texts")
    assert [path.name for path in files.paths()] == ["0.csv", "1.parquet"]
    types = {"age": arrow.int64(), "text": arrow.string()}
    (block,) = _Part(files, files.paths()[1], 1, first=200, group=1).blocks(types)
    assert block.num_rows == 100
    assert block.column_names == ["age", "text", ROW]
    assert block.column(ROW)[0].as_py() == 2**40 + 200
    assert block.column("age").null_count == 100
    (block,) = _Part(files, files.paths()[0], 0).blocks(types)
    assert (block.num_rows, block.column("text")[3].as_py()) == (300, "aaa.")


def test_table_files_need_files(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="contains no tables"):
        TableFiles(path=tmp_path).paths()
    with pytest.raises(TableError, match="workers read the table, which must be a file or a folder"):
        TableFiles(path="-").paths()


def test_claimed_refuses_the_output_of_another_run(tmp_path: Path) -> None:
    for _ in range(2):
        with _claimed(tmp_path / "out", {"work": "score", "files": [["a.csv", 10, 2]]}):
            pass
    with (
        pytest.raises(SettingError, match=r"has the output of another run \(its files differ\)"),
        _claimed(tmp_path / "out", {"work": "score", "files": [["a.csv", 11, 2]]}),
    ):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.csv").touch()
    with (
        pytest.raises(SettingError, match="is a folder with other files"),
        _claimed(tmp_path / "full", {"work": "score"}),
    ):
        pass
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["a.csv"]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["work"] == "score"


def test_claimed_refuses_a_second_run_of_the_same_command(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="the system has no file locks")
    identity = {"work": "score"}
    with _claimed(tmp_path / "out", identity):
        refused = pytest.raises(SettingError, match=r"another process writes to .*out; wait until")
        with refused, _claimed(tmp_path / "out", identity):
            pass
    with _claimed(tmp_path / "out", identity):
        pass


def test_checked_files_differ_if_a_cell_differs(tmp_path: Path) -> None:
    path, work = tmp_path / "a.csv", Lengths(folder=str(tmp_path))
    identities = []
    for text in ("text\nab\nc\n", "text\nc\nab\n", "text\nab\nc\n"):
        path.write_text(text)
        checked = _checked(work, TableFiles(path=path), path, 0)
        assert (checked.rows, checked.log.notes, list(checked.types)) == (2, [f"{path} is read"], ["text"])
        identities.append(_identity([path], [checked]))
    assert identities[0] == identities[2] != identities[1]
