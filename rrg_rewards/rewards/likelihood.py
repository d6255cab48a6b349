"""The likelihood of a report under a language model, a reward for natural language."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.functional.log_probs import token_log_probs
from rrg_rewards.models.loading import PretrainedModel
from rrg_rewards.rewards.shaping import TextReward
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.signature import format_signature


class LikelihoodReward(TextReward):
    r"""The mean log-likelihood of a report's tokens under a frozen language model.

    .. math::
        r = \max\Bigl(\frac1T \sum_t \log p(y_t \mid y_{<t}),\ \text{floor}\Bigr)

    The unit is nats per token. The reward is at most 0; higher is better. The first token of the report follows the
    start-of-text token if the model has one. The likelihood is highest for normal reports. Use it with a small weight
    in a composed reward, with the mean value of the references as the upper bound of ``clip``.

    Every process loads the complete model, even if the trainer shards the policy (ZeRO-3).

    Args:
        model: Folder or Hub id of a causal language model, such as the policy before training.
        floor: Lower bound of the reward. Without it, a single unlikely token can dominate the mean.
        max_length: Maximum number of tokens of a report; longer reports are truncated.
        batch_size: Number of reports that the model reads at a time.
        dtype: ``"float32"`` or ``"bfloat16"``.
        device: Device of the model. Default: the CUDA device of the process if there is one, else the CPU.
        revision: Revision of a Hub id.
        name: Name under which trainers log the reward.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If an argument is out of range.

    Example:
        >>> from rrg_rewards.rewards import LikelihoodReward
        >>> reward = LikelihoodReward("HuggingFaceTB/SmolLM2-135M-Instruct")   # doctest: +SKIP
        >>> reward(["The lungs are clear.", "The clear are lungs."])          # doctest: +SKIP
        [-3.1..., -6.8...]
    """

    def __init__(
        self,
        model: str,
        *,
        floor: float = -10.0,
        max_length: int = 512,
        batch_size: int = 16,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str | None = None,
        revision: str | None = None,
        name: str = "likelihood",
    ) -> None:
        super().__init__(name)
        if not -math.inf < floor < 0:
            raise ValueError(f"floor must be negative and finite, got {floor}")
        if max_length < 2 or batch_size < 1:
            raise ValueError(f"max_length must be at least 2 and batch_size 1, got {max_length} and {batch_size}")
        self.floor = floor
        self.batch_size = batch_size
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
        self.max_length = max_length
        self.language_model = PretrainedModel(model, "AutoModelForCausalLM", revision, device, dtype)

    @property
    def signature(self) -> str:
        """Name and settings of the reward."""
        model = self.language_model
        settings = {"max_length": self.max_length, "dtype": model.dtype, "floor": self.floor}
        return format_signature("likelihood", model=model.source, **settings) + self.output.suffix

    def _values(self, texts: Sequence[str], given: Tensor, columns: Mapping[str, Any]) -> list[float]:  # noqa: ARG002
        values: list[float] = []
        for start in range(0, len(texts), self.batch_size):
            values += self._mean_log_likelihoods(texts[start : start + self.batch_size])
        # A report without tokens has no mean and gets the lowest reward.
        return [self.floor if math.isnan(value) else max(value, self.floor) for value in values]

    @own_precision()
    @torch.no_grad()
    def _mean_log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """Return the mean log-likelihood of the tokens of each report; NaN if no token is predicted."""
        model, tokenizer = self.language_model.model, self.language_model.tokenizer
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        tokens = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        rows = [[*start, *own][: self.max_length] for own in tokens]
        longest = max(map(len, rows), default=0)
        if longest < 2:
            return [math.nan] * len(rows)
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=model.device)
        lengths = torch.tensor([len(row) for row in rows], device=ids.device)
        mask = torch.arange(longest, device=ids.device) < lengths.unsqueeze(1)
        logits = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits[:, :-1]
        predicted = mask[:, 1:]
        log_probs = token_log_probs(logits, ids[:, 1:]).masked_fill(~predicted, 0.0)
        means: list[float] = (log_probs.sum(1) / predicted.sum(1)).tolist()
        return means
