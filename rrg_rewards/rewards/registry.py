"""Rewards by name, for command lines and YAML files."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rrg_rewards.labelers.registry import with_joined_judge
from rrg_rewards.metrics.judged import AsyncReportMetric
from rrg_rewards.metrics.registry import METRICS, OF_YOUR_OWN, MetricMaker, check_name, maker_of
from rrg_rewards.rewards.base import AsyncMetricReward, MetricReward, Reward, named_columns
from rrg_rewards.rewards.completions import ReportExtractor
from rrg_rewards.rewards.output import OUTPUT_OPTIONS, RewardOutput
from rrg_rewards.utilities.names import check_required, shown, unknown_name_message
from rrg_rewards.utilities.plugins import Registry, import_object

# Rewards with a class of their own, which are imported lazily. Other names are those of metrics to wrap.
_REWARDS = {
    "composed": "rrg_rewards.rewards.compose:ComposedReward",
    "crg": "rrg_rewards.rewards.crg:CRGReward",
    "format": "rrg_rewards.rewards.shaping:FormatReward",
    "overlong": "rrg_rewards.rewards.shaping:OverlongPenalty",
    "recommended": "rrg_rewards.rewards.recommended:RecommendedReward",
    "remote": "rrg_rewards.rewards.remote:RemoteReward",
    "repetition": "rrg_rewards.rewards.shaping:RepetitionPenalty",
}
# Options of every reward.
_SHARED_OPTIONS = OUTPUT_OPTIONS | {"report"}
REWARDS = Registry("reward", "rrg_rewards.rewards", _REWARDS, METRICS)
"""The rewards of this package that are no metrics, and those of the entry points ``rrg_rewards.rewards``."""


def available_rewards() -> tuple[str, ...]:
    """Return the names that :func:`make_reward` accepts: all metrics and further rewards, also those of plug-ins.

    Example:
        >>> "crg" in available_rewards()
        True
    """
    return tuple(sorted({*REWARDS.names(), *METRICS.names()}))


@dataclass(frozen=True)
class _RewardMaker:
    """Makes a reward from options: of a reward class, or of :class:`MetricReward` and the metric that it wraps."""

    reward: type[Reward]
    metric: MetricMaker | None

    @property
    def context(self) -> dict[str, str]:
        """Keywords of the context columns of the wrapped metric, by the names of their options."""
        return {f"{name}_column": name for name in self.metric.context} if self.metric and self._wraps else {}

    @property
    def _wraps(self) -> bool:
        return self.reward is MetricReward

    @property
    def own(self) -> dict[str, bool]:
        """Options of the reward itself, and whether each is required."""
        parameters = inspect.signature(self.reward).parameters.values()
        named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        return {one.name: one.default is one.empty for one in named if one.name != "metric" or not self._wraps}

    @property
    def options(self) -> set[str]:
        """Names of the options of the reward, and of its metric."""
        return {*_SHARED_OPTIONS, *self.own, *self.context, *(self.metric.options if self.metric else ())}

    @property
    def takes_any_option(self) -> bool:
        """Whether further options are arguments of the class."""
        if self.metric is not None and self.metric.function is not None:
            return False
        parameters = inspect.signature(self.metric.cls if self.metric else self.reward).parameters.values()
        return any(one.kind is one.VAR_KEYWORD for one in parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the options without a default."""
        own = (name for name, is_required in self.own.items() if is_required)
        return tuple(dict.fromkeys([*own, *(self.metric.required if self.metric else ())]))

    def make(self, options: Mapping[str, Any]) -> Reward:
        """Make the reward."""
        if self.metric is None or not self._wraps:
            return self.reward.from_options(**options)
        own = {key: value for key, value in options.items() if key in self.own}
        given = {
            self.context[key]: column for key, column in options.items() if key in self.context and column is not None
        }
        if given:
            own["context_columns"] = {**named_columns(own.get("context_columns", ())), **given}
        of_metric = {key: value for key, value in options.items() if key not in own and key not in self.context}
        defaults = {} if own.get("reference_column") is None else self.metric.cls.reward_options
        metric = self.metric.make(**{**defaults, **of_metric})
        if isinstance(metric, AsyncReportMetric) and not metric.is_immediate:
            return AsyncMetricReward(metric, **own)
        return MetricReward(metric, **own)


def _maker(name: str) -> _RewardMaker:
    check_name("reward", name)
    if ":" in name:
        found = import_object(name, "reward")
    elif name in REWARDS:
        if METRICS.has_added(name):
            raise ValueError(f"reward {name!r} exists already; register the metric under another name")
        found = REWARDS.load(name)
    elif name in METRICS:
        found = METRICS.load(name)
    else:
        raise ValueError(unknown_name_message("reward", name, available_rewards()) + OF_YOUR_OWN)
    if isinstance(found, type) and issubclass(found, Reward):
        return _RewardMaker(found, None if found.metric_class is None else MetricMaker(found.metric_class))
    metric = maker_of(found)
    if metric is None:
        raise ValueError(
            f"reward {name!r} must name a Reward or ReportMetric class, or a function of predictions and references, "
            f"got {shown(found)}"
        )
    return _RewardMaker(MetricReward, metric)


def make_reward(name: str, /, reference_column: str | None = "reference", **options: Any) -> Reward:
    """Make a reward from its name and options, as in a YAML file.

    A metric that waits for a judge is wrapped in an :class:`AsyncMetricReward`, whose calls must be awaited. All other
    metrics are wrapped in a :class:`MetricReward`. A composed reward with an asynchronous part is asynchronous.

    Args:
        name: A name of :func:`available_rewards`, or ``"module:Class"`` of a :class:`Reward` or of a
            :class:`rrg_rewards.metrics.ReportMetric`, which is wrapped, or ``"module:function"`` of a function of
            predictions and references (:class:`rrg_rewards.metrics.CallableMetric`).
        reference_column: Column of reference reports in the data set; ignored if the reward reads no references.
        options: Further arguments of the reward and of the wrapped metric. ``name`` is the name under which the reward
            is logged. For each keyword in the metric's ``context``, the option ``{keyword}_column`` is the column of
            the data set: ``items_column="questions"``, ``age_column="PatientAge"``. ``None`` omits the column. The
            mode of ``ct_finebench`` is by default ``"f1"``, and ``"recall"`` without a ``reference_column``. Options of
            every reward: ``key``, the name of a sub-score that is the reward instead of the score, with ``sign``, 1 if
            a higher sub-score is better and -1 if a lower one is; and ``report``, how the report is extracted from a
            completion: ``"auto"`` (default), ``"raw"`` for the whole completion, or a regular expression whose groups
            are the report (:class:`rrg_rewards.rewards.completions.ReportExtractor`). A labeler ``judge:SCHEMA`` gets
            the option ``judge``.

    Raises:
        TypeError: If the name is no text, such as a function.
        ValueError: If the name or an option is unknown, or an option without a default is missing.
        ImportError: If the module of a path or of a plug-in cannot be imported.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> train = ["Small left pleural effusion.", "Hiatal hernia.", "Normal."]
        >>> reward = make_reward("recommended", reference_column="report").fit(report=train)
        >>> reward(completions=["No abnormality.", "Left effusion."], report=train[1:2] + train[:1])
        [-0.150..., 1.211...]
        >>> make_reward("crimson", age_column="PatientAge").columns
        ('reference', 'PatientAge')
        >>> reward = make_reward("crimson", key="weighted_false", sign=-1)
        >>> reward(completions=["Large right pneumothorax. Edema."], reference=["No pneumothorax."])
        [-1.5]
        >>> reward = make_reward("crg", prior=0.2, report="REPORT:(.*)")
        >>> reward(completions=["Hernia? REPORT: No abnormality."], reference=["Hiatal hernia."])
        [-0.277...]
    """
    maker, options = _maker(name), with_joined_judge(options)
    takes_any = ":" in name and maker.takes_any_option
    if takes_any or "reference_column" in maker.options:
        options = {"reference_column": reference_column, **options}
    # Further arguments of registered metrics are arguments of torchmetrics and have no effect on a reward.
    if unknown := [] if takes_any else sorted(options.keys() - maker.options):
        raise ValueError(unknown_name_message(f"option of reward {name!r}", unknown[0], maker.options))
    check_required(f"reward {name!r}", maker.required, options)
    output = RewardOutput(options.get("key"), options.get("sign"))
    shared = _SHARED_OPTIONS - maker.own.keys()
    reward = maker.make({key: value for key, value in options.items() if key not in shared})
    reward.output = output
    if "report" in options.keys() & shared:
        reward.report = ReportExtractor(options["report"])
    return reward


@dataclass(frozen=True)
class RewardSetting:
    """Name, weight and options of a reward in a YAML file.

    Args:
        name: Name of the reward for :func:`make_reward`.
        weight: Weight of the reward in the sum of all rewards.
        options: Arguments of the reward.
    """

    name: str
    weight: float
    options: Mapping[str, Any]

    @property
    def logged_name(self) -> str:
        """Name under which the reward is logged."""
        return str(self.options.get("name", self.name))

    def make(self) -> Reward:
        """Make the reward."""
        return make_reward(self.name, **self.options)


def parse_reward(setting: str | Mapping[str, Any], reference_column: str) -> RewardSetting:
    """Parse a reward given as a name, a mapping, or a mapping in JSON.

    Args:
        setting: A mapping with ``name`` and optionally ``weight`` (default 1), ``as`` (name under which the reward is
            logged) and options of the reward; or this mapping as JSON; or only the name.
        reference_column: Column of references if the options contain none.

    Raises:
        ValueError: If the setting is malformed; the message names the key.

    Example:
        >>> parse_reward({"name": "crg", "weight": 2, "prior": 0.2}, "impression")
        RewardSetting(name='crg', weight=2.0, options={'reference_column': 'impression', 'prior': 0.2})
    """
    name, options = name_and_options(setting, reference_column)
    weight = options.pop("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ValueError(f"rewards: weight of {name!r} must be a number, got {shown(weight)}")
    return RewardSetting(name, float(weight), options)


def name_and_options(setting: Any, reference_column: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name of the reward of a setting, and its options; ``as`` becomes the option ``name``.

    Args:
        setting: A name, a mapping with ``name`` and options, such a mapping in JSON, or a list of them, which are parts
            of a composed reward.
        reference_column: Column of references if the options contain none.

    Raises:
        ValueError: If the setting has another form.

    Example:
        >>> name_and_options({"name": "crg", "as": "labels"}, None)
        ('crg', {'reference_column': None, 'name': 'labels'})
    """
    if isinstance(setting, str):
        setting = json.loads(setting) if setting.lstrip().startswith("{") else {"name": setting}
    if isinstance(setting, list | tuple):
        setting = {"name": "composed", "parts": [*setting]}
    if not isinstance(setting, Mapping) or not isinstance(setting.get("name"), str):
        raise ValueError(f"a reward must be a name, a mapping with a name, or a list of them, got {shown(setting)}")
    options = {"reference_column": reference_column, **setting}
    name = options.pop("name")
    if "as" in options:
        options["name"] = options.pop("as")
    return name, options
