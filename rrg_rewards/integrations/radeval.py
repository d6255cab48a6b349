"""Metrics of RadEval (RadGraph, RaTEScore, GREEN, RadCliQ and more) as report metrics, and CheXbert as a labeler."""

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.metrics.callable import CallableMetric
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.utilities.backend import MODEL_REFUSAL, Backend
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.signature import describe_code, format_signature

_EXTRA = "radeval"
# RadCliQ estimates a number of errors. The other metrics of RadEval 2.2 are agreements.
_LOWER_IS_BETTER = frozenset({"radcliq"})
_HIGHER_IS_BETTER = frozenset(
    {
        *("bleu", "rouge", "bertscore", "radeval_bertscore", "f1chexbert", "f1radbert_ct", "radgraph", "ratescore"),
        *("radgraph_radcliq", "srrbert", "temporal", "green", "mammo_green", "crimson", "radfact_ct"),
    }
)
_SECRETS = ("key", "token")
# GREEN's categories of clinically significant errors are those of CREPE, in this order; matched findings follow.
_GREEN_COUNTS = (*ERROR_CATEGORIES, "matched_findings")


class RadEvalMetric(CallableMetric):
    """A metric of RadEval as a report metric.

    The scores are those of RadEval's ``compute(..., per_sample=True)``, and the corpus value is their mean over scored
    pairs. RadEval's corpus value differs for metrics that are no mean of scores, such as the F1 of ``f1chexbert``: for
    these, use ``label_f1`` with :class:`CheXbertLabeler`. RadEval's model is loaded at the first score, once for all
    copies of the metric, and never pickled.

    Requires the extra ``radeval``, with Python 3.11 or later. RadEval downloads the weights of a metric at its first
    use; ``bleu`` and ``rouge`` need none.

    ``green`` also has the numbers of clinically significant errors by category (``false_finding``,
    ``omitted_finding``, ``wrong_location``, ``wrong_severity``, ``false_comparison``, ``omitted_comparison``) and
    ``matched_findings`` as sub-scores. RadEval's ``compute`` does not return them; they are read from its scorer.

    Args:
        metric: Name of the metric in RadEval, such as ``radgraph``, ``ratescore``, ``green`` or ``radcliq``.
        value: Name of the score, if RadEval returns several: ``radgraph_partial``, ``rougeL``,
            ``f1chexbert_sample_acc_5``.
        parts: Names of further scores to report as sub-scores. Default: all of ``green``, none of the others.
        settings: Arguments of RadEval's metric, such as ``model_name`` of a judge. A metric that sends reports to a
            service by default must be given the model.
        higher_is_better: Whether higher scores are better. Default: false for ``radcliq``, true for the other metrics
            of RadEval 2.2, and required for metrics that are newer.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ModuleNotFoundError: If RadEval is not installed.
        ValueError: If the metric is unknown, naming the nearest one; if its sign is unknown; or if it would send
            reports to a service that is not named.

    Example:
        >>> from rrg_rewards.integrations.radeval import RadEvalMetric
        >>> metric = RadEvalMetric("radgraph", value="radgraph_partial")             # doctest: +SKIP
        >>> metric.update(["Small effusion."], ["Small pleural effusion."])          # doctest: +SKIP
    """

    def __init__(
        self,
        metric: str,
        *,
        value: str | None = None,
        parts: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        higher_is_better: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self.scorer = _RadEvalScorer(metric, dict(settings or {}))
        if parts is None:
            parts = _GREEN_COUNTS if metric == "green" else ()
        if metric == "green":
            value = value or "green"
        if higher_is_better is None:
            higher_is_better = _is_higher_better(metric)
        super().__init__(
            self.scorer,
            name=f"radeval_{metric}",
            higher_is_better=higher_is_better,
            value=value,
            parts=parts,
            **kwargs,
        )

    @property
    def signature(self) -> str:
        """Name, RadEval's class with its version, and settings without keys and tokens, in one line."""
        value = {} if self.value_name is None else {"value": self.value_name}
        shown = {
            name: repr(setting)
            for name, setting in sorted(self.scorer.settings.items())
            if not name.lower().endswith(_SECRETS)
        }
        return format_signature(self.name, **describe_code(self.scorer.metric_class), **value, **shown)


class _RadEvalScorer(Backend):
    """A metric of RadEval as a function of predictions and references."""

    def __init__(self, metric: str, settings: dict[str, Any]) -> None:
        self.metric = metric
        self.settings = settings
        known = _registry().METRIC_REGISTRY
        if metric not in known:
            raise ValueError(unknown_name_message("metric of RadEval", metric, known))
        if _needs_model_name(self.metric_class) and "model_name" not in settings:
            raise ValueError(
                f"RadEval's {metric} sends reports to a service; name its model: settings={{'model_name': ...}}"
            )

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        return {"metric": self.metric, "settings": self.settings}

    @property
    def metric_class(self) -> type:
        """The class in RadEval, which loads no model."""
        found: type = _registry().get_metric_class(self.metric)
        return found

    @cached_property
    def model(self) -> Any:
        """The metric with its model."""
        return self.metric_class(**self.settings)

    def __call__(self, predictions: list[str], references: list[str]) -> Mapping[str, Any]:
        scores: Mapping[str, Any] = self.model.compute(refs=references, hyps=predictions, per_sample=True)
        return {**scores, **_green_counts(self.model, scores["green"])} if self.metric == "green" else scores


class CheXbertLabeler(Backend):
    """CheXbert with its published weights as a labeler of 14 labels, loaded by RadEval.

    A label is positive if CheXbert finds it present or uncertain, as in RadEval's F1. The name of the labeler in
    command lines and YAML files is ``chexbert``. Requires the extra ``radeval``; the weights are downloaded at the
    first report.

    Args:
        device: Device of the model; default: the CUDA device of this process if there is one, else the CPU.
        batch_size: Number of reports per batch.

    Example:
        >>> from rrg_rewards import make_metric
        >>> metric = make_metric("crg", labeler="chexbert")                         # doctest: +SKIP
    """

    def __init__(self, device: str | None = None, batch_size: int = 64) -> None:
        self.device = device
        self.batch_size = batch_size

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: each would load the model."""
        return MODEL_REFUSAL

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this labeler."""
        return {"device": self.device, "batch_size": self.batch_size}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns: 13 conditions and "No Finding"."""
        return (*self._class.CONDITION_NAMES, self._class.NO_FINDING)

    @property
    def signature(self) -> str:
        """RadEval's class with its version, and the rule for uncertain labels."""
        return format_signature("chexbert", **describe_code(self._class), uncertain="positive")

    @property
    def modality(self) -> str:
        """Modality of the reports that the labels are made for."""
        return "xray"

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Return the labels of ``N`` reports, a bool tensor ``(N, 14)``; a blank report has no positive label."""
        labels = torch.zeros(len(reports), len(self.labels), dtype=torch.bool)
        rows = [row for row, report in enumerate(reports) if report.strip()]
        if rows:
            found = self._model.get_labels([reports[row] for row in rows], mode="rrg")
            labels[rows] = torch.tensor(found, dtype=torch.bool)
        return labels

    @property
    def _class(self) -> Any:
        return require("radeval.metrics.f1chexbert.f1chexbert", extra=_EXTRA).F1CheXbert

    @cached_property
    def _model(self) -> Any:
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return self._class(device=device, batch_size=self.batch_size)


def _registry() -> Any:
    return require("radeval.metrics._registry", extra=_EXTRA)


def _green_counts(model: Any, scores: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the counts of the reports that RadEval's GREEN has scored last; empty if it has none.

    Args:
        model: The metric with its model.
        scores: Scores of these reports; a report without a score has no counts.
    """
    # A data frame with a column for each category and one for matched findings.
    table: Any = getattr(getattr(model, "_scorer", None), "error_counts", ())
    columns = list(table)
    if len(columns) != len(_GREEN_COUNTS):
        return {}
    return {
        name: [None if score is None else count for score, count in zip(scores, table[column], strict=True)]
        for name, column in zip(_GREEN_COUNTS, columns, strict=True)
    }


def _is_higher_better(metric: str) -> bool:
    if metric not in _LOWER_IS_BETTER | _HIGHER_IS_BETTER:
        raise ValueError(f"set higher_is_better for RadEval's {metric}, which is newer than RadEval 2.2")
    return metric not in _LOWER_IS_BETTER


def _needs_model_name(cls: type) -> bool:
    """Whether a metric of RadEval sends reports to a service by default."""
    parameters = inspect.signature(cls).parameters
    by_default = "model_name" in parameters and isinstance(parameters["model_name"].default, str)
    return bool(getattr(cls, "is_api_based", False)) and by_default
