"""Rewards as callables of TRL, and a metric's per-report score as one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor
from typing_extensions import Self

from rrg_rewards.metrics.base import ReportMetric, Scores

__all__ = ["Completion", "MetricReward", "Reward", "completion_text", "completion_texts"]

Completion = str | Sequence[Mapping[str, Any]]

# What a trainer passes besides the columns of the data set.
_TRAINER_ARGUMENTS = frozenset({"prompts", "completion_ids", "trainer_state", "environments"})


def completion_text(completion: Completion) -> str | None:
    """Report text of a completion, plain or conversational.

    Args:
        completion: A text, or a list of messages ``{"role": ..., "content": ...}`` whose content is a text or a list
            of parts ``{"type": "text", "text": ...}``.

    Returns:
        The text, or that of the last assistant message; ``None`` where no assistant message is present.

    Raises:
        TypeError: If the completion is neither.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "No effusion."}]}])
        'No effusion.'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(message, Mapping) for message in completion):
        raise TypeError(f"a completion must be a text or a list of messages, got {type(completion).__name__}")
    messages = cast(Sequence[Mapping[str, Any]], completion)
    said = [message for message in messages if message.get("role") == "assistant"]
    if not said:
        return None
    content = said[-1].get("content") or ""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, Mapping) else {} for part in content]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if not all(parts) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"content of a message must be a text or a list of parts with a type, got {content!r}")
    return "".join(map(str, texts))


def completion_texts(completions: Sequence[Completion]) -> list[str | None]:
    """Report texts of a batch of completions; see :func:`completion_text`.

    Raises:
        TypeError: If ``completions`` is one string, or one of them is no completion.

    Example:
        >>> completion_texts(["No effusion.", []])
        ['No effusion.', None]
    """
    if isinstance(completions, str):
        raise TypeError("completions must be a list of completions, got one string; pass [completion]")
    return [completion_text(completion) for completion in completions]


class Reward(ABC):
    """What a reward is to a trainer: a small picklable callable with a name that reads columns of the data set.

    Subclasses score completions in :meth:`score`; the rest follows. What a reward has learned in training beyond its
    arguments is in :meth:`state_dict`, for checkpoints.

    Args:
        name: ``__name__`` of the reward, under which a trainer logs it; two rewards of one run must differ.
        log_explanations: Add what was wrong in each report, in words, to the trainer's table of completions.
    """

    __name__: str

    def __init__(self, name: str, log_explanations: bool = False) -> None:
        self.__name__ = name
        self.log_explanations = log_explanations

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__!r})"

    @property
    @abstractmethod
    def signature(self) -> str:
        """What exactly is rewarded."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads."""

    @abstractmethod
    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Scores of completions, without touching what the reward has learned.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column of the data set.

        Raises:
            ValueError: If a column that the reward reads is missing, or a length differs.
        """

    def rewards(self, scores: Scores) -> list[float | None]:
        """Rewards of scores: what a trainer gets, ``None`` where a completion is unscorable."""
        return [None if math.isnan(value) else self._reward(value) for value in scores.value.tolist()]

    def fit(self, **columns: Sequence[Any]) -> Self:  # noqa: ARG002 (for subclasses)
        """Learn what the reward needs of the training set, given as whole :attr:`columns`; most need nothing."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """What the reward has learned since training began, as plain data; most learn nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        Raises:
            ValueError: If the state is another reward's.
        """
        if state:
            raise ValueError(f"reward {self.__name__!r} has no state, but was given {', '.join(state)}")

    def synchronize(self) -> None:  # noqa: B027 (most have nothing to share)
        """Share what was learned since the last time with all processes, each of which calls it; for callbacks."""

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
            log_extra: Called with the name and ``N`` values of each explanation, with ``log_explanations``.
            columns: ``N`` values of each column of the data set, and what else a trainer passes.

        Returns:
            ``N`` rewards; ``None`` where a completion is unscorable.

        Raises:
            ValueError: If a column that the reward reads is missing, or a length differs.
        """
        return self._finish(self._score(completions, columns), log_metric, log_extra)

    def _score(self, completions: Sequence[Completion], columns: Mapping[str, Any]) -> Scores:
        """Score a batch in training."""
        return self.score(completions, **columns)

    def _finish(
        self,
        scores: Scores,
        log_metric: Callable[[str, float], None] | None,
        log_extra: Callable[[str, list[Any]], None] | None,
    ) -> list[float | None]:
        """Log a batch's scores and make rewards of them."""
        if log_metric is not None:
            for name, value in self._sub_scores(scores).items():
                log_metric(f"{self.__name__}/{name}", value)
        if log_extra is not None and self.log_explanations:
            for name, texts in scores.explanations.items():
                log_extra(f"{self.__name__}/{name}", texts)
        return self.rewards(scores)

    def _reward(self, value: float) -> float:
        """Reward of a score."""
        return value

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        """What to log of a batch: the same names in each call."""
        details = {name: float(detail.double().nanmean()) for name, detail in scores.details.items()}
        failed = {f"failed_{kind}": _share(rows) for kind, rows in scores.failures.items()}
        # A pair fails in one way at most.
        failed |= {"failed": sum(failed.values())} if failed else {}
        return {**details, **failed, "unscorable": _share(~scores.scored)}

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

    The reward of a completion is the metric's :meth:`~rrg_rewards.metrics.ReportMetric.score` for it against the
    reference, times :math:`-1` where lower is better, so that the policy always climbs. It is ``None``, which a trainer
    skips, where the metric cannot score the pair; a failure of the code raises.

    The object is picklable and small, makes no collective call, and logs by ``log_metric`` the same names in each
    call, as gathering over processes needs: ``{name}/unscorable`` (fraction of the batch), one name for each
    sub-score of the metric, its mean over the scored rows, and for a metric with a judge ``{name}/failed`` and
    ``{name}/failed_{kind}`` for each kind of failure (fractions of the batch). A mean over nothing is NaN, never 0:
    trainers leave NaN out of what they log.

    Args:
        metric: The metric. Its state is never touched.
        name: ``__name__`` of the reward, under which a trainer logs it; two rewards of one run must differ. Default:
            the metric's.
        reference_column: Column of reference reports in the data set; ``None`` for a metric that takes no reference
            text.
        context_columns: Further columns that the metric takes, all under their own names, or as a mapping of the
            metric's keyword to the column's name.
        log_explanations: Add what was wrong in each report, in words, to the trainer's table of completions.

    Raises:
        TypeError: If ``metric`` is no report metric.
        ValueError: If the metric does not say whether higher is better; when called, if a column is missing.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> from rrg_rewards.rewards import MetricReward
        >>> reward = MetricReward(ReportCRG(prior=0.2), reference_column="report")
        >>> reward.__name__
        'crg'
        >>> reward(completions=["Cardiomegaly."], report=["Cardiomegaly."])
        [0.277...]
    """

    def __init__(
        self,
        metric: ReportMetric,
        *,
        name: str | None = None,
        reference_column: str | None = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        log_explanations: bool = False,
    ) -> None:
        if not isinstance(metric, ReportMetric):
            raise TypeError(f"metric must be a report metric, got {type(metric).__name__}")
        if metric.higher_is_better is None:
            raise ValueError(f"{type(metric).__name__} does not say whether higher is better, so it is no reward")
        super().__init__(name or metric.name, log_explanations)
        self.metric = metric
        self.reference_column = reference_column
        if isinstance(context_columns, Mapping):
            self.context_columns = dict(context_columns)
        else:
            self.context_columns = {column: column for column in context_columns}

    @property
    def sign(self) -> int:
        """What the metric's score is multiplied by: 1 where higher is better, else -1."""
        return 1 if self.metric.higher_is_better else -1

    @property
    def signature(self) -> str:
        """What exactly is rewarded: the metric's signature, what it is told besides the reports, and the sign."""
        context = f"|context:{','.join(self.context_columns)}" if self.context_columns else ""
        return f"{self.metric.signature}{context}|sign:{self.sign:+d}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads."""
        reference = () if self.reference_column is None else (self.reference_column,)
        return (*reference, *self.context_columns.values())

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """The metric's scores of completions, without a sign, and without touching what the reward has learnt.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column of the data set.

        Raises:
            ValueError: If a column that the reward reads is missing, or a length differs.
        """
        preds, references, context = self._metric_inputs(completions, columns)
        return self.metric.score(preds, references, **context)

    def _reward(self, value: float) -> float:
        """Reward of a score."""
        return self.sign * value

    def _metric_inputs(
        self, completions: Sequence[Completion], columns: Mapping[str, Any]
    ) -> tuple[list[str | None], Sequence[str | None], dict[str, Sequence[Any]]]:
        """What the metric takes: texts of the completions, references and context."""
        texts = completion_texts(completions)
        return texts, *self._inputs(columns, len(texts))

    def _inputs(self, columns: Mapping[str, Any], length: int) -> tuple[Sequence[str | None], dict[str, Sequence[Any]]]:
        """References and context of ``length`` rows."""
        context = {keyword: self._column(columns, column) for keyword, column in self.context_columns.items()}
        if self.reference_column is None:
            return [None] * length, context
        return self._column(columns, self.reference_column), context


def _share(rows: Tensor) -> float:
    return float(rows.double().mean())
