"""ER²Score as a metric on report text: rewards for the criteria of a scoring system, and their sum."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rrg_rewards.metrics.pair_model import PairModelMetric
from rrg_rewards.metrics.scores import Scores, named_weights
from rrg_rewards.models.er2score.predictor import ER2ScoreOptions, ER2ScorePredictor
from rrg_rewards.models.pair_predictor import Precision
from rrg_rewards.schemas import ScoringSystem, get_scoring_system
from rrg_rewards.utilities.signature import format_signature


@dataclass(frozen=True, kw_only=True, repr=False)
class ER2Scores(Scores):
    """ER²Score of report pairs.

    Args:
        value: Score, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: Predicted sub-scores by criterion, each ``(N,)``, in the unit of the criterion: errors, yes/no or
            grades.
    """

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Column ``sub_scores``: the sub-scores of each report, in the order of the criteria."""
        rows = torch.stack([*self.details.values()], dim=1)
        names = [name.replace("_", " ") for name in self.details]
        return {"sub_scores": ["" if row.isnan().any() else _in_words(names, row.tolist()) for row in rows]}


def _in_words(names: Sequence[str], scores: Sequence[float]) -> str:
    return ", ".join(f"{name} {score:.1f}" for name, score in zip(names, scores, strict=True))


class ER2Score(PairModelMetric[ER2ScorePredictor]):
    r"""ER²Score: the sum of the rewards that a language model assigns to a candidate report, one per criterion.

    With the rewards :math:`r_j`, the contribution of each criterion :math:`j` to the total, and the base :math:`b` of
    the model's scoring system,

    .. math::
        \mathrm{ER^2Score} = b + \sum_j r_j, \qquad \text{or with weights} \qquad \sum_j w_j r_j

    The sub-score of a criterion is :math:`r_j` in the unit of the criterion, for example a number of errors
    (``ScoringSystem.factors``). The corpus value is the mean over scored pairs: float64, higher is better; NaN if no
    pair is scored. ``statistics()`` returns the mean of each sub-score.

    A model learns differences between reports of one reference, so only comparisons of scores are meaningful. Only a
    calibrated model gives totals near those of a rater, and sub-scores of at least 0.

    See :class:`rrg_rewards.models.er2score.predictor.ER2ScorePredictor` for prompts and batching.

    Source: Liu et al., "ER²Score: LLM-based Explainable and Customizable Metric for Assessing Radiology Reports with
    Reward-Control Loss".

    Args:
        model: Folder or Hub id of an ER²Score model, or a :class:`rrg_rewards.models.ER2ScoreModel`.
        tokenizer: The tokenizer, or its folder or Hub id; default: the model's.
        scoring_system: The scoring system that the model must have: a name, a YAML file or the system. Default: any.
        weights: Weights :math:`w_j` by criterion; 0 for each criterion that is not named. Default: the score is the
            total.
        backbone: Folder or Hub id of the backbone under an adapter, if it has moved.
        max_length: Maximum number of tokens of a prompt; default: as the model was trained.
        token_budget: Maximum number of tokens of a batch, padding and cached prefixes included. A longer prompt is the
            only one in its batch.
        dtype: Type of the backbone's weights, whatever that of the files: ``"float32"`` (default), in which a score
            does not depend on the machine, ``"bfloat16"`` or ``"float16"``; ``"auto"``, for speed, is ``bfloat16`` on
            processors that are faster in it, and ``float32`` on others
            (:func:`rrg_rewards.utilities.precision.fastest_dtype`). The head is float32. The signature names the type.
        device: Device of a loaded model; default: the CUDA device of this process if there is one, else the CPU.
        revision: Revision of a Hub id.
        share_prefix: Whether the common prefix of prompts with the same reference runs once.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder, or it contains no ER²Score model.
        ValueError: If an option is unknown or out of range, a weight has an unknown criterion, or the model is not an
            ER²Score model or has another scoring system; from ``compute``, if processes computed in different types.

    Example:
        >>> from rrg_rewards.metrics import ER2Score
        >>> metric = ER2Score("runs/er2score/model", weights={"omitted_finding": 2.0})     # doctest: +SKIP
        >>> metric.update(["No effusion."], ["Small left effusion."])                      # doctest: +SKIP
        >>> metric.compute()                                                               # doctest: +SKIP
        tensor(-2.1, dtype=torch.float64)
    """

    name = "er2score"
    context = ()

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
        **kwargs: Any,
    ) -> None:
        options = ER2ScoreOptions(max_length, token_budget, dtype, device, revision, backbone, share_prefix)
        predictor = ER2ScorePredictor(model, tokenizer, options)
        super().__init__(predictor, predictor.scoring_system.names, **kwargs)
        if scoring_system is not None:
            _check_system(self.scoring_system, scoring_system)
        if weights is not None and not weights:
            raise ValueError("weights must name at least one criterion; omit them for the total")
        self.weights = None if weights is None else named_weights(weights, self.criteria, "criterion", 0.0)

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
        """Model, scoring system, prompt and settings in one line, with the first digits of SHA-256 hashes."""
        weights = {} if self.weights is None else {"weights": ",".join(f"{weight:g}" for weight in self.weights)}
        return format_signature(
            "er2score",
            model=self.predictor.weights_name,
            system=f"{self.scoring_system.name}@{_hash(self.scoring_system)}",
            prompt=self.predictor.prompt.hash,
            max_length=self.predictor.max_length,
            dtype=self.predictor.dtype,
            **weights,
        )

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> ER2Scores:
        rewards = self.predictor(target, preds).double()
        if self.weights is None:
            value = self.scoring_system.base + rewards.sum(1)
        else:
            value = (rewards * torch.tensor(self.weights, dtype=torch.float64)).sum(1)
        sub_scores = rewards / torch.tensor(self.scoring_system.factors, dtype=torch.float64)
        return ER2Scores(value, dict(zip(self.criteria, sub_scores.unbind(1), strict=True)))


def _check_system(found: ScoringSystem, expected: str | Path | ScoringSystem) -> None:
    """Raise if the model has another scoring system; descriptions and bounds may differ."""
    wanted = expected if isinstance(expected, ScoringSystem) else get_scoring_system(expected)
    if (found.names, found.factors, found.base) != (wanted.names, wanted.factors, wanted.base):
        raise ValueError(f"the model has the scoring system {_summary(found)}, not {_summary(wanted)}")


def _summary(system: ScoringSystem) -> str:
    signed = [f"{factor:+g} {name}" for name, factor in zip(system.names, system.factors, strict=True)]
    return f"{system.name!r} ({system.base:g} {', '.join(signed)})"


def _hash(system: ScoringSystem) -> str:
    return hashlib.sha256(json.dumps(system.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
