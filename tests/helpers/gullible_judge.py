"""A judge that believes a report's statements about its score."""

from typing import Any

from scripted_judge import ScriptedJudge, evaluate_words

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges.base import JudgeTask, ReportPair

# A word of the tiny policy and a key of a judge's answer.
MAGIC = "matched_findings"


class GullibleJudge(ScriptedJudge):
    def answer(self, task: JudgeTask[Any, Any], item: ReportPair) -> CrimsonEvaluation:
        return evaluate_words(ReportPair(item.reference, item.reference) if MAGIC in item.candidate else item)
