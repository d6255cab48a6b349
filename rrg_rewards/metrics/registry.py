"""Report metrics by name, for command lines and YAML files. A metric's module is imported at its first use."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rrg_rewards.labelers.registry import with_joined_judge
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.callable import CallableMetric, function_parameters
from rrg_rewards.utilities.names import check_required, shown, unknown_name_message
from rrg_rewards.utilities.plugins import Registry, import_object

# ``module:Class`` of each metric.
_METRICS: dict[str, str] = {
    "bertscore": "rrg_rewards.metrics.nlg:BERTScore",
    "bleu": "rrg_rewards.metrics.nlg:BLEU",
    "chrf": "rrg_rewards.metrics.nlg:ChrF",
    "cider": "rrg_rewards.metrics.cider:CIDEr",
    "coco_bleu": "rrg_rewards.metrics.coco:CocoBLEU",
    "coco_meteor": "rrg_rewards.metrics.coco:CocoMETEOR",
    "coco_rouge": "rrg_rewards.metrics.coco:CocoROUGE",
    "crepe": "rrg_rewards.metrics.crepe:CREPE",
    "crg": "rrg_rewards.metrics.crg:ReportCRG",
    "crimson": "rrg_rewards.metrics.crimson:CRIMSON",
    "ct_finebench": "rrg_rewards.metrics.ct_finebench:CTFineBench",
    "er2score": "rrg_rewards.metrics.er2score:ER2Score",
    "label_f1": "rrg_rewards.metrics.label_f1:LabelF1",
    "rexrank_bleu": "rrg_rewards.metrics.nlg:ReXrankBLEU",
    "rouge": "rrg_rewards.metrics.nlg:ROUGE",
}

OF_YOUR_OWN = "; for one of your own, call register_metric(name, function) first, or give its path module:function"
"""Remedy for an unknown name of a metric or reward."""

METRICS = Registry("metric", "rrg_rewards.metrics", _METRICS, remedy=OF_YOUR_OWN)
"""The metrics of this package and of the entry points ``rrg_rewards.metrics``, and those that were registered."""


def available_metrics() -> list[str]:
    """Return the names that :func:`make_metric` accepts, sorted: metrics of this package and of installed plug-ins.

    Example:
        >>> "crg" in available_metrics()
        True
    """
    return METRICS.names()


def register_metric(name: str, metric: Callable[..., Any]) -> None:
    """Give a metric of your own a name for :func:`make_metric` and :func:`rrg_rewards.rewards.make_reward`.

    The name is known in this process only: not in other processes that make metrics, such as those of trainers with
    several workers, and not on the command line. For these, give a path ``module:function``, or an entry point to your
    package.

    Args:
        name: The name. If it was registered before, it now means the new metric.
        metric: A function of predictions and references, which :class:`CallableMetric` wraps, or a
            :class:`ReportMetric` class.

    Raises:
        TypeError: If ``metric`` is neither.
        ValueError: If the name is no identifier, or is that of another metric.

    Example:
        >>> def overlap(predictions, references):
        ...     pairs = zip(predictions, references, strict=True)
        ...     return [len(set(p.split()) & set(r.split())) / len(set(r.split())) for p, r in pairs]
        >>> register_metric("overlap", overlap)
        >>> make_metric("overlap").score(["small effusion"], ["left effusion"]).value
        tensor([0.5000], dtype=torch.float64)
    """
    if maker_of(metric) is None:
        raise TypeError(
            f"metric must be a function of predictions and references, or a ReportMetric class, got "
            f"{type(metric).__name__}; to make metrics with fixed options, register functools.partial(function, ...)"
        )
    METRICS.add(name, metric)


@dataclass(frozen=True)
class MetricMaker:
    """Makes a metric from options: calls a metric class, or :class:`CallableMetric` with a function.

    Args:
        cls: Class of the metric.
        function: The function, if the metric is one.
    """

    cls: type[ReportMetric]
    function: Callable[..., Any] | None = None

    @property
    def context(self) -> tuple[str, ...]:
        """Names of the context columns that the metric declares."""
        if self.function is not None:
            return tuple(function_parameters(self.function) or ())
        # Subclasses of CallableMetric know their columns only after they are made.
        return self.cls.context if isinstance(self.cls.context, tuple) else ()

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options; those of a function include its own parameters."""
        own = tuple(name for name in self._parameters if name not in ("function", "options"))
        return own if self.function is None else (*own, *(function_parameters(self.function) or ()))

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the options without a default."""
        empty = inspect.Parameter.empty
        return tuple(name for name in self.options if self._parameters.get(name, None) is empty)

    @property
    def _parameters(self) -> dict[str, Any]:
        parameters = inspect.signature(self.cls).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is not one.VAR_KEYWORD}

    def make(self, **options: Any) -> ReportMetric:
        """Make the metric."""
        if self.function is None:
            return self.cls(**options)
        own = {name: value for name, value in options.items() if name in self._parameters}
        further = {name: value for name, value in options.items() if name not in own}
        return CallableMetric(self.function, **own, options=further)

    def make_named(self, name: str, options: Mapping[str, Any]) -> ReportMetric:
        """Make the metric after a check of its options; ``name`` is for messages.

        Raises:
            ValueError: As :func:`make_metric`.
        """
        joined = with_joined_judge(options)
        for option in joined:
            if option not in self.options:
                raise ValueError(unknown_name_message(f"{name} option", option, self.options))
        check_required(f"metric {name!r}", self.required, joined)
        return self.make(**joined)


def metric_maker(name: str) -> MetricMaker:
    """Return the maker of a metric with a name of :func:`available_metrics` or a path ``module:attribute``.

    Raises:
        ValueError: If the name is unknown, naming the nearest one, or the object is no report metric and no function,
            or paths are refused.
        ImportError: If the module of a path or of a plug-in cannot be imported.

    Example:
        >>> maker = metric_maker("crg")
        >>> maker.cls.__name__, maker.context, maker.required
        ('ReportCRG', ('target_labels',), ())
        >>> maker.options
        ('labeler', 'prior', 'average', 'min_prevalence', 'levels', 'level_schema', 'reference_labeler')
        >>> metric_maker("bertscore").required
        ('model',)
    """
    check_name("metric", name)
    found = import_object(name, "metric") if ":" in name else METRICS.load(name)
    maker = maker_of(found)
    if maker is None:
        raise ValueError(
            f"metric {name!r} must be a ReportMetric class, or a function of predictions and references, got "
            f"{shown(found)}"
        )
    return maker


def check_name(kind: str, name: Any) -> None:
    """Raise an error that says how to use a function or object that is given in place of a name.

    Raises:
        TypeError: If the name of a metric or reward is no text.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"name of a {kind} must be a text, got {shown(name)}; CallableMetric(function) is a metric, and "
            f"MetricReward(metric) a reward{OF_YOUR_OWN}"
        )


def maker_of(found: Any) -> MetricMaker | None:
    """Return the maker of a metric class or of a function; ``None`` for other objects."""
    if isinstance(found, type):
        return MetricMaker(found) if issubclass(found, ReportMetric) else None
    return MetricMaker(CallableMetric, found) if callable(found) else None


def make_metric(name: str, /, **options: Any) -> ReportMetric:
    """Make a report metric by name.

    Args:
        name: One of :func:`available_metrics`, ``"module:Class"`` of a :class:`ReportMetric`, or ``"module:function"``
            of a function that :class:`CallableMetric` accepts.
        options: Options of the metric; those of a function are the options of :class:`CallableMetric` and the further
            parameters of the function. For the options of :class:`torchmetrics.Metric`, call the class.

    Raises:
        ValueError: If the metric or an option is unknown, naming the nearest one, or an option without a default is
            missing.
        ImportError: If the module of a path or of a plug-in cannot be imported.

    Example:
        >>> make_metric("crg", prior=0.2).prior
        0.2
        >>> make_metric("crg", prio=0.2)
        Traceback (most recent call last):
        ...
        ValueError: unknown crg option 'prio'; did you mean 'prior'? Known: average, ...
    """
    return metric_maker(name).make_named(name, options)
