"""The checks of a watch, which compare the latest reports of a run with the first reports and the references."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rrg_rewards.utilities.names import shown, unknown_name_message
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


def student_tail(t: float, degrees: int) -> float:
    r"""Return the upper tail :math:`P(T \ge t)` of Student's distribution.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.

    Args:
        t: The statistic.
        degrees: Degrees of freedom, at least 1.

    Example:
        >>> round(student_tail(2.228, degrees=10), 4)
        0.025
    """
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(max((1.0 - inside) / 2, 0.0), 1.0)


@dataclass(frozen=True)
class RunView:
    """The parts of a run that checks compare.

    Args:
        baseline: Blocks of the starting policy.
        earlier: Non-overlapping earlier windows, of which the first is the baseline.
        window: The latest blocks.
        alpha: Significance level of one comparison.
    """

    baseline: Sequence[Block]
    earlier: Sequence[Sequence[Block]]
    window: Sequence[Block]
    alpha: float

    def names(self, pattern: str) -> list[str]:
        """Return the names of the series that match a pattern, which is a name or a prefix with ``/*`` at the end."""
        if not pattern.endswith("/*"):
            return [pattern] if any(pattern in block.sums for block in self.window) else []
        names = dict.fromkeys(name for block in self.window for name in block.sums)
        return [name for name in names if name.startswith(pattern[:-1])]


@dataclass(frozen=True)
class Verdict:
    """The result of a check for one cause.

    Args:
        check: Name of the check.
        subject: The label, the reward, or the reward and the metric that the verdict is about; empty if the check has
            only one subject.
        fired: Whether the verdict is an alarm.
        severity: Size of the change divided by the change at which an alarm is raised.
        step: Step of the check.
        numbers: The compared numbers, by name.
        message: Description of the comparison.
    """

    check: str
    subject: str
    fired: bool
    severity: float
    step: int
    numbers: dict[str, float] = field(default_factory=dict)
    message: str = ""

    @property
    def cause(self) -> str:
        """Name of the check with the subject in parentheses."""
        return f"{self.check} ({self.subject})" if self.subject else self.check

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {**asdict(self), "cause": self.cause}


class Check(ABC):
    """Base class of checks."""

    name: str

    @abstractmethod
    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Yield verdicts, one for each subject with enough data."""


@dataclass(frozen=True)
class Drift(Check):
    r"""A check for a mean that moves away from the starting policy and from the references.

    Let :math:`w` be the mean of the latest reports, :math:`b` that of the first reports and :math:`r` that of the
    references of the latest reports. A rise is an alarm if :math:`w > f \max(b, r) + m`, and a fall is an alarm if
    :math:`w < f \min(b, r) - m`. A change towards the references is never an alarm. The inequality must be significant
    at the level :attr:`RunView.alpha` in Welch's t-test between blocks of reports.

    Args:
        name: Name of the check.
        series: Name of the counted series, such as ``"words"``. With ``/*`` at the end, all series of a group are
            checked, such as ``"positives/*"``.
        direction: ``"rise"`` or ``"fall"``.
        factor: :math:`f`, at least 1 for a rise, in (0, 1] for a fall.
        margin: :math:`m`, at least 0.
        share: Whether the series is a proportion.
        what: Description of the series.

    Raises:
        ValueError: If ``factor`` or ``margin`` is out of range, or ``factor`` is 1 and ``margin`` is 0.
    """

    name: str
    series: str
    direction: Literal["rise", "fall"]
    factor: float = 1.0
    margin: float = 0.0
    share: bool = False
    what: str = ""

    def __post_init__(self) -> None:
        rises = self.direction == "rise"
        if not (self.factor >= 1 if rises else 0 < self.factor <= 1) or self.margin < 0:
            raise ValueError(
                f"{self.name}: factor must be {'at least 1' if rises else 'in (0, 1]'} and margin at least 0, got "
                f"{self.factor} and {self.margin}"
            )
        if self.factor == 1 and not self.margin:
            raise ValueError(f"{self.name}: with factor 1 and margin 0 the smallest change is an alarm; set one")

    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Yield verdicts, one for each series."""
        for name in run.names(f"completions/{self.series}"):
            own, first = (estimate(blocks, name, self.share) for blocks in (run.window, run.baseline))
            reference = estimate(run.window, name.replace("completions/", "references/", 1), self.share)
            if own is not None and first is not None:
                subject = (
                    name.removeprefix(f"completions/{self.series.removesuffix('*')}") if "*" in self.series else ""
                )
                yield self.verdict(own, first, reference, subject, run.alpha, step)

    def verdict(
        self, own: Estimate, first: Estimate, reference: Estimate | None, subject: str, alpha: float, step: int
    ) -> Verdict:
        """Compare estimates of the latest reports, of the first reports and of the references."""
        rises = self.direction == "rise"
        sides = [first] if reference is None else [first, reference]
        bound = (max if rises else min)(sides, key=lambda side: side.mean)
        limit = self.factor * bound.mean + (self.margin if rises else -self.margin)
        if rises:
            chance = upper_tail(own, bound, self.factor, self.margin)
        else:
            # w < f b - m is equivalent to b > (w + m) / f.
            chance = upper_tail(bound, own, 1 / self.factor, self.margin / self.factor)
        room = abs(limit - bound.mean)
        severity = ((own.mean - bound.mean) if rises else (bound.mean - own.mean)) / room if room else 0.0
        numbers = {"now": own.mean, "start": first.mean, "limit": limit, "p": chance}
        numbers |= {} if reference is None else {"references": reference.mean}
        compared = f"{first.mean:.3g} at the start" + (
            "" if reference is None else f", {reference.mean:.3g} in references"
        )
        about = f"{self.what}{f' ({subject})' if subject else ''}"
        message = f"{about}: {own.mean:.3g}, {compared}; limit {limit:.3g}, p = {chance:.1g}"
        fired = chance < alpha and severity > 1
        return Verdict(self.name, subject, fired, severity, step, numbers, message)


@dataclass(frozen=True)
class Divergence(Check):
    r"""A check for a trained reward that rises while a held-out metric falls (Goodhart's law).

    The latest reports are compared with the first reports and with each earlier window. The latter comparisons detect a
    metric that rose before it fell. An alarm is raised if the reward is higher and the metric is lower, both
    significantly after correction for the number of comparisons, and the metric fell by more than ``drop`` standard
    deviations over reports.

    Args:
        drop: Minimum fall of the metric in standard deviations over reports.
        name: Name of the check.

    Raises:
        ValueError: If ``drop`` is not positive.
    """

    drop: float = 0.2
    name: str = "divergence"

    def __post_init__(self) -> None:
        if not self.drop > 0:
            raise ValueError(f"{self.name}: drop must be positive, got {self.drop}")

    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Yield verdicts, one for each pair of reward and metric: that of the comparison with the highest severity."""
        for reward in run.names("rewards/*"):
            for metric in run.names("metrics/*"):
                compared = [
                    verdict
                    for blocks in run.earlier
                    if (verdict := self._verdict(run, blocks, reward[8:], metric[8:], step)) is not None
                ]
                if compared:
                    yield max(compared, key=lambda verdict: (verdict.fired, verdict.severity))

    def _verdict(self, run: RunView, earlier: Sequence[Block], reward: str, metric: str, step: int) -> Verdict | None:
        estimates = [
            estimate(blocks, name)
            for name in (f"rewards/{reward}", f"metrics/{metric}")
            for blocks in (run.window, earlier)
        ]
        deviation = spread([*earlier, *run.window], "metrics", metric)
        if any(one is None for one in estimates) or not deviation:
            return None
        reward_now, reward_then, metric_now, metric_then = (one for one in estimates if one is not None)
        risen = upper_tail(reward_now, reward_then)
        fallen = upper_tail(metric_then, metric_now)
        fall = (metric_then.mean - metric_now.mean) / deviation
        alpha = run.alpha / len(run.earlier)
        numbers = {
            "reward_now": reward_now.mean,
            "reward_then": reward_then.mean,
            "metric_now": metric_now.mean,
            "metric_then": metric_then.mean,
            "p_reward": risen,
            "p_metric": fallen,
            "then_step": float(earlier[-1].step),
        }
        message = (
            f"reward {reward} rose to {reward_now.mean:.3g} from {reward_then.mean:.3g} while {metric}, which is held "
            f"out, fell to {metric_now.mean:.3g} from {metric_then.mean:.3g} ({fall:.2g} standard deviations) since "
            f"step {earlier[-1].step}; p = {max(risen, fallen):.1g}"
        )
        fired = risen < alpha and fallen < alpha and fall > self.drop
        severity = fall / self.drop if reward_now.mean > reward_then.mean else 0.0
        return Verdict(self.name, f"{reward}, {metric}", fired, severity, step, numbers, message)


@dataclass(frozen=True)
class SentenceFrames(Check):
    r"""A check for reports that are more and more made of one frame, whatever its slots contain, or are all the same.

    The frame of a sentence is the sentence with its findings, places, descriptions and numbers replaced by slots; see
    :func:`rrg_rewards.watch.text_counts.sentence_frame`. A whole report, without the values of numbers, is compared
    like a frame. Let :math:`w` be the number of sentences with the frame per report in the latest reports, :math:`b`
    that in the first reports and :math:`r` that in the references of the latest reports. The alarm is raised if
    :math:`w > \max(b, r) + m`, significantly. The watch stores hashes of frames and cannot name them.

    Args:
        margin: :math:`m`, in (0, 1).
        name: Name of the check.

    Raises:
        ValueError: If ``margin`` is out of range.
    """

    margin: float = 0.07
    name: str = "sentence_frames"

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"{self.name}: margin must be in (0, 1), got {self.margin}")

    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Yield one verdict: that of the frame that rose most."""
        if not any(block.frames for block in run.baseline):
            # The checkpoint was written before frames were counted.
            return
        sides = (("completions", run.window), ("completions", run.baseline), ("references", run.window))
        now, start, references = (_frame_rates(blocks, side) for side, blocks in sides)
        rises = {frame: rate - max(start.get(frame, 0.0), references.get(frame, 0.0)) for frame, rate in now.items()}
        # The test takes longer, and can only be an alarm where the rise exceeds the margin.
        largest = max(rises.values(), default=0.0)
        tested = [frame for frame, rise in rises.items() if rise > self.margin or rise == largest]
        verdicts = [verdict for frame in tested if (verdict := self._verdict(run, frame, step)) is not None]
        if verdicts:
            yield max(verdicts, key=lambda verdict: (verdict.fired, verdict.severity))

    def _verdict(self, run: RunView, frame: str, step: int) -> Verdict | None:
        now, start = (_frame_estimate(blocks, "completions", frame) for blocks in (run.window, run.baseline))
        if now is None or start is None:
            return None
        reference = _frame_estimate(run.window, "references", frame)
        drift = Drift(self.name, "frames", "rise", margin=self.margin, what="sentences with one frame per report")
        return drift.verdict(now, start, reference, "", run.alpha, step)


def _frame_rates(blocks: Sequence[Block], side: str) -> dict[str, float]:
    """Return the sentences with each frame per report."""
    reports = math.fsum(block.ratio(f"{side}/words")[1] for block in blocks)
    totals: dict[str, float] = {}
    for block in blocks:
        for frame, count in block.frames.get(side, {}).items():
            totals[frame] = totals.get(frame, 0.0) + count
    return {frame: total / reports for frame, total in totals.items()}


def _frame_estimate(blocks: Sequence[Block], side: str, frame: str) -> Estimate | None:
    """Estimate the sentences with a frame per report; blocks that do not list it contain it nowhere."""
    counted = [
        Block(block.step, block.reports,
              {frame: (block.frames.get(side, {}).get(frame, 0.0), block.ratio(f"{side}/words")[1])})
        for block in blocks
    ]  # fmt: skip
    # A rate that is below 1 varies at least as much as a share.
    return estimate(counted, frame, share=True)


def default_checks() -> tuple[Check, ...]:
    """Return the default checks of a watch, which ``docs/reward_design.md`` describes.

    Example:
        >>> [check.name for check in default_checks()][:3]
        ['longer', 'shorter', 'repeated_sentences']
    """
    return (
        Drift("longer", "words", "rise", factor=1.5, margin=3.0, what="words per report"),
        Drift("shorter", "words", "fall", factor=0.5, what="words per report"),
        Drift("repeated_sentences", "repeated_sentences", "rise", margin=0.05, share=True,
              what="share of sentences that repeat one in the same report"),
        Drift("less_distinct", "distinct_ngrams", "fall", factor=0.5,
              what="share of different n-grams over reports"),
        Drift("same_report", "distinct_reports", "fall", factor=0.5, what="share of different reports"),
        Drift("normal_reports", "normal_reports", "rise", margin=0.2, share=True,
              what="share of reports without a finding where the reference has one"),
        Drift("more_positives", "positives", "rise", factor=2.0, margin=0.5, what="positive labels per report"),
        Drift("fewer_positives", "positives", "fall", factor=0.5, what="positive labels per report"),
        Drift("overcalled", "positives/*", "rise", factor=2.0, margin=0.1, share=True,
              what="share of reports with the label"),
        Drift("undercalled", "positives/*", "fall", factor=0.25, share=True, what="share of reports with the label"),
        Drift("judge_failures", "failed/*", "rise", margin=0.1, share=True,
              what="share of reports that the judge failed on"),
        Drift("unscorable", "unscorable/*", "rise", margin=0.1, share=True,
              what="share of reports without a reward"),
        Drift("repeating_reports", "repeating_reports", "rise", margin=0.05, share=True,
              what="share of reports in which sentences follow themselves"),
        SentenceFrames(),
        Drift("unread_words", "unread_words", "rise", factor=1.5, margin=0.03, share=True,
              what="share of words that the rules have not read"),
        Divergence(),
    )  # fmt: skip


def change_checks(checks: Sequence[Check], limits: Mapping[str, Mapping[str, Any] | bool]) -> tuple[Check, ...]:
    """Return the checks with changed arguments.

    Args:
        checks: The checks.
        limits: New arguments by name of the check; ``False`` removes the check.

    Raises:
        ValueError: If a check or an argument is unknown; the message names the nearest known one.

    Example:
        >>> change_checks(default_checks(), {"longer": {"factor": 2.0}})[0].factor
        2.0
    """
    by_name = {check.name: check for check in checks}
    for name, change in limits.items():
        if name not in by_name:
            raise ValueError(unknown_name_message("check", name, [check.name for check in checks]))
        if change is False:
            del by_name[name]
        elif isinstance(change, Mapping):
            known = [key for key in vars(by_name[name]) if key != "name"]
            for key in change:
                if key not in known:
                    raise ValueError(unknown_name_message(f"limit of check {name!r}", key, known))
            by_name[name] = replace(by_name[name], **change)  # type: ignore[type-var]  # checks are dataclasses
        elif change is not True:
            raise ValueError(f"limits[{name!r}] must be a mapping, or false to omit the check, got {shown(change)}")
    return tuple(by_name.values())


def get_stopping_checks(stop: bool | Collection[str], names: Sequence[str]) -> frozenset[str]:
    """Return the names of the checks whose alarms stop the run. ``True`` selects all checks.

    Raises:
        ValueError: If a name is unknown; the message names the nearest known one.
    """
    if isinstance(stop, bool):
        return frozenset(names if stop else ())
    wanted = [stop] if isinstance(stop, str) else list(stop)
    for name in wanted:
        if name not in names:
            raise ValueError(unknown_name_message("check", name, names))
    return frozenset(wanted)
