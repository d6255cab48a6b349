"""Base classes of metrics on report text: one score per report pair, and a corpus value computed from sums."""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn

from rrg_rewards.findings.reading.modality import Modality, ModalityCheck
from rrg_rewards.judges.base import Judge
from rrg_rewards.metrics.scores import Scores, score_sums
from rrg_rewards.utilities.checks import check_same_length, read_reports
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.texts import (
    PlaceholderWarning,
    find_placeholders,
    placeholder_message,
    without_placeholders,
)

Column = Sequence[Any] | Tensor
"""A context column of ``N`` values: a sequence, or a tensor whose first dimension is ``N``."""


def read_column(name: str, column: Column, num_rows: int) -> Sequence[Any]:
    """Return a context column as a sequence of ``num_rows`` plain values.

    The default collation of data loaders turns ``N`` numbers into a tensor ``(N,)``, and ``N`` lists of ``L`` labels
    into a list of ``L`` tensors ``(N,)``, one for each label. Such a list is transposed.

    Args:
        name: Name of the column, for messages.
        column: The column.
        num_rows: Number of report pairs.

    Raises:
        TypeError: If the argument is not a column.
        ValueError: If the number of values is wrong, or ``N`` tensors ``(N,)`` may be rows or collated columns.

    Example:
        >>> import torch
        >>> read_column("target_labels", [torch.tensor([1, 0]), torch.tensor([0, 0]), torch.tensor([1, 1])], 2)
        [[1, 0, 1], [0, 0, 1]]
    """
    if isinstance(column, list | tuple) and column and all(isinstance(value, Tensor) for value in column):
        column = _stacked(name, column, num_rows)
    if hasattr(column, "tolist"):
        column = column.tolist()
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise TypeError(f"{name} must be a column of {num_rows} values, got {type(column).__name__}")
    check_same_length("preds", range(num_rows), name, column)
    return column


def _stacked(name: str, tensors: Sequence[Tensor], num_rows: int) -> Column:
    """Return a list of tensors as one tensor whose first dimension is the report pairs."""
    if len({tensor.shape for tensor in tensors}) > 1 or tensors[0].ndim > 1:
        return tensors
    stacked = torch.stack([*tensors])
    if tensors[0].ndim == 0 or len(tensors[0]) != num_rows:
        return stacked
    if len(tensors) == num_rows and not torch.equal(stacked, stacked.T):
        raise ValueError(
            f"{name} is a list of {num_rows} tensors of {num_rows} values, which may be rows or the columns that a "
            f"data loader makes of rows; pass one tensor: torch.stack({name}) of rows, torch.stack({name}, 1) of "
            "columns"
        )
    return stacked.T


def _is_blank(values: Any) -> bool:
    """Whether a column, or one cell, has no value."""
    values = values.tolist() if hasattr(values, "tolist") else values
    texts = (str(cell).strip() for cell in (values if isinstance(values, list | tuple) else [values]))
    return all(not text or find_placeholders([text]) for text in texts)


class UnreadColumnWarning(UserWarning):
    """Columns of the patient's context or the like are there, and the metric does not read them."""


class ModalityWarning(UserWarning):
    """The references are of another modality than the labels or questions of a metric."""


class ScalarMetric(Metric):
    """A metric whose ``compute`` returns one number; higher is better unless a subclass sets otherwise."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # torch.jit.script compiles properties, even of modules whose methods it does not compile.
        own = {name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, property)}
        cls.__jit_unused_properties__ = sorted({*Metric.__jit_unused_properties__, *own})

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Module:
        """Move the states to another device or memory, but never convert them to another type.

        ``module.to(torch.bfloat16)`` of a surrounding module reaches this method, not :meth:`set_dtype`.
        """

        def moved(tensor: Tensor) -> Tensor:
            found = fn(tensor)
            return found if found.dtype == tensor.dtype else tensor.to(found.device)

        return super()._apply(moved, exclude_state)

    def reset(self) -> None:
        """Reset the states to their defaults."""
        # In inference mode, as after Lightning's `validate`, the new states could not be changed in place later.
        with torch.inference_mode(False):
            super().reset()

    def set_dtype(self, dst_type: str | torch.dtype) -> Metric:  # noqa: ARG002 (torchmetrics' signature)
        """Do nothing: float16 represents counts exactly only up to 2048."""
        return self

    @contextmanager
    def _synced(self) -> Iterator[None]:
        """Sync the states over processes within the context, as ``compute`` does."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn,
            should_sync=self._to_sync and not self._is_synced,
            should_unsync=self._should_unsync and not self._is_synced,
        ):
            yield

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Plot one value, or several in order, between the metric's bounds.

        Args:
            val: Result of ``compute`` or ``forward``, or a list of results. Default: ``compute()``.
            ax: Matplotlib axes. Default: new ones.

        Returns:
            Matplotlib figure and axes.

        Raises:
            ModuleNotFoundError: If matplotlib is not installed (extra ``plot``).
        """
        figure, axes = self._plot(val, ax)
        return figure, axes


class ReportMetric(ScalarMetric, ABC):
    """A corpus metric computed from per-report scores; by default their mean.

    Whoever writes a metric writes up to five things:

    - **score**: :meth:`_score` scores report pairs.
    - **signature**: :attr:`signature` says in one line what a score is.
    - **context**: :attr:`context` names the further columns, and :meth:`_read_context` checks and converts them.
      :attr:`required_context` and :meth:`needs_references` say which pairs can be scored.
    - **corpus value**: by default the mean over scored pairs, and the means of the sub-scores in ``parts``. Another one
      is a formula, :meth:`Scores.corpus_value`, of sums over the pairs. The metric has a state for each sum, which
      grows in :meth:`_accumulate`, and :meth:`compute` calls the formula.
    - **fitted**: :attr:`fitted` names the options that :meth:`fit_references` measures on training references.

    All other attributes are properties with a default that holds for most metrics.

    All report metrics have the same inputs: two lists of ``N`` report texts, and context columns of ``N`` values as
    keyword arguments.

    A pair is unscorable if its prediction is ``None``, or if its reference is ``None`` or blank; NaN and NA, which
    pandas has in place of a missing text, are ``None``, and so are references such as "Not given."
    (:func:`rrg_rewards.utilities.texts.find_placeholders`), with a warning. Its score is NaN; it is counted in
    ``num_unscorable`` and excluded from the corpus value. A blank prediction is an empty report and is scored.

    Args:
        parts: Names of the sub-scores in ``Scores.details`` to average; ``None`` omits the default states.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    name: ClassVar[str]
    """Name of the metric in logs, tables and rewards."""

    context: ClassVar[tuple[str, ...] | None] = None
    """Names of the context columns that :meth:`score` accepts; ``None`` to accept any column."""

    required_context: ClassVar[tuple[str, ...]] = ()
    """Context columns that, if they are given, must have a value: pairs for which it is ``None`` are unscorable."""

    main_details: ClassVar[tuple[str, ...] | None] = None
    """Names of the sub-scores that rewards and callbacks log by default; ``None`` for all."""

    reward_options: ClassVar[Mapping[str, Any]] = {}
    """Options of the metric as a reward with a column of reference reports, unless they are given."""

    num_unscorable: Tensor
    score_sum: Tensor
    num_scored: Tensor
    part_sums: Tensor

    def __init__(self, parts: Sequence[str] | None = (), **kwargs: Any) -> None:
        _check_spelling(kwargs, type(self))
        super().__init__(**kwargs)
        self._modality_check: ModalityCheck | None = None
        self._has_warned_of_placeholders = False
        self._parts = None if parts is None else tuple(parts)
        self.add_state("num_unscorable", torch.tensor(0), dist_reduce_fx="sum")
        # A MetricCollection merges metrics whose states are equal after the first batch, and then updates only one of
        # them. Metrics of two labelers or judges that agree on this batch would then share one value. NaN equals no
        # other value, so report metrics are never merged.
        self.add_state("never_shared", torch.tensor(float("nan"), dtype=torch.float64), dist_reduce_fx="max")
        if parts is not None:
            self.add_state("score_sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state("part_sums", torch.zeros(len(parts), dtype=torch.float64), dist_reduce_fx="sum")
            self.add_state("num_scored", torch.tensor(0), dist_reduce_fx="sum")

    @abstractmethod
    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:
        """Score pairs that are all scorable."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """Metric, version, models and settings in one line."""

    def _read_context(self, context: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        """Check and convert the values of context columns; by default, return them unchanged."""
        return context

    def needs_references(self, context: Collection[str]) -> bool:  # noqa: ARG002 (for subclasses)
        """Whether pairs without a reference report are unscorable.

        Args:
            context: Names of the context columns that the metric gets.
        """
        return True

    @property
    def fitted(self) -> Mapping[str, Any]:
        """Options that :meth:`fit_references` measures, as plain data; ``None`` for those that are not known yet."""
        return {}

    def fit_references(self, references: Sequence[str | None], **context: Column) -> None:
        """Measure the options that depend on the references of the training set; does nothing by default."""

    @property
    def unfitted(self) -> tuple[str, ...]:
        """Names of the :attr:`fitted` options that are not known yet."""
        return tuple(name for name, value in self.fitted.items() if value is None)

    def fitted_options(self) -> dict[str, Any]:
        """Return the :attr:`fitted` options that are known."""
        return {name: value for name, value in self.fitted.items() if value is not None}

    def unread_context(self, given: Mapping[str, Any], read: Collection[str]) -> list[str]:
        """Return the columns of the context that are ``given`` under their own names, and not among those ``read``.

        Columns of :attr:`required_context`, which take the place of what is read in references, are not meant, and
        neither are columns, or cells of one row, without a value.

        Example:
            >>> from rrg_rewards.metrics import CRIMSON
            >>> columns = {"reference": ["Edema."], "age": [70], "sex": ["F"], "indication": [None]}
            >>> CRIMSON(judge="rules").unread_context(columns, read=["sex"])
            ['age']
        """
        known = (name for name in self.context or () if name not in self.required_context)
        return [name for name in known if name in given and name not in read and not _is_blank(given[name])]

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges that the metric asks, by what they do, such as ``"judge"``; by default, none."""
        return {}

    @property
    def has_independent_rows(self) -> bool:
        """Whether the scores of a pair are the same numbers in any batch, if the corpus is the same.

        The pairs of such a metric may be scored in parts. It is false by default: models pad the texts of a batch, and
        the padding changes their scores by rounding.
        """
        return False

    @property
    def is_costly(self) -> bool:
        """Whether a score may take long or cost money, so that no pair is scored once more without being asked to.

        It is true of models, of judges that do not answer at once, and of functions of which nothing is known.
        """
        return not self.has_independent_rows or any(not judge.is_immediate for judge in self.judges().values())

    @property
    def compares_across_batches(self) -> bool:
        """Whether scores from different calls of :meth:`score` are on the same scale."""
        return True

    @property
    def depends_on_corpus(self) -> bool:
        """Whether the score of a pair depends on the references of all pairs, which :meth:`in_corpus` reads."""
        return type(self).in_corpus is not ReportMetric.in_corpus and not self.compares_across_batches

    def in_corpus(self, pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> "ReportMetric":  # noqa: ARG002 (for subclasses)
        """Return a metric whose scores are those of pairs in a corpus; by default, this metric.

        Args:
            pairs: Predictions and references of the corpus in batches; a reference is a text, or a list of texts.
        """
        return self

    def extra_repr(self) -> str:
        """Return the settings that say what the metric is, for its representation."""
        return ""

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> Scores:
        """Score report pairs without changing the metric's state.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: Context columns of ``N`` values by name: sequences, or tensors as data loaders collate them.

        Returns:
            Scores of the ``N`` pairs, in order.

        Raises:
            TypeError: If a report is not a text, naming argument and row, or a context column is unknown.
            ValueError: If lengths differ.
        """
        rows, chosen_preds, chosen_target, chosen_context = self._choose(preds, target, context)
        with own_precision():
            scores = self._score(chosen_preds, chosen_target, **chosen_context)
        return self._expand(scores, rows)

    def check(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> None:
        """Raise the errors of :meth:`score` about its arguments, without scoring."""
        self._choose(preds, target, context)

    def note_scored(self, context: Collection[str], scores: Scores) -> None:
        """Note that a copy of the metric, in another process, has scored pairs.

        A metric whose signature depends on what it has scored implements this method.

        Args:
            context: Names of the context columns of the pairs.
            scores: Result of :meth:`score`.
        """

    def rescaling(self, sufficient_statistics: Sequence[Tensor]) -> Callable[[Scores], Scores]:  # noqa: ARG002 (for subclasses)
        """Return a function that turns scores of a part of a corpus into those from a call with the whole corpus.

        A metric whose :attr:`compares_across_batches` is false implements this method. For the others, the function
        returns its argument.

        Args:
            sufficient_statistics: :attr:`Scores.sufficient_statistics` of all parts, concatenated.
        """
        return lambda scores: scores

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Column]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        """Check the inputs of :meth:`score`; return a mask of the scorable pairs, and their reports and context."""
        self._check_columns(context)
        preds, target = read_reports("preds", preds), self.without_placeholders(read_reports("target", target))
        check_same_length("preds", preds, "target", target)
        columns = self._read_context({name: read_column(name, one, len(preds)) for name, one in context.items()})
        rows = self._scorable(preds, target, columns)
        chosen = rows.nonzero().flatten().tolist()
        chosen_target = [target[row] or "" for row in chosen]
        self._warn_of_modality(chosen_target)
        return (
            rows,
            [preds[row] or "" for row in chosen],
            chosen_target,
            {name: [column[row] for row in chosen] for name, column in columns.items()},
        )

    def without_placeholders(self, target: list[str | None]) -> list[str | None]:
        """Return references with ``None`` in place of texts that stand for a missing report, and warn once of them."""
        words = find_placeholders(target)
        if words and not self._has_warned_of_placeholders:
            self._has_warned_of_placeholders = True
            message = placeholder_message("target", len(words), len(target), words[0], "pass None instead")
            warnings.warn(f"{self.name}: {message}", PlaceholderWarning, stacklevel=4)
        return without_placeholders(target) if words else target

    def _scorable(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> Tensor:
        """Return which pairs can be scored: bool tensor ``(N,)``."""
        needed: list[Sequence[Any]] = [preds, *(context[name] for name in self.required_context if name in context)]
        if self.needs_references(context):
            needed.append([(text or "").strip() or None for text in target])
        present = [all(value is not None for value in row) for row in zip(*needed, strict=True)]
        return torch.tensor(present, dtype=torch.bool)

    def _modality(self) -> tuple[Modality | None, str]:
        """Return the modality of the reports that the metric is made for, and the remedy for reports of another."""
        return None, ""

    def _warn_of_modality(self, target: Sequence[str]) -> None:
        """Warn once if the first references are of another modality."""
        expected, remedy = self._modality()
        if expected is None:
            return
        if self._modality_check is None:
            self._modality_check = ModalityCheck(expected)
        if self._modality_check.differs(target):
            names = ("radiograph", "CTs") if expected == "ct" else ("CT", "radiographs")
            rank_zero_warn(
                f"{self.name}: the references read like {names[0]} reports, but it is set up for reports of "
                f"{names[1]}; {remedy}",
                ModalityWarning,
            )

    def _expand(self, scores: Scores, rows: Tensor) -> Scores:
        """Return scores of the pairs in ``rows`` as scores of all pairs."""
        expected = int(rows.sum())
        if len(scores) != expected:
            raise ValueError(f"{self.name} returned {len(scores)} scores for {expected} scorable report pairs")
        return scores.expand(rows)

    def _check_columns(self, columns: Mapping[str, Any]) -> None:
        """Raise if a context column is unknown."""
        unknown = [] if self.context is None else sorted(columns.keys() - set(self.context))
        if unknown:
            known = ", ".join(self.context or ()) or "no column"
            raise TypeError(f"{self.name} takes no column {', '.join(unknown)}; it accepts {known}")

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        # Collections call this method for each metric, with the columns of all of them.
        return {name: value for name, value in kwargs.items() if self.context is None or name in self.context}

    def __getattr__(self, name: str) -> Tensor | Module:
        if name == "config":
            # TRL takes every module in `reward_funcs` for a reward model and reads its configuration.
            raise AttributeError(
                f"{type(self).__name__} is a metric, not a reward model, so it has no config; for reward_funcs, use "
                f"make_reward({self.name!r}), or wrap it: rrg_rewards.rewards.MetricReward(metric)"
            )
        return super().__getattr__(name)

    def update(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> None:
        """Score report pairs and add the scores to the state; same arguments as :meth:`score`."""
        self._add(self.score(preds, target, **context))

    def add_scores(self, scores: Scores) -> None:
        """Add the result of :meth:`score` to the state, for callers that also need the scores.

        Args:
            scores: Result of :meth:`score` of this metric.

        Example:
            >>> from rrg_rewards.metrics import ReportCRG
            >>> metric = ReportCRG()
            >>> scores = metric.score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
            >>> metric.add_scores(scores)
            >>> metric.compute()
            tensor(0.5000, dtype=torch.float64)
        """
        # torchmetrics does the same before `update`: it discards the cached value and counts the call.
        self._computed = None
        self._update_count += 1
        self._add(scores)

    def _add(self, scores: Scores) -> None:
        # Not in place: a state that was made in inference mode cannot be changed in place.
        self.num_unscorable = self.num_unscorable + int((~scores.scored).sum())
        self._accumulate(scores)

    def _accumulate(self, scores: Scores) -> None:
        """Add scores to the default states, if the metric has them."""
        if self._parts is None:
            return
        scored = scores.scored
        self.score_sum = self.score_sum + scores.value[scored].sum().to(self.device)
        self.num_scored = self.num_scored + int(scored.sum())
        if self._parts:
            self.part_sums = self.part_sums + score_sums(scores, self._parts).to(self.device)

    def compute(self) -> Tensor:
        """Mean score of the pairs scored so far: float64 scalar; NaN, with a warning, if all pairs are unscorable."""
        self._warn_if_unscored()
        return self.score_sum / self.num_scored

    def _warn_if_unscored(self) -> None:
        """Warn if all pairs are unscorable."""
        if not self.num_scored and self.num_unscorable:
            rank_zero_warn(
                f"{self.name} is NaN, because none of {int(self.num_unscorable)} report pairs could be scored: "
                f"{self._unscorable_reasons()}",
                UserWarning,
            )

    def _unscorable_reasons(self) -> str:
        """Describe why pairs are unscorable, for the warning."""
        return "a prediction is missing, or a reference is missing or blank"

    def statistics(self) -> dict[str, Tensor]:
        """Means of the sub-scores over the scored pairs, synced over processes as in ``compute``.

        Returns:
            float64 scalars by name; NaN if no pair is scored.
        """
        with self._synced():
            means = self.part_sums / self.num_scored if self._parts else ()
        return dict(zip(self._parts or (), means, strict=True))


_OF_TORCHMETRICS = (
    *("compute_on_cpu", "dist_sync_on_step", "process_group", "dist_sync_fn", "distributed_available_fn"),
    *("sync_on_compute", "compute_with_cache"),
)


def _check_spelling(further: Mapping[str, Any], cls: type) -> None:
    """Raise a ValueError for an unknown option among the arguments of torchmetrics, which names no known ones."""
    parameters = inspect.signature(cls).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    for name in further:
        # A subclass may declare an argument of torchmetrics itself, such as sync_on_compute, and pass it on.
        if name not in {*known, *_OF_TORCHMETRICS}:
            raise ValueError(unknown_name_message(f"argument of {cls.__name__}", name, known))
