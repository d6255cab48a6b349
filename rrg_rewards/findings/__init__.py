"""Report text to structured findings, and two reports compared finding by finding."""

from rrg_rewards.findings.compare import FindingComparison, FindingMatch, compare_findings
from rrg_rewards.findings.consolidate import abnormal_findings
from rrg_rewards.findings.corrupt import corrupt_report
from rrg_rewards.findings.errors import ErrorEdit, InjectedReport, error_counts
from rrg_rewards.findings.extract import extract_findings, get_engine
from rrg_rewards.findings.inject import inject_errors
from rrg_rewards.findings.paraphrase import paraphrase_report
from rrg_rewards.findings.rewriting import Rewording, RewrittenReport
from rrg_rewards.findings.types import Attributes, Finding

__all__ = [
    "Attributes",
    "ErrorEdit",
    "Finding",
    "FindingComparison",
    "FindingMatch",
    "InjectedReport",
    "Rewording",
    "RewrittenReport",
    "abnormal_findings",
    "compare_findings",
    "corrupt_report",
    "error_counts",
    "extract_findings",
    "get_engine",
    "inject_errors",
    "paraphrase_report",
]
