"""Rewards by name, for command lines and YAML files."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.judged import AskingMetric
from rrg_rewards.metrics.registry import available_metrics, metric_class, metric_context
from rrg_rewards.rewards.asynchronous import AsyncMetricReward
from rrg_rewards.rewards.base import MetricReward, Reward
from rrg_rewards.rewards.compose import ComposedReward, compose
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["available_rewards", "check_reward_options", "make_reward"]

# Rewards that do more than a metric's score; imported when asked for. Every other metric is wrapped.
_REWARDS = {
    "composed": "rrg_rewards.rewards.compose:ComposedReward",
    "crepe": "rrg_rewards.rewards.crepe:CrepeReward",
    "crg": "rrg_rewards.rewards.crg:CRGReward",
    "format": "rrg_rewards.rewards.shaping:FormatReward",
    "likelihood": "rrg_rewards.rewards.likelihood:LikelihoodReward",
    "overlong": "rrg_rewards.rewards.shaping:OverlongPenalty",
    "repetition": "rrg_rewards.rewards.shaping:RepetitionPenalty",
}
_OF_EVERY_REWARD = inspect.signature(MetricReward).parameters.keys() - {"metric"}


def available_rewards() -> tuple[str, ...]:
    """Names that :func:`make_reward` knows: every metric, some with more to set.

    Example:
        >>> "crg" in available_rewards()
        True
    """
    return tuple(sorted({*_REWARDS, *available_metrics()}))


def _load(name: str) -> type[Reward] | type[ReportMetric]:
    if name in _REWARDS or ":" in name:
        module, _, attribute = _REWARDS.get(name, name).partition(":")
        found = getattr(import_module(module), attribute, None)
    elif name in available_metrics():
        found = metric_class(name)
    else:
        raise ValueError(unknown_name_message("reward", name, available_rewards()))
    if not (isinstance(found, type) and issubclass(found, Reward | ReportMetric)):
        raise ValueError(f"reward {name!r} must name a Reward or ReportMetric class as 'module:Class'")
    return found


def _split(name: str, cls: type[Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the reward, and of the metric that it wraps."""
    if issubclass(cls, Reward):
        return dict(options), {}
    context = {f"{keyword}_column": keyword for keyword in _context(name)}
    reward = {key: value for key, value in options.items() if key in _OF_EVERY_REWARD}
    given = {context[key]: column for key, column in options.items() if key in context and column is not None}
    if given:
        more = reward.get("context_columns", ())
        named = dict(more) if isinstance(more, Mapping) else {column: column for column in more}
        reward["context_columns"] = {**named, **given}
    metric = {key: value for key, value in options.items() if key not in _OF_EVERY_REWARD and key not in context}
    return reward, metric


def _context(name: str) -> tuple[str, ...]:
    """Names of the context columns that a metric takes, if it is one that is known by name."""
    return metric_context(name) if name in available_metrics() else ()


def check_reward_options(name: str, /, **options: Any) -> None:
    """Check a reward's name and the names of its options without making it: no model is loaded.

    Raises:
        ValueError: For an unknown reward or option, with the nearest known one.

    Example:
        >>> check_reward_options("crg", priorr="running")
        Traceback (most recent call last):
        ...
        ValueError: unknown option of reward 'crg' 'priorr'; did you mean 'prior'? Known: ...
    """
    known = _known_options(name, _load(name))
    for key in options:
        if known is not None and key not in known:
            raise ValueError(unknown_name_message(f"option of reward {name!r}", key, known))


def _known_options(name: str, cls: type[Any]) -> set[str] | None:
    """Names of the options of a reward and of the metric that it wraps; ``None`` where it may take any."""
    parameters = inspect.signature(cls).parameters.values()
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    # What else a metric of ours takes is torchmetrics' own, and of no use to a reward, which has no state.
    if len(named) < len(parameters) and name not in available_metrics():
        return None
    if issubclass(cls, Reward):
        return named
    return named | _OF_EVERY_REWARD | {f"{keyword}_column" for keyword in _context(name)}


def make_reward(name: str, /, reference_column: str | None = "reference", **options: Any) -> Reward:
    """Make a reward from its name and options, as they stand in a YAML file.

    A metric whose judge is waited for becomes an :class:`AsyncMetricReward`, which is called with ``await``; every
    other one a :class:`MetricReward`. So does a composed reward of which a part is asynchronous.

    Args:
        name: A name of :func:`available_rewards`, or ``"module:Class"`` of a :class:`Reward`, or of a
            :class:`rrg_rewards.metrics.ReportMetric`, which is wrapped.
        reference_column: Column of reference reports in the data set; of no meaning to a reward that reads none.
        options: Further arguments of the reward, and of the metric that it wraps; ``name=`` among them is the name
            under which the reward is logged. For each context column that a wrapped metric takes
            (:func:`rrg_rewards.metrics.registry.metric_context`) its name and ``_column`` say how it is called in the
            data set: ``items_column="questions"``, ``age_column="PatientAge"``; ``None`` leaves it out.

    Raises:
        ValueError: For an unknown name or option.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> reward = make_reward("crg", reference_column="report", prior=0.2)
        >>> reward(completions=["No abnormality."], report=["Hiatal hernia."])
        [-0.277...]
        >>> make_reward("crimson", age_column="PatientAge").columns
        ('reference', 'PatientAge')
    """
    cls = _load(name)
    known = _known_options(name, cls)
    if known is None or "reference_column" in known:
        options = {"reference_column": reference_column, **options}
    check_reward_options(name, **options)
    reward_options, metric_options = _split(name, cls, options)
    if issubclass(cls, ComposedReward):
        return compose(**reward_options)
    if issubclass(cls, Reward):
        return cls(**reward_options)
    metric = cls(**metric_options)
    if isinstance(metric, AskingMetric) and not metric.is_immediate:
        return AsyncMetricReward(metric, **reward_options)
    return MetricReward(metric, **reward_options)
