"""The cache of answers: shared by processes, stores texts only, and never ends an evaluation."""

import errno
import sqlite3
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from rrg_rewards.judges.server.cache import AnswerCache


def rows(folder):
    """Keys and values on disk."""
    with sqlite3.connect(Path(folder) / "answers.db") as connection:
        found = connection.execute("SELECT key, answer FROM answers ORDER BY rowid").fetchall()
    connection.close()
    return found


def plant(folder, key, value):
    """Write a row as another program could."""
    with sqlite3.connect(Path(folder) / "answers.db") as connection:
        connection.execute("INSERT INTO answers VALUES (?, ?)", (key, value))
    connection.close()


def test_answer_cache_keeps_texts_across_objects(tmp_path):
    first = AnswerCache(tmp_path / "new" / "cache")
    first.put("a", "grüße \x00 🙂" * 50_000)
    first.put("a", "another")
    first.close()
    second = AnswerCache(str(tmp_path / "new" / "cache"))
    assert second.get("a") == "grüße \x00 🙂" * 50_000
    assert second.get("b") is None
    assert len(second) == 1
    assert stat.S_IMODE((tmp_path / "new" / "cache").stat().st_mode) == 0o700
    # No file beside the table, however long the text.
    assert {path.name.split("-")[0] for path in (tmp_path / "new" / "cache").iterdir()} == {"answers.db"}


def test_answer_cache_drop(tmp_path):
    cache = AnswerCache(tmp_path)
    cache.put("a", "1")
    cache.drop("a")
    cache.drop("never there")
    assert cache.get("a") is None
    assert rows(tmp_path) == []


@pytest.mark.parametrize("value", [sqlite3.Binary(b"bytes"), 3, 1.5, None])
def test_answer_cache_drops_planted_values_of_other_types(tmp_path, value):
    cache = AnswerCache(tmp_path)
    plant(tmp_path, "a", value)
    assert cache.get("a") is None
    assert rows(tmp_path) == []
    cache.put("a", "good")
    assert cache.get("a") == "good"


def test_answer_cache_does_not_write_when_read(tmp_path):
    cache = AnswerCache(tmp_path)
    cache.put("a", "1")
    cache.close()
    other = sqlite3.connect(tmp_path / "answers.db", isolation_level=None)
    before = other.execute("PRAGMA data_version").fetchone()
    assert cache.get("a") == "1"
    assert cache.get("b") is None
    assert other.execute("PRAGMA data_version").fetchone() == before
    cache.put("b", "2")
    assert other.execute("PRAGMA data_version").fetchone() != before
    other.close()


def test_answer_cache_deletes_the_oldest_entries_first(tmp_path, monkeypatch):
    monkeypatch.setattr("rrg_rewards.judges.server.cache._SIZE_LIMIT", 300_000)
    cache = AnswerCache(tmp_path)
    for number in range(100):
        cache.put(str(number), "x" * 10_000)
    assert cache.get("0") is None
    assert cache.get("99") is not None
    assert 0 < len(cache) < 40


def test_a_locked_answer_cache_warns_once_and_is_not_used(tmp_path):
    cache = AnswerCache(tmp_path, lock_seconds=0.01)
    cache.put("a", "1")
    other = sqlite3.connect(tmp_path / "answers.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.warns(RuntimeWarning, match=r"the cache of answers in .* fails") as warned:
        cache.put("b", "secret report")
    assert "secret" not in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put("c", "3")
        assert cache.get("a") is None
    other.execute("ROLLBACK")
    other.close()
    cache.close()
    assert cache.get("a") == "1"
    cache.put("b", "2")
    assert cache.get("b") == "2"


def _torn(folder):
    AnswerCache(folder).put("a", "1" * 50_000)
    content = (folder / "answers.db").read_bytes()
    (folder / "answers.db").write_bytes(content[: len(content) // 2])
    for file in folder.glob("answers.db-*"):
        file.unlink()


def _of_another_kind(folder):
    folder.mkdir()
    (folder / "answers.db").write_bytes(b"no database" * 1000)


def _a_file(folder):
    folder.write_text("not a folder")


def _locked(folder):
    AnswerCache(folder).close()
    connection = sqlite3.connect(folder / "answers.db", isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def _full(folder):
    def mkdir(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    patch = pytest.MonkeyPatch()
    patch.setattr(Path, "mkdir", mkdir)
    return SimpleNamespace(close=patch.undo)


@pytest.mark.parametrize("fault", [_torn, _of_another_kind, _a_file, _locked, _full])
def test_an_answer_cache_that_cannot_be_opened_is_not_used(fault, tmp_path):
    holder = fault(tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match=r"the cache of answers in .* fails"):
        cache = AnswerCache(tmp_path / "cache", lock_seconds=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(50):
            assert cache.get(str(number)) is None
            cache.put(str(number), "answer")
        assert len(cache) == 0
        cache.close()
    if holder is not None:
        holder.close()


def test_make_private_closes_an_existing_folder_to_others(tmp_path):
    own, shared = tmp_path / "own", tmp_path / "shared"
    AnswerCache(own).put("a", "secret report")
    shared.mkdir()
    (shared / "notes.txt").write_text("of others")
    for folder in (own, shared):
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        cache = AnswerCache(folder)
        cache.put("b", "secret report")
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert {mode for name, mode in files.items() if name.startswith("answers.db")} == {0o600}
        cache.close()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    # A folder with other files may be a working directory.
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    assert stat.S_IMODE((shared / "notes.txt").stat().st_mode) == 0o755


def test_make_private_accepts_a_journal_that_another_thread_deletes(tmp_path, monkeypatch):
    (tmp_path / "answers.db").touch()
    listed = [tmp_path / "answers.db", tmp_path / "answers.db-wal", tmp_path / "answers.db-shm"]
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(listed))
    answers = AnswerCache(tmp_path)
    answers.put("key", "text")
    assert answers.get("key") == "text"
    answers.close()


def test_answer_cache_in_threads(tmp_path):
    cache = AnswerCache(tmp_path)

    def work(name):
        for number in range(30):
            cache.put(f"shared{number}", "same")
            cache.put(f"{name}{number}", name)
        cache.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 120
    assert all(cache.get(f"{name}{number}") == name for name in "abc" for number in range(30))


def test_answer_cache_in_processes(tmp_path):
    work = (
        "import sys; from rrg_rewards.judges.server.cache import AnswerCache; cache = AnswerCache(sys.argv[1])\n"
        "for n in range(100): cache.put(f'shared{n}', 'same'); cache.put(f'{sys.argv[2]}{n}', sys.argv[2])"
    )
    # -W error: a write that did not get through warns.
    command = [sys.executable, "-W", "error", "-c", work, str(tmp_path)]
    processes = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    found = dict(rows(tmp_path))
    assert len(found) == len(rows(tmp_path)) == 300
    assert all(found[f"{name}{number}"] == name for name in "ab" for number in range(100))
