"""Tests of --workers: every output file has the same bytes with any number of processes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from multiprocessing import forkserver
from pathlib import Path

import pytest

from rrg_rewards.cli.main import main
from rrg_rewards.data import phantom_studies


@pytest.fixture(scope="module", autouse=True)
def _imported_metrics() -> None:
    """Fork workers from a new process, because earlier tests may have started one that imports no metrics."""
    forkserver._forkserver._stop()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table with context, missing predictions, and missing and blank references."""
    reports = [study.report for study in phantom_studies(61, seed=0, style="full")]
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["study", "prediction", "reference", "age", "rating", "Cardiomegaly"])
        for row, (one, other) in enumerate(pairwise(reports)):
            prediction = "" if row % 13 == 4 else one
            reference = " " if row % 17 == 3 else other
            writer.writerow([row // 3, prediction, reference, ["", "40", "81"][row % 3], row * 7 % 5, row % 2])
    return path


def _files(command: list[str], folder: Path, workers: int, *names: str) -> list[bytes]:
    paths = [folder / f"{workers}{name}" for name in names]
    options = [f"--{option}={path}" for option, path in zip(("json", "output"), paths, strict=False)]
    assert main([*command, *options, "--quiet", "--workers", str(workers)]) == 0
    return [path.read_bytes() for path in paths]


SCORE = ["--metrics", "crg,crimson,rouge", "--context", "age=age", "--batch-size", "7", "--bootstrap", "50"]
AGREEMENT = ["--human", "rating", "--bootstrap", "40", "--permutations", "40", "--context", "age=age"]


@pytest.mark.parametrize(
    "options",
    [
        ["score", *SCORE],
        ["score", *SCORE, "--set", "crg.prior=0.2", "--missing-prediction", "score"],
        ["label", "--text-column", "reference", "--batch-size", "7"],
        ["agreement", "--metrics", "crg,crimson,rouge", "--unit", "study", *AGREEMENT],
    ],
)
def test_workers_write_the_same_bytes(options: list[str], table: Path, tmp_path: Path) -> None:
    command = [options[0], str(table), *options[1:]]
    one = _files(command, tmp_path, 1, "summary.json", "rows.csv")
    for workers in (2, 3) if options == ["score", *SCORE] else (3,):
        assert _files(command, tmp_path, workers, "summary.json", "rows.csv") == one


def test_workers_find_the_same_texts_in_an_attack(table: Path, tmp_path: Path) -> None:
    options = ["--reward", "crimson", "--honest-column", "prediction", "--families", "labels,evolved"]
    command = ["attack", str(table), *options, "--budget", "2000", "--max-references", "20"]
    one = _files(command, tmp_path, 1, "attack.json")
    assert _files(command, tmp_path, 3, "attack.json") == one


def test_workers_keep_the_signature_of_given_labels(table: Path, tmp_path: Path) -> None:
    from rrg_rewards.schemas import get_label_schema

    labels = get_label_schema("ct_rate").labels
    rows = list(csv.DictReader(table.open(newline="")))
    given = tmp_path / "given.csv"
    with given.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prediction", *(f"GT_{label}" for label in labels)])
        writer.writerows([row["prediction"], *(number * 5 % 2 for number in range(len(labels)))] for row in rows)
    command = ["score", str(given), "--metrics", "crg", "--reference-label-prefix", "GT_"]
    (one,) = _files(command, tmp_path, 1, "given.json")
    assert "reference:given" in json.loads(one)["metrics"]["crg"]["signature"]
    assert _files(command, tmp_path, 2, "given.json") == [one]


@pytest.mark.parametrize("command", ["score", "agreement"])
def test_workers_name_the_row_of_the_whole_table(
    command: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("failing_metrics.py").write_text(
        "def failing(predictions, references):\n"
        "    if any('81' in text for text in predictions):\n"
        "        raise ValueError('preds[3] cannot be scored')\n"
        "    return [0.5] * len(predictions)\n"
    )
    rows = list(csv.reader(table.open(newline="")))
    for number, row in enumerate(rows[1:]):
        row[1:3] = [f"Report {81 if number == 31 else 'x'}.", "Normal."]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    options = ["--human", "rating"] if command == "agreement" else ["--batch-size", "7"]
    errors = []
    for workers in ("1", "2"):
        set_option = ["--set", "failing_metrics:failing.higher_is_better=true"]
        names = ["--metrics", "failing_metrics:failing", *set_option]
        assert main([command, str(table), *names, *options, "--workers", workers]) == 1
        errors.append(capsys.readouterr().err)
    assert errors[0].splitlines()[-1] == errors[1].splitlines()[-1]
    assert "cannot be scored" in errors[0]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("score", ["--metrics", "crimson", "--judge", "openai:my-model"]),
        ("attack", ["--reward", "crimson", "--judge", "openai:my-model"]),
    ],
)
def test_workers_refuse_language_models(
    command: str, options: list[str], table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(table), *options, "--workers", "2"]) == 2
    assert "argument --workers: a language model" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_workers_end_with_a_signal_to_all_processes(sent: str, code: int, table: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    (tmp_path / "slow_metrics.py").write_text(
        "import pathlib, time\n"
        "def slow(predictions, references):\n"
        f"    pathlib.Path({str(started)!r}).touch()\n"
        "    time.sleep(0.5)\n"
        "    return [0.5] * len(predictions)\n"
    )
    options = ["--metrics", "slow_metrics:slow", "--set", "slow_metrics:slow.higher_is_better=true"]
    command = [sys.executable, "-m", "rrg_rewards", "score", str(table), *options, "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--batch-size", "1", "--output", "out.csv"],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.Signals[sent])
    _, messages = process.communicate(timeout=60)
    assert process.returncode == code
    assert "error: interrupted" in messages.splitlines()[-1 if sent == "SIGINT" else -2]
    assert not [*tmp_path.glob(".*.tmp")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_workers_that_are_killed_end_the_command_and_its_rows_are_kept(table: Path, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(
        "import os, signal, time\n"
        "def score(predictions, references):\n"
        "    with open('calls', 'ab') as file:\n"
        "        file.write(b'x')\n"
        "    if os.path.getsize('calls') > 20:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return [0.5] * len(predictions)\n"
    )
    options = ["--metrics", "killed:score", "--set", "killed:score.higher_is_better=true", "--batch-size", "1"]
    command = [sys.executable, "-m", "rrg_rewards", "score", str(table), *options, "--workers", "2"]
    done = subprocess.run(
        [*command, "--constant-text", "none", "--output", "out.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "a worker process was killed" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    with (tmp_path / "out.partial.csv").open(newline="") as file:
        kept = list(csv.DictReader(file))
    assert len(kept) >= 10
    assert [row["study"] for row in kept] == [str(number // 3) for number in range(len(kept))]


@pytest.mark.slow
def test_workers_of_two_commands_with_one_output_leave_a_whole_file(table: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rrg_rewards", "label", str(table), "--text-column", "reference"]
    started = [
        subprocess.Popen([*command, "--output", "out.csv"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    results = [(process.communicate(timeout=120)[1], process.returncode) for process in started]
    assert 0 in [code for _, code in results]
    assert all(code == 0 or "out.csv: exists already" in messages for messages, code in results)
    with (tmp_path / "out.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 60
    assert not [*tmp_path.glob(".*.tmp")]
