import json
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
HALF = """
import argparse, json
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path)
parser.add_argument("--quick", action="store_true")
arguments = parser.parse_args()
figures = {"rate": 1.0 if arguments.quick else 0.5, "sets": [{"memory": 4.0}]}
arguments.output.write_text(json.dumps(figures))
"""
NO_DATA = "print('reports.csv: no such file; phantom reports are used'); print('rate 3')"
NO_PACKAGE = "import a_package_that_is_not_installed"
CLEANS_UP = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
folder = pathlib.Path(__file__).parent
(folder / "begun").touch()
try:
    time.sleep(60)
finally:
    (folder / "removed").touch()
"""
HOLDS_ON = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])
"""


@pytest.fixture
def script(monkeypatch):
    """The functions of the script."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return runpy.run_path(str(BENCHMARKS / "all.py"))


@pytest.fixture
def run_all(script, monkeypatch, tmp_path):
    """Run the script with entries and scripts of the test; return its table."""
    scripts = {"half": HALF, "no_data": NO_DATA, "no_package": NO_PACKAGE}
    for name, code in scripts.items():
        (tmp_path / f"{name}.py").write_text(code)

    def run(entries, *options):
        variables = script["main"].__globals__
        monkeypatch.setitem(variables, "BENCHMARKS", entries)
        monkeypatch.setitem(variables, "FOLDER", tmp_path)
        output = tmp_path / "all.json"
        monkeypatch.setattr(sys, "argv", ["all.py", "--output", str(output), *options])
        script["main"]()
        return json.loads(output.read_text())

    return run


def entries_of(script):
    """Entries of scripts that run, that lack data, a package or a model, and that need a folder."""
    make = script["Benchmark"]
    ratios = {"rate": "new / old, rate", "sets/0/memory": "new / old, memory", "sets/1/memory": "of a second set"}
    return (
        make("half", ratios, quick=("--quick",), lower=("sets/0/memory",)),
        make("no_data", {"rate": "rate with data"}),
        make("no_package", {"rate": "rate with a package"}),
        make("half", {"rate": "rate of a policy"}, arguments=("--mini", "{mini}"), quick=("--mini", "{mini}")),
    )


def test_main_prints_and_writes_a_table_of_ratios(script, run_all, capsys):
    table = run_all(entries_of(script), "--quick")
    printed = capsys.readouterr().out
    rows = {row["ratio"]: row for row in table["rows"]}
    assert (rows["new / old, rate"]["now"], rows["new / old, rate"]["better"]) == (1.0, "higher")
    assert (rows["new / old, memory"]["now"], rows["new / old, memory"]["better"]) == (4.0, "lower")
    assert "     4.00  new / old, memory (lower is better)\n" in printed
    assert "     1.00  new / old, rate\n" in printed
    assert table["quick"] is True
    assert {"cpu", "cores", "memory_gib", "torch", "threads"} <= table["machine"].keys()
    assert set(table["seconds"]) == {"half", "no_data", "no_package"}
    assert "seconds in all\n" in printed


def test_main_takes_the_arguments_of_a_complete_run_without_quick(script, run_all):
    table = run_all(entries_of(script)[:1])
    assert table["rows"][0]["now"] == 0.5


def test_main_marks_what_was_not_measured(script, run_all, capsys, tmp_path):
    table = run_all(entries_of(script), "--quick", "--mini", str(tmp_path / "mini"))
    reasons = {row["ratio"]: row["not_run"]["now"] for row in table["rows"] if "not_run" in row}
    assert reasons["rate with data"] == "reports.csv: no such file; phantom reports are used"
    assert "No module named 'a_package_that_is_not_installed'" in reasons["rate with a package"]
    assert reasons["rate of a policy"].startswith(f"{tmp_path / 'mini'}: no such folder; --mini names")
    assert reasons["of a second set"].startswith("not in the result")
    assert len(table["rows"]) == 6
    printed = capsys.readouterr().out
    assert all(reason in printed for reason in reasons.values())


def test_main_marks_a_missing_script(script, run_all):
    (row,) = run_all((script["Benchmark"]("never_written", {"rate": "rate"}),))["rows"]
    assert row["now"] is None
    assert "never_written.py" in row["not_run"]["now"]


def test_rows_of_keep_what_one_of_two_packages_gave(script):
    entry = script["Benchmark"]("half", {"rate": "new / old, rate"})
    (row,) = script["rows_of"](entry, {"before": {"reason": "unknown option --quick"}, "now": {"result": {"rate": 2}}})
    assert (row["before"], row["now"]) == (None, 2.0)
    assert row["not_run"] == {"before": "unknown option --quick"}


def test_run_script_lets_a_script_that_takes_too_long_remove_its_files(script, monkeypatch, tmp_path):
    monkeypatch.setitem(script["main"].__globals__, "FOLDER", tmp_path)
    (tmp_path / "slow.py").write_text(CLEANS_UP)
    found = script["run_script"]("slow", (), tmp_path, tmp_path / "slow.json", 1.5)
    assert found == {"seconds": 1.5, "reason": "stopped after 1.5 seconds"}
    assert (tmp_path / "begun").exists() == (tmp_path / "removed").exists()


def test_run_script_ends_a_script_that_does_not_end_by_itself(script, monkeypatch, tmp_path):
    variables = script["main"].__globals__
    monkeypatch.setitem(variables, "FOLDER", tmp_path)
    monkeypatch.setitem(variables, "END_SECONDS", 0.5)
    (tmp_path / "slow.py").write_text(HOLDS_ON)
    found = script["run_script"]("slow", (), tmp_path, tmp_path / "slow.json", 1.5)
    assert found["reason"] == "stopped after 1.5 seconds"


def test_benchmarks_are_scripts_of_the_folder_with_ratios(script):
    names = [entry.script for entry in script["BENCHMARKS"]]
    assert len(set(names)) == len(names)
    for entry in script["BENCHMARKS"]:
        text = (BENCHMARKS / f"{entry.script}.py").read_text(encoding="utf-8")
        assert '"--output"' in text
        for option in (*entry.quick, *entry.arguments):
            assert not option.startswith("--") or f'"{option}"' in text, f"{entry.script}.py has no option {option}"
        assert set(entry.lower) <= entry.ratios.keys()
        assert entry.ratios
