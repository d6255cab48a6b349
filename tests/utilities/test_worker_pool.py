"""Tests of worker processes: order, errors in their place, killed workers, and what they refuse."""

import os
import signal
import warnings
from collections.abc import Iterator

import pytest

from rrg_rewards.judges import OpenAIJudge, RuleJudge
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
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


def _square(number: int) -> int:
    if number == 5:
        raise ValueError(f"preds[{number}] is wrong")
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


def test_worker_pool_raises_an_error_after_the_results_before_it() -> None:
    results = _results([2, 4, 5, 6, 8])
    assert [next(results), next(results)] == [(2, 4), (4, 16)]
    with pytest.raises(ValueError, match=r"preds\[5\] is wrong"):
        next(results)


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
    with pytest.raises(SettingError, match=r"workers: .* leave out --workers"):
        WorkerPool(_Holder([held]), workers=2)
    assert RuleJudge().worker_refusal is None


def test_worker_pool_refuses_what_cannot_be_pickled() -> None:
    with pytest.raises(SettingError, match="top level of a module"):
        WorkerPool(lambda task: task, workers=2)


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_worker_count_refuses_other_values(wrong: int) -> None:
    with pytest.raises(SettingError, match="must be 0 or a positive integer"):
        worker_count(wrong)
