"""Scoring of a table on a Ray cluster, in blocks that a killed run does not lose."""

import json
import math
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrg_rewards.analysis.input_tables import TableSink
from rrg_rewards.analysis.report_pairs import PairBatch, PairReader
from rrg_rewards.analysis.scoring import Scoring
from rrg_rewards.analysis.settings import PairColumns, ScoreSettings
from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.data.tables.table import FORMATS, Table, TableError
from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.files import abandoned_files, whole_file
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.version import __version__

# CPUs of a task that reads a file, and of a worker. Ray waits forever if workers have reserved all CPUs.
_READER_CPUS, _WORKER_CPUS = 0.25, 0.5


def check_alone(metrics: Mapping[str, ReportMetric]) -> None:
    """Raise a SettingError if a worker cannot score some rows without the others, or without the other workers."""
    for name, metric in metrics.items():
        if metric.depends_on_corpus or not metric.compares_across_batches:
            raise SettingError(
                "metrics", f"scores of {name} depend on the other pairs, and a worker has some; set a prior"
            )


def score_files(
    table: str | Path,
    output: str | Path,
    metrics: Mapping[str, ReportMetric],
    *,
    columns: PairColumns = PairColumns(),  # noqa: B008 (frozen)
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008 (frozen)
    format: str | None = None,  # noqa: A002
    address: str | None = None,
    num_gpus: float = 0,
    block_rows: int = 1024,
    log: RunLog | None = None,
) -> dict[str, Any]:
    """Score the report pairs of a table on a Ray cluster, and write them in blocks; repeated, continue a killed run.

    All rows are checked before the first is scored. Then a task reads each file, and workers score its blocks with
    ``map_batches``: ``output/rows`` gets a Parquet file for each block, whose names have the order of the table, and
    ``output/sums`` the states of the metrics. A block is finished when it has both, and each is written whole, so that
    no row is lost and none is written twice if processes are killed at any time. Finished blocks are skipped. The
    corpus values are those of the merged states: counts are exact, and sums of scores differ in the last digits from
    those of one process. Intervals, constant texts and the usage of judges are computed by
    :func:`~rrg_rewards.analysis.score_table` only.

    Args:
        table: A file, or a folder of files, which are read in the order of their names. All machines must see them and
            ``output`` under the same paths.
        output: Folder of the output.
        metrics: Metrics by name.
        columns: Where the table has predictions, references and context.
        settings: Prefix of new columns, number of pairs that are scored in a call, and number of workers, of half a CPU
            each; 0 for one for each CPU but one, or for each GPU.
        format: Format of files with an unknown ending.
        address: Address of a Ray cluster; ``None`` for one on this machine, which ends with the run.
        num_gpus: GPUs of each worker, for metrics with a model.
        block_rows: Number of rows of a block.
        log: Receives notes, warnings and progress.

    Returns:
        The summary of :func:`~rrg_rewards.analysis.score_table`, without what is named above; and ``errors``, which say
        why metrics have no score at all.

    Raises:
        SettingError: If a metric needs all pairs, the cluster is too small, or the folder has other content or the
            output of another run.
        TableError: If a file is malformed. The message names the row.
        ModuleNotFoundError: Without Ray (extra ``ray``).
    """
    log = log or RunLog()
    check_alone(metrics)
    if columns.references is not None:
        raise SettingError("references", "is a further table; workers need the references in the rows of the first")
    paths, folder = _paths(table, format), Path(output).resolve()
    pairs = PairReader(columns, _tables(paths, format), metrics, str(table), keep_types=True)
    pairs.check(log)
    signatures = {name: metric.signature for name, metric in metrics.items()}
    run = {"metrics": signatures, "columns": repr(columns), "prefix": settings.prefix, "block_rows": block_rows}
    files = [[path.name, (stat := path.stat()).st_size, stat.st_mtime_ns] for path in paths]
    _claim(folder, {"version": __version__, **run, "files": files})
    work = [folder, dict(metrics), columns, replace(settings, constant_text="none", workers=1), dict(pairs.types)]
    with connected(address, settings.workers, num_gpus) as (ray, count), log.progress("scoring") as progress:
        progress(sum(rows for rows, _ in _finished(folder)), pairs.rows)
        context = ray.data.DataContext.get_current().copy()
        # Each block is passed on as soon as it is read.
        context.target_max_block_size, context.enable_progress_bars, context.print_on_execution_start = 1, False, False
        with ray.data.DataContext.current(context):
            files = ray.data.from_items([{"place": place, "path": str(path)} for place, path in enumerate(paths)])
            reading = [folder, format, block_rows]
            blocks = files.map_batches(_unfinished, fn_args=reading, batch_size=1, num_cpus=_READER_CPUS)
            done = blocks.map_batches(
                _Worker,
                fn_constructor_args=work,
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=count),
                num_cpus=_WORKER_CPUS,
                num_gpus=num_gpus,
            )
            for row in done.iter_rows():
                progress(int(row["rows"]), 0)
    for unfinished in [*abandoned_files(folder / "rows"), *abandoned_files(folder / "sums")]:
        unfinished.unlink()
    return _summary(pairs, signatures, folder, log)


def _summary(pairs: PairReader, signatures: Mapping[str, str], folder: Path, log: RunLog) -> dict[str, Any]:
    """Return the summary of all blocks, from the merged states of the metrics."""
    merged = {name: deepcopy(metric) for name, metric in pairs.metrics.items()}
    for metric in merged.values():
        metric.reset()
    rows = 0
    for number, states in _finished(folder):
        rows += number
        for name, metric in merged.items():
            metric.merge_state(states[name])
            # As torchmetrics does in `update`: the call is counted.
            metric._update_count += 1
    if rows != pairs.rows:
        raise RuntimeError(f"{folder}: has {rows} rows of {pairs.rows}; report it")
    entries: dict[str, Any] = {}
    errors: list[str] = []
    for name, metric in merged.items():
        scored = rows - int(metric.num_unscorable)
        value = float(metric.compute()) if scored else math.nan
        if not scored and (failed := int(sum(getattr(metric, "num_failed", ())))):
            errors.append(f"{name}: no report pair has a score, because the judge failed on {failed} of {rows}")
        elif not scored:
            log.warn(f"{name} has no value: all {rows} report pairs are unscorable")
        entries[name] = {
            "value": None if math.isnan(value) else value,
            "interval": [None, None],
            "higher_is_better": metric.higher_is_better,
            "scored": scored,
            "unscorable": rows - scored,
            "means": {},
            "signature": signatures[name],
        }
    if not errors and not any(entry["scored"] for entry in entries.values()):
        errors.append(pairs.unscorable())
    head = {"version": __version__, "table": pairs.source, "prediction_column": pairs.columns.prediction_column}
    return {**head, "rows": rows, "texts": pairs.distinct.to_dict(), "metrics": entries, "errors": errors}


@contextmanager
def connected(address: str | None, workers: int, num_gpus: float) -> Iterator[tuple[Any, int]]:
    """Connect to a Ray cluster, or start one on this machine, and yield Ray and the number of workers.

    Raises:
        SettingError: If the cluster cannot hold the workers and the task that reads.
    """
    ray: Any = require("ray", extra="ray")
    require("ray.data", extra="ray")
    owns = not ray.is_initialized()
    if owns:
        ray.init(log_to_driver=False, **(local_options(workers) if address is None else {"address": address}))
    try:
        total = ray.cluster_resources()
        cpus, gpus = total.get("CPU", 0.0) - _READER_CPUS, total.get("GPU", 0.0)
        most = int(cpus / _WORKER_CPUS)
        if num_gpus:
            # A part of a GPU is a part of a single one. Parts such as 1/3 fill a whole one in spite of rounding.
            most = min(most, int(gpus) * int(1 / num_gpus + 1e-6) if num_gpus < 1 else int(gpus / num_gpus))
        count = workers or max(1, most if num_gpus else min(most, int(cpus)))
        if count > most:
            needs = f"{count} workers of {_WORKER_CPUS} CPU and {num_gpus:g} GPU do not fit"
            raise SettingError(
                "workers", f"{needs} on the Ray cluster, which has {total.get('CPU', 0):g} CPU and {gpus:g} GPU"
            )
        yield ray, count
    finally:
        if owns:
            ray.shutdown()


def local_options(workers: int) -> dict[str, Any]:
    """Return the options of a cluster on this machine, whose processes import modules from the same folders."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return {
        "num_cpus": workers + 1 if workers else None,
        "include_dashboard": False,
        "runtime_env": {"env_vars": paths},
    }


def _tables(paths: Sequence[Path], format_: str | None) -> Iterator[Table]:
    for path in paths:
        with BatchedTable(path, format_) as batches:
            yield from batches


def _paths(table: str | Path, format_: str | None) -> list[Path]:
    path = Path(table)
    if str(path) == "-":
        raise TableError("standard input: workers read the table, which must be a file or a folder")
    if not path.is_dir():
        return [path.resolve()]
    endings = None if format_ else {*FORMATS, ".json"}
    files = (one.resolve() for one in path.iterdir() if one.is_file() and one.name[0] not in "._")
    found = sorted(one for one in files if endings is None or one.suffix.lower() in endings)
    if not found:
        raise TableError(f"{path}: contains no tables ({', '.join(FORMATS)})")
    return found


def _claim(folder: Path, run: Mapping[str, Any]) -> None:
    """Make the folder of a run, or check that it has the output of the same run."""
    settings, run = folder / "run.json", json.loads(json.dumps(run))
    if settings.exists():
        before = json.loads(settings.read_text())
        if other := [name for name in {**before, **run} if before.get(name) != run.get(name)]:
            raise SettingError("output", f"{folder} has the output of another run (its {', '.join(other)} differ)")
        return
    if folder.exists() and any(folder.iterdir()):
        raise SettingError("output", f"{folder} is a folder with other files; choose an empty or new one")
    for name in ("rows", "sums"):
        (folder / name).mkdir(parents=True)
    write_json(run, settings)


def _finished(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of rows and the states of the metrics of each finished block."""
    for path in sorted((folder / "sums").glob("*.pt")):
        block = torch.load(path, weights_only=True)
        yield block["rows"], block["states"]


def _unfinished(batch: Any, folder: Path, format_: str | None, size: int) -> Iterator[Any]:
    """Yield the blocks of a file that are not finished, as one row each."""
    with BatchedTable(batch["path"][0], format_, size) as tables:
        for number, table in enumerate(tables):
            name = f"{int(batch['place'][0]):05}-{number:07}"
            if len(table) and not (folder / "sums" / f"{name}.pt").exists():
                yield {"name": [name], "table": np.array([pickle.dumps(table)], dtype=object)}


class _Worker:
    """Scores blocks and writes them, in an actor of Ray Data."""

    def __init__(
        self,
        folder: Path,
        metrics: Mapping[str, ReportMetric],
        columns: PairColumns,
        settings: ScoreSettings,
        types: Mapping[str, Any],
    ) -> None:
        self._folder, self._metrics, self._columns = folder, metrics, columns
        self._settings, self._types = settings, types

    def __call__(self, batch: Any) -> Any:
        name, table = batch["name"][0], pickle.loads(batch["table"][0])
        batches = [*table.batches(self._settings.batch_size)]
        pairs = PairReader(self._columns, batches, self._metrics, table.source)
        pairs.types = {column: self._types[column] for column in table.names}
        metrics = {name: deepcopy(metric) for name, metric in self._metrics.items()}
        for metric in metrics.values():
            metric.reset()

        def add(_: PairBatch, scores: Mapping[str, Scores]) -> None:
            for metric_name, own in scores.items():
                metrics[metric_name].add_scores(own)

        sink = TableSink(str(self._folder / "rows" / f"{name}.parquet"), overwrite=True)
        Scoring(pairs, self._settings, keep=add).run(sink)
        # Last, because it says that the block is finished.
        with whole_file(self._folder / "sums" / f"{name}.pt") as file:
            torch.save({"rows": len(table), "states": {key: one.metric_state for key, one in metrics.items()}}, file)
        return {"rows": [len(table)]}
