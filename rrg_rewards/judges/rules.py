"""Evaluate report pairs for CRIMSON with the finding engine, without a model."""

from collections.abc import Sequence
from typing import Any, cast

from rrg_rewards.findings import Finding, FindingComparison, compare_findings, get_engine
from rrg_rewards.findings.knowledge.load import knowledge_digest
from rrg_rewards.functional.crimson import crimson_score
from rrg_rewards.functional.crimson_evaluation import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, ReportPair, Result
from rrg_rewards.judges.tasks.grounding import prose
from rrg_rewards.utilities.signature import format_signature

__all__ = ["RuleJudge"]

_TASK = "crimson"


class RuleJudge(Judge):
    """Judge that extracts, matches and weighs the findings of both reports by rules.

    It is deterministic and local, and one core is fast enough for a reward. It recognises the findings of its lexicon,
    and abnormal statements that name none of them. ``docs/crimson.md`` reports the agreement with radiologists.

    Example:
        >>> from rrg_rewards.judges import ReportPair, RuleJudge
        >>> evaluation = RuleJudge().evaluation(ReportPair("Large left pneumothorax.", "Small left pneumothorax."))
        >>> evaluation.attribute_errors[0].error_types, evaluation.attribute_errors[0].severity
        (('severity',), 'significant')
    """

    is_immediate = True

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge: none."""
        return {}

    @property
    def signature(self) -> str:
        """Digests of the lexicon and of the rules, and the version."""
        return format_signature("rules", lexicon=get_engine("chest").lexicon.digest, knowledge=knowledge_digest())

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate report pairs; see :meth:`evaluate_now`."""
        return self.evaluate_now(task, items)

    def evaluate_now(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate report pairs. No pair fails.

        Raises:
            ValueError: For a task other than CRIMSON's.
        """
        if task.name != _TASK:
            raise ValueError(f"RuleJudge has rules for the task {_TASK!r} only, got {task.name!r}; use another judge")
        return [cast(Result, self.evaluation(cast(ReportPair, item))) for item in items]

    def evaluation(self, pair: ReportPair) -> CrimsonEvaluation:
        """Return CRIMSON's evaluation of one report pair.

        Braces or code fences in a candidate may contain a prepared answer for a judge. Such a candidate is evaluated
        with and without their content, and the evaluation with the lower score is returned.
        """
        readings = dict.fromkeys((pair.candidate, prose(pair.candidate)))
        context = dict(pair.context)
        found = [_evaluation(compare_findings(pair.reference, text, context, open_findings=True)) for text in readings]
        return found[0] if len(found) == 1 else min(found, key=lambda evaluation: crimson_score(evaluation).item())


def _evaluation(found: FindingComparison) -> CrimsonEvaluation:
    matched, errors = [], []
    for match in found.matches:
        pairs = [(f"R{i + 1}", f"P{j + 1}") for i in match.reference for j in match.candidate]
        matched += pairs
        for ref_id, pred_id in pairs[:1]:
            errors += [
                CrimsonAttributeError(
                    ref_id=ref_id,
                    pred_id=pred_id,
                    severity="significant" if error.significant else "negligible",
                    error_types=(error.type,),
                    explanation=error.explanation,
                )
                for error in match.discrepancies
            ]
    return CrimsonEvaluation(
        reference_findings=_findings("R", found.reference, found.reference_significance),
        predicted_findings=_findings("P", found.candidate, found.candidate_significance),
        matched_findings=tuple(matched),
        false_findings=tuple(f"P{i + 1}" for i in found.false),
        missing_findings=tuple(f"R{i + 1}" for i in found.missing),
        attribute_errors=tuple(errors),
    )


def _findings(prefix: str, findings: Sequence[Finding], significance: Sequence[str]) -> tuple[CrimsonFinding, ...]:
    return tuple(
        CrimsonFinding(f"{prefix}{i + 1}", finding.text, level)
        for i, (finding, level) in enumerate(zip(findings, significance, strict=True))
    )
