"""Base classes of reward functions for TRL, synchronous or asynchronous, and the rewards that wrap a report metric."""

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.judges.base import Judge
from rrg_rewards.judges.server.usage import Usage, UsageMeter
from rrg_rewards.metrics.base import ReportMetric, UnreadColumnWarning
from rrg_rewards.metrics.judged import AsyncReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.completions import Completion, ReportExtractor, completion_texts
from rrg_rewards.rewards.output import RewardOutput
from rrg_rewards.utilities.checks import check_same_length, read_reports
from rrg_rewards.utilities.names import shown

# Arguments that trainers pass in addition to the columns of the data set.
_TRAINER_ARGUMENTS = frozenset({"prompts", "completion_ids", "trainer_state", "environments"})


def named_columns(context_columns: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return the columns of the data set by keyword; the columns of a list have their own names as keywords.

    Raises:
        TypeError: If the columns are one text.

    Example:
        >>> named_columns(["age"]), named_columns({"age": "PatientAge"})
        ({'age': 'age'}, {'age': 'PatientAge'})
    """
    if isinstance(context_columns, str):
        raise TypeError(
            f"context_columns must be a list of names or a mapping, got {shown(context_columns)}; pass a list"
        )
    return dict(context_columns if isinstance(context_columns, Mapping) else {one: one for one in context_columns})


def check_names(names: Sequence[str], whose: str = "rewards") -> None:
    """Check that no two rewards log under the same name.

    Raises:
        ValueError: If two names are equal, or one begins with another and a slash.

    Example:
        >>> check_names(["crg", "crg/recall"])
        Traceback (most recent call last):
        ...
        ValueError: rewards must differ in name, got 'crg' and 'crg/recall'; give one another name (as, in Python name=)
    """
    for place, name in enumerate(names):
        for other in names[:place]:
            if f"{name}/".startswith(f"{other}/") or f"{other}/".startswith(f"{name}/"):
                raise ValueError(
                    f"{whose} must differ in name, got {other!r} and {name!r}; give one another name (as, in Python "
                    "name=)"
                )


def is_asynchronous(reward: Any) -> bool:
    """Whether a reward function, which may be a plain function, is asynchronous.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> is_asynchronous(make_reward("crg", prior=0.2))
        False
    """
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


class Reward(ABC):
    """Base class of rewards: small picklable callables with a name that read columns of the data set.

    Subclasses implement :meth:`score`, :attr:`columns` and :attr:`signature`. A call changes no state.

    Args:
        name: Name under which trainers log the reward, stored as ``__name__``; must be unique in a run.
        log_explanations: Add a description of each report's errors to the trainer's table of completions.
        log_details: Log all sub-scores, not only the main ones, and the failures of a judge by kind.
    """

    __name__: str

    metric_class: ClassVar[type[ReportMetric] | None] = None
    """Metric that the reward makes of its further options; ``None`` if it makes none."""

    output = RewardOutput()
    """Selects the score that is the reward; set by :func:`rrg_rewards.rewards.make_reward`."""

    report = ReportExtractor()
    """Extracts the report from a completion; set by :func:`rrg_rewards.rewards.make_reward`."""

    def __init__(self, name: str, log_explanations: bool = False, log_details: bool = False) -> None:
        self.__name__ = name
        self.log_explanations = log_explanations
        self.log_details = log_details

    @classmethod
    def from_options(cls, **options: Any) -> "Reward":
        """Make a reward from its options. A subclass may return an instance of a different class."""
        return cls(**options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__!r})"

    @property
    @abstractmethod
    def signature(self) -> str:
        """Identifier of the reward, including versions and settings; ends with :attr:`suffix`."""

    @property
    def suffix(self) -> str:
        """What the options of every reward add to the signature; empty by default."""
        return self.output.suffix + ("" if self.report == type(self).report else f"|report:{self.report.report}")

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads."""

    def reports(self, completions: Sequence[Completion], prompts: Sequence[Any] | None = None) -> list[str | None]:
        """Return the reports in completions, which are scored; ``None`` for a conversation without a reply.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            prompts: Their prompts, which may have opened the reasoning (:class:`ReportExtractor`).
        """
        return self.report.reports(completions, prompts)

    @abstractmethod
    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score the :meth:`reports` in completions.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column of the data set.

        Raises:
            ValueError: If a column that the reward reads is missing, or columns differ in length.
        """

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions as :meth:`score` does, without blocking the event loop while a judge answers."""
        return self.score(completions, **columns)

    def rewards(self, scores: Scores) -> list[float | None]:
        """Convert scores to rewards; ``None`` for unscorable completions."""
        return self.output.rewards(scores, self._reward)

    def checked_rewards(self, scores: Scores, num_completions: int) -> list[float | None]:
        """Return :meth:`rewards`.

        Raises:
            ValueError: If there is another number of rewards than completions, or a reward is infinite or NaN.
        """
        rewards = self.rewards(scores)
        if len(rewards) != num_completions:
            raise ValueError(
                f"reward {self.__name__!r} returned {len(rewards)} rewards for {num_completions} completions"
            )
        for row, value in enumerate(rewards):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"reward {self.__name__!r} is {value} for completion {row}; use None if it has none")
        return rewards

    def logged_details(self, scores: Scores) -> dict[str, Tensor]:
        """Return the sub-scores that trainers log, ``(N,)`` each, by name; NaN where they are undefined."""
        return dict(scores.details)

    @property
    def estimated(self) -> tuple[str, ...]:
        """Settings that are estimated from data and not known yet; empty if all are fixed.

        Processes that share no statistics would estimate different values.
        """
        return ()

    @property
    def has_independent_rows(self) -> bool:
        """Whether the reward of a completion is the same in any batch, and a call changes no state."""
        return False

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges that the reward asks, by what they do, such as ``"judge"``; by default, none."""
        return {}

    def warn_of_unread(self, given: Mapping[str, Any]) -> None:  # noqa: B027 (most rewards read no context)
        """Warn once of columns of the data set that the reward could read and does not, such as the patient's age."""

    def fitted_options(self) -> dict[str, Any]:
        """Return the options of :func:`rrg_rewards.rewards.make_reward` that :meth:`fit` has estimated, as numbers."""
        return {}

    def fit(self, *unnamed: Any, **columns: Sequence[Any]) -> Self:
        """Measure the options of the reward that depend on the training set; most have none.

        Options that were given as numbers stay. A second call replaces what the first has measured.

        Args:
            unnamed: Nothing: columns are passed by name.
            columns: The complete :attr:`columns` of the training set.

        Raises:
            TypeError: If a column is passed without its name.
            ValueError: If a column is missing, or the references do not determine an option.
        """
        if unnamed:
            name = next(iter(self.columns), "reference")
            raise TypeError(f"reward {self.__name__!r}: pass the column by name: fit({name}=[...])")
        self._fit(columns)
        return self

    def _fit(self, columns: Mapping[str, Sequence[Any]]) -> None:  # noqa: B027 (most rewards measure nothing)
        """Measure the options; nothing by default."""

    def check_fitted(self) -> None:
        """Raise ``ValueError`` if a setting is estimated from data and not known yet."""
        if self.estimated:
            settings = " and ".join(f"{setting}='dataset'" for setting in self.estimated)
            verb = "is" if len(self.estimated) == 1 else "are"
            columns = ", ".join(f'{column}=dataset["{column}"]' for column in self.columns)
            raise ValueError(
                f"reward {self.__name__!r} has {settings}, which {verb} computed from the training set: call "
                f"reward.fit({columns}) before training"
            )

    def __call__(
        self,
        completions: Sequence[Completion],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Reward completions.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            log_metric: Called with the name and value of each sub-score.
            log_extra: Called with the name and ``N`` values of each explanation if ``log_explanations`` is set.
            columns: ``N`` values of each column of the data set, and further arguments of the trainer.

        Returns:
            ``N`` rewards; ``None`` for unscorable completions.

        Raises:
            ValueError: If a column that the reward reads is missing, columns differ in length, or a reward is infinite
                or missing.
        """
        prompts = columns.get("prompts")
        return self._finish(self.score(completions, **columns), completions, log_metric, log_extra, prompts)

    def _finish(
        self,
        scores: Scores,
        completions: Sequence[Completion],
        log_metric: Callable[[str, float], None] | None,
        log_extra: Callable[[str, list[Any]], None] | None,
        prompts: Sequence[Any] | None = None,
    ) -> list[float | None]:
        """Log the scores of a batch and return its rewards."""
        rewards = self.checked_rewards(scores, len(completions))
        if log_metric is not None:
            # A mean over no rows is not logged. Trainers would average NaN with the values of other processes.
            for name, value in {**self._sub_scores(scores), **self._extracted(completions, prompts)}.items():
                if not math.isnan(value):
                    log_metric(f"{self.__name__}/{name}", value)
        if log_extra is not None and self.log_explanations:
            for name, texts in scores.explanations.items():
                log_extra(f"{self.__name__}/{name}", texts)
        return rewards

    def _reward(self, value: float) -> float:
        """Convert one score to a reward."""
        return value

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        """Return the values to log for a batch; NaN for a mean over no rows."""
        details = {name: float(values.double().nanmean()) for name, values in self.logged_details(scores).items()}
        kinds = {f"failed_{kind}": _share(rows) for kind, rows in scores.failures.items()}
        # A pair has at most one kind of failure.
        failed = {"failed": sum(kinds.values()), **(kinds if self.log_details else {})} if kinds else {}
        return {**details, **failed, "unscorable": _share(self.output.values(scores).isnan())}

    def _extracted(self, completions: Sequence[Completion], prompts: Sequence[Any] | None) -> dict[str, float]:
        """Return the shares of completions that contained more than a report, and of empty reports, to log."""
        pairs = zip(completion_texts(completions), self.reports(completions, prompts), strict=True)
        known = [(text, report) for text, report in pairs if text is not None and report is not None]
        if not known or self.report.report == "raw":
            return {}
        extracted = sum(text != report for text, report in known)
        return {
            "extracted": extracted / len(known),
            "empty": sum(not report.strip() for _, report in known) / len(known),
        }

    def _column(self, columns: Mapping[str, Any], name: str) -> Sequence[Any]:
        if name not in columns:
            present = sorted(columns.keys() - _TRAINER_ARGUMENTS)
            raise ValueError(
                f"reward {self.__name__!r} reads the column {name!r}, which the data set lacks; it has "
                f"{', '.join(present) or 'no further column'}. Rename the column or make the reward with its name "
                "(reference_column, label_column or context_columns); trainers pass on all columns of the data set "
                "unless remove_unused_columns is true"
            )
        column: Sequence[Any] = columns[name]
        return column


class MetricReward(Reward):
    r"""A report metric as a reward function for TRL's trainers (GRPO, RLOO and others that take ``reward_funcs``).

    The reward is the score of the completion against the reference
    (:meth:`rrg_rewards.metrics.ReportMetric.score`), multiplied by :math:`-1` if lower is better. If the metric cannot
    score a pair, the reward is ``None``, and trainers skip the completion. Exceptions are not caught.

    The object is small and picklable and makes no collective calls. With ``log_metric``, it logs

    - ``{name}/unscorable``, the fraction of unscorable completions in the batch;
    - ``{name}/extracted``, the fraction of completions from which the report was extracted, because they contain
      reasoning, tags or the like (:class:`rrg_rewards.rewards.completions.ReportExtractor`), and ``{name}/empty``, the
      fraction whose report is empty, as that of a completion that only thinks;
    - ``{name}/{sub-score}``, the mean over the scored rows of each sub-score in ``ReportMetric.main_details``;
    - ``{name}/failed``, the fraction of the batch for which the judge failed, if the metric has a judge;
    - ``{name}/judge_calls``, ``judge_retries``, ``judge_prompt_tokens``, ``judge_cached_prompt_tokens`` (if the server
      says them), ``judge_completion_tokens`` and ``judge_cost`` (with a price): what the judges of the metric have
      used in this process since the last batch that was logged, if they are asked over a server.

    With ``log_details``, it logs all sub-scores, and ``{name}/failed_{kind}`` for each kind of failure. A mean over no
    rows is not logged.

    Args:
        metric: The metric. Its state is never updated.
        name: Name under which trainers log the reward; must be unique in a run. Default: the name of the metric.
        reference_column: Column of reference reports in the data set; ``None`` if the metric uses no reference text.
        context_columns: Further columns that the metric uses: a list of names, or a mapping from the metric's keywords
            to column names.
        log_explanations: Add a description of each report's errors to the trainer's table of completions.
        log_details: Log all sub-scores, not only the main ones, and the failures of a judge by kind.

    Raises:
        TypeError: If ``metric`` is not a report metric.
        ValueError: If the metric does not define whether higher is better, its scores are relative to the batch
            (``ReportCRG`` without a prior), or it needs references and has no column of them; when called, if a column
            is missing.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> from rrg_rewards.rewards import MetricReward
        >>> reward = MetricReward(ReportCRG(prior=0.2), reference_column="report")
        >>> reward.__name__
        'crg'
        >>> reward(completions=["Cardiomegaly."], report=["Cardiomegaly."])
        [0.277...]
    """

    _compares_across_batches: ClassVar[bool] = False
    """Whether the reward makes scores comparable that are relative to the batch in the metric."""

    def __init__(
        self,
        metric: ReportMetric,
        *,
        name: str | None = None,
        reference_column: str | None = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        log_explanations: bool = False,
        log_details: bool = False,
    ) -> None:
        if not isinstance(metric, ReportMetric):
            raise TypeError(f"metric must be a report metric, got {type(metric).__name__}")
        if metric.higher_is_better is None:
            raise ValueError(f"{type(metric).__name__} cannot be a reward: it does not define whether higher is better")
        if metric.depends_on_corpus:
            raise ValueError(
                f"{metric.name} cannot be a reward: the score of a report depends on the others of its batch; set "
                "documents to the references of the training set"
            )
        if not (metric.compares_across_batches or metric.unfitted or self._compares_across_batches):
            raise ValueError(
                f"{metric.name} cannot be a reward: its scores are relative to the batch, and a reward would "
                f"change with the other completions; use make_reward({metric.name!r}), or set a number as its prior"
            )
        super().__init__(name or metric.name, log_explanations, log_details)
        self.metric = metric
        self.reference_column = reference_column
        self.context_columns = named_columns(context_columns)
        if reference_column is None and metric.needs_references(self.context_columns):
            raise ValueError(
                f"reward {self.__name__!r} could read nothing: set reference_column, or a column of its context that "
                f"takes the place of references (it takes {', '.join(metric.context or ()) or 'none'})"
            )
        self._is_fitted = bool(metric.unfitted)
        self._meter = UsageMeter(metric.judges())
        self._has_warned_of_unread = False

    @property
    def sign(self) -> int:
        """Sign of the reward: 1 if a higher score is better, else -1."""
        return 1 if self.metric.higher_is_better else -1

    @property
    def signature(self) -> str:
        """Signature of the metric, its context columns and the sign of the reward."""
        context = f"|context:{','.join(self.context_columns)}" if self.context_columns else ""
        return f"{self.metric.signature}{context}|sign:{self.sign:+d}{self.suffix}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads."""
        reference = () if self.reference_column is None else (self.reference_column,)
        return (*reference, *self.context_columns.values())

    @property
    def has_independent_rows(self) -> bool:
        """Whether the metric's rows are independent, and no subclass scores differently."""
        own = type(self)
        called = own.__call__ in (Reward.__call__, AsyncReward.__call__)
        return own.score is MetricReward.score and called and self.metric.has_independent_rows

    @property
    def estimated(self) -> tuple[str, ...]:
        """Options of the metric that :meth:`fit` measures and that are not known yet."""
        return self.metric.unfitted

    def warn_of_unread(self, given: Mapping[str, Any]) -> None:
        """Warn once of columns of the metric's context that are ``given`` and not read, with the option for them."""
        unread = self.metric.unread_context(given, {*self.context_columns, *self.columns})
        if unread and not self._has_warned_of_unread:
            self._has_warned_of_unread = True
            warnings.warn(
                f"reward {self.__name__!r} does not read {' and '.join(map(repr, unread))}, which may change its "
                f"scores: make it with context_columns={unread}, or leave the columns out",
                UnreadColumnWarning,
                stacklevel=2,
            )

    def fitted_options(self) -> dict[str, Any]:
        """Return the options of the metric that :meth:`fit` has measured."""
        return self.metric.fitted_options()

    def _fit(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Measure the options of the metric that depend on the references."""
        if self._is_fitted:
            references, context = self._inputs(columns, len(self._column(columns, self.columns[0])))
            if self.metric.needs_references(context) and not any(text and text.strip() for text in references):
                raise ValueError(f"column {self.reference_column!r}: all references are blank or missing")
            self._fit_references(references, context)

    def _fit_references(self, references: Sequence[str | None], context: Mapping[str, Sequence[Any]]) -> None:
        self.metric.fit_references(references, **context)

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Return the scores of the metric, without the sign of the reward; see :meth:`Reward.score`."""
        preds, references, context = self._metric_inputs(completions, columns)
        return self.metric.score(preds, references, **context)

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges of the metric, by what they do."""
        return self.metric.judges()

    def _reward(self, value: float) -> float:
        return self.sign * value

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        used = sum(self._meter.take().values(), Usage())
        total = sum(self._meter.usage().values(), Usage())
        # Judges that only other processes ask count nothing here.
        numbers = used.numbers() if total.calls or total.cached else {}
        return {**super()._sub_scores(scores), **{f"judge_{name}": float(value) for name, value in numbers.items()}}

    def logged_details(self, scores: Scores) -> dict[str, Tensor]:
        """Return the sub-scores that trainers log: the main ones, or all with ``log_details``."""
        main = self.metric.main_details
        return (
            dict(scores.details) if main is None or self.log_details else {name: scores.details[name] for name in main}
        )

    def _metric_inputs(
        self, completions: Sequence[Completion], columns: Mapping[str, Any]
    ) -> tuple[list[str | None], Sequence[str | None], dict[str, Sequence[Any]]]:
        """Return the arguments of the metric: reports, references and context."""
        self.check_fitted()
        reports = self.reports(completions, columns.get("prompts"))
        self.warn_of_unread(columns)
        return reports, *self._inputs(columns, len(reports))

    def _inputs(self, columns: Mapping[str, Any], length: int) -> tuple[Sequence[str | None], dict[str, Sequence[Any]]]:
        """Return the references and the context of ``length`` rows."""
        context = {keyword: self._column(columns, column) for keyword, column in self.context_columns.items()}
        references: Sequence[str | None] = [None] * length
        if self.reference_column is not None:
            references = read_reports(self.reference_column, self._column(columns, self.reference_column))
        # Here, because the metric knows neither completions nor columns.
        for name in self.columns:
            check_same_length("completions", range(length), name, columns[name])
        return references, context


def score_tensor(values: Iterable[float | None]) -> Tensor:
    """Return values as a float64 tensor; NaN for ``None``."""
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def _share(rows: Tensor) -> float:
    return float(rows.double().mean())


class AsyncReward(Reward):
    """A reward function whose call returns a coroutine. Subclasses implement :meth:`score_async`."""

    # Trainers recognise an asynchronous reward because its __call__ is a coroutine function.
    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """Reward completions; see :meth:`Reward.__call__`."""
        log_metric, log_extra = columns.pop("log_metric", None), columns.pop("log_extra", None)
        scores = await self.score_async(completions, **columns)
        return self._finish(scores, completions, log_metric, log_extra, columns.get("prompts"))


class AsyncMetricReward(AsyncReward, MetricReward):
    """An asynchronous reward function that wraps a metric with a judge and runs concurrently with other rewards.

    A call returns a coroutine. Its result and the logged values are those of :class:`MetricReward`. For
    trainers that only support plain functions, use ``MetricReward(metric)``, which blocks until the judge has answered.

    Args:
        metric: A metric with a judge.
        options: Arguments of :class:`MetricReward`.

    Raises:
        TypeError: If the metric has no judge.

    Example:
        >>> import asyncio
        >>> from rrg_rewards.functional import CrimsonEvaluation
        >>> from rrg_rewards.judges import Judge
        >>> from rrg_rewards.metrics import CRIMSON
        >>> from rrg_rewards.rewards import AsyncMetricReward
        >>> class KindJudge(Judge):
        ...     signature = "kind"
        ...     async def evaluate(self, task, items):
        ...         return [CrimsonEvaluation() for pair in items]
        >>> reward = AsyncMetricReward(CRIMSON(judge=KindJudge()), reference_column="report")
        >>> asyncio.run(reward(completions=["Normal."], report=["Normal."]))
        [1.0]
    """

    metric: AsyncReportMetric[Any, Any]

    def __init__(self, metric: AsyncReportMetric[Any, Any], **options: Any) -> None:
        if not isinstance(metric, AsyncReportMetric):
            raise TypeError(f"metric must be a metric with a judge, got {type(metric).__name__}; use MetricReward")
        super().__init__(metric, **options)

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions as :meth:`MetricReward.score` does, without blocking the event loop."""
        preds, references, context = self._metric_inputs(completions, columns)
        return await self.metric.score_async(preds, references, **context)
