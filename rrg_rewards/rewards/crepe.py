"""CREPE as a reward."""

import math
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.rewards.base import MetricReward

RewardShape = Literal["linear", "exponential"]


class CrepeReward(MetricReward):
    r"""Reward a completion for a low number of predicted errors.

    :math:`S` is the CREPE score, the weighted sum of the predicted error counts. The reward is

    - :math:`-S`, at most 0, for ``shape="linear"``. Each error reduces the reward by the same amount, so a report with
      many errors has a large effect on its batch.
    - :math:`e^{-S/\tau}` in (0, 1] for ``shape="exponential"``. The first errors reduce the reward most.

    For each batch, the reward logs the mean predicted count of each category, and ``unscorable``.

    Source: Cho et al., "CREPE". The paper does not weight categories and states this as a limitation.

    Args:
        model: Folder or Hub id of a CREPE model, or a :class:`rrg_rewards.models.CrepeModel`.
        shape: ``"linear"`` or ``"exponential"``.
        tau: :math:`\tau`, the number of errors that multiplies an exponential reward by 0.37.
        reference_column: Column of reference reports.
        name: Name under which trainers log the reward.
        log_explanations: Whether to add the likely errors to the trainer's table of completions.
        options: Further options of :class:`rrg_rewards.metrics.CREPE`, such as ``weights`` and ``dtype``.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If an option is unknown or out of range; when called, if the reference column is missing.

    Example:
        >>> reward = CrepeReward("gihuncho/crepe-biomedbert", shape="exponential", tau=2.0)  # doctest: +SKIP
        >>> reward(completions=["No effusion."], reference=["Small effusion."])              # doctest: +SKIP
        [0.3...]
    """

    metric: CREPE
    metric_class = CREPE

    def __init__(
        self,
        model: str | Path | nn.Module,
        *,
        shape: RewardShape = "linear",
        tau: float = 2.0,
        reference_column: str | None = "reference",
        name: str | None = None,
        log_explanations: bool = False,
        **options: Any,
    ) -> None:
        if shape not in get_args(RewardShape):
            raise ValueError(f"shape must be 'linear' or 'exponential', got {shape!r}")
        if not 0 < tau < math.inf:
            raise ValueError(f"tau must be positive and finite, got {tau}")
        if reference_column is None:
            raise ValueError("crepe needs a reference_column")
        super().__init__(
            CREPE(model, **options), name=name, reference_column=reference_column, log_explanations=log_explanations
        )
        self.shape = shape
        self.tau = tau

    @property
    def signature(self) -> str:
        """Signature of the metric and the shape of the reward."""
        if self.shape == "linear":
            return super().signature
        return f"{self.metric.signature}|shape:exponential|tau:{self.tau:g}{self.output.suffix}"

    def _reward(self, value: float) -> float:
        return math.exp(-value / self.tau) if self.shape == "exponential" else super()._reward(value)
