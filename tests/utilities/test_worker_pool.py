"""Tests of worker processes: order, errors in their place, killed workers, and what they refuse."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrg_rewards.judges import OpenAIJudge, RuleJudge
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.files import lock_file
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.worker_pool import WorkerPool, worker_count


class _Model(Backend):
    @property
    def worker_refusal(self) -> str | None:
        return MODEL_REFUSAL


class _Holder:
    def __init__(self, held: object) -> None:
        self.held = held

    def __call__(self, task: object) -> object:
        return task


class _TwoPartError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def _square(number: int) -> int:
    if number == 5:
        raise ValueError(f"preds[{number}] is wrong")
    if number == 9:
        raise _TwoPartError("one", "two")
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if number % 2:
        warnings.warn("an odd number", RunWarning, stacklevel=1)
    return number * number


def _results(numbers: list[int]) -> Iterator[tuple[int, int]]:
    with WorkerPool(_square, workers=2) as pool:
        for number, result in pool.map((number, number) for number in numbers):
            yield number, result()


def test_worker_pool_returns_results_in_order_and_warns_once() -> None:
    with pytest.warns(RunWarning, match="an odd number") as caught:
        assert list(_results([4, 3, 2, 1, 0, 6] * 4)) == [(one, one * one) for one in [4, 3, 2, 1, 0, 6] * 4]
    assert len([one for one in caught if one.category is RunWarning]) == 1


def _process(_: int) -> int:
    import torch

    assert torch.get_num_threads() == 1, "the other cores have workers"
    return os.getpid()


def test_worker_pool_gives_tasks_of_one_number_to_one_process() -> None:
    with WorkerPool(_process, workers=2) as pool:
        found = [(key % 2, result()) for key, result in pool.map(((one, one) for one in range(12)), lambda key: key)]
    assert len(set(found)) == len({process for _, process in found}) == 2


def test_worker_pool_forgets_the_results_that_are_taken() -> None:
    with WorkerPool(_process, workers=2) as pool:
        for _, result in pool.map(((one, one) for one in range(60)), lambda _: 0):
            result()
        assert len(pool._unfinished[0]) < 20


def _wait_for(path: Path | None) -> None:
    while path is not None and not path.exists():
        time.sleep(0.01)


def test_worker_pool_gives_other_tasks_to_the_process_with_the_fewest(tmp_path: Path) -> None:
    with WorkerPool(_wait_for, workers=2) as pool:
        long = pool.submit(tmp_path / "go")
        try:
            # Each of them would wait for the first in its process.
            for _ in range(3):
                pool.submit(None)()
            assert pool._count(0) == 1
        finally:
            (tmp_path / "go").touch()
        long()


def test_worker_pool_raises_an_error_after_the_results_before_it() -> None:
    results = _results([2, 4, 5, 6, 8])
    assert [next(results), next(results)] == [(2, 4), (4, 16)]
    with pytest.raises(ValueError, match=r"preds\[5\] is wrong") as raised:
        next(results)
    assert "in _square" in str(raised.value.__cause__)


def test_worker_pool_raises_an_error_that_cannot_be_pickled_by_its_name() -> None:
    with pytest.raises(RuntimeError, match="_TwoPartError: one and two"):
        list(_results([9]))


def test_worker_pool_raises_an_error_of_the_tasks_after_their_results() -> None:
    def tasks() -> Iterator[tuple[int, int]]:
        yield 2, 2
        raise OSError("the table ended")

    with WorkerPool(_square, workers=2) as pool:
        results = pool.map(tasks())
        _, result = next(results)
        assert result() == 4
        with pytest.raises(OSError, match="the table ended"):
            next(results)


def test_worker_pool_says_that_a_worker_was_killed() -> None:
    with pytest.raises(ChildProcessError, match="a worker process was killed"):
        list(_results([2, 4, 7, *[2] * 20]))


@pytest.mark.parametrize("held", [_Model(), OpenAIJudge("my-model", base_url="http://localhost:1/v1")])
def test_worker_pool_refuses_models_and_language_models(held: Backend) -> None:
    with pytest.raises(SettingError) as raised:
        WorkerPool(_Holder([held]), workers=2)
    assert (raised.value.setting, raised.value.problem) == ("workers", held.worker_refusal)
    assert RuleJudge().worker_refusal is None
    # One worker has the only copy.
    with WorkerPool(_Holder([held]), workers=1):
        pass


def test_worker_pool_names_what_cannot_be_pickled() -> None:
    with pytest.raises(SettingError, match="the metrics") as raised:
        WorkerPool(lambda task: task, workers=2, name="the metrics")
    assert raised.value.setting == "workers"
    with WorkerPool(_square, workers=1) as pool, pytest.raises(SettingError, match="a task"):
        pool.submit(lambda: 3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_worker_pool_ends_with_a_main_process_that_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    script = tmp_path / "main_process.py"
    script.write_text("""
import os, signal, sys
from rrg_rewards.utilities.files import lock_file
from rrg_rewards.utilities.worker_pool import WorkerPool

def lock(path):
    global kept
    kept = open(path, "wb")
    return lock_file(kept)

if __name__ == "__main__":
    pool = WorkerPool(lock, workers=1, modules=())
    assert pool.submit(sys.argv[1])()
    os.kill(os.getpid(), signal.SIGKILL)
""")
    held = tmp_path / "held"
    ended = subprocess.run([sys.executable, str(script), str(held)], check=False)
    assert ended.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    with held.open("r+b") as file:
        while not lock_file(file):
            assert time.monotonic() < deadline, "the worker is still there"
            time.sleep(0.05)


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_worker_count_refuses_other_values(wrong: int) -> None:
    with pytest.raises(SettingError) as raised:
        worker_count(wrong)
    assert raised.value.setting == "workers"
