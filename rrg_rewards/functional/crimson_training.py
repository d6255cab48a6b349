"""The training form of CRIMSON: silence costs what an invention costs; certainty, places, omissions have a price.

It is a form of this package, and not published. ``docs/crimson.md`` gives its reasons and what it changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrg_rewards.functional.crimson import (
    CrimsonChecks,
    CrimsonEvaluation,
    CrimsonFinding,
    StatedPlace,
    checked_evaluations,
    finding_weight,
)
from rrg_rewards.schemas.errors import ATTRIBUTE_WEIGHTS, SIGNIFICANCE_WEIGHTS, UNKNOWN_WEIGHT

# Share of the credit of a finding in the wrong place, as of an actionable finding with a significant attribute error.
_ELSEWHERE = 0.5
# Share of the credit of a finding whose stated size is left out, as of one whose side is.
_OMITTED = (1 + _ELSEWHERE) / 2
# Price of a normal reference: the smallest weight above 0, so that one invention of it loses half of what can be lost.
_NORMAL = min(weight for weight in SIGNIFICANCE_WEIGHTS.values() if weight)


class CrimsonTrainingStatistics(NamedTuple):
    r"""Statistics of ``N`` report pairs for the training form of CRIMSON; float64 tensors ``(N,)``.

    Attributes:
        credit: :math:`2C`, twice the credit of the matched findings, at most ``price``; for a normal reference minus
            the price of all inventions.
        price: :math:`P`, summed price of all findings of both reports; above 0.
        certainty_loss: Brier loss of the candidate's stated certainties, summed over its findings with their weights.
    """

    credit: Tensor
    price: Tensor
    certainty_loss: Tensor


def crimson_training_statistics(
    evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]],
    checks: CrimsonChecks = "strict",
    false_price: float = 1.0,
) -> CrimsonTrainingStatistics:
    r"""Compute credit and price of ``N`` evaluations for the training form of CRIMSON.

    A finding of the reference has the weight :math:`w_i` and the stated certainty :math:`r_i`, one of the candidate
    :math:`v_j` and :math:`q_j`. With the candidate's most significant and most certain finding of each match,

    .. math::
        C = \sum_{(i, j) \in matched} \min(w_i, v_j) \, r_i q_j \, g_{ij}, \qquad
        P = \sum_{(i, j) \in matched} (w_i r_i^2 + v_j q_j^2) + \sum_{i \in missing} n_i w_i r_i^2
            + \phi \sum_{j \in false} n_j v_j q_j^2

    where :math:`\phi` is ``false_price``, :math:`n` the number of separate places that an unmatched finding states (at
    least 1), and :math:`g_{ij} \in (0, 1]` the quality of the match: the published share
    :math:`w_i / (w_i + E_{attr,i})`, times :math:`(1 + A) / 2` for the agreement :math:`A` of the places
    (:func:`place_agreement`), times 3/4 for a size that the reference states and the candidate leaves out. Attribute
    errors of certainty, and of location if :math:`A < 1`,
    are priced by these factors and not by :math:`E_{attr,i}`. Since :math:`2 r q \le r^2 + q^2`, :math:`2C \le P`.

    If no finding of the reference has a weight above 0, nothing earns credit, and inventions lose: :math:`2C = -I` and
    :math:`P = \kappa + I` with the sum :math:`I = \sum_j n_j v_j q_j` over all findings of the candidate, and
    :math:`\kappa = 1/4`, the smallest weight above 0. A report without a finding of weight therefore scores 0 for every
    reference.

    The Brier loss of certainty is :math:`\sum_j v_j (q_j - y_j)^2`, with :math:`y_j = 1` for a matched finding and 0
    otherwise. Its expectation is least if :math:`q_j` is the probability that the finding is right.

    Findings of judges that do not state certainty, places and sizes (:attr:`CrimsonFinding.stated`) are certain, have
    one place, and their attribute errors are all priced as published.

    Args:
        evaluations: ``N`` evaluations, or mappings in the published JSON form.
        checks: As in :func:`rrg_rewards.functional.crimson_statistics`.
        false_price: :math:`\phi`, the price of a false finding as a multiple of that of a missing one; at least 1.
            Without further differences, a finding that is right with probability :math:`p` raises the score :math:`F`
            of a report if :math:`p > \phi F / (2 + (\phi - 1) F)`. At :math:`F = 2/3` this is 1/3 with a price of 1,
            and 1/2 with a price of 2. In the published form it is 1/2 for every score.

    Raises:
        ValueError: If ``false_price`` is less than 1, or an evaluation does not have the published form; names the row.
            With ``checks="strict"`` also if an id is unknown or not unique.

    Example:
        >>> finding = {"id": "R1", "finding": "mass", "clinical_significance": "actionable_not_urgent"}
        >>> missed = {"reference_findings": [finding], "errors": {"missing_findings": ["R1"]}}
        >>> statistics = crimson_training_statistics([missed])
        >>> statistics.credit, statistics.price
        (tensor([0.], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    if not false_price >= 1:
        raise ValueError(f"false_price must be at least 1, got {false_price}")
    rows = [_row(evaluation, false_price) for evaluation in checked_evaluations(evaluations, checks)]
    return CrimsonTrainingStatistics._make(torch.tensor(rows, dtype=torch.float64).view(len(rows), 3).unbind(1))


def crimson_training_score_from_statistics(credit: Tensor, price: Tensor) -> Tensor:
    r"""Compute the training form of CRIMSON from credit and price: :math:`2C / P`.

    Args:
        credit: :math:`2C`, at most ``price`` and more than ``-price``; any shape.
        price: :math:`P`, above 0; of the same shape.

    Returns:
        Scores in (-1, 1], of the shape and dtype of the arguments; higher is better.

    Example:
        >>> import torch
        >>> crimson_training_score_from_statistics(torch.tensor([0.5, 0.0, -0.5]), torch.tensor([1.0, 1.0, 0.75]))
        tensor([ 0.5000,  0.0000, -0.6667])
    """
    return credit / price


def crimson_training_score(
    evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]] | CrimsonEvaluation | Mapping[str, Any],
    checks: CrimsonChecks = "strict",
) -> Tensor:
    """Compute the training form of CRIMSON of evaluated report pairs; see :func:`crimson_training_statistics`.

    A report without abnormal findings scores 0: the minimum if the reference has findings of weight above 0, and the
    maximum if it has none.

    Args:
        evaluations: ``N`` evaluations or mappings in the published JSON form, or a single one.
        checks: As in :func:`rrg_rewards.functional.crimson_score`.

    Returns:
        float64 tensor ``(N,)``, or a scalar for one evaluation; in (-1, 1], higher is better.

    Raises:
        ValueError: As :func:`crimson_training_statistics`.

    Example:
        >>> from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding, crimson_training_score
        >>> mass = CrimsonFinding("R1", "right lung mass", "actionable_not_urgent")
        >>> missed, invented = {"missing_findings": ("R1",)}, {"false_findings": ("R1",)}
        >>> evaluations = [CrimsonEvaluation((mass,), **missed), CrimsonEvaluation((), (mass,), **invented)]
        >>> crimson_training_score([*evaluations, CrimsonEvaluation()])
        tensor([ 0.0000, -0.6667,  0.0000], dtype=torch.float64)
    """
    if isinstance(evaluations, CrimsonEvaluation | Mapping):
        return crimson_training_score([evaluations], checks)[0]
    statistics = crimson_training_statistics(evaluations, checks)
    return crimson_training_score_from_statistics(statistics.credit, statistics.price)


def _row(evaluation: CrimsonEvaluation, false_price: float) -> tuple[float, float, float]:
    """Return credit, price and loss of certainty of one evaluation."""
    reference = {finding.id: finding for finding in evaluation.reference_findings}
    predicted = {finding.id: finding for finding in evaluation.predicted_findings}
    partners: dict[str, dict[str, CrimsonFinding]] = {}
    for ref_id, pred_id in evaluation.matched_findings:
        if ref_id in reference:
            found = partners.setdefault(ref_id, {})
            if pred_id in predicted:
                found[pred_id] = predicted[pred_id]
    matched = {pred_id for found in partners.values() for pred_id in found}
    loss = sum(finding_weight(one) * (_certainty(one) - (id_ in matched)) ** 2 for id_, one in predicted.items())
    if not any(map(finding_weight, reference.values())):
        invented = sum(
            (1 if id_ in matched else _times(one)) * finding_weight(one) * _certainty(one)
            for id_, one in predicted.items()
        )
        # Not -0.0 without inventions.
        return 0.0 - invented, _NORMAL + invented, loss
    credit = price = 0.0
    for ref_id in partners:
        earned, paid = _matched(evaluation, ref_id, partners, reference)
        credit += earned
        price += paid
    missing, false = set(evaluation.missing_findings), set(evaluation.false_findings)
    price += sum(_price(one) for id_, one in reference.items() if id_ not in partners or id_ in missing)
    invented = sum(_price(one) for id_, one in predicted.items() if id_ not in matched or id_ in false)
    price += false_price * invented
    return credit, price, loss


def _matched(
    evaluation: CrimsonEvaluation,
    ref_id: str,
    partners: Mapping[str, Mapping[str, CrimsonFinding]],
    reference: Mapping[str, CrimsonFinding],
) -> tuple[float, float]:
    """Return twice the credit and the price of a matched finding of the reference."""
    ours, theirs = reference[ref_id], list(partners[ref_id].values())
    weight, certainty = finding_weight(ours), _certainty(ours)
    # Published evaluations may match a finding that they do not list: it is as significant as the reference's.
    their_weight = max(map(finding_weight, theirs), default=weight)
    their_certainty = max(map(_certainty, theirs), default=1.0)
    quality = _quality(evaluation, ours, theirs, _allowed_places(ref_id, partners, reference))
    credit = 2 * min(weight, their_weight) * certainty * their_certainty * quality
    return credit, weight * certainty**2 + their_weight * their_certainty**2


def _certainty(finding: CrimsonFinding) -> float:
    return 1.0 if finding.stated is None else finding.stated.certainty


def _times(finding: CrimsonFinding) -> int:
    return 1 if finding.stated is None else finding.stated.times


def _price(finding: CrimsonFinding) -> float:
    """Return the price of an unmatched finding, which counts once for each separate place that it states."""
    return _times(finding) * finding_weight(finding) * _certainty(finding) ** 2


def _allowed_places(
    ref_id: str, partners: Mapping[str, Mapping[str, CrimsonFinding]], reference: Mapping[str, CrimsonFinding]
) -> list[StatedPlace]:
    """Return the places of all findings of the reference that share a finding of the candidate with this one.

    "Nodules in the right upper and left lower lobe" is right for two nodules of the reference in one lobe each.
    """
    shared = [id_ for id_, found in partners.items() if not found.keys().isdisjoint(partners[ref_id])]
    stated = [reference[id_].stated for id_ in dict.fromkeys((ref_id, *shared))]
    # One of them without a place allows every place.
    if any(one is None or not one.places for one in stated):
        return [StatedPlace()]
    return [place for one in stated if one is not None for place in one.places]


def _quality(
    evaluation: CrimsonEvaluation,
    ours: CrimsonFinding,
    theirs: Sequence[CrimsonFinding],
    allowed: Sequence[StatedPlace],
) -> float:
    """Return the share of its credit that a match earns, in (0, 1]."""
    stated = [one.stated for one in theirs if one.stated is not None]
    priced: tuple[str, ...] = ()
    quality = 1.0
    if ours.stated is not None and stated:
        places = [place for one in stated for place in one.places]
        agreement = place_agreement(ours.stated.places, places, allowed)
        quality *= _ELSEWHERE + (1 - _ELSEWHERE) * agreement
        if ours.stated.has_size and not any(one.has_size for one in stated):
            quality *= _OMITTED
        priced = ("certainty", "location") if agreement < 1 else ("certainty",)
    wrong = sum(
        ATTRIBUTE_WEIGHTS.get(error.severity, UNKNOWN_WEIGHT)
        for error in evaluation.attribute_errors
        if error.ref_id == ours.id and not (error.error_types and set(error.error_types) <= set(priced))
    )
    weight = finding_weight(ours)
    return quality * weight / (weight + wrong) if weight else quality


def place_agreement(
    ours: Sequence[StatedPlace], theirs: Sequence[StatedPlace], allowed: Sequence[StatedPlace] = ()
) -> float:
    """Return the agreement of the places that a candidate states for a finding with those of the reference, in [0, 1].

    It is precision times recall: the share of the candidate's places that are right, which no side and level that both
    state contradicts, times the mean share of each place of the reference that the candidate states, 1/2 if it leaves
    open the side and 1/3 if it leaves open the level. If the reference states one place, and two sides and three levels
    are equally likely, a list of all places, a place left open and a guess therefore earn the same on average. If the
    reference states no place, the agreement is 1.

    Args:
        ours: Places of the reference's finding.
        theirs: Places of the candidate's.
        allowed: Places in which the candidate's finding is right, if they are more than ``ours``.

    Example:
        >>> lobes = [StatedPlace("right", level) for level in ("upper", "middle", "lower")]
        >>> place_agreement(lobes[:1], lobes), place_agreement(lobes[:1], [StatedPlace("right")])
        (0.333..., 0.333...)
        >>> place_agreement(lobes[:1], lobes[1:])
        0.0
    """
    if not ours:
        return 1.0
    theirs = theirs or [StatedPlace()]
    precision = sum(any(map(place.fits, allowed or ours)) for place in theirs) / len(theirs)
    return precision * sum(max(map(place.share_in, theirs)) for place in ours) / len(ours)
