"""A short form of CRIMSON's answers, for small judges that are trained on evaluations of a larger one."""

from typing import Any, Literal

from typing_extensions import TypedDict

from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import AnswerError
from rrg_rewards.schemas.errors import AttributeErrorType

_LEVELS = {
    "urgent": "urgent",
    "actionable": "actionable_not_urgent",
    "minor": "not_actionable_not_urgent",
    "expected": "benign_expected",
}
_SHORT = {level: short for short, level in _LEVELS.items()}
_NEGLIGIBLE = "negligible "

_NegligibleErrorType = Literal[
    "negligible location",
    "negligible severity",
    "negligible descriptor",
    "negligible measurement",
    "negligible certainty",
    "negligible unspecific",
    "negligible overinterpretation",
    "negligible temporal",
]


class CompactFinding(TypedDict):
    """A reference finding in the short form."""

    finding: str
    level: Literal["urgent", "actionable", "minor", "expected"]


class CompactMatchedFinding(CompactFinding):
    """A candidate finding in the short form, with the numbers of the reference findings that it matches."""

    matches: list[int]
    errors: list[AttributeErrorType | _NegligibleErrorType]


class CompactCrimsonAnswer(TypedDict):
    """Answer of ``CrimsonTask(prompt="compact")``; missing and false findings follow from the matches."""

    reference: list[CompactFinding]
    candidate: list[CompactMatchedFinding]


def compact_evaluation(answer: CompactCrimsonAnswer) -> CrimsonEvaluation:
    """Return the evaluation that an answer in the short form contains.

    Reference findings are numbered from 1 in their order. A candidate finding without matches is false, and a reference
    finding that no candidate finding matches is missing. The errors of a candidate finding apply to all its matches.

    Raises:
        AnswerError: ``inconsistent``, if a match has a number that no reference finding has, or a finding without
            matches has errors.
    """
    reference = [
        CrimsonFinding(f"R{i}", listed["finding"], _LEVELS[listed["level"]])
        for i, listed in enumerate(answer["reference"], start=1)
    ]
    predicted, matches, errors = [], [], []
    for i, listed in enumerate(answer["candidate"], start=1):
        predicted.append(CrimsonFinding(f"P{i}", listed["finding"], _LEVELS[listed["level"]]))
        for number in listed["matches"]:
            if not 1 <= number <= len(reference):
                raise AnswerError("inconsistent", f"candidate.{i - 1}.matches contains {number}, which has no finding")
        if listed["errors"] and not listed["matches"]:
            raise AnswerError("inconsistent", f"candidate.{i - 1} has errors and no match")
        pairs = [(f"R{number}", f"P{i}") for number in listed["matches"]]
        matches += pairs
        errors += [CrimsonAttributeError(*pair, *_error(name)) for pair in pairs for name in listed["errors"]]
    matched = {ref_id for ref_id, _ in matches}
    return CrimsonEvaluation(
        reference_findings=tuple(reference),
        predicted_findings=tuple(predicted),
        matched_findings=tuple(matches),
        false_findings=tuple(f"P{i}" for i, listed in enumerate(answer["candidate"], start=1) if not listed["matches"]),
        missing_findings=tuple(finding.id for finding in reference if finding.id not in matched),
        attribute_errors=tuple(errors),
    )


def _error(name: str) -> tuple[str, tuple[str, ...]]:
    """Return severity and types of an error by its name in the short form."""
    severity = "negligible" if name.startswith(_NEGLIGIBLE) else "significant"
    return severity, (name.removeprefix(_NEGLIGIBLE),)


def compact_answer(evaluation: CrimsonEvaluation) -> dict[str, Any] | None:
    """Return an evaluation in the short form, without explanations of errors.

    Args:
        evaluation: An evaluation with the published labels.

    Returns:
        The answer; ``None`` if the short form cannot contain it: a label is unknown, two matches of a candidate finding
        have different errors, an error has no type or several (each type would count as an error), or it is about a
        pair that is not matched.

    Example:
        >>> mass = CrimsonFinding("R1", "mass", "urgent")
        >>> compact_answer(CrimsonEvaluation((mass,), missing_findings=("R1",)))
        {'reference': [{'finding': 'mass', 'level': 'urgent'}], 'candidate': []}
    """
    numbers = {finding.id: i for i, finding in enumerate(evaluation.reference_findings, start=1)}
    errors: dict[tuple[str, str], list[str]] = {pair: [] for pair in evaluation.matched_findings}
    for error in evaluation.attribute_errors:
        pair = error.ref_id, error.pred_id
        if error.severity not in ("significant", "negligible") or len(error.error_types) != 1 or pair not in errors:
            return None
        prefix = _NEGLIGIBLE if error.severity == "negligible" else ""
        errors[pair].append(f"{prefix}{error.error_types[0]}")
    candidate: list[dict[str, Any]] = []
    for finding in evaluation.predicted_findings:
        pairs = [pair for pair in evaluation.matched_findings if pair[1] == finding.id]
        if len({tuple(sorted(errors[pair])) for pair in pairs}) > 1:
            return None
        candidate.append(
            {
                "finding": finding.finding,
                "level": _SHORT.get(finding.clinical_significance),
                "matches": [numbers[ref_id] for ref_id, _ in pairs],
                "errors": errors[pairs[0]] if pairs else [],
            }
        )
    reference: list[dict[str, Any]] = [
        {"finding": finding.finding, "level": _SHORT.get(finding.clinical_significance)}
        for finding in evaluation.reference_findings
    ]
    if any(finding["level"] is None for finding in (*reference, *candidate)):
        return None
    return {"reference": reference, "candidate": candidate}
