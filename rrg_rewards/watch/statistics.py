"""Ratios of sums with standard errors, and a test whether one ratio is higher than another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rrg_rewards.functional.significance_tests import student_tail
from rrg_rewards.watch.counts import Block


@dataclass(frozen=True)
class Estimate:
    """An estimate of a ratio from blocks.

    Args:
        mean: The ratio of the sums.
        error: Standard error of the ratio, from the variation between blocks.
        blocks: Number of blocks with a count.
    """

    mean: float
    error: float
    blocks: int


def estimate(blocks: Sequence[Block], name: str, share: bool = False) -> Estimate | None:
    r"""Estimate the ratio of a series over blocks, with the standard error of a ratio of cluster totals.

    .. math::
        \hat R = \frac{\sum_b y_b}{\sum_b x_b}, \qquad
        \widehat{\mathrm{se}}^2 = \frac{k}{k - 1} \frac{\sum_b (y_b - \hat R x_b)^2}{(\sum_b x_b)^2}

    Completions of one prompt and of one step are correlated. Blocks of whole steps account for this correlation.

    Args:
        blocks: Blocks of the run.
        name: Name of the series.
        share: Whether the ratio is a proportion. Its standard error is then at least that of independent draws, which
            is positive even for a proportion of 0 or 1.

    Returns:
        The estimate; ``None`` if fewer than two blocks have a count.

    Example:
        >>> blocks = [Block(step, 4, {"words": (words, 4.0)}) for step, words in enumerate((40.0, 44.0, 48.0))]
        >>> estimate(blocks, "words")
        Estimate(mean=11.0, error=0.577..., blocks=3)
    """
    pairs = [pair for pair in (block.ratio(name) for block in blocks) if pair[1] > 0]
    if len(pairs) < 2:
        return None
    total = math.fsum(count for _, count in pairs)
    mean = math.fsum(value for value, _ in pairs) / total
    squares = math.fsum((value - mean * count) ** 2 for value, count in pairs)
    variance = len(pairs) / (len(pairs) - 1) * squares / total**2
    if share:
        likely = (mean * total + 1) / (total + 2)
        variance = max(variance, likely * (1 - likely) / (total + 2))
    return Estimate(mean, math.sqrt(variance), len(pairs))


def spread(blocks: Sequence[Block], kind: str, name: str) -> float:
    """Return the standard deviation of the values of a reward or metric in the blocks; 0 if all are equal."""
    (total, count), squares = _sum(blocks, f"{kind}/{name}"), _sum(blocks, f"{kind}_squared/{name}")[0]
    return math.sqrt(max(squares / count - (total / count) ** 2, 0.0)) if count else 0.0


def _sum(blocks: Sequence[Block], name: str) -> tuple[float, float]:
    pairs = [block.ratio(name) for block in blocks]
    return math.fsum(value for value, _ in pairs), math.fsum(count for _, count in pairs)


def upper_tail(above: Estimate, below: Estimate, factor: float = 1.0, offset: float = 0.0) -> float:
    r"""Compute the one-sided p-value of Welch's t-test that ``above`` exceeds ``factor * below + offset``.

    Args:
        above: The estimate that is tested to be higher.
        below: The other estimate.
        factor: Factor of ``below``.
        offset: Offset of ``below``.

    Returns:
        Probability of an equal or a larger difference under the null hypothesis.

    Example:
        >>> round(upper_tail(Estimate(12.0, 0.5, 5), Estimate(10.0, 0.5, 5)), 4)
        0.0111
    """
    difference = above.mean - (factor * below.mean + offset)
    variances = (above.error**2, (factor * below.error) ** 2)
    total = sum(variances)
    # Treat a variance of the size of rounding errors as 0.
    if total <= (1e-12 * (abs(above.mean) + abs(below.mean))) ** 2:
        return 0.0 if difference > 1e-9 * (abs(above.mean) + abs(below.mean)) else 1.0
    freedom = total**2 / sum(
        variance**2 / (part.blocks - 1) for variance, part in zip(variances, (above, below), strict=True)
    )
    return student_tail(difference / math.sqrt(total), max(int(freedom), 1))
