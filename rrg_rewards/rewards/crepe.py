"""CREPE as a reward."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.models.crepe_encoding import LongReports
from rrg_rewards.models.crepe_predictor import Precision
from rrg_rewards.rewards.base import MetricReward

__all__ = ["CrepeReward", "RewardShape"]

RewardShape = Literal["linear", "exponential"]


class CrepeReward(MetricReward):
    r"""Predicted errors of a completion as a reward: the fewer, the higher.

    With the score :math:`S`, the sum of predicted error counts, weighted where weights are given:

    - ``shape="linear"``: :math:`-S`, at most 0. Every error costs the same, so a long report with many errors weighs
      heavily in a batch.
    - ``shape="exponential"``: :math:`e^{-S/\tau}` in (0, 1]. The first errors cost most, and a hopeless report costs
      no more than a bad one.

    Logged for each batch, under the reward's name: the mean predicted count of each category, and ``unscorable``.

    Source: Cho et al., "CREPE". Weights by category are an answer to a limitation that the paper names.

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        shape: ``"linear"`` or ``"exponential"``.
        tau: :math:`\tau`, errors by which an exponential reward falls to 0.37 of what it was.
        weights: What an error counts by category; 1 where a category is not named.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's folder.
        max_length: Tokens of a pair at most; default: 512, or what the encoder takes if that is less.
        long_reports: ``"truncate"`` or ``"chunks"``, for pairs that are longer.
        token_budget: Tokens of a batch at most, padding included.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        compile: Whether the model is compiled by ``torch.compile``.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        reference_column: Column of reference reports.
        name: ``__name__`` of the reward.
        log_explanations: Add the likely errors to the trainer's table of completions.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a setting is unknown or out of range; when called, if the column is missing.

    Example:
        >>> reward = CrepeReward("gihuncho/crepe-biomedbert", shape="exponential", tau=2.0)  # doctest: +SKIP
        >>> reward(completions=["No effusion."], reference=["Small effusion."])              # doctest: +SKIP
        [0.3...]
    """

    metric: CREPE

    def __init__(
        self,
        model: str | Path | nn.Module,
        *,
        shape: RewardShape = "linear",
        tau: float = 2.0,
        weights: Mapping[str, float] | None = None,
        tokenizer: Any = None,
        max_length: int | None = None,
        long_reports: LongReports = "truncate",
        token_budget: int = 8192,
        dtype: Precision = "float32",
        compile: bool = False,  # noqa: A002 (torch's word for it)
        device: str | None = None,
        revision: str | None = None,
        reference_column: str | None = "reference",
        name: str | None = None,
        log_explanations: bool = False,
    ) -> None:
        if shape not in get_args(RewardShape):
            raise ValueError(f"shape must be 'linear' or 'exponential', got {shape!r}")
        if not 0 < tau < math.inf:
            raise ValueError(f"tau must be positive and finite, got {tau}")
        if reference_column is None:
            raise ValueError("crepe needs a reference_column")
        metric = CREPE(
            model,
            tokenizer,
            weights=weights,
            max_length=max_length,
            long_reports=long_reports,
            token_budget=token_budget,
            dtype=dtype,
            compile=compile,
            device=device,
            revision=revision,
        )
        super().__init__(metric, name=name, reference_column=reference_column, log_explanations=log_explanations)
        self.shape = shape
        self.tau = tau

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        if self.shape == "linear":
            return super().signature
        return f"{self.metric.signature}|shape:exponential|tau:{self.tau:g}"

    def _reward(self, value: float) -> float:
        return math.exp(-value / self.tau) if self.shape == "exponential" else super()._reward(value)
