"""Tables that the workers of a Ray cluster read, score, label or judge, and write, with checkpoints of Ray Data."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.data.tables.table import FORMATS, Table, TableError
from rrg_rewards.data.tables.writers import arrow_table, arrow_types, write_json
from rrg_rewards.integrations.ray_cluster import EXTRA, WORKER_CPUS, Cluster
from rrg_rewards.utilities.files import lock_file
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.version import __version__

ROW = "rrg_row"
"""Column of the number of a row: the place of its file times 2^40, plus its row in the file, both from 0."""

_FILE_ROWS = 2**40
# No module with torch is imported here, because the processes that read and write need none.
# Rows that are read together.
_BLOCK_ROWS = 1024
# What tasks that read and write reserve: little, because Ray waits forever if workers have reserved all CPUs.
_LIGHT = {"num_cpus": 0.25}
# Ray reserves memory for the rows that are done: 8 bytes each.
_CHECKPOINT_MEMORY = 2**27
# Files of an output: one that its writer locks, and the settings of the run.
_LOCK, _SETTINGS = "lock", "run.json"


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """The files of a table.

    Args:
        path: A file, or a folder of files, which are read in the order of their names.
        format: Format of files with an unknown ending.
        delimiter: Delimiter of CSV.
    """

    path: str | Path
    format: str | None = None
    delimiter: str | None = None

    def paths(self) -> list[Path]:
        """Return the files.

        Raises:
            TableError: If there are none.
        """
        path = Path(self.path)
        if str(path) == "-":
            raise TableError("standard input: workers read the table, which must be a file or a folder")
        if not path.is_dir():
            return [path.resolve()]
        endings = None if self.format else {*FORMATS, ".json"}
        found = sorted(
            one.resolve()
            for one in path.iterdir()
            if one.is_file() and one.name[0] not in "._" and (endings is None or one.suffix.lower() in endings)
        )
        if not found:
            raise TableError(f"{path}: contains no tables ({', '.join(FORMATS)})")
        return found

    def opened(self, path: Path, rows: int = _BLOCK_ROWS) -> BatchedTable:
        """Return a file in batches."""
        return BatchedTable(path, self.format, self.delimiter, rows)


class TableWork(ABC):
    """What workers do with the rows of a table. It is pickled."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the settings on which the output depends, as JSON."""

    @abstractmethod
    def check(self, batches: Iterable[Table], source: str, log: RunLog) -> None:
        """Read a file once, and raise an error if a row is malformed."""

    @abstractmethod
    def started(self) -> Callable[[Table], Any]:
        """Load what a worker needs, and return the function of rows; it returns new columns for Arrow by name.

        A worker leaves out rows whose ``done`` is false; they are repeated by the next run.
        """

    block_bytes = 2**22
    """Size at which Ray divides the rows: those of a file of the output, which are computed again if one is lost."""

    writes_lines = False
    """Whether the output has only the lines of the column ``lines``, as JSON lines; else Parquet with all columns."""


@dataclass
class Notes(RunLog):
    """Keeps notes and warnings, such as those of a worker."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


@dataclass(frozen=True)
class _Part:
    """A part of a file that a task reads: a whole file, or a row group of Parquet."""

    files: TableFiles
    path: Path
    place: int
    first: int = 0
    group: int | None = None

    def blocks(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the rows as Arrow tables, with their numbers."""
        arrow = require("pyarrow", extra=EXTRA)
        first = self.place * _FILE_ROWS + self.first
        for table in self._tables(types):
            if table.num_rows:
                numbers = arrow.array(range(first, first + table.num_rows), arrow.int64())
                yield table.append_column(ROW, numbers)
                first += table.num_rows

    def _tables(self, types: Mapping[str, Any]) -> Iterator[Any]:
        if self.group is None:
            with self.files.opened(self.path) as batches:
                for table in batches:
                    columns = {name: table.columns.get(name, [None] * len(table)) for name in types}
                    yield arrow_table(Table(columns, table.source, first=table.first), types)
            return
        parquet = require("pyarrow.parquet", extra=EXTRA)
        arrow = require("pyarrow", extra=EXTRA)
        schema = arrow.schema(list(types.items()))
        with parquet.ParquetFile(self.path) as opened:
            for batch in opened.iter_batches(_BLOCK_ROWS, row_groups=[self.group]):
                table = arrow.Table.from_batches([batch])
                missing = [name for name in types if name not in table.column_names]
                for name in missing:
                    table = table.append_column(name, arrow.nulls(len(table), types[name]))
                yield table.select([*types]).cast(schema)


@dataclass(frozen=True)
class _CheckedFile:
    rows: int
    size: int
    digest: str
    types: Mapping[str, Any]
    parts: Sequence[_Part]
    log: Notes


def _checked(work: TableWork, files: TableFiles, path: Path, place: int) -> _CheckedFile:
    """Read a file once, in a worker, so that errors are raised before any row is scored."""
    log, rows = Notes(), 0
    types: dict[str, Any] = {}

    def read(batches: BatchedTable) -> Iterator[Table]:
        nonlocal rows, types
        for table in batches:
            rows += len(table)
            types = arrow_types(table, types)
            yield table

    with files.opened(path) as batches:
        work.check(read(batches), str(path), log)
    if ROW in types:
        raise TableError(f"{path}: has a column {ROW!r}, in which the output numbers the rows; rename it")
    parts = [_Part(files, path, place)]
    if path.suffix.lower() == ".parquet":
        parquet = require("pyarrow.parquet", extra=EXTRA)
        with parquet.ParquetFile(path) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
        parts = [_Part(files, path, place, sum(sizes[:group]), group) for group in range(len(sizes))]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(2**20):
            digest.update(content)
    return _CheckedFile(rows, path.stat().st_size, digest.hexdigest(), types, parts, log)


class _Tally:
    """An actor that counts failures of judges over all workers, and keeps the error that ends the run."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._failures: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def add(self, failures: Mapping[str, int], reasons: Mapping[str, str]) -> None:
        self._failures.update(failures)
        self._reasons = {**reasons, **self._reasons}

    def result(self) -> tuple[dict[str, int], dict[str, str]]:
        return dict(self._failures), self._reasons

    def fail(self, error: Exception) -> None:
        self._error = self._error or error

    def error(self) -> Exception | None:
        return self._error


class _Worker:
    """Does the work for batches of rows, in an actor of Ray Data."""

    def __init__(self, work: TableWork, tally: Any) -> None:
        self._apply = work.started()
        self._tally = tally
        self._writes_lines = work.writes_lines

    def __call__(self, batch: Any) -> Any:
        arrow = require("pyarrow", extra=EXTRA)
        rows = batch.drop_columns([ROW])
        try:
            new = dict(self._apply(Table({name: rows.column(name).to_pylist() for name in rows.column_names})))
        except (TableError, SettingError) as error:
            # Ray Data would pass on its text only.
            require("ray", extra=EXTRA).get(self._tally.fail.remote(error))
            raise
        if failures := new.pop("failures", None):
            self._tally.add.remote(*failures)
        done = new.pop("done", None)
        kept = {} if self._writes_lines else {name: rows.column(name) for name in rows.column_names}
        table = arrow.table({ROW: batch.column(ROW), **kept, **new})
        return table if done is None else table.filter(arrow.array(done, arrow.bool_()))


@dataclass(frozen=True)
class TableOutcome:
    """What a run of :func:`run_table` has done.

    Args:
        rows: Number of rows of the table.
        held: Number of rows that earlier runs had finished.
        done: Number of finished rows, with those of earlier runs.
        failures: Failures of judges in this run, by kind.
        reasons: Reason of a failure of each kind.
        folder: The folder of the output's files.
    """

    rows: int
    held: int
    done: int
    failures: Mapping[str, int]
    reasons: Mapping[str, str]
    folder: Path


def run_table(
    work: TableWork,
    files: TableFiles,
    output: str | Path,
    cluster: Cluster = Cluster(),  # noqa: B008 (frozen)
    *,
    batch_size: int = 256,
    log: RunLog | None = None,
) -> TableOutcome:
    """Let workers read a table, do a work for its rows, and write the output; repeated, it continues a killed run.

    The folder ``output`` gets ``run.json``, the settings of the run; ``rows``, the files that workers write; and
    ``checkpoint``, the numbers of the finished rows, by the checkpoints of Ray Data. A file counts only with its
    checkpoint, so that no row is lost and none is written twice if processes are killed at any time.

    Args:
        work: The work.
        files: The table. All machines must see its files, and the output.
        output: Folder of the output.
        cluster: Where workers run.
        batch_size: Number of rows of a batch.
        log: Receives notes and warnings.

    Raises:
        SettingError: If the folder has the output of other settings or another table, or another process writes to it;
            if the cluster is too small.
        TableError: If a file is malformed, or there are no rows.
        ModuleNotFoundError: Without a Ray that has checkpoints (extra ``ray``).
    """
    log = log or RunLog()
    folder = Path(output).resolve()
    with cluster.connected() as (ray, workers):
        data = _ray_data()
        paths = files.paths()
        with _errors_of_workers(ray):
            check = ray.remote(num_cpus=0.5)(_checked)
            checked = ray.get([check.remote(work, files, path, place) for place, path in enumerate(paths)])
        for one in checked:
            for text in one.log.notes:
                log.note(text)
            for text in one.log.warnings:
                log.warn(text)
        total = sum(one.rows for one in checked)
        if not total:
            raise TableError(f"{files.path}: has no rows")
        identity = {**work.identity(), "format": files.format, "delimiter": files.delimiter}
        with _claimed(folder, {"version": __version__, **identity, "files": _identity(paths, checked)}):
            held = len(_finished(folder, clean=True))
            if held:
                log.note(f"{held:,} of {total:,} rows are in {output}; the others follow")
            tally = ray.remote(num_cpus=0)(_Tally).remote()
            if held < total:
                _execute(data, work, checked, folder, workers, cluster.num_gpus, batch_size, tally, ray)
            failures, reasons = ray.get(tally.result.remote())
    done = _finished(folder)
    if len(done) != len(set(done)) or (not work.writes_lines and len(done) != total):
        raise RuntimeError(f"{output}: has {len(done)} rows, {len(set(done))} of them different, of {total}; report it")
    return TableOutcome(total, held, len(done), failures, reasons, folder / "rows")


def _ray_data() -> Any:
    data: Any = require("ray.data", extra=EXTRA)
    try:
        from ray.data.checkpoint.checkpoint_writer import PENDING_CHECKPOINT_SUFFIX  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(
            "this Ray has no checkpoints in two phases; run: python -m pip install -U 'ray[data]>=2.60'", name="ray"
        ) from error
    return data


def _execute(
    data: Any,
    work: TableWork,
    checked: Sequence[_CheckedFile],
    folder: Path,
    workers: int,
    num_gpus: float,
    batch_size: int,
    tally: Any,
    ray: Any,
) -> None:
    from ray.data.checkpoint import CheckpointConfig

    context = data.DataContext.get_current().copy()
    config = CheckpointConfig(ROW, str(folder / "checkpoint"), delete_checkpoint_on_success=False)
    config.checkpoint_actor_memory_bytes = _CHECKPOINT_MEMORY
    context.checkpoint_config = config
    context.target_max_block_size = work.block_bytes
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with data.DataContext.current(context), _errors_of_workers(ray, tally):
        done = data.read_datasource(_source(checked), **_LIGHT).map_batches(
            _Worker,
            fn_constructor_args=[work, tally],
            batch_format="pyarrow",
            batch_size=batch_size,
            compute=data.ActorPoolStrategy(size=workers),
            num_cpus=WORKER_CPUS,
            num_gpus=num_gpus,
        )
        if work.writes_lines:
            done.write_datasink(_lines_sink(str(folder / "rows")), ray_remote_args=_LIGHT)
        else:
            done.write_parquet(str(folder / "rows"), ray_remote_args=_LIGHT)


def _source(checked: Sequence[_CheckedFile]) -> Any:
    """Return the data source of Ray Data that reads the parts in workers."""
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    arrow = require("pyarrow", extra=EXTRA)
    schemas = [arrow.schema(list(one.types.items())) for one in checked]
    schema = arrow.unify_schemas(schemas, promote_options="permissive")
    types = {name: schema.field(name).type for name in schema.names}

    class Tables(Datasource):  # type: ignore[misc, unused-ignore]
        def estimate_inmemory_data_size(self) -> int | None:
            return sum(one.size for one in checked)

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:  # noqa: ARG002 (Ray's)
            return [
                ReadTask(
                    partial(part.blocks, types),
                    BlockMetadata(
                        num_rows=None,
                        size_bytes=one.size // len(one.parts),
                        exec_stats=None,
                        input_files=(str(part.path),),
                    ),
                )
                for one in checked
                for part in one.parts
            ]

    return Tables()


def _lines_sink(path: str) -> Any:
    """Return the data sink that writes the texts of the column ``lines``."""
    from ray.data.datasource import BlockBasedFileDatasink

    class Lines(BlockBasedFileDatasink):  # type: ignore[misc, unused-ignore]
        def write_block_to_file(self, block: Any, file: Any) -> None:
            for lines in block.to_arrow().column("lines").to_pylist():
                file.write("".join(f"{line}\n" for line in lines).encode())

    return Lines(path, file_format="jsonl")


def _identity(paths: Sequence[Path], checked: Sequence[_CheckedFile]) -> list[list[Any]]:
    return [[path.name, one.rows, one.digest] for path, one in zip(paths, checked, strict=True)]


@contextmanager
def _claimed(folder: Path, identity: Mapping[str, Any]) -> Iterator[None]:
    """Keep other processes of this machine from the folder of the output inside the block.

    Writes the settings of a new run.

    Raises:
        SettingError: If another process writes to the folder, or it is not one of this run.
    """
    # Before a file is added to a folder of something else.
    if folder.exists() and not (folder / _SETTINGS).exists() and any(one.name != _LOCK for one in folder.iterdir()):
        raise SettingError("output", f"{folder} is a folder with other files; choose an empty or new one")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("wb") as file:
        with suppress(OSError):  # Some network file systems have no locks.
            if lock_file(file) is False:
                raise SettingError("output", f"another process writes to {folder}; wait until it has ended")
        _claim(folder, identity)
        yield


def _claim(folder: Path, identity: Mapping[str, Any]) -> None:
    settings = folder / _SETTINGS
    identity = json.loads(json.dumps(identity))
    if settings.exists():
        before = json.loads(settings.read_text())
        if other := [name for name in {**before, **identity} if before.get(name) != identity.get(name)]:
            raise SettingError(
                "output",
                f"{folder} has the output of another run (its {', '.join(other)} differ); choose another folder",
            )
    else:
        write_json(identity, settings)


def _finished(folder: Path, clean: bool = False) -> list[int]:
    """Return the numbers of the rows in the checkpoint.

    Args:
        folder: Folder of the output.
        clean: Whether incomplete files of a killed run are deleted, as Ray Data does when it reads the checkpoint.
    """
    parquet = require("pyarrow.parquet", extra=EXTRA)
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists():
        return []
    pending = [*checkpoint.glob("*.pending.parquet")]
    if clean:
        for one in pending:
            for incomplete in (folder / "rows").glob(f"{one.name.removesuffix('.pending.parquet')}*"):
                incomplete.unlink()
            one.unlink()
        pending = []
    numbers: list[int] = []
    for one in sorted({*checkpoint.glob("*.parquet")} - {*pending}):
        numbers += parquet.read_table(one, columns=[ROW]).column(ROW).to_pylist()
    return numbers


@contextmanager
def _errors_of_workers(ray: Any, tally: Any = None) -> Iterator[None]:
    """Raise an error of the package in a worker as it is, in place of Ray's with its traceback as text."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) if tally is None else ray.get(tally.error.remote())
        if isinstance(cause, TableError | SettingError):
            raise cause from error
        raise
