"""Sampling: the distribution of the draws, and their independence of the batch."""

import pytest
import torch

from rrg_rewards.judges.sampling import Sampling

SCORES = torch.tensor([1.0, 0.0, float("-inf"), 2.0])


def drawn(prompts: list[list[int]], temperature: float = 1.0, run: int = 0) -> list[int]:
    sampling = Sampling(prompts, temperature, seed=0, run=run)
    return sampling(torch.zeros(len(prompts), 1), SCORES.repeat(len(prompts), 1)).argmax(1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_have_the_probabilities_of_the_softmax(temperature: float) -> None:
    prompts = [[number] for number in range(4000)]
    shares = torch.bincount(torch.tensor(drawn(prompts, temperature)), minlength=4) / len(prompts)
    # Four standard errors of a share are at most 0.032.
    assert torch.allclose(shares, (SCORES / temperature).softmax(0), atol=0.032)
    assert shares[2] == 0


def test_draws_depend_on_prompt_and_run_but_not_on_the_batch() -> None:
    prompts = [[number, 7] for number in range(40)]
    together = drawn(prompts)
    assert together == [drawn([prompt])[0] for prompt in prompts]
    assert drawn(prompts[::-1]) == together[::-1]
    assert drawn(prompts, run=1) != together
    assert len(set(together)) == 3
