"""Scoring on Ray: the same numbers as one process, and nothing lost if processes are killed."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_judge import ScriptedJudge

from rrg_rewards.analysis.report_pairs import PairReader
from rrg_rewards.analysis.settings import PairColumns, ScoreSettings
from rrg_rewards.cli.main import main
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.integrations.ray import (
    _claim,
    _paths,
    _summary,
    _tables,
    _unfinished,
    _Worker,
    connected,
    score_files,
)
from rrg_rewards.metrics import CRIMSON, ROUGE, CallableMetric, ReportCRG
from rrg_rewards.utilities.run_log import RunLog, RunWarning
from rrg_rewards.utilities.settings import SettingError

SENTENCES = ["Cardiomegaly.", "Hiatal hernia.", "No nodule.", "Small left pleural effusion.", "Normal lungs.", ""]


def pairs(count: int) -> dict[str, list[str | None]]:
    """Return predictions and references; some cannot be scored."""
    rng = random.Random(5)

    def report() -> str | None:
        return None if rng.random() < 0.01 else " ".join(rng.choices(SENTENCES, k=3))

    return {"prediction": [report() for _ in range(count)], "reference": [report() for _ in range(count)]}


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def test_workers_refuse_a_metric_that_needs_more_than_their_rows(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        score_files(tmp_path / "pairs.csv", tmp_path / "out", {"metric": ReportCRG()})
    assert refused.value.setting == "metrics"


def test_score_files_refuses_a_second_table(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        score_files("pairs.csv", tmp_path, {"rouge": ROUGE()}, columns=PairColumns(references="truth.csv", key="id"))
    assert refused.value.setting == "references"


def test_score_files_reads_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("1.parquet", "0.csv", "notes.txt", ".hidden.csv"):
        (tmp_path / name).touch()
    assert [path.name for path in _paths(tmp_path, None)] == ["0.csv", "1.parquet"]
    (tmp_path / "empty").mkdir()
    for table in ("-", tmp_path / "empty"):
        with pytest.raises(TableError):
            _paths(table, None)


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    run = {"prefix": "", "files": [["a.csv", 10, 2]]}
    for _ in range(2):
        _claim(tmp_path / "out", run)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.csv").touch()
    for folder, other in (("out", {**run, "files": [["a.csv", 10, 3]]}), ("full", run)):
        with pytest.raises(SettingError) as refused:
            _claim(tmp_path / folder, other)
        assert refused.value.setting == "output"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("resources", "workers", "num_gpus", "expected"),
    [
        ({"CPU": 8.0}, 0, 0, 7),
        ({"CPU": 1.0}, 0, 0, 1),
        ({"CPU": 2.0}, 3, 0, 3),
        ({"CPU": 2.0}, 4, 0, None),
        ({"CPU": 8.0, "GPU": 2.0}, 0, 1, 2),
        ({"CPU": 8.0, "GPU": 2.0}, 0, 1 / 3, 6),
        ({"CPU": 8.0, "GPU": 2.0}, 0, 0.6, 2),
        ({"CPU": 8.0, "GPU": 2.0}, 3, 1, None),
        ({"CPU": 8.0}, 0, 1, None),
    ],
)
def test_a_cluster_holds_its_workers_and_the_task_that_reads(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, float], workers: int, num_gpus: float, expected: int | None
) -> None:
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: resources)
    monkeypatch.setattr("rrg_rewards.integrations.ray.require", lambda *_, **__: ray)
    if expected is None:
        with pytest.raises(SettingError) as refused, connected(None, workers, num_gpus):
            pass
        assert refused.value.setting == "workers"
    else:
        with connected(None, workers, num_gpus) as found:
            assert found == (ray, expected)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--output", "out.csv"], "--output"),
        ([], "--output"),
        (["--output", "out/", "--html", "page.html"], "--html"),
        (["--output", "out/", "--dry-run"], "--dry-run"),
    ],
)
def test_score_on_ray_names_options_that_do_not_apply(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "pairs.csv", "--metrics", "rouge", "--engine", "ray", *options]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(("is_missing", "why"), [(True, "2 predictions in column"), (False, "the judge failed on 2")])
def test_score_on_ray_ends_with_the_reason_if_nothing_has_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_missing: bool, why: str
) -> None:
    path = write(tmp_path / "pairs.csv", {"prediction": ["" if is_missing else "Normal."] * 2, "reference": ["A."] * 2})
    for name in ("rows", "sums"):
        (tmp_path / "out" / name).mkdir(parents=True)

    def score(table: Path, folder: Path, metrics: Mapping[str, Any], log: RunLog, **_: Any) -> dict[str, Any]:
        metrics = {"crimson": CRIMSON(judge=ScriptedJudge(fail_on={"": "malformed"}))}
        reader = PairReader(PairColumns(), _tables([Path(table)], None), metrics, str(table), keep_types=True)
        reader.check(log)
        worker = _Worker(Path(folder), metrics, PairColumns(), ScoreSettings(constant_text="none"), dict(reader.types))
        for block in _unfinished({"place": [0], "path": [str(table)]}, Path(folder), None, 10):
            worker(block)
        return _summary(reader, {"crimson": "signature"}, Path(folder), log)

    monkeypatch.setattr("rrg_rewards.integrations.ray.score_files", score)
    command = ["score", str(path), "--metrics", "crimson", "--engine", "ray", "--output", str(tmp_path / "out")]
    assert main(command) == 1
    result = capsys.readouterr()
    assert why in result.err.splitlines()[-1]
    assert result.out == ""


@pytest.mark.ray
def test_score_files_gives_the_rows_of_one_process_although_a_worker_is_killed(ray: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    columns = pairs(300)
    columns["prediction"][170] = "The end."
    (tmp_path / "pairs").mkdir()
    for number in range(2):
        part = {name: cells[150 * number : 150 * (number + 1)] for name, cells in columns.items()}
        write(tmp_path / "pairs" / f"{number}.csv", part)
    write(tmp_path / "pairs.csv", columns)
    once = CallableMetric("functions:die_once", options={"folder": str(tmp_path)})
    metrics = {"crg": ReportCRG(prior=0.2), "rouge": ROUGE(), "length": once}
    settings = ScoreSettings(prefix="new_", batch_size=40)
    with pytest.warns(RunWarning, match="missing"):
        found = score_files(tmp_path / "pairs", tmp_path / "out", metrics, settings=settings, block_rows=64)
    assert (tmp_path / "killed").exists()
    command = ["score", str(tmp_path / "pairs.csv"), "--metrics", "crg,rouge", "--set", "crg.prior=0.2"]
    outputs = ["--output", str(tmp_path / "here.parquet"), "--json", str(tmp_path / "here.json")]
    assert main([*command, "--prefix", "new_", *outputs, "--quiet", "--bootstrap", "0"]) == 0
    here, there = (parquet.read_table(tmp_path / name) for name in ("here.parquet", "out/rows"))
    assert there.select(here.column_names).to_pydict() == here.to_pydict()
    assert len([*(tmp_path / "out" / "rows").iterdir()]) == 6
    summary = json.loads((tmp_path / "here.json").read_text())
    assert (found["rows"], found["texts"]) == (300, summary["texts"])
    for name, entry in summary["metrics"].items():
        assert found["metrics"][name]["value"] == pytest.approx(entry["value"], rel=1e-12)
        assert [found["metrics"][name][key] for key in ("scored", "unscorable")] == [
            entry["scored"],
            entry["unscorable"],
        ]


@pytest.mark.ray
def test_score_on_ray_loses_no_row_of_200_000_and_writes_none_twice_if_it_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="Ray is not installed (extra ray)")
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    columns = {"id": [*range(200_000)], **pairs(200_000)}
    parquet.write_table(arrow.table(columns), tmp_path / "pairs.parquet")
    rows = tmp_path / "scores" / "rows"
    command = ["score", str(tmp_path / "pairs.parquet"), "--metrics", "crg,functions:length_gap", "--engine", "ray"]
    command += ["--set", "crg.prior=0.2", "--set", "functions:length_gap.higher_is_better=false", "--workers", "2"]
    command += ["--output", f"{tmp_path / 'scores'}/", "--json", str(tmp_path / "summary.json"), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for enough in (20, 60):
        process = subprocess.Popen([sys.executable, "-m", "rrg_rewards", *command], env=environment)
        while process.poll() is None and (not rows.exists() or len([*rows.glob("*.parquet")]) < enough):
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "scores" / "sums").glob("*.pt")}
    assert main(command) == 0
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "scores" / "sums").glob("*.pt")}
    assert len(kept) == 196
    # Finished blocks were not computed again.
    assert len(times) >= 60
    assert times.items() <= kept.items()
    table = parquet.read_table(rows)
    assert table.column("id").to_pylist() == columns["id"]
    expected = ReportCRG(prior=0.2)
    expected.update(columns["prediction"], columns["reference"])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rows"] == 200_000
    assert summary["metrics"]["crg"]["value"] == pytest.approx(float(expected.compute()), rel=1e-12)
    assert summary["metrics"]["crg"]["unscorable"] == int(expected.num_unscorable)
