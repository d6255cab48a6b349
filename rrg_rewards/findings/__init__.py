"""Report text to structured findings, and two reports compared finding by finding."""

from rrg_rewards.findings.compare import FindingComparison, FindingMatch, compare_findings
from rrg_rewards.findings.consolidate import abnormal_findings
from rrg_rewards.findings.extract import extract_findings, get_engine
from rrg_rewards.findings.types import Attributes, Finding

__all__ = [
    "Attributes",
    "Finding",
    "FindingComparison",
    "FindingMatch",
    "abnormal_findings",
    "compare_findings",
    "extract_findings",
    "get_engine",
]
