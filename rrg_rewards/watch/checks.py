"""What a policy is watched for: each check compares the last reports of a run with its first and with references."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rrg_rewards.watch.counts import Block
from rrg_rewards.watch.statistics import Estimate, agreement, estimate, spread, upper_tail

__all__ = ["Check", "Divergence", "Drift", "RunView", "Verdict", "default_checks"]


@dataclass(frozen=True)
class RunView:
    """The parts of a run that checks compare.

    Args:
        baseline: Blocks of the starting policy.
        earlier: Windows that neither overlap each other nor the last one, the starting policy's first.
        window: The last blocks.
        alpha: Probability of a false alarm that one comparison may have.
    """

    baseline: Sequence[Block]
    earlier: Sequence[Sequence[Block]]
    window: Sequence[Block]
    alpha: float

    def names(self, pattern: str) -> list[str]:
        """Names of the series that a pattern means: itself, or all that follow ``/`` where it ends in ``/*``."""
        if not pattern.endswith("/*"):
            return [pattern] if any(pattern in block.sums for block in self.window) else []
        names = dict.fromkeys(name for block in self.window for name in block.sums)
        return [name for name in names if name.startswith(pattern[:-1])]


@dataclass(frozen=True)
class Verdict:
    """What a check says of one cause.

    Args:
        check: Name of the check.
        subject: Which label, reward or pair of reward and metric it is about; empty where there is one only.
        fired: Whether it is an alarm.
        severity: How far it went: 1 where an alarm begins.
        step: Step at which it was said.
        numbers: What it rests on, by name.
        message: The same in words.
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
        """What the alarm is about: the check, and its subject."""
        return f"{self.check} ({self.subject})" if self.subject else self.check

    def to_dict(self) -> dict[str, Any]:
        """Itself as plain data."""
        return {**asdict(self), "cause": self.cause}


class Check(ABC):
    """Something a policy is watched for."""

    name: str

    @abstractmethod
    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Verdicts, one for each subject that enough is known about."""


@dataclass(frozen=True)
class Drift(Check):
    r"""A number of the completions that moves away from the start and from the references.

    With the mean :math:`w` of the last reports, :math:`b` of the first ones and :math:`r` of the references of the last
    ones, a rise is an alarm where surely :math:`w > f \max(b, r) + m`, and a fall where surely
    :math:`w < f \min(b, r) - m`: a policy that moves towards the references is never blamed for it. Sure is what
    Welch's t-test over blocks of reports puts at a smaller probability of a false alarm than the watch allows.

    Args:
        name: Name of the check.
        series: What is counted, such as ``"words"``; with ``/*`` at its end each of several, such as
            ``"positives/*"``.
        direction: ``"rise"`` or ``"fall"``.
        factor: :math:`f`, at least 1 for a rise, in (0, 1] for a fall.
        margin: :math:`m`, at least 0.
        share: Whether it is a share of cases.
        what: What the number is, in words.

    Raises:
        ValueError: If factor or margin are out of range, or both leave no room.
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
        """Verdicts, one for each series."""
        for name in run.names(f"completions/{self.series}"):
            own, first = (estimate(blocks, name, self.share) for blocks in (run.window, run.baseline))
            reference = estimate(run.window, name.replace("completions/", "references/", 1), self.share)
            if own is not None and first is not None:
                subject = (
                    name.removeprefix(f"completions/{self.series.removesuffix('*')}") if "*" in self.series else ""
                )
                yield self._verdict(own, first, reference, subject, run.alpha, step)

    def _verdict(
        self, own: Estimate, first: Estimate, reference: Estimate | None, subject: str, alpha: float, step: int
    ) -> Verdict:
        rises = self.direction == "rise"
        sides = [first] if reference is None else [first, reference]
        bound = (max if rises else min)(sides, key=lambda side: side.mean)
        limit = self.factor * bound.mean + (self.margin if rises else -self.margin)
        if rises:
            chance = upper_tail(own, bound, self.factor, self.margin)
        else:
            # w < f b - m, written as b > (w + m) / f.
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
    r"""Goodhart's law: a trained reward that rises while a held-out metric falls.

    The last reports are compared with the first ones and with each earlier window, so that a metric that rose before it
    fell is seen. An alarm needs both, each surely and with the number of comparisons accounted for: the reward is
    higher, and the metric is lower; and that by more than ``drop`` of its standard deviation over reports, as measured.

    Args:
        drop: Least fall of the metric, in standard deviations of single reports.
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
        """Verdicts, one for each reward and metric: the comparison that says most."""
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
        together = agreement(run.window, reward, metric)
        numbers = {
            "reward_now": reward_now.mean,
            "reward_then": reward_then.mean,
            "metric_now": metric_now.mean,
            "metric_then": metric_then.mean,
            "p_reward": risen,
            "p_metric": fallen,
            "correlation": together,
            "then_step": float(earlier[-1].step),
        }
        message = (
            f"reward {reward} rose to {reward_now.mean:.3g} from {reward_then.mean:.3g} while {metric}, which is held "
            f"out, fell to {metric_now.mean:.3g} from {metric_then.mean:.3g} ({fall:.2g} standard deviations) since "
            f"step {earlier[-1].step}; p = {max(risen, fallen):.1g}"
            + ("" if math.isnan(together) else f", correlation of the two now {together:.2f}")
        )
        fired = risen < alpha and fallen < alpha and fall > self.drop
        severity = fall / self.drop if reward_now.mean > reward_then.mean else 0.0
        return Verdict(self.name, f"{reward}, {metric}", fired, severity, step, numbers, message)


def default_checks() -> tuple[Check, ...]:
    """The checks of a watch, with the limits that :mod:`docs/reward_watch.md` explains.

    Example:
        >>> [check.name for check in default_checks()][:3]
        ['longer', 'shorter', 'repeated_sentences']
    """
    return (
        Drift("longer", "words", "rise", factor=1.5, margin=3.0, what="words per report"),
        Drift("shorter", "words", "fall", factor=0.5, what="words per report"),
        Drift("repeated_sentences", "repeated_sentences", "rise", margin=0.1, share=True,
              what="share of sentences said before in the same report"),
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
        Drift("instructions", "instructions", "rise", margin=0.02, share=True,
              what="share of reports with instructions aimed at a judge"),
        Divergence(),
    )  # fmt: skip
