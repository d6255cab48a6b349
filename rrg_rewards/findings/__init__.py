"""Report text to structured findings."""

from rrg_rewards.findings.extract import extract_findings, get_engine
from rrg_rewards.findings.types import Finding

__all__ = ["Finding", "extract_findings", "get_engine"]
