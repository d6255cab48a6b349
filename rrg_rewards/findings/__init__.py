"""Extract structured findings from reports, compare reports finding by finding, and edit them."""

from rrg_rewards.findings.comparing.matching import FindingComparison, FindingMatch, compare_findings
from rrg_rewards.findings.editing.inject_errors import inject_errors
from rrg_rewards.findings.editing.injected_report import ErrorEdit, InjectedReport, error_counts
from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.rewrite_rules import Rewording, RewrittenReport
from rrg_rewards.findings.editing.wrong_details import corrupt_report
from rrg_rewards.findings.reading.engine import extract_findings, get_engine
from rrg_rewards.findings.reading.finding import Attributes, Finding
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings

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
