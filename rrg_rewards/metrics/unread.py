"""Shares of the words of both reports that a rule-based reader has not read, as details of scores."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from rrg_rewards.findings.knowledge.patient import parse_age
from rrg_rewards.findings.reading.coverage import PairCoverage

UNREAD_DETAILS = ("unread_reference", "unread_candidate")
"""Names of the details: shares of the content words of the reference and of the candidate that were not read."""
# A report of at least so many content words, of which more than this share are unread, is warned of.
_LEAST_WORDS = 4
_MOST_UNREAD = 0.5


class UnreadWarning(UserWarning):
    """Most words of a report or an age were not read, or a pair has no score because of unread words."""


def unread_shares(coverages: Sequence[PairCoverage | None]) -> dict[str, Tensor]:
    """Return the details of ``N`` pairs by name: float64 ``(N,)``, NaN if the coverage is not known."""
    unknown = [torch.nan] * len(UNREAD_DETAILS)
    shares = [unknown if pair is None else [report.unread_share for report in pair] for pair in coverages]
    columns = torch.tensor(shares, dtype=torch.float64).view(-1, len(UNREAD_DETAILS)).unbind(1)
    return dict(zip(UNREAD_DETAILS, columns, strict=True))


def unread_words(coverage: PairCoverage | None) -> str:
    """Return the unread words of both reports of a pair; empty if there are none.

    Example:
        >>> from rrg_rewards.findings import read_findings
        >>> unread_words(tuple(read_findings(text).coverage for text in ("Coarktation.", "No effusion.")))
        'reference: Coarktation'
    """
    sides = zip(("reference", "candidate"), coverage or (), strict=False)
    return "; ".join(f"{side}: {', '.join(span.text for span in one.unread)}" for side, one in sides if one.unread)


class _Warned:
    """Whether this process has warned of unread words, and of unread ages."""

    has_warned = has_warned_of_ages = False


def warn_of_unread(name: str, coverages: Sequence[PairCoverage | None], scored: Sequence[bool]) -> None:
    """Warn, once in a process, of a report of which more than half of the words are unread, or that has no score.

    Args:
        name: Name of the metric.
        coverages: How much of both reports of each pair was read.
        scored: Whether each pair has a score. Of a pair without one, the reference has unread words.
    """
    if _Warned.has_warned:
        return
    for row, (pair, has_score) in enumerate(zip(coverages, scored, strict=True)):
        for argument, report in zip(("target", "preds"), pair or (), strict=False):
            is_unscorable = argument == "target" and not has_score and report.num_unread > 0
            if is_unscorable or (report.num_words >= _LEAST_WORDS and report.unread_share > _MOST_UNREAD):
                _Warned.has_warned = True
                warnings.warn(
                    f"{name}: the rules could not read {report.num_unread} of {report.num_words} words of "
                    f"{argument}[{row}]{', so its pair has no score' if is_unscorable else ''}. They read reports in "
                    "English: translate other reports, or use a language model as judge. "
                    f"rrg_rewards.findings.read_findings({argument}[{row}]).unread has the words. The details "
                    f"{' and '.join(UNREAD_DETAILS)} have the share of each report; there is no further warning",
                    UnreadWarning,
                    stacklevel=2,
                )
                return


def warn_of_unread_ages(name: str, ages: Sequence[str]) -> None:
    """Warn, once in a process, of ages that the rules do not read, such as a number of a study.

    Args:
        name: Name of the metric.
        ages: Ages as texts, empty if unknown.
    """
    given = [age for age in ages if age]
    unread = [age for age in given if parse_age(age) is None]
    if unread and not _Warned.has_warned_of_ages:
        _Warned.has_warned_of_ages = True
        warnings.warn(
            f"{name}: {len(unread)} of {len(given)} ages are not read, such as {unread[0]!r}, and count as unknown. An "
            "age is a number of years, or a text such as 066Y or 18 months; there is no further warning",
            UnreadWarning,
            stacklevel=2,
        )
