"""Tests of files that are written at once: permissions, names, and what a killed process leaves."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rrg_rewards.utilities.files import (
    abandoned_files,
    is_same_file,
    locked_folder,
    note_input,
    outputs_as_private_as_inputs,
    whole_file,
)
from rrg_rewards.utilities.settings import SettingError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and locks")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def write(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"new")


def test_whole_file_keeps_the_mode_of_the_file_that_it_replaces(tmp_path):
    for old in (0o600, 0o664, 0o400):
        path = tmp_path / f"{old:o}"
        path.touch()
        path.chmod(old)
        write(path)
        assert (mode(path), path.read_bytes()) == (old, b"new")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away")
def test_whole_file_keeps_the_owner_of_the_file_that_it_replaces(tmp_path):
    path = tmp_path / "a"
    path.touch()
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    write(path)
    found = path.stat()
    assert (found.st_uid, found.st_gid, mode(path)) == (12345, 23456, 0o640)


def test_whole_file_closes_a_file_to_its_group_if_it_cannot_keep_the_group(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    path = tmp_path / "a"
    path.touch()
    path.chmod(0o664)
    monkeypatch.setattr(os, "chown", refuse)
    write(path)
    assert mode(path) == 0o604


def test_whole_file_is_closed_to_others_while_it_is_written(tmp_path):
    with whole_file(tmp_path / "a") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert mode(tmp_path / "a") == 0o644


@pytest.mark.parametrize(("given", "expected"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o604, 0o604)])
def test_outputs_are_as_private_as_inputs(tmp_path, given, expected):
    path = tmp_path / "in"
    path.touch()
    path.chmod(given)
    with outputs_as_private_as_inputs():
        with path.open("rb") as file:
            note_input(file)
        write(tmp_path / "out")
        (tmp_path / "log").touch()
    write(tmp_path / "later")
    assert [mode(tmp_path / name) for name in ("out", "log", "later")] == [expected, expected, 0o644]


def test_whole_file_works_with_a_name_as_long_as_the_system_allows(tmp_path):
    for name in ("n" * 255, "ä" * 127):
        write(tmp_path / name)
    assert len([*tmp_path.iterdir()]) == 2


def test_abandoned_files_are_those_of_killed_processes(tmp_path):
    pytest.importorskip("fcntl")
    script = """
import os, signal, sys
from pathlib import Path
from rrg_rewards.utilities.files import whole_file
with whole_file(Path(sys.argv[1])) as file:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "killed.csv")], check=False)
    (left,) = tmp_path.iterdir()
    with whole_file(tmp_path / "written.csv"):
        assert abandoned_files(tmp_path) == [left]
    assert left.name.startswith(".killed.csv.")


def test_is_same_file_follows_links(tmp_path):
    one, soft, hard = (tmp_path / name for name in ("one", "soft", "hard"))
    soft.symlink_to(one)
    assert is_same_file(one, soft)
    one.touch()
    hard.hardlink_to(one)
    assert is_same_file(soft, hard)
    assert not is_same_file(one, tmp_path / "other")


def test_locked_folder_keeps_another_process_out_until_it_is_killed(tmp_path: Path) -> None:
    script = "import sys, time\nfrom rrg_rewards.utilities.files import locked_folder\n"
    script += "with locked_folder(sys.argv[1]):\n    print('locked', flush=True)\n    time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "run")], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"locked\n"
            with (
                pytest.raises(SettingError, match="output_dir: another process writes to"),
                locked_folder(tmp_path / "run"),
            ):
                pass
        finally:
            other.kill()
    with locked_folder(tmp_path / "run"), locked_folder(tmp_path / "other"):
        pass
