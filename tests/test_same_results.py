"""The same results whatever the environment of the process: hash seeds, ``-O``, locale, names of files, and workers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "helpers" / "same_results.py"
# Python 3.7 and later would replace the locale C by one with UTF-8.
PLAIN_C = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
NO_HOME = dict.fromkeys(("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"))


def results(
    folder: Path,
    environment: dict[str, str | None],
    *options: str,
    table: bytes = b"t.csv",
    workers: int = 1,
    disk: str = "",
) -> Any:
    changed = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), **environment}
    known = {name: value for name, value in changed.items() if value is not None}
    command = [sys.executable, *options, str(SCRIPT), str(folder), table, str(workers), disk]
    ran = subprocess.run(command, env=known, cwd=folder, capture_output=True, timeout=600)
    assert ran.returncode == 0, ran.stderr.decode("utf-8", "replace")
    return json.loads((folder / "results.json").read_bytes())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return results(tmp_path_factory.mktemp("plain"), {"PYTHONHASHSEED": "0"})


@pytest.mark.slow
def test_results_depend_on_no_hashes_assertions_home_and_writable_disk(tmp_path: Path, expected: Any) -> None:
    environment = {"PYTHONHASHSEED": "1", "PYTHONDONTWRITEBYTECODE": "1", **NO_HOME}
    assert results(tmp_path, environment, "-O", disk="read-only") == expected


@pytest.mark.slow
def test_results_depend_on_no_locale_names_and_workers(tmp_path: Path, expected: Any) -> None:
    environment = {"PYTHONHASHSEED": "2", **PLAIN_C}
    assert results(tmp_path, environment, table=b"t\xe9.csv", workers=2) == expected
