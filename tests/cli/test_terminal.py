"""What is printed has no control characters of names and reports."""

import pytest
from rich.table import Table

from rrg_rewards.cli.terminal import Terminal

HOSTILE = "a\x1b[2Jb\x07\r\x9b31m\x7f\u202ec\u2066\ud800"
SHOWN = r"a\x1b[2Jb\x07\r\x9b31m\x7f\u202ec\u2066\ud800"


@pytest.mark.parametrize("method", ["error", "warn", "note"])
def test_messages_have_no_control_characters(method, capsys):
    getattr(Terminal(), method)(HOSTILE)
    assert SHOWN in capsys.readouterr().err


def test_results_have_no_control_characters(capsys):
    table = Table(HOSTILE + "h", title=HOSTILE + "t", caption=HOSTILE + "p")
    table.add_row(HOSTILE + "r")
    Terminal().show(HOSTILE + "s\n\tnext", table)
    shown = capsys.readouterr().out
    assert all(f"{SHOWN}{part}" in shown for part in "htprs")
    assert all(one.isprintable() or one == "\n" for one in shown)
    widths = {len(line) for line in shown.splitlines() if line[:1] in "┏┃┡│└"}
    assert len(widths) == 1


def test_errors_of_commands_have_no_control_characters(run, write_csv, tmp_path):
    path = write_csv("in\x1b[1m.csv", ["re\x1b[2mport"], ["Clear."])
    for arguments in (
        ["label", tmp_path / "no\x1b[1m.csv", "--text-column", "report"],
        ["label", path, "--text-column", "report"],
        ["label", path, "--text-column", "report", "--traceback"],
        ["label", path, "--text-column", "report", "--wor\x1bkers", "2"],
        ["label", path, "--text-column", "report", "--workers", "\x1b"],
    ):
        result = run(*arguments)
        assert result.code
        assert "\x1b" not in result.err
        assert r"\x1b" in result.err
