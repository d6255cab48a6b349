"""AReaL, as it calls its reward."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest
from trainer_inputs import REFERENCES, REPORTS

from rrg_rewards.integrations import areal

PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


def test_areal_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(reference_column="answer")
    rewards = [
        areal.reward_fn(PROMPT, report, [1, 2], [3, 4], answer=reference, query_id="0")
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]
    assert rewards == pytest.approx(numbers)
    with pytest.raises(ValueError, match="lacks the column 'answer'"):
        areal.reward_fn(PROMPT, REPORTS[0], [1], [2], label="Edema.")


def test_areal_calls_forked_processes(configure: Callable[..., None], numbers: list[float]) -> None:
    """A forked process has the memory of its parent, but not the thread in which the parent scores."""
    configure()
    assert areal.reward_fn(PROMPT, REPORTS[0], [1], [2], reference=REFERENCES[0]) == pytest.approx(numbers[0])
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("fork")) as pool:
        future = pool.submit(areal.reward_fn, PROMPT, REPORTS[3], [1], [2], reference=REFERENCES[3])
        assert future.result(timeout=300) == pytest.approx(numbers[3])
