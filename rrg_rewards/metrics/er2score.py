"""ER²Score as a metric on report text: rewards by the criteria of a scoring system, and their sum."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.metrics.base import ReportMetric, Scores
from rrg_rewards.metrics.weights import named_weights
from rrg_rewards.models.er2score_predictor import ER2ScorePredictor
from rrg_rewards.models.pair_predictor import Precision
from rrg_rewards.schemas import ScoringSystem, get_scoring_system
from rrg_rewards.utilities.signature import format_signature

__all__ = ["ER2Score", "ER2Scores"]


@dataclass(frozen=True, kw_only=True)
class ER2Scores(Scores):
    """ER²Score of report pairs.

    Args:
        value: The score, float64 tensor ``(N,)``; NaN where a pair is unscorable.
        details: Predicted sub-scores by criterion, each ``(N,)``, in the criterion's own unit: errors, yes/no, grades.
    """

    @property
    def explanations(self) -> dict[str, list[str]]:
        """The sub-scores of each report in words, in the order of the criteria."""
        rows = torch.stack([*self.details.values()], dim=1)
        names = [name.replace("_", " ") for name in self.details]
        return {"sub_scores": ["" if row.isnan().any() else _in_words(names, row.tolist()) for row in rows]}


def _in_words(names: Sequence[str], scores: Sequence[float]) -> str:
    return ", ".join(f"{name} {score:.1f}" for name, score in zip(names, scores, strict=True))


class ER2Score(ReportMetric):
    r"""ER²Score: the sum of rewards that a language model gives a candidate report, one for each criterion.

    The score of a pair is the total of the model's scoring system: its base and the rewards :math:`r_j`, what each
    criterion contributes. With ``weights`` it is :math:`\sum_j w_j r_j` over the criteria that are named. A sub-score
    is its reward in the criterion's own unit, as the number of errors (``ScoringSystem.factors``). The corpus value is
    the mean over scored pairs. float64, higher is better; NaN where no pair is scored.

    A model learns margins between reports of one reference. Scores of reports are compared; that a score is near the
    total which a rater would give, and a sub-score at least 0, holds as far as the model was calibrated and no further.

    How pairs become prompts, are packed and run says :class:`rrg_rewards.models.er2score_predictor.ER2ScorePredictor`.

    Source: Liu et al., "ER²Score: LLM-based Explainable and Customizable Metric for Assessing Radiology Reports with
    Reward-Control Loss".

    Args:
        model: Folder or Hub id of an ER²Score model, or a :class:`rrg_rewards.models.ER2ScoreModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's.
        scoring_system: The scoring system that the model is expected to have, by name, YAML file or itself: another one
            is refused. Default: the model's, whichever it is.
        weights: What the reward of a criterion counts, by name; those not named count nothing. Default: the total.
        backbone: Folder or Hub id of the backbone under an adapter, where it has moved.
        max_length: Tokens of a prompt at most; default: as the model was trained.
        token_budget: Tokens of a batch at most, padding included.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        device: Where a loaded model runs; default: this process' CUDA device where there is one, else the CPU.
        revision: Revision of a Hub id.
        share_prefix: Whether what prompts of one reference have in common is run once.
        progress: Whether a bar on stderr shows how far a call is.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder, or it holds no ER²Score model.
        ValueError: If a setting is unknown or out of range, a weight is of no criterion, or the model is of another
            kind or another scoring system.

    Example:
        >>> metric = ER2Score("runs/er2score/model", weights={"omitted_finding": 2.0})     # doctest: +SKIP
        >>> metric.update(["No effusion."], ["Small left effusion."])                      # doctest: +SKIP
        >>> metric.compute()                                                               # doctest: +SKIP
        tensor(-2.1, dtype=torch.float64)
    """

    name = "er2score"

    score_sum: Tensor
    sub_score_sums: Tensor
    num_scored: Tensor

    def __init__(
        self,
        model: str | Path | nn.Module,
        tokenizer: Any = None,
        *,
        scoring_system: str | Path | ScoringSystem | None = None,
        weights: Mapping[str, float] | None = None,
        backbone: str | Path | None = None,
        max_length: int | None = None,
        token_budget: int = 8192,
        dtype: Precision = "float32",
        device: str | None = None,
        revision: str | None = None,
        share_prefix: bool = True,
        progress: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.predictor = ER2ScorePredictor(
            model,
            tokenizer,
            backbone=backbone,
            max_length=max_length,
            token_budget=token_budget,
            dtype=dtype,
            device=device,
            revision=revision,
            share_prefix=share_prefix,
            progress=progress,
        )
        if scoring_system is not None:
            _check_system(self.scoring_system, scoring_system)
        if weights is not None and not weights:
            raise ValueError("weights must name a criterion at least; leave them out for the total")
        self.weights = None if weights is None else named_weights(weights, self.criteria, "criterion", 0.0)
        self.add_state("score_sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("sub_score_sums", torch.zeros(len(self.criteria), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("num_scored", torch.tensor(0), dist_reduce_fx="sum")

    @property
    def scoring_system(self) -> ScoringSystem:
        """The scoring system of the model."""
        return self.predictor.scoring_system

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of the criteria."""
        return self.scoring_system.names

    @property
    def signature(self) -> str:
        """What exactly is computed; weights, scoring system and prompt are named by first digits of their SHA-256."""
        own = {} if self.weights is None else {"weights": ",".join(f"{weight:g}" for weight in self.weights)}
        return format_signature(
            "er2score",
            model=self.predictor.weights_name,
            system=f"{self.scoring_system.name}@{_hash(self.scoring_system)}",
            prompt=self.predictor.prompt.hash,
            max_length=self.predictor.max_length,
            dtype=self.predictor.dtype,
            **own,
        )

    def _score(
        self,
        preds: Sequence[str],
        target: Sequence[str],
        **context: Sequence[Any],  # noqa: ARG002 (there is none)
    ) -> ER2Scores:
        rewards = self.predictor(target, preds).double()
        if self.weights is None:
            value = self.scoring_system.base + rewards.sum(1)
        else:
            value = (rewards * torch.tensor(self.weights, dtype=torch.float64)).sum(1)
        sub_scores = rewards / torch.tensor(self.scoring_system.factors, dtype=torch.float64)
        return ER2Scores(value, dict(zip(self.criteria, sub_scores.unbind(1), strict=True)))

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        self._check_columns(context, ())
        return super()._choose(preds, target, context)

    def _accumulate(self, scores: Scores) -> None:
        scored = scores.scored
        self.score_sum += scores.value[scored].sum().to(self.device)
        sums = torch.stack([scores.details[name][scored].sum() for name in self.criteria])
        self.sub_score_sums += sums.to(self.device)
        self.num_scored += int(scored.sum())

    def compute(self) -> Tensor:
        """Mean ER²Score of the pairs scored so far: float64 scalar, NaN where there is none."""
        return self.score_sum / self.num_scored

    def statistics(self) -> dict[str, Tensor]:
        """Means per scored report of the predicted sub-scores, synced as ``compute`` is.

        Returns:
            float64 scalars by criterion; NaN where no pair is scored.
        """
        with self._synced():
            means = self.sub_score_sums / self.num_scored
        return dict(zip(self.criteria, means, strict=True))


def _check_system(found: ScoringSystem, asked: str | Path | ScoringSystem) -> None:
    """Raise where a model was trained for another scoring system; descriptions and bounds may differ."""
    wanted = asked if isinstance(asked, ScoringSystem) else get_scoring_system(asked)
    if (found.names, found.factors, found.base) != (wanted.names, wanted.factors, wanted.base):
        raise ValueError(f"the model is of the scoring system {_told(found)}, not of {_told(wanted)}")


def _told(system: ScoringSystem) -> str:
    signed = [f"{factor:+g} {name}" for name, factor in zip(system.names, system.factors, strict=True)]
    return f"{system.name!r} ({system.base:g} {', '.join(signed)})"


def _hash(system: ScoringSystem) -> str:
    return hashlib.sha256(json.dumps(system.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
