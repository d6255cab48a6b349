"""Appended lines: lines are kept, an incomplete line is removed, and a second writer is refused."""

import json
import os
import signal
import subprocess
import sys

import pytest

from rrg_rewards.data.tables.appending import AppendedLines, read_whole_lines
from rrg_rewards.data.tables.table import TableError

FIRST, SECOND = {"id": 1, "text": "Ödem.\u2028Ende\n"}, {"id": 2, "text": "x"}
LINE = json.dumps(FIRST, ensure_ascii=False).encode() + b"\n"

CONTENTS = {
    "no file": (None, []),
    "empty": (b"", []),
    "blank": (b"\n", []),
    "whole": (LINE, [1]),
    "the end of the line is missing": (LINE[:-1], [1]),
    "half a line": (LINE[:20], []),
    "half a line behind a whole one": (LINE + LINE[:20], [1]),
    "half a character": (LINE + LINE[: LINE.index("Ö".encode()) + 1], [1]),
    "zeros of a disk that gave out": (LINE + bytes(30), [1]),
    "a number, which is no record": (LINE + b"12", [1]),
}


def ids(path):
    table = read_whole_lines(path)
    return [] if table is None else table.columns["id"]


@pytest.mark.parametrize("name", CONTENTS)
def test_appended_lines_what_an_interruption_leaves(name, tmp_path):
    content, held = CONTENTS[name]
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert ids(path) == held
    # Reading changed nothing.
    assert (path.read_bytes() if path.exists() else None) == content
    with AppendedLines(path) as lines:
        assert ids(path) == held
        lines.append(SECOND)
        assert ids(path) == [*held, 2]
    kept = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert kept == [*([FIRST] if held else []), SECOND]


def test_appended_lines_damage_before_the_end_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINE + LINE[:10] + b"\n" + LINE)
    with pytest.raises(TableError, match=r"data row 2 \(line 2\): not a line of JSON"):
        read_whole_lines(path)


def test_appended_lines_half_a_surrogate_pair(tmp_path):
    path = tmp_path / "a.jsonl"
    with AppendedLines(path) as lines:
        lines.append({"id": 1, "text": "a\ud800"})
    assert read_whole_lines(path).columns["text"] == ["a\ud800"]


def test_appended_lines_what_is_no_json_leaves_no_trace(tmp_path):
    path = tmp_path / "a.jsonl"
    with AppendedLines(path) as lines:
        for bad in (float("nan"), {1}):
            with pytest.raises((ValueError, TypeError)):
                lines.append({"id": bad})
    assert path.read_bytes() == b""


def test_appended_lines_missing_folder(tmp_path):
    with pytest.raises(TableError, match="does not exist"):
        AppendedLines(tmp_path / "no" / "a.jsonl")


def test_appended_lines_one_process_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "a.jsonl"
    with AppendedLines(path), pytest.raises(TableError, match="another process is writing to it"):
        AppendedLines(path)
    with AppendedLines(path):
        pass


def test_appended_lines_killed_process_loses_no_line(tmp_path):
    path = tmp_path / "a.jsonl"
    work = """
import sys
from rrg_rewards.data.tables.appending import AppendedLines
with AppendedLines(sys.argv[1]) as lines:
    for number in range(10**9):
        lines.append({"id": number, "text": "x" * 1000})
        print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", work, str(path)], stdout=subprocess.PIPE)
    confirmed = [int(process.stdout.readline()) for _ in range(50)]
    os.kill(process.pid, signal.SIGKILL)
    confirmed += [int(line) for line in process.stdout.read().splitlines()]
    process.wait(20)
    process.stdout.close()
    held = ids(path)
    assert held[: len(confirmed)] == confirmed
    assert len(held) <= len(confirmed) + 1
