"""The command line as a whole: help, exit codes, imports and pipes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rrg_rewards
from rrg_rewards.cli import main as main_module
from rrg_rewards.version import __version__

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rrg_rewards.__file__).parent.parent)}
COMMANDS = [[], ["label"], ["score"], ["recipes"], ["recipes", "cp"], ["recipes", "validate"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches_with_an_example(run, command):
    result = run(*command, "--help")
    assert (result.code, result.err) == (0, "")
    assert "\nExample" in result.out
    assert f"\n  {' '.join(['rrg-rewards', *command])} " in result.out


def test_help_imports_nothing_heavy():
    script = f"""
import sys
from rrg_rewards.cli.main import main
for command in [*{COMMANDS}, *([name] for name in {list(main_module.COMMANDS)})]:
    assert main([*command, "--help"]) == 0
assert main(["label", "reports.csv"]) == 2
heavy = {{"torch", "transformers", "trl", "lightning", "pyarrow", "numpy", "rich"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, check=True, capture_output=True)


@pytest.mark.parametrize("command", main_module.COMMANDS)
def test_the_list_of_commands_has_the_line_of_each(run, command):
    listed = " ".join(run("--help").out.split())
    assert f" {command} {main_module.COMMANDS[command]} " in listed
    assert run(command, "--help").out.startswith(f"usage: rrg-rewards {command} ")


def test_version(run):
    assert run("--version").out == f"rrg-rewards {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["lable"], "invalid choice: 'lable'"),
        (["label", "a.csv"], "required: --text-column"),
        (["label", "a.csv", "--text", "t"], "required: --text-column"),
        (["label", "a.csv", "--text-column", "t", "--schema", "ct-rate"], "did you mean 'ct_rate'?"),
        (
            ["label", "a.csv", "--text-column", "t", "--batch-size", "0"],
            "argument --batch-size: must be an integer, at least 1, at most 1,000,000, got 0",
        ),
        (["score", "a.csv"], "required: --metrics"),
        (["score", "a.csv", "--metrics", "crg", "--bootstrap", "-1"], "--bootstrap"),
        (["score", "a.csv", "--metrics", "crg", "--metric", "rouge"], "--metric rouge; did you mean --metrics?"),
        (["recipes"], "required: ACTION"),
    ],
    ids=str,
)
def test_a_wrong_command_line_ends_with_2_and_shows_the_message_and_then_a_short_usage(run, arguments, message):
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    error, usage, explained = result.err.splitlines()
    assert re.match("rrg-rewards[a-z -]*: error: ", error)
    assert message in error
    assert usage.startswith("usage: rrg-rewards")
    assert explained.endswith(" --help explains all arguments")


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["label"], "label --text-column NAME REPORTS [OPTIONS]"),
        (["serve"], "serve (--reward NAME | --config FILE) [OPTIONS]"),
        (["recipes"], "recipes ACTION ..."),
    ],
)
def test_the_usage_of_an_error_has_what_is_required(run, arguments, usage):
    assert f"usage: rrg-rewards {usage}\n" in run(*arguments).err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("row 3 is bad"), 1, "rrg-rewards: error: row 3 is bad\n"),
        (ImportError("run: pip install x[y]"), 1, "rrg-rewards: error: run: pip install x[y]\n"),
        (RuntimeError("boom"), 1, "rrg-rewards: error: RuntimeError: boom (add --traceback to see where)\n"),
        (KeyboardInterrupt(), 130, "rrg-rewards: error: interrupted\n"),
        (BrokenPipeError(), 141, ""),
    ],
    ids=repr,
)
def test_an_error_is_one_line_and_an_exit_code(run, monkeypatch, tmp_path, error, code, message):
    def fail(*arguments):
        raise error

    monkeypatch.setattr("rrg_rewards.data.tables.readers.BatchedTable", fail)
    monkeypatch.setattr(main_module, "_drop_standard_output", lambda: None)
    monkeypatch.setattr("rrg_rewards.metrics.registry.available_metrics", fail)
    label = ("label", "a.csv", "--text-column", "t", "--output", tmp_path / "out.csv", "--quiet")
    for command in (label, ("score", "--list")):
        result = run(*command)
        assert (result.code, result.out, result.err) == (code, "", message)


def test_traceback_shows_where_an_error_was_raised(run):
    result = run("label", "none.csv", "--text-column", "t", "--traceback")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "none.csv: no such file" in result.err


def test_a_closed_pipe_ends_the_command_without_a_word():
    script = """
import sys
from types import ModuleType
import torch
from rrg_rewards.cli.main import main
class Labeler:
    labels, signature = ("Edema",), "none"
    def __init__(self, schema): pass
    def __call__(self, reports): return torch.zeros(len(reports), 1, dtype=torch.bool)
rules = sys.modules["rrg_rewards.labelers.rules"] = ModuleType("rules")
rules.RuleLabeler = Labeler
sys.stdin.buffer.peek(1)
sys.exit(main(["label", "-", "--text-column", "t", "--quiet"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.write(b"t\n" + b"Normal.\n" * 8_000)
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141
