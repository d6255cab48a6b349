"""Counts of findings, hedges and sizes in reports."""

import re
from itertools import pairwise

from rrg_rewards.findings.reading.engine import extract_findings

__all__ = ["count_findings", "is_hedged"]

_OR = re.compile(r"\b(?:or|versus|vs|either)\b|/", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:possib\w*|probab\w*|likely|perhaps|may|might|could|cannot|exclude\w*|uncertain\w*|unclear|suspicio\w*|suspect\w*"
    r"|suggest\w*|question\w*|versus|vs|either|differential)\b|^or\b",
    re.IGNORECASE,
)
_SIZE = re.compile(r"\d\s*(?:mm|cm|millimet(?:er|re)s?|centimet(?:er|re)s?)\b", re.IGNORECASE)


def count_findings(report: str) -> tuple[int, int, int]:
    """Count the findings that a report does not deny, the hedged ones among them, and sizes.

    A finding is hedged if the report calls it uncertain or likely, names alternatives to it, or joins it to the finding
    before it by "or".

    Args:
        report: A report.

    Returns:
        Numbers of findings, of hedged findings and of sizes.

    Example:
        >>> count_findings("8 mm nodule or granuloma. Possible effusion. No edema or pneumothorax.")
        (3, 2, 1)
    """
    found = [finding for finding in extract_findings(report, open_findings=True) if finding.presence != "absent"]
    joined = {
        second
        for first, second in pairwise(found)
        if first.sentence == second.sentence and _OR.search(report[first.end : second.start])
    }
    hedged = sum(
        finding.presence == "uncertain" or bool(finding.certainty or finding.alternatives) or finding in joined
        for finding in found
    )
    return len(found), hedged, len(_SIZE.findall(report))


def is_hedged(sentence: str) -> bool:
    """Whether a sentence contains a word of uncertainty, or begins with "or".

    Example:
        >>> is_hedged("Possibly the heart is enlarged"), is_hedged("No effusion or edema")
        (True, False)
    """
    return _HEDGE.search(sentence) is not None
