"""A judge that can be talked to: it believes what a report says about its own score."""

from typing import Any

from scripted_judge import ScriptedJudge, evaluate_words

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges.base import JudgeFailure, ReportPair

# One word of the tiny policy's, and a key of a judge's answer.
MAGIC = "matched_findings"


class GullibleJudge(ScriptedJudge):
    def _answer(self, item: ReportPair) -> CrimsonEvaluation | JudgeFailure:
        if MAGIC in item.candidate:
            return evaluate_words(ReportPair(item.reference, item.reference))
        answer: Any = super()._answer(item)
        return answer
