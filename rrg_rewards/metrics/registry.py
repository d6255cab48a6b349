"""Report metrics by name, for command lines and YAML files; a metric's module is imported when it is made."""

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["MetricEntry", "available_metrics", "make_metric", "metric_class", "metric_context", "metric_options"]


@dataclass(frozen=True)
class MetricEntry:
    """Where a metric is and which columns it uses besides the two reports.

    Args:
        path: ``module:Class`` of a :class:`rrg_rewards.metrics.ReportMetric`.
        context: Names of the context columns that its ``score`` takes.
    """

    path: str
    context: tuple[str, ...] = ()


_METRICS: dict[str, MetricEntry] = {
    "bertscore": MetricEntry("rrg_rewards.metrics.nlg:BERTScore"),
    "bleu": MetricEntry("rrg_rewards.metrics.nlg:BLEU"),
    "crepe": MetricEntry("rrg_rewards.metrics.crepe:CREPE"),
    "crg": MetricEntry("rrg_rewards.metrics.crg:ReportCRG", context=("target_labels",)),
    "crimson": MetricEntry("rrg_rewards.metrics.crimson:CRIMSON", context=("age", "sex", "indication")),
    "rouge": MetricEntry("rrg_rewards.metrics.nlg:ROUGE"),
    "er2score": MetricEntry("rrg_rewards.metrics.er2score:ER2Score"),
    "ct_finebench": MetricEntry("rrg_rewards.metrics.ct_finebench:CTFineBench", context=("items",)),
}


def available_metrics() -> list[str]:
    """Names that :func:`make_metric` takes, sorted.

    Example:
        >>> "crg" in available_metrics()
        True
    """
    return sorted(_METRICS)


def _entry(name: str) -> MetricEntry:
    if name not in _METRICS:
        raise ValueError(unknown_name_message("metric", name, _METRICS))
    return _METRICS[name]


def metric_class(name: str) -> type[ReportMetric]:
    """Class of a metric.

    Raises:
        ValueError: For an unknown metric, with the nearest known one.

    Example:
        >>> metric_class("crg").__name__
        'ReportCRG'
    """
    module, _, cls = _entry(name).path.partition(":")
    metric: type[ReportMetric] = getattr(import_module(module), cls)
    return metric


def metric_context(name: str) -> tuple[str, ...]:
    """Names of the context columns that a metric uses besides predictions and references.

    Raises:
        ValueError: For an unknown metric, with the nearest known one.

    Example:
        >>> metric_context("crg")
        ('target_labels',)
    """
    return _entry(name).context


def metric_options(name: str) -> tuple[str, ...]:
    """Names of the options that a metric takes.

    Raises:
        ValueError: For an unknown metric, with the nearest known one.

    Example:
        >>> metric_options("crg")
        ('labeler', 'prior')
    """
    parameters = inspect.signature(metric_class(name)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)


def make_metric(name: str, **options: Any) -> ReportMetric:
    """Make a report metric by name.

    Args:
        name: One of :func:`available_metrics`.
        options: The metric's own options. For those of every :class:`torchmetrics.Metric`, make the class itself.

    Raises:
        ValueError: For an unknown metric or an option that it does not take, with the nearest known one.

    Example:
        >>> make_metric("crg", prior=0.2).prior
        0.2
        >>> make_metric("crg", prio=0.2)
        Traceback (most recent call last):
        ...
        ValueError: unknown crg option 'prio'; did you mean 'prior'? Known: labeler, prior
    """
    known = metric_options(name)
    for option in options:
        if option not in known:
            raise ValueError(unknown_name_message(f"{name} option", option, known))
    return metric_class(name)(**options)
