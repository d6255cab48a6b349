"""Random answers that depend on the prompt and a seed, not on the batch."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Sampling"]


class Sampling:
    r"""A logits processor of transformers whose highest score is a token drawn from the model's distribution.

    With scores :math:`s` and independent Gumbel noise :math:`g`, :math:`\arg\max(s / T + g)` is distributed as
    :math:`\mathrm{softmax}(s / T)`, so that greedy decoding of the result draws an answer at temperature :math:`T`.
    Each prompt has its own generator, so its answer is the same in every batch.

    Source: Maddison, Tarlow and Minka, "A* sampling", NeurIPS 2014, Section 2.

    Args:
        prompts: Token ids of each prompt.
        temperature: Temperature, positive.
        seed: Seed of the draws.
        run: Number of the run; each run has other draws.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, run: int) -> None:
        self._temperature = temperature
        self._generators = [torch.Generator().manual_seed(_seed(prompt, seed, run)) for prompt in prompts]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 (transformers' signature)
        """Return the scores divided by the temperature, with noise added."""
        # -log of exponentially distributed numbers is Gumbel noise.
        noise = torch.stack([torch.empty(scores.shape[1]).exponential_(generator=one) for one in self._generators])
        return scores.float() / self._temperature - noise.log().to(scores.device)


def _seed(prompt: Sequence[int], seed: int, run: int) -> int:
    content = repr((list(prompt), seed, run)).encode()
    # The generators take seeds of 63 bits.
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1
