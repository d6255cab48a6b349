"""Correlations with correction for ties: Kendall's tau-b, Spearman's rho and Pearson's r.

All are computed for several weightings of the rows at once, where a row of integer weight w counts as w equal rows. A
bootstrap draw is such a weighting, by the number of times that a row was drawn. Kendall's tau and pairwise accuracy
count pairs of rows; Knight's algorithm counts them by merging, in ``O(N log N)``.

Source: Knight, "A Computer Method for Calculating Kendall's Tau with Ungrouped Data", 1966.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# Rows of a block are compared as a matrix, and blocks are merged. The matrix is faster up to about this size.
_BLOCK = 192

_Array = np.ndarray[Any, np.dtype[np.int64]]


def kendall_tau(preds: Tensor, target: Tensor) -> Tensor:
    r"""Compute Kendall's :math:`\tau_b` of two sequences.

    .. math::
        \tau_b = \frac{C - D}{\sqrt{(P - T_x)(P - T_y)}}

    with :math:`C` concordant and :math:`D` discordant of the :math:`P = N(N-1)/2` pairs of rows, and :math:`T_x`,
    :math:`T_y` pairs that are tied in ``preds`` and in ``target``. Counts are integers; the value does not depend on
    the order of rows. The time is :math:`O(N \log N)`.

    Args:
        preds: ``(N,)`` numbers.
        target: ``(N,)`` numbers.

    Returns:
        Scalar float64 in [-1, 1]; NaN if one side is constant or there are fewer than two rows.

    Raises:
        ValueError: If the shapes differ, are not one-dimensional, or a value is NaN.

    Example:
        >>> kendall_tau(torch.tensor([0.1, 0.9, 0.8, 2.0]), torch.tensor([0, 1, 1, 3]))
        tensor(0.9129, dtype=torch.float64)
    """
    _check(preds, target)
    return pair_counts(preds, target, torch.ones(1, len(preds))).tau()[0].to(preds.device)


def spearman_rho(preds: Tensor, target: Tensor) -> Tensor:
    r"""Compute Spearman's :math:`\rho` of two sequences: Pearson's correlation of their ranks.

    .. math::
        \rho = \frac{\sum_i (R_i - \bar R)(S_i - \bar S)}{\sqrt{\sum_i (R_i - \bar R)^2 \sum_i (S_i - \bar S)^2}}

    where equal values have the mean of their ranks. Arguments, range, NaN and errors are those of :func:`kendall_tau`.

    Example:
        >>> spearman_rho(torch.tensor([0.1, 0.9, 0.8, 2.0]), torch.tensor([0, 1, 1, 3]))
        tensor(0.9487, dtype=torch.float64)
    """
    _check(preds, target)
    if not len(preds):
        return torch.tensor(torch.nan, dtype=torch.float64, device=preds.device)
    weights = torch.ones(1, len(preds), dtype=torch.float64, device=preds.device)
    return weighted_pearson(weighted_ranks(preds)(weights), weighted_ranks(target)(weights), weights)[0]


def _check(preds: Tensor, target: Tensor) -> None:
    if preds.ndim != 1 or preds.shape != target.shape:
        raise ValueError(f"preds and target must both be (N,), got {tuple(preds.shape)} and {tuple(target.shape)}")
    if bool(preds.isnan().any()) or bool(target.isnan().any()):
        raise ValueError("preds and target must not contain NaN; remove unscorable rows")


def weighted_ranks(values: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function of weights that returns ranks, averaged over ties, up to a constant.

    Args:
        values: ``(N,)`` numbers.

    Returns:
        Function of ``(B, N)`` float64 weights that returns ``(B, N)`` float64. Integer weights repeat rows.

    Example:
        >>> weighted_ranks(torch.tensor([5.0, 7.0, 5.0]))(torch.ones(1, 3).double())
        tensor([[1.0000, 2.5000, 1.0000]], dtype=torch.float64)
    """
    kinds, kind = torch.unique(values, return_inverse=True)

    def ranks(weights: Tensor) -> Tensor:
        totals = weights.new_zeros(len(weights), len(kinds)).index_add_(1, kind, weights)
        return (totals.cumsum(1) - totals / 2)[:, kind]

    return ranks


def weighted_pearson(first: Tensor, second: Tensor, weights: Tensor) -> Tensor:
    r"""Compute Pearson's correlation for several weightings of the rows.

    .. math::
        r = \frac{\sum_i w_i (x_i - \bar x)(y_i - \bar y)}
            {\sqrt{\sum_i w_i (x_i - \bar x)^2 \sum_i w_i (y_i - \bar y)^2}}

    Args:
        first: ``(B, N)`` values.
        second: ``(B, N)`` values.
        weights: ``(B, N)`` weights, at least 0.

    Returns:
        ``(B,)`` in [-1, 1]; NaN if one side is constant over the rows with a positive weight.

    Example:
        >>> values, weights = torch.tensor([[1.0, 2.0, 3.0]]).double(), torch.tensor([[1, 1, 0], [1, 0, 0]]).double()
        >>> weighted_pearson(values.expand(2, 3), -values.expand(2, 3), weights)
        tensor([-1., nan], dtype=torch.float64)
    """
    centred = []
    for values in (first, second):
        known = weights > 0
        low, high = (values.masked_fill(~known, end).aminmax(dim=1) for end in (torch.inf, -torch.inf))
        constant = low.min == high.max
        mean = (weights * values).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        # Rounding of the mean must not make a constant side vary.
        centred.append(torch.where(constant[:, None], 0.0, values - mean))
    products = (weights * centred[0] * centred[1]).sum(1)
    spread = ((weights * centred[0] ** 2).sum(1) * (weights * centred[1] ** 2).sum(1)).sqrt()
    return torch.where(spread > 0, products / spread, torch.nan).clamp(-1, 1)


class PairCounts(NamedTuple):
    """Numbers of ordered pairs of rows for ``B`` weightings or permutations, ``(B,)`` float64.

    Each pair of rows is counted in both orders; the factor 2 cancels in :meth:`tau` and :meth:`accuracy`.

    Args:
        signed: Pairs that both columns order alike, minus those that they order differently.
        first: Pairs that differ in the first column.
        second: Pairs that differ in the second column.
    """

    signed: Tensor
    first: Tensor
    second: Tensor

    def tau(self) -> Tensor:
        r"""Return Kendall's :math:`\tau_b`; NaN if one column is constant."""
        defined = (self.first > 0) & (self.second > 0)
        return torch.where(defined, self.signed / (self.first * self.second).sqrt(), torch.nan)

    def accuracy(self) -> Tensor:
        """Return the share of pairs that differ in the second column and that the first column orders alike.

        Pairs that are tied in the first column count half. NaN if the second column is constant.
        """
        return torch.where(self.second > 0, (self.second + self.signed) / 2 / self.second, torch.nan)


def pair_counts(first: Tensor, second: Tensor, weights: Tensor, units: Tensor | None = None) -> PairCounts:
    """Count pairs of rows for several weightings of the rows, in ``O(B N log N)``.

    A pair has the product of the weights of both rows. With units only pairs of rows of one unit count, and once for
    each time that the unit counts: a unit that is drawn twice has twice its pairs, not four times.

    Args:
        first: ``(N,)`` numbers.
        second: ``(N,)`` numbers.
        weights: ``(B, N)`` weights, at least 0; with units, equal within a unit, or 0 and 1. Counts are exact for
            integers whose sum is below 2^26.
        units: ``(N,)`` integers that say which rows belong together; default: all rows do.

    Example:
        >>> counts = pair_counts(torch.tensor([1, 2, 3]), torch.tensor([1, 3, 2]), torch.tensor([[1, 1, 1], [1, 2, 0]]))
        >>> counts.signed, counts.first
        (tensor([2., 4.], dtype=torch.float64), tensor([6., 4.], dtype=torch.float64))
    """
    return PairCounter(first, second, units)(weights)


class PairCounter:
    """Counts pairs of rows as :func:`pair_counts`; what does not depend on the weights is computed once.

    Args:
        first: ``(N,)`` numbers.
        second: ``(N,)`` numbers.
        units: ``(N,)`` integers that say which rows belong together.

    Example:
        >>> counter = PairCounter(torch.tensor([1, 2, 3]), torch.tensor([1, 3, 2]))
        >>> counter(torch.tensor([[1, 1, 1]])).signed, counter(torch.tensor([[1, 2, 0]])).signed
        (tensor([2.], dtype=torch.float64), tensor([4.], dtype=torch.float64))
    """

    def __init__(self, first: Tensor, second: Tensor, units: Tensor | None = None) -> None:
        self._has_units = units is not None
        self._codes = _ranks_within(units, first, second)
        _, ours, theirs = self._codes
        order, self._both = _ordered(ours, theirs)
        self._rows, self._values = torch.from_numpy(order), theirs[order]
        self._plans: dict[int, _MergePlan] = {}

    def __call__(self, weights: Tensor) -> PairCounts:
        """Count the pairs for ``(B, N)`` weights."""
        weights = weights.double()
        # Within units, a pair has the weight of one of its rows if the other has any.
        alike = not self._has_units or (float(weights.max()) <= 1 and bool((weights == weights.round()).all()))
        others = weights if alike else (weights > 0).double()
        every, tied_first, tied_second = (_pairs_within(codes, weights, others) for codes in self._codes)
        weights, others = (moved := weights[:, self._rows]), moved if alike else others[:, self._rows]
        tied = _pairs_within(self._both, weights, others)
        discordant = self._plan(len(weights)).discordant(weights, others)
        untied = every - tied_first, every - tied_second
        return PairCounts(untied[0] - tied_second + tied - 4 * discordant, *untied)

    def _plan(self, weightings: int) -> "_MergePlan":
        """Return the merges for a number of weightings; few weightings are faster with small blocks."""
        block = min(_BLOCK, 16 * weightings)
        if block not in self._plans:
            self._plans[block] = _MergePlan(self._values, block)
        return self._plans[block]


def permuted_pair_counts(
    first: Tensor, second: Tensor, permutations: Tensor, units: Tensor | None = None
) -> PairCounts:
    """Count pairs of rows for several permutations of the second column, in ``O(B N log N)``.

    Args:
        first: ``(N,)`` numbers.
        second: ``(N,)`` numbers.
        permutations: ``(B, N)``; value ``permutations[b, i]`` of the second column moves to row ``i``. With units, it
            must be of the same unit as row ``i``.
        units: Units as in :func:`pair_counts`.

    Example:
        >>> permutations = torch.tensor([[0, 1, 2], [0, 2, 1]])
        >>> permuted_pair_counts(torch.tensor([1, 2, 3]), torch.tensor([1, 3, 2]), permutations).signed
        tensor([2., 6.], dtype=torch.float64)
    """
    owner, ours, theirs = _ranks_within(units, first, second)
    order = np.argsort(ours, kind="stable")
    kinds = int(theirs.max()) + 1
    # The first column in order; among equal values of it, the permuted second column in order.
    leading = ours[order] * kinds
    keys = np.sort(leading + theirs[_array(permutations)[:, order]], axis=1)
    every, tied_first, tied_second = (int((np.bincount(codes) ** 2).sum()) for codes in (owner, ours, theirs))
    signed = every - tied_first - tied_second + _pairs_of_runs(keys) - 4 * _permuted_discordant(keys - leading)
    untied = (torch.tensor(float(every - ties)).double().expand(len(keys)) for ties in (tied_first, tied_second))
    return PairCounts(torch.from_numpy(signed).double(), *untied)


def _array(values: Tensor) -> Any:
    # NumPy has no bfloat16.
    return (values.double() if values.is_floating_point() else values).detach().cpu().numpy()


def _ranks_within(units: Tensor | None, *columns: Tensor) -> list[_Array]:
    """Return the numbers of the units, and ranks of each column that grow from unit to unit; equal for equal values."""
    ranks = [_ranks(_array(column)) for column in columns]
    if units is None:
        return [np.zeros(len(ranks[0]), dtype=np.int64), *ranks]
    owner = _ranks(_array(units))
    return [owner, *(_ranks(owner * len(owner) + values) for values in ranks)]


def _ranks(values: Any) -> _Array:
    ranks: _Array = np.unique(values, return_inverse=True)[1]
    return ranks


def _ordered(first: _Array, second: _Array) -> tuple[_Array, _Array]:
    """Return the rows in the order of the first ranks, then of the second, and codes of the ordered pairs of ranks."""
    pairs = first * len(first) + second
    order = np.argsort(pairs, kind="stable")
    return order, np.diff(pairs[order], prepend=pairs[order][:1]).astype(bool).cumsum()


def _pairs_within(codes: _Array, weights: Tensor, others: Tensor) -> Tensor:
    """Return the weight of ordered pairs of rows with the same code, including pairs of a row with itself."""
    kinds = int(codes.max(initial=-1)) + 1
    index = torch.from_numpy(codes)

    def totals(values: Tensor) -> Tensor:
        if kinds in (1, len(codes)):
            return values if kinds > 1 else values.sum(1, keepdim=True)
        return values.new_zeros(len(values), kinds).index_add_(1, index, values)

    ours = totals(weights)
    pairs: Tensor = torch.linalg.vecdot(ours, ours if others is weights else totals(others))
    return pairs


class _MergePlan:
    """The inversions within blocks of rows, and the merges of the blocks.

    Args:
        values: Ranks of the rows in their order.
        block: Maximum number of rows of a block.
    """

    def __init__(self, values: _Array, block: int) -> None:
        self._known = len(values)
        self._size, width = _padded_size(len(values), block)
        merges = _merges(values[None], self._size, width)
        in_blocks = torch.from_numpy(next(merges)[0])
        ranks = torch.empty_like(in_blocks)
        ranks[in_blocks] = torch.arange(width).repeat(self._size // width)
        ranks = ranks.view(-1, width)
        upper = torch.ones(width, width, dtype=torch.bool).triu(1)
        self._inverted = ((ranks[:, :, None] > ranks[:, None]) & upper).double()
        self._width = width
        # For each merge, the places in the order of their values, and which of them are in the later half of a block.
        self._merges = []
        for merged in merges:
            places = torch.from_numpy(merged[0])
            self._merges.append((places, places // width % 2 == 1))
            width *= 2

    def discordant(self, weights: Tensor, others: Tensor) -> Tensor:
        """Return the weight of pairs of rows of which the earlier one has the greater value: ``(B,)``.

        A pair has the weight of the earlier row times the other weight of the later row.
        """

        def padded(one: Tensor) -> Tensor:
            return torch.nn.functional.pad(one, (0, self._size - self._known))

        alike, width = others is weights, self._width
        weights = padded(weights)
        others = weights if alike else padded(others)
        ours, theirs = (one.view(len(one), -1, width).transpose(0, 1) for one in (weights, others))
        total = ((ours @ self._inverted) * theirs).sum((0, 2))
        for places, later in self._merges:
            width *= 2
            ours = weights[:, places]
            theirs = ours if alike else others[:, places]
            # Sum for each row of the earlier half the weights of the later half before it.
            below = theirs.masked_fill(~later, 0).view(len(theirs), -1, width).cumsum(2).flatten(1)
            total += torch.linalg.vecdot(ours.masked_fill(later, 0), below)
        return total


def _permuted_discordant(values: _Array) -> _Array:
    """Return the number of pairs of places of which the earlier one has the greater value, for each row ``(B,)``."""
    total = np.zeros(len(values), dtype=np.int64)
    size, width = _padded_size(values.shape[1], 1)
    for merged in _merges(values, size, width):
        if width > 1:
            half = width // 2
            later = (merged & half) != 0
            # A value of the later half at place t among all, and j among the later half, has t - j earlier ones below.
            places = (later.reshape(len(values), -1, width) @ np.arange(width)).sum(1)
            total += size // width * (half * half + half * (half - 1) // 2) - places
        width *= 2
    return total


def _padded_size(rows: int, block: int) -> tuple[int, int]:
    """Return the number of places, and the width of at most ``block`` of which it is a multiple by a power of 2."""
    merges = max(-(-rows // block) - 1, 0).bit_length()
    width = max(-(-rows // 2**merges), 1)
    return width << merges, width


def _merges(values: _Array, size: int, width: int) -> Iterator[_Array]:
    """Yield the places ``(B, size)`` in the order of their values within blocks of growing width.

    Equal values keep the order of their places. Places from ``N`` on come last.
    """
    rows, known = values.shape
    bits = size.bit_length()
    keys = np.full((rows, size), int(values.max(initial=0)) + 1, dtype=np.int64)
    keys[:, :known] = values
    keys = (keys << bits) | np.arange(size)
    while width <= size:
        # Sorted numbers are much faster than a stable sort of indices.
        keys = np.sort(keys.reshape(-1, width), axis=1).reshape(rows, size)
        yield keys & ((1 << bits) - 1)
        width *= 2


def _pairs_of_runs(keys: _Array) -> _Array:
    """Return the number of ordered pairs of equal numbers in each sorted row, including pairs with themselves."""
    places = np.arange(keys.shape[1])
    starts = np.zeros_like(keys)
    starts[:, 1:] = np.where(keys[:, 1:] != keys[:, :-1], places[1:], 0)
    # The sum of the odd numbers up to 2 m - 1 is the square of m.
    pairs: _Array = (2 * (places - np.maximum.accumulate(starts, axis=1)) + 1).sum(1)
    return pairs
