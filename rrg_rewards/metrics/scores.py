"""Per-report scores of a metric, and weights of their sub-scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.schemas.scoring import is_number
from rrg_rewards.utilities.names import shown, unknown_name_message

# Index of a pair that has no score.
_ABSENT = -1


@dataclass(frozen=True, repr=False)
class Scores:
    """Per-report scores of ``N`` report pairs.

    Args:
        value: Score, float tensor ``(N,)``; NaN if a pair is unscorable.
        details: Sub-scores by name, each a float tensor ``(N,)``; NaN if a pair is unscorable.

    Raises:
        TypeError: If scores or sub-scores are not a float tensor.
        ValueError: If they are not ``(N,)``, or infinite, naming the row.

    Example:
        >>> import torch
        >>> Scores(torch.tensor([0.5, float("nan")])).scored
        tensor([ True, False])
    """

    value: Tensor
    details: Mapping[str, Tensor] = field(default_factory=dict)

    # What the score of a report is called if the metric is a score of a corpus only.
    report_value: ClassVar[str] = ""

    # Names of the further fields with one value for each pair: tensors ``(N, ...)``, tuples, scores, mappings of these,
    # or None.
    _row_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _check_scores("value", self.value)
        for name, detail in self.details.items():
            _check_scores(f"details[{name!r}]", detail, len(self.value))

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        """Describe the scores without texts and tensors, of which there may be thousands."""
        scored = self.value[self.scored]
        mean = f", mean {float(scored.double().mean()):.4g}" if len(scored) else ""
        details = f"; details: {', '.join(self.details)}" if self.details else ""
        return f"<{type(self).__name__} of {len(self)} report pairs, {len(scored)} scored{mean}{details}>"

    @property
    def scored(self) -> Tensor:
        """Whether each pair has a score: bool tensor ``(N,)``."""
        return ~self.value.isnan()

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Descriptions of the errors of each report: columns of ``N`` texts by name."""
        return {}

    @property
    def failures(self) -> dict[str, Tensor]:
        """Pairs on which a judge failed, by kind of failure: bool tensors ``(N,)``; empty without a judge."""
        return {}

    @property
    def judges(self) -> list[str]:
        """Name of the judge of each pair if several judges share the pairs, else no names."""
        return []

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Statistics whose sums determine the corpus value: tensors with one row for each scored pair."""
        return (self.value[self.scored],)

    def corpus_value(self, num_scored: Tensor, *sums: Tensor) -> Tensor:
        """Compute the corpus value from the sums of :attr:`sufficient_statistics`; by default, the mean score.

        The one formula of :meth:`aggregate`, :meth:`aggregate_weighted` and the bootstrap. A metric whose corpus value
        is not the mean overrides this method, and ``sufficient_statistics`` if the sums of the scores do not suffice.

        Args:
            num_scored: Number of scored pairs, ``(...)``.
            sums: Sum of each tensor of statistics, ``(..., *S)`` for statistics of the shape ``(N, *S)``.

        Returns:
            ``(...)``; NaN if the value is undefined.
        """
        return sums[0] / num_scored

    @property
    def corpus_rule(self) -> str:
        """How the corpus value follows from the reports, in one sentence; empty if it is the mean of their scores."""
        return ""

    def corpus_parts(self, *sufficient_statistics: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 (for subclasses)
        """Return further values of the corpus by name, from :attr:`sufficient_statistics` of at least one pair."""
        return {}

    def aggregate(self, *sufficient_statistics: Tensor) -> Tensor:
        """Compute the corpus value from :attr:`sufficient_statistics`: a scalar, NaN if it is undefined.

        ``scores.aggregate(*scores.sufficient_statistics)`` equals ``compute`` after ``update`` with the same pairs.
        With resampled rows, the result is a bootstrap replicate.

        Example:
            >>> import torch
            >>> scores = Scores(torch.tensor([0.5, float("nan"), 1.0]))
            >>> scores.aggregate(*scores.sufficient_statistics)
            tensor(0.7500, dtype=torch.float64)
        """
        # Sums of counts are exact in their own types.
        sums = (one.double().sum(0) if one.is_floating_point() else one.sum(0) for one in sufficient_statistics)
        first = sufficient_statistics[0]
        return self.corpus_value(torch.tensor(len(first), device=first.device), *sums)

    def aggregate_weighted(self, weights: Tensor, *sufficient_statistics: Tensor) -> Tensor:
        """Compute :meth:`aggregate` for several weightings of the rows; a row of weight w counts as w equal rows.

        For a subclass that overrides :meth:`aggregate`, because its corpus value is no function of sums, the rows are
        repeated, which is slower.

        Args:
            weights: Whole numbers ``(B, N)``.
            sufficient_statistics: Tensors with ``N`` rows.

        Returns:
            ``(B,)`` float64.

        Example:
            >>> import torch
            >>> scores = Scores(torch.tensor([0.5, 1.0]))
            >>> scores.aggregate_weighted(torch.tensor([[1, 1], [0, 3]]), *scores.sufficient_statistics)
            tensor([0.7500, 1.0000], dtype=torch.float64)
        """
        if type(self).aggregate is Scores.aggregate:
            weights = weights.double()
            # Sums of whole numbers are exact in float64.
            return self.corpus_value(weights.sum(-1), *(weights @ one.double() for one in sufficient_statistics))
        times = weights.long()
        return torch.stack(
            [self.aggregate(*(column.repeat_interleave(row, 0) for column in sufficient_statistics)) for row in times]
        )

    def expand(self, rows: Tensor) -> Self:
        """Return scores of ``N`` pairs: these scores in the rows where ``rows`` (bool, ``(N,)``) is true, else NaN."""
        if bool(rows.all()):
            # In one piece, as taken rows are: torch adds the numbers of a column in another order if they lie apart.
            return replace(self, details={name: values.contiguous() for name, values in self.details.items()})
        return self.take(torch.where(rows, rows.cumsum(0) - 1, _ABSENT))

    def take(self, rows: Tensor) -> Self:
        """Return the scores of the pairs with the indices ``rows`` (int64, ``(M,)``), in this order.

        The index -1 stands for a pair that has no score.

        Example:
            >>> import torch
            >>> Scores(torch.tensor([0.5, 1.0])).take(torch.tensor([1, -1, 0])).value
            tensor([1.0000,    nan, 0.5000])
        """
        further = {name: _taken(getattr(self, name), rows, 0) for name in self._row_fields}
        return replace(
            self, value=_taken(self.value, rows, torch.nan), details=_taken(self.details, rows, torch.nan), **further
        )

    def joined(self, others: Sequence[Self]) -> Self:
        """Return the scores of these pairs and then those of others, all of one metric.

        Example:
            >>> import torch
            >>> Scores(torch.tensor([0.5])).joined([Scores(torch.tensor([1.0]))]).value
            tensor([0.5000, 1.0000])
        """
        names = ("value", "details", *self._row_fields)
        return replace(self, **{name: _joined([getattr(part, name) for part in (self, *others)]) for name in names})


def _taken(values: Any, rows: Tensor, absent: float) -> Any:
    """Return the values of pairs by their indices: ``absent`` in tensors, and ``None`` in tuples, for the index -1."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: _taken(one, rows, absent) for name, one in values.items()}
    if isinstance(values, Scores):
        return values.take(rows)
    if isinstance(values, tuple):
        return tuple(None if row == _ABSENT else values[row] for row in rows.tolist())
    taken = values.new_full((len(rows), *values.shape[1:]), absent)
    known = rows != _ABSENT
    taken[known] = values[rows[known]]
    return taken


def _joined(parts: Sequence[Any]) -> Any:
    """Return the values of several parts as one."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Mapping):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, Scores):
        return first.joined(parts[1:])
    return torch.cat(list(parts)) if isinstance(first, Tensor) else tuple(item for part in parts for item in part)


def _check_scores(name: str, scores: Tensor, length: int | None = None) -> None:
    """Check that scores are floats of the shape ``(N,)``, finite or NaN."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        found = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"{name} of Scores must be a float tensor, got {found}")
    if scores.ndim != 1 or length not in (None, len(scores)):
        raise ValueError(f"{name} of Scores must have shape ({length or 'N'},), got {tuple(scores.shape)}")
    infinite = scores.isinf().nonzero().flatten().tolist()
    if infinite:
        row = infinite[0]
        raise ValueError(f"{name}[{row}] of Scores is {float(scores[row])}; use NaN for a pair that has no score")


def score_sums(scores: Scores, names: Sequence[str]) -> Tensor:
    """Return the sum of each named sub-score over the scored pairs: ``(len(names),)``."""
    return torch.stack([scores.details[name][scores.scored].sum() for name in names])


def named_weights(given: Mapping[str, Any], known: Sequence[str], kind: str, default: float) -> tuple[float, ...]:
    """Return weights in the order of all names.

    Args:
        given: Weights by name.
        known: All names.
        kind: Kind of the names, for messages.
        default: Weight of the names that are not in ``given``.

    Raises:
        ValueError: If a name is unknown, or a weight is not a finite number of at least 0.

    Example:
        >>> named_weights({"wrong_location": 2}, ["false_finding", "wrong_location"], "error category", 1.0)
        (1.0, 2.0)
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"weights must be numbers by {kind}, got {type(given).__name__}")
    for name, weight in given.items():
        if name not in known:
            raise ValueError(unknown_name_message(kind, str(name), known))
        if not is_number(weight) or not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {name!r} must be finite and at least 0, got {shown(weight)}")
    return tuple(float(given.get(name, default)) for name in known)
