"""Metrics and rewards from names and settings; what is wrong is a :class:`SettingError`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from rrg_rewards.analysis.judge_choice import choose_judge, choose_labeler
from rrg_rewards.analysis.settings import MetricChoice, RewardChoice
from rrg_rewards.data.tables.table import Table
from rrg_rewards.judges.base import Judge
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import needs_judge
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.registry import OF_YOUR_OWN, MetricMaker, metric_maker
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.registry import REWARDS, make_reward
from rrg_rewards.utilities.settings import SettingError

T = TypeVar("T")


def choose_reward(choice: RewardChoice) -> Reward:
    """Make the reward of a choice.

    Args:
        choice: Name and options.

    Raises:
        SettingError: If the reward or an option is unknown or invalid.

    Example:
        >>> choose_reward(RewardChoice(reward="crimson", context={"age": "PatientAge"})).columns
        ('reference', 'PatientAge')
    """
    options = dict(choice.set)
    if choice.labeler is not None:
        options["labeler"] = choice.labeler
    if "labeler" in options and needs_judge(options["labeler"]):
        options["labeler"] = choose_labeler(options["labeler"], choice.judge)
    elif choice.judge is not None:
        options["judge"] = choose_judge(choice.judge)
    if choice.context:
        options["context_columns"] = dict(choice.context)
    try:
        return make_reward(choice.reward, reference_column=choice.reference_column, **options)
    except (ValueError, TypeError) as error:
        raise SettingError(None, str(error)) from error


def reward_inputs(reward: Reward, table: Table, reference_column: str = "reference") -> dict[str, Sequence[Any]]:
    """Return the columns of a table that a reward reads.

    Args:
        reward: The reward.
        table: The table.
        reference_column: Column of report texts. In tables written by pandas, its missing cells are NaN.

    Raises:
        TableError: If a column does not exist, or a cell of the references is not a text.

    Example:
        >>> reward_inputs(make_reward("rouge"), Table({"reference": ["Normal.", float("nan")]}))
        {'reference': ['Normal.', None]}
    """
    for name in reward.columns:
        table.check_named("reference_column" if name == reference_column else "context", name)
    return {name: table.texts(name) if name == reference_column else table.column(name) for name in reward.columns}


def make_metrics(choice: MetricChoice) -> dict[str, ReportMetric]:
    """Make the metrics of a choice, by name.

    Args:
        choice: Names and options.

    Raises:
        SettingError: If a metric is unknown or lacks an option, or an option belongs to no metric.

    Example:
        >>> list(make_metrics(MetricChoice(metrics=["crg", "bleu"], set={"crg.prior": 0.2})))
        ['crg', 'bleu']
    """
    makers = _makers(choice.metrics)
    for key, value in choice.set.items():
        if "." not in key:
            takers = [f"{name}.{key}={value}" for name, maker in makers.items() if key in maker.options]
            hint = f"; write {' or '.join(takers)}" if takers else ""
            raise SettingError("set", f"must be METRIC.OPTION=VALUE, got {key}={value}{hint}")
    settings = choice.options()
    judge_is_taken = False
    # Metrics with the same setting share a labeler or a judge, so that nothing is asked twice.
    labelers, judges = _Shared[Labeler](), _Shared[Judge]()
    for name in _takers(makers, "labeler", choice.labeler):
        labeler = settings[name].get("labeler") or choice.labeler or "rules:ct_rate"
        judge_is_taken = judge_is_taken or needs_judge(labeler)
        settings[name]["labeler"] = labelers.get(labeler, partial(choose_labeler, labeler, choice.judge))
    for name in _takers(makers, "judge", None if judge_is_taken else choice.judge):
        judge = settings[name].get("judge") or choice.judge or "rules"
        settings[name]["judge"] = judges.get(judge, partial(choose_judge, judge))
    for name, maker in makers.items():
        for option in maker.required:
            if option not in settings[name]:
                value = "FOLDER" if option == "model" else "VALUE"
                raise SettingError("metrics", f"{name} needs `set={name}.{option}={value}`")
    metrics = {}
    for name, maker in makers.items():
        try:
            metric = maker.make_named(name, settings[name])
        except (ValueError, TypeError) as error:
            raise SettingError(None, str(error)) from error
        if metric.unfitted:
            option = f"{name}.{metric.unfitted[0]}"
            raise SettingError(
                "set", f"{option} is fitted on a training set by rewards only: give the text that fit writes"
            )
        # A path is no name of a column.
        column = metric.name if ":" in name else name
        if column in metrics:
            raise SettingError("metrics", f"two metrics have the name {column!r}; rename one: `set=METRIC.name=NEW`")
        metrics[column] = metric
    return metrics


class _Shared(Generic[T]):
    """Objects by their settings, which need not be hashable."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, T]] = []

    def get(self, setting: Any, make: Callable[[], T]) -> T:
        """Return the object of a setting, which is made once."""
        for known, made in self._made:
            if type(known) is type(setting) and known == setting:
                return made
        self._made.append((setting, make()))
        return self._made[-1][1]


def metrics_by_name(metrics: Mapping[str, ReportMetric] | Sequence[str]) -> Mapping[str, ReportMetric]:
    """Return metrics by name, made with their default options if only the names are given."""
    return metrics if isinstance(metrics, Mapping) else make_metrics(MetricChoice(metrics=metrics))


def _makers(names: Sequence[str]) -> dict[str, MetricMaker]:
    """Return the maker of each metric by its name."""
    makers: dict[str, MetricMaker] = {}
    for name in names:
        if name in makers:
            raise SettingError("metrics", f"{name} is named more than once")
        try:
            makers[name] = metric_maker(name)
        except ValueError as error:
            if name in REWARDS:
                problem = f"{name} is a reward, not a metric; the commands attack and fit take it (`reward={name}`)"
                raise SettingError("metrics", problem) from error
            # A metric that is registered in Python is not known here.
            problem = str(error).removesuffix(OF_YOUR_OWN)
            own = "" if problem == str(error) else "; one of your own is named by its path module:function"
            raise SettingError("metrics", problem + own) from error
    return makers


def _takers(makers: Mapping[str, MetricMaker], option: str, given: Any) -> list[str]:
    """Return the metrics that take an option; raise if the option is set and no metric takes it."""
    takers = [name for name, maker in makers.items() if option in maker.options]
    if given is not None and not takers:
        raise SettingError(option, f"no metric among {','.join(makers)} takes one")
    return takers
