"""Benchmarks without their data: phantom reports, or one line that says what is missing."""

import os
import runpy
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def data(tmp_path):
    """The functions of a copy of the benchmarks, beside which no data lie."""
    (tmp_path / "project").mkdir()
    shutil.copytree(BENCHMARKS, tmp_path / "project" / "benchmarks")
    return runpy.run_path(str(tmp_path / "project" / "benchmarks" / "benchmark_data.py"))


def test_phantom_reports_replace_reports_that_are_not_there(data, tmp_path, capsys):
    arguments = Namespace(reports=None, output=tmp_path / "figures.json")
    reports = data["read_reports"](arguments, "reports", "report")
    assert len(set(reports)) > 100
    assert arguments.output == Path(os.devnull)
    assert "reports.csv: no such file; --reports FILE names a CSV file of reports. Phantom" in capsys.readouterr().out
    (tmp_path / "own.csv").write_text("report\nClear lungs.\n")
    arguments = Namespace(reports=tmp_path / "own.csv", output=tmp_path / "figures.json")
    assert data["read_reports"](arguments, "reports", "report") == ["Clear lungs."]
    assert arguments.output == tmp_path / "figures.json"


def test_annotated_pairs_that_are_not_there_are_named(data, tmp_path):
    with pytest.raises(SystemExit, match=r"pairs\.json: no such file; it holds annotated pairs\. See --help"):
        data["need"](tmp_path / "pairs.json", "annotated pairs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["ct_finebench.py", "--repeats", "1"], 0),
        (["crimson_agreement.py"], 1),
        (["crimson_ct_agreement.py"], 1),
        (["er2score_agreement.py"], 1),
        (["metric_agreement.py"], 1),
        (["crepe_agreement.py", "model", "--encoder", "encoder"], 1),
    ],
)
def test_a_benchmark_without_data_ends_without_a_traceback(data, tmp_path, command, code):
    folder = tmp_path / "project" / "benchmarks"
    before = {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.is_file()}
    done = subprocess.run([sys.executable, folder / command[0], *command[1:]], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "no such file" in done.stdout + done.stderr
    assert before == {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.is_file()}
