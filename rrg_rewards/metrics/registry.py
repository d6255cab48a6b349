"""Report metrics by name, for command lines and YAML files. A metric's module is imported at its first use."""

import inspect
from importlib import import_module
from typing import Any

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["available_metrics", "make_metric", "metric_class", "metric_context", "metric_options", "required_options"]


# ``module:Class`` of each metric.
_METRICS: dict[str, str] = {
    "bertscore": "rrg_rewards.metrics.nlg:BERTScore",
    "bleu": "rrg_rewards.metrics.nlg:BLEU",
    "crepe": "rrg_rewards.metrics.crepe:CREPE",
    "crg": "rrg_rewards.metrics.crg:ReportCRG",
    "crimson": "rrg_rewards.metrics.crimson:CRIMSON",
    "ct_finebench": "rrg_rewards.metrics.ct_finebench:CTFineBench",
    "er2score": "rrg_rewards.metrics.er2score:ER2Score",
    "rouge": "rrg_rewards.metrics.nlg:ROUGE",
}


def available_metrics() -> list[str]:
    """Return the names that :func:`make_metric` accepts, sorted.

    Example:
        >>> "crg" in available_metrics()
        True
    """
    return sorted(_METRICS)


def metric_class(name: str) -> type[ReportMetric]:
    """Return the class of a metric.

    Raises:
        ValueError: If the metric is unknown, naming the nearest one.

    Example:
        >>> metric_class("crg").__name__
        'ReportCRG'
    """
    if name not in _METRICS:
        raise ValueError(unknown_name_message("metric", name, _METRICS))
    module, _, cls = _METRICS[name].partition(":")
    metric: type[ReportMetric] = getattr(import_module(module), cls)
    return metric


def metric_context(name: str) -> tuple[str, ...]:
    """Return the names of the context columns that a metric accepts.

    Raises:
        ValueError: If the metric is unknown, naming the nearest one.

    Example:
        >>> metric_context("crg")
        ('target_labels',)
    """
    return metric_class(name).context or ()


def metric_options(name: str) -> tuple[str, ...]:
    """Return the names of a metric's options.

    Raises:
        ValueError: If the metric is unknown, naming the nearest one.

    Example:
        >>> metric_options("crg")
        ('labeler', 'prior', 'average', 'min_prevalence')
    """
    parameters = inspect.signature(metric_class(name)).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)


def required_options(name: str) -> tuple[str, ...]:
    """Return the names of a metric's options without a default.

    Raises:
        ValueError: If the metric is unknown, naming the nearest one.

    Example:
        >>> required_options("bertscore"), required_options("crg")
        (('model',), ())
    """
    parameters = inspect.signature(metric_class(name)).parameters
    return tuple(option for option in metric_options(name) if parameters[option].default is inspect.Parameter.empty)


def make_metric(name: str, **options: Any) -> ReportMetric:
    """Make a report metric by name.

    Args:
        name: One of :func:`available_metrics`.
        options: Options of the metric. For the options of :class:`torchmetrics.Metric`, call the class.

    Raises:
        ValueError: If the metric or an option is unknown, naming the nearest one.

    Example:
        >>> make_metric("crg", prior=0.2).prior
        0.2
        >>> make_metric("crg", prio=0.2)
        Traceback (most recent call last):
        ...
        ValueError: unknown crg option 'prio'; did you mean 'prior'? Known: average, ...
    """
    known = metric_options(name)
    for option in options:
        if option not in known:
            raise ValueError(unknown_name_message(f"{name} option", option, known))
    return metric_class(name)(**options)
