"""Judges of report pairs: rules, language models behind a server, language models in this process.

Names are imported at their first use, for the judges need pydantic, and openai or transformers.
"""

from typing import TYPE_CHECKING

from rrg_rewards.utilities.lazy import lazy_names

if TYPE_CHECKING:
    from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, ReportPair
    from rrg_rewards.judges.local import LocalJudge
    from rrg_rewards.judges.openai_api import OpenAIJudge
    from rrg_rewards.judges.registry import get_judge
    from rrg_rewards.judges.rules import RuleJudge

_MODULES = {
    "Judge": "base",
    "JudgeFailure": "base",
    "JudgeTask": "base",
    "LocalJudge": "local",
    "OpenAIJudge": "openai_api",
    "ReportPair": "base",
    "RuleJudge": "rules",
    "get_judge": "registry",
}

__all__ = [
    "Judge",
    "JudgeFailure",
    "JudgeTask",
    "LocalJudge",
    "OpenAIJudge",
    "ReportPair",
    "RuleJudge",
    "get_judge",
]

__getattr__ = lazy_names(__name__, _MODULES)
