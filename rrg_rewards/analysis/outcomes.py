"""Outcomes of a run: how many report pairs have a score, on how many a judge failed, and what the judges have used."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rrg_rewards.judges.base import Judge, JudgeWarning
from rrg_rewards.judges.server.usage import UsageMeter
from rrg_rewards.utilities.run_log import RunLog

if TYPE_CHECKING:
    # Labelling uses this module, but no metric.
    from rrg_rewards.metrics.base import ReportMetric
    from rrg_rewards.metrics.scores import Scores


class PairCounts:
    """Counts the scored pairs of a metric, and the failures of its judge.

    Example:
        >>> import torch
        >>> from rrg_rewards.metrics.scores import Scores
        >>> counts = PairCounts()
        >>> counts.add(Scores(torch.tensor([0.5, float("nan")])))
        >>> counts.pairs, counts.scored, counts.error("crg")
        (2, 1, None)
    """

    def __init__(self) -> None:
        self.pairs = 0
        self.scored = 0
        self.failed: Counter[str] = Counter()
        """Number of failures by kind, with those that did not occur; empty for a metric without a judge."""
        self.first_failure = ""
        """Kind and reason of the first failure."""
        self.judged_by: Counter[str] = Counter()
        """Number of pairs by the name of their judge, if several judges share the pairs."""

    def add(self, scores: "Scores") -> None:
        """Add the scores of a batch."""
        self.pairs += len(scores)
        self.scored += int(scores.scored.sum())
        # `update` also adds 0, so that every kind of failure has a count.
        self.failed.update({kind: int(rows.sum()) for kind, rows in scores.failures.items()})
        self.judged_by.update(filter(None, scores.judges))
        if not self.first_failure and any(self.failed.values()):
            self.first_failure = next(filter(None, scores.explanations.get("failure", ())), "")

    def warning(self, name: str) -> str | None:
        """Return a warning of the failures, by kind, or that no pair is scorable; ``None`` if there is no reason.

        Args:
            name: Name of the metric.
        """
        if failed := self.failed.total():
            return (
                f"the judge of {name} failed on {failed} of {self.pairs} report pairs ({by_kind(self.failed)}); the "
                f"first: {self.first_failure}"
            )
        if self.pairs and not self.scored:
            return f"{name} has no value: all {self.pairs} report pairs are unscorable"
        return None

    def error(self, name: str) -> str | None:
        """Return what is wrong if no pair has a score because a judge failed; else ``None``.

        Args:
            name: Name of the metric.
        """
        failed = self.failed.total()
        if self.scored or not failed:
            return None
        return (
            f"{name}: no report pair has a score, because the judge failed on {failed} of {self.pairs}; the first: "
            f"{self.first_failure}"
        )


def by_kind(failed: Mapping[Any, int]) -> str:
    """Return the numbers of failures as text, without the kinds that did not occur.

    Example:
        >>> by_kind({"deadline": 2, "malformed": 0, "refused": 1})
        'deadline 2, refused 1'
    """
    return ", ".join(f"{kind} {count}" for kind, count in failed.items() if count)


def all_errors(counts: Mapping[str, PairCounts]) -> tuple[str, ...]:
    """Return the errors of the metrics whose judge failed so that no pair has a score; see :meth:`PairCounts.error`."""
    return tuple(error for name, one in counts.items() if (error := one.error(name)) is not None)


class RunUsage:
    """Counts what the judges of several users, such as metrics, use from now on.

    A judge that several users share is counted once, with the first of them.

    Args:
        judges: For each user, its judges by what they do.

    Example:
        >>> from rrg_rewards.judges import OpenAIJudge
        >>> RunUsage({"crimson": {"judge": OpenAIJudge("m")}}).to_dict("crimson")["judge"]["calls"]
        0
    """

    def __init__(self, judges: Mapping[str, Mapping[str, Judge]]) -> None:
        self._users: dict[int, list[str]] = {}
        self._judges = {
            user: {role: judge for role, judge in own.items() if self._is_first(user, judge)}
            for user, own in judges.items()
        }
        self._meters = {user: UsageMeter(own) for user, own in self._judges.items()}

    def _is_first(self, user: str, judge: Judge) -> bool:
        """Remember that a user has a judge, and return whether it is the first."""
        users = self._users.setdefault(id(judge), [])
        users += [] if user in users else [user]
        return users[0] == user

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the usage of the judges of a user by what they do; empty if they count nothing."""
        return {role: asdict(usage) for role, usage in self._meters[name].usage().items()}

    def by_user(self) -> dict[str, dict[str, Any]]:
        """Return the usage of the users whose judges count it."""
        return {name: own for name in self._meters if (own := self.to_dict(name))}

    @contextmanager
    def noted(self, log: RunLog) -> Iterator[None]:
        """Note the usage at the end of the block, also if it fails, because requests were sent."""
        try:
            yield
        finally:
            self.note(log)

    def note(self, log: RunLog) -> None:
        """Note the usage of each judge."""
        for name, own in self._judges.items():
            for role, usage in self._meters[name].usage().items():
                # A role of one judge may be several roles joined.
                judge = next(judge for known, judge in own.items() if known in role.split(" and "))
                log.note(f"{judge_name(' and '.join(self._users[id(judge)]), role)}: {usage}")


def judge_name(user: str, role: str) -> str:
    """Return the name of a judge in messages.

    Example:
        >>> judge_name("crimson", "judge"), judge_name("ct_finebench", "answers")
        ('crimson', 'ct_finebench, answers')
    """
    return user if role == "judge" else f"{user}, {role}"


def most_requests(metric: "ReportMetric", pairs: int) -> dict[str, int]:
    """Return how many requests a metric sends to language models at most, by what they do; repeated ones do not count.

    Both reports of a pair are labelled. CT-FineBench asks once for the questions of each report, and once for all
    answers and grades of a pair; each invalid answer or grade is requested once more on its own.

    Args:
        metric: The metric.
        pairs: Number of report pairs.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> from rrg_rewards.labelers import JudgeLabeler
        >>> most_requests(ReportCRG(JudgeLabeler("ct_rate", "openai:m")), 100)
        {'labels': 200}
    """
    from rrg_rewards.metrics.ct_finebench import CTFineBench
    from rrg_rewards.metrics.ct_finebench_scores import SIDES

    each = {"labels": 2}
    if isinstance(metric, CTFineBench):
        sides = len(SIDES[metric.mode])
        answers = sides * (1 + len(metric.index))
        each = {"questions": sides, "answers": answers, "grades": answers}
    judges = {role: judge for role, judge in metric.judges().items() if not judge.is_immediate}
    return {role: pairs * each[role] for role in judges if role in each}


@contextmanager
def failures_counted() -> Iterator[None]:
    """Ignore the warnings of judges' failures in the block, because the run counts them and warns once, at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JudgeWarning)
        yield


def warn_of_failures(counts: Mapping[str, PairCounts], log: RunLog, hint: str = "") -> None:
    """Warn of the failures of judges and of metrics without a scorable pair; note the pairs of each judge of a cascade.

    Args:
        counts: Counts by metric.
        log: Receives the warnings and notes.
        hint: Where the reasons of all failures are; ``{name}`` stands for the metric.
    """
    for name, one in counts.items():
        if one.judged_by:
            log.note(f"{name}, pairs by judge: {by_kind(one.judged_by)}")
        if (warning := one.warning(name)) is not None:
            log.warn(warning + (hint.format(name=name) if one.first_failure else ""))
