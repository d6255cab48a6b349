"""The engine by name of lexicon, shared by all that use it in a process."""

from functools import cache

from rrg_rewards.findings.engine import FindingEngine
from rrg_rewards.findings.types import Finding
from rrg_rewards.findings.vocabulary import load_lexicon

__all__ = ["extract_findings", "get_engine"]


@cache
def get_engine(lexicon: str) -> FindingEngine:
    """Engine of a lexicon, one per process so that its memory is shared.

    Args:
        lexicon: ``chest``, the findings of chest X-rays and CTs; or ``chest_ct`` or ``chest_xray``, which follow the
            conventions of the CT-RATE and CheXbert labels.

    Raises:
        ValueError: For an unknown lexicon, with the nearest known one.

    Example:
        >>> get_engine("chest_ct") is get_engine("chest_ct")
        True
    """
    return FindingEngine(load_lexicon(lexicon))


def extract_findings(report: str, lexicon: str = "chest") -> list[Finding]:
    """Find what a report says is there, is not there or may be there.

    Args:
        report: Report text.
        lexicon: ``chest``, ``chest_ct`` or ``chest_xray``; see :func:`get_engine`.

    Returns:
        Mentions in the order of the text.

    Raises:
        TypeError: If ``report`` is no string.
        ValueError: For an unknown lexicon, with the nearest known one.

    Example:
        >>> for finding in extract_findings("Nodules in both lungs, but no consolidation."):
        ...     print(finding.concept, finding.presence, finding.text)
        lung_nodule present Nodules
        consolidation absent consolidation
    """
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    return get_engine(lexicon).extract(report)
