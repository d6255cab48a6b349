"""Limits on what a match of two findings earns, so that the candidate's wording cannot set its own price.

A false finding costs its own weight. A match therefore must not earn more than this weight: otherwise a finding of low
weight that may match one of high weight would pay without any image.
"""

from collections.abc import Callable
from functools import cache
from math import ceil

from rrg_rewards.findings.comparing.attribute_errors import AttributeDiscrepancy
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.schemas.errors import ATTRIBUTE_WEIGHTS, SIGNIFICANCE_WEIGHTS

__all__ = ["finding_significance", "may_match", "price_discrepancies"]

_LEVELS = sorted(SIGNIFICANCE_WEIGHTS, key=SIGNIFICANCE_WEIGHTS.__getitem__)
_SIGNIFICANT = ATTRIBUTE_WEIGHTS["significant"]


def finding_significance(finding: Finding, significance: Callable[..., str]) -> str:
    """Return the greatest clinical significance of a finding's concept and of its alternatives.

    Args:
        finding: The finding.
        significance: Function that returns the clinical significance of a concept with attributes and words.

    Example:
        >>> from functools import partial
        >>> from rrg_rewards.findings.comparing.significance import clinical_significance
        >>> from rrg_rewards.findings.knowledge.patient import Patient
        >>> significance = partial(clinical_significance, patient=Patient())
        >>> hedge = Finding("granuloma", "present", 0, 9, 0, "granuloma", alternatives=("pneumonia",))
        >>> finding_significance(hedge, significance)
        'actionable_not_urgent'
    """
    own = significance(finding.concept, finding.attributes, words=finding.words)
    if not finding.alternatives:
        return own
    levels = [own, *(significance(concept, finding.attributes) for concept in finding.alternatives)]
    return max(levels, key=_LEVELS.index)


@cache
def may_match(reference: str, candidate: str) -> bool:
    """Whether a finding of the candidate may be one of the reference, by their levels of clinical significance.

    A benign finding is no finding of a weight. A finding that is two levels less significant is another one.

    Example:
        >>> may_match("not_actionable_not_urgent", "benign_expected"), may_match("urgent", "actionable_not_urgent")
        (False, True)
    """
    understated = _LEVELS.index(reference) - _LEVELS.index(candidate)
    return understated <= 0 or (understated == 1 and SIGNIFICANCE_WEIGHTS[candidate] > 0)


def price_discrepancies(
    errors: list[AttributeDiscrepancy], reference: str, candidate: str, kind: str
) -> list[AttributeDiscrepancy]:
    r"""Return the attribute errors that limit a match's credit to the candidate's own weight.

    With the weights :math:`w` of the reference's finding and :math:`v` of the candidate's, these are the significant
    errors that the match lacks for

    .. math::
        \frac{w^2}{w + E_{attr}} \le v

    where :math:`E_{attr}` leaves out the error of the name: another name than the reference's earns a share of
    :math:`v`.

    Args:
        errors: Attribute errors of the match.
        reference: Level of clinical significance of the reference's finding.
        candidate: Level of the candidate's finding; see :func:`may_match`.
        kind: Kind of the relation of their concepts.

    Example:
        >>> price_discrepancies([], "actionable_not_urgent", "not_actionable_not_urgent", "same")[0].significant
        True
        >>> price_discrepancies([], "benign_expected", "urgent", "same")
        []
    """
    ours, theirs = SIGNIFICANCE_WEIGHTS[reference], SIGNIFICANCE_WEIGHTS[candidate]
    if ours <= theirs:
        return []
    wrong = sum(_SIGNIFICANT for error in errors if error.significant and error.type != kind)
    lacking = max(0, ceil((ours**2 / theirs - ours - wrong) / _SIGNIFICANT))
    explanation = f"{candidate} for {reference}".replace("_", " ")
    return [AttributeDiscrepancy("severity" if kind == "same" else kind, True, explanation)] * lacking
