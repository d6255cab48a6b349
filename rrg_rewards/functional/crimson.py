"""CRIMSON: clinical significance of the findings that a candidate report adds, misses and misdescribes.

Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, 2026.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rrg_rewards.schemas.errors import ATTRIBUTE_ERROR_TYPES, ATTRIBUTE_WEIGHTS, SIGNIFICANCE_WEIGHTS, UNKNOWN_WEIGHT
from rrg_rewards.utilities.names import shown

if TYPE_CHECKING:
    from rrg_rewards.findings.reading.coverage import PairCoverage

CrimsonChecks = Literal["strict", "published"]
"""``"strict"``: an evaluation must be consistent. ``"published"``: whatever the code of CRIMSON's authors scores is
scored, with the same result."""

Route = Literal["", "rules", "second"]
"""Judge of a pair in a cascade: the rules or the second judge. It is empty without a cascade."""

# Keys of entries whose values, if present, must be texts.
_TEXTS = ("id", "ref_id", "pred_id", "finding", "clinical_significance", "severity", "explanation")


class StatedPlace(NamedTuple):
    """A place that a report states for a finding.

    Args:
        side: ``right`` or ``left``; empty if not stated.
        level: Level of the lung, such as ``upper``; empty if not stated.
    """

    side: str = ""
    level: str = ""

    def fits(self, other: "StatedPlace") -> bool:
        """Whether both may be the same place: no side or level that both state differs."""
        return all(own == theirs or not (own and theirs) for own, theirs in zip(self, other, strict=True))

    def share_in(self, other: "StatedPlace") -> float:
        """Return 0 if ``other`` is another place; else 1, times 1/2 for a side and 1/3 for a level it leaves open.

        The shares are what a guess between two sides, and among three levels, earns on average.
        """
        is_open = [own and not theirs for own, theirs in zip(self, other, strict=True)]
        return self.fits(other) * (1 / 2 if is_open[0] else 1) * (1 / 3 if is_open[1] else 1)


class StatedDetails(NamedTuple):
    """What a report states of a finding, for the training form of CRIMSON.

    Args:
        certainty: Stated certainty in (0, 1]; 1 without words of doubt.
        places: Stated places; both sides are two places. Empty if none is stated.
        has_size: Whether the report states a size or a degree.
        times: Number of separate places of one statement ("right upper and left lower lobe"), at least 1.
    """

    certainty: float = 1.0
    places: tuple[StatedPlace, ...] = ()
    has_size: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class CrimsonFinding:
    """An abnormal finding of the reference or the candidate.

    Args:
        id: Identifier of the finding in the evaluation, such as ``R1``.
        finding: Text of the finding.
        clinical_significance: ``urgent``, ``actionable_not_urgent``, ``not_actionable_not_urgent`` or
            ``benign_expected``; any other value has the weight 0.25.
        spans: Where the report states the finding, if the judge knows it: pairs of the offset of the first character
            and the offset after the last one. They are not compared, and no part of the published form.
        stated: Certainty, places and size that the report states, if the judge knows them; treated as ``spans``.
    """

    id: str
    finding: str
    clinical_significance: str
    spans: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    stated: StatedDetails | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CrimsonAttributeError:
    """An error in the attributes of a finding that both reports contain.

    Args:
        ref_id: Identifier of the reference finding.
        pred_id: Identifier of the candidate finding.
        severity: ``significant`` or ``negligible``; any other value has the weight 0.25.
        error_types: Names of the wrong attributes, from ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``.
        explanation: Description of the error.
    """

    ref_id: str
    pred_id: str
    severity: str
    error_types: tuple[str, ...]
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class CrimsonEvaluation:
    """A judge's comparison of a candidate with a reference report, finding by finding.

    Args:
        reference_findings: Abnormal findings of the reference.
        predicted_findings: Abnormal findings of the candidate.
        matched_findings: Pairs ``(reference id, candidate id)`` of matching findings; an id may occur several times.
        false_findings: Ids of candidate findings without a match.
        missing_findings: Ids of reference findings without a match.
        attribute_errors: Errors in the attributes of matched findings.
        coverage: How much of the reference and of the candidate the judge has read, if it knows. It is not compared,
            and no part of the published form.
        route: Judge of the pair in a cascade (:class:`rrg_rewards.judges.CascadeJudge`); empty without one. It is
            treated as ``coverage``.

    Example:
        >>> finding = {"id": "R1", "finding": "mass", "clinical_significance": "actionable_not_urgent"}
        >>> answer = {"reference_findings": [finding], "errors": {"missing_findings": ["R1"]}}
        >>> CrimsonEvaluation.from_dict(answer).missing_findings
        ('R1',)
    """

    reference_findings: tuple[CrimsonFinding, ...] = ()
    predicted_findings: tuple[CrimsonFinding, ...] = ()
    matched_findings: tuple[tuple[str, str], ...] = ()
    false_findings: tuple[str, ...] = ()
    missing_findings: tuple[str, ...] = ()
    attribute_errors: tuple[CrimsonAttributeError, ...] = ()
    coverage: "PairCoverage | None" = field(default=None, compare=False, repr=False)
    route: Route = field(default="", compare=False, repr=False)

    @classmethod
    def from_dict(cls, evaluation: Mapping[str, Any], checks: CrimsonChecks = "strict") -> "CrimsonEvaluation":
        """Build an evaluation from the published JSON form; missing keys are read as empty lists.

        With ``checks="published"``, values of other types are read as the published code reads them, and become texts.
        Ids that differ stay different (1 and ``"1"``), and equal ones (1, 1.0 and ``true``) become one. A text in place
        of a list is a list of its characters, or, as ``error_types``, contains the types that are parts of it. An
        object in place of a list is the list of its keys. A candidate id, a finding or an explanation that is neither
        text nor number, which changes no score, becomes an empty text.

        Args:
            evaluation: The published JSON form.
            checks: ``"strict"``, or ``"published"`` to read what the published code scores.

        Raises:
            ValueError: If a value is not the required list or mapping, or an entry lacks a key. With
                ``checks="published"``, if the published code raises an error for the types or keys.
        """
        if not _is_published(checks):
            _check_types(evaluation)
        return _evaluation(evaluation)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation in the published JSON form, which :meth:`from_dict` reads."""
        return {
            "reference_findings": [_finding_record(finding) for finding in self.reference_findings],
            "predicted_findings": [_finding_record(finding) for finding in self.predicted_findings],
            "matched_findings": [{"ref_id": ref_id, "pred_id": pred_id} for ref_id, pred_id in self.matched_findings],
            "errors": {
                "false_findings": list(self.false_findings),
                "missing_findings": list(self.missing_findings),
                "attribute_errors": [
                    {**asdict(error), "error_types": list(error.error_types)} for error in self.attribute_errors
                ],
            },
        }


def _finding_record(finding: CrimsonFinding) -> dict[str, str]:
    return {key: value for key, value in asdict(finding).items() if key not in ("spans", "stated")}


def _is_published(checks: str) -> bool:
    if checks not in get_args(CrimsonChecks):
        raise ValueError(f"checks must be one of {', '.join(get_args(CrimsonChecks))}; got {shown(checks)}")
    return checks == "published"


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping, got {type(value).__name__}")
    return value


def _list(name: str, owner: Mapping[str, Any]) -> Sequence[Any]:
    value = owner.get(name, ())
    # Not Sequence, because a text is also a sequence.
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return value


def _check_entries(name: str, owner: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raise unless each entry of a list is a mapping with all of ``keys``, and its values are texts."""
    entries = [_mapping(f"{name}[{index}]", entry) for index, entry in enumerate(_list(name, owner))]
    for index, entry in enumerate(entries):
        for key in keys:
            if key not in entry:
                raise ValueError(f"{name}[{index}] lacks {key!r}")
        for key in _TEXTS:
            if not isinstance(entry.get(key, ""), str):
                raise ValueError(f"{name}[{index}][{key!r}] must be a text, got {type(entry[key]).__name__}")


def _check_types(content: Any) -> None:
    """Raise unless an evaluation has the published form, with texts as ids and labels."""
    errors = _mapping("errors", _mapping("an evaluation", content).get("errors", {}))
    for name in ("reference_findings", "predicted_findings"):
        _check_entries(name, content, ("id",))
    _check_entries("matched_findings", content, ("ref_id", "pred_id"))
    for name in ("false_findings", "missing_findings"):
        for index, id_ in enumerate(_list(name, errors)):
            if not isinstance(id_, str):
                raise ValueError(f"{name}[{index}] must be the id of a finding, got {type(id_).__name__}")
    _check_entries("attribute_errors", errors, ("ref_id", "pred_id"))
    for error in errors.get("attribute_errors", ()):
        _list("error_types", error)


def _evaluation(content: Any) -> CrimsonEvaluation:
    """Read an evaluation as the published code does, which looks at the keys named here and at no other.

    Ids and labels may be of any type that can be a key of a dictionary, because the published code looks them up.
    """
    errors = _mapping("errors", _mapping("an evaluation", content).get("errors", {}))
    reference = _published_entries("reference_findings", content, ("id", "clinical_significance"))
    predicted = _published_entries("predicted_findings", content, ("id", "clinical_significance"))
    matched = _published_entries("matched_findings", content, ("ref_id",))
    wrong = _published_entries("attribute_errors", errors, ("ref_id", "severity"))
    false, missing = (_published_list(name, errors) for name in ("false_findings", "missing_findings"))
    for name, unmatched in (("false_findings", false), ("missing_findings", missing)):
        for index, id_ in enumerate(unmatched):
            _check_key(f"{name}[{index}]", id_)
    listed = [entry["id"] for entry in (*reference, *predicted)] + [entry["ref_id"] for entry in (*matched, *wrong)]
    others = [entry.get("pred_id") for entry in (*matched, *wrong)]
    ids = _texts_of_ids([*listed, *false, *missing, *(other for other in others if isinstance(other, Hashable))])

    def pair(entry: Mapping[str, Any]) -> tuple[str, str]:
        other = entry.get("pred_id")
        return ids[entry["ref_id"]], ids[other] if other is not None and isinstance(other, Hashable) else ""

    def findings(entries: Iterable[Mapping[str, Any]]) -> tuple[CrimsonFinding, ...]:
        return tuple(
            CrimsonFinding(ids[entry["id"]], _text(entry.get("finding")), _text(entry.get("clinical_significance")))
            for entry in entries
        )

    return CrimsonEvaluation(
        reference_findings=findings(reference),
        predicted_findings=findings(predicted),
        matched_findings=tuple(pair(entry) for entry in matched),
        false_findings=tuple(ids[id_] for id_ in false),
        missing_findings=tuple(ids[id_] for id_ in missing),
        attribute_errors=tuple(
            CrimsonAttributeError(
                *pair(entry), _text(entry.get("severity")), _published_types(entry), _text(entry.get("explanation"))
            )
            for entry in wrong
        ),
    )


def _published_list(name: str, owner: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the elements of what the published code iterates over: also the characters of a text."""
    value = owner.get(name, ())
    if not isinstance(value, list | tuple | str | Mapping):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return tuple(value)


def _published_entries(name: str, owner: Mapping[str, Any], keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, each checked to contain the first key, and values that can be looked up."""
    entries = [_mapping(f"{name}[{index}]", entry) for index, entry in enumerate(_published_list(name, owner))]
    for index, entry in enumerate(entries):
        if keys[0] not in entry:
            raise ValueError(f"{name}[{index}] lacks {keys[0]!r}")
        for key in keys:
            _check_key(f"{name}[{index}][{key!r}]", entry.get(key))
    return entries


def _check_key(name: str, value: Any) -> None:
    if not isinstance(value, Hashable):
        raise ValueError(f"{name} must be a text or a number, got {type(value).__name__}")


def _published_types(error: Mapping[str, Any]) -> tuple[str, ...]:
    types = error.get("error_types", ())
    if isinstance(types, str):
        return tuple(name for name in ATTRIBUTE_ERROR_TYPES if name in types)
    return tuple(map(_text, _published_list("error_types", error)))


def _text(value: Any) -> str:
    """Return a text or a number as text, and anything else as an empty text."""
    # An unpaired surrogate cannot be written to a file.
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
    return text.encode("utf-8", "backslashreplace").decode()


def _texts_of_ids(ids: Iterable[Hashable]) -> dict[Hashable, str]:
    """Return a text for each id, different ones for different ids."""
    texts: dict[Hashable, str] = {}
    used: set[str] = set()
    # Ids that are texts already keep them.
    for id_ in sorted(ids, key=lambda id_: _text(id_) != id_):
        if id_ not in texts:
            text = _text(id_)
            while text in used:
                text += "'"
            used.add(text)
            texts[id_] = text
    return texts


class CrimsonStatistics(NamedTuple):
    r"""Statistics of ``N`` report pairs: float64 tensors ``(N,)``, and ``(N, 8)`` for error types.

    Attributes:
        credit: :math:`C`, summed weight of matches with partial credit.
        reference_weight: :math:`W_{ref}`, summed weight of the reference findings; as in the published code, the number
            of matches if there are no reference findings, which is 0 in a consistent evaluation.
        false_weight: :math:`E_{false}`, summed weight of false findings.
        missing_weight: Summed weight of missing findings.
        attribute_weight: Summed weight of attribute errors.
        num_reference: Number of reference findings.
        num_predicted: Number of candidate findings.
        num_matched: Number of matched reference findings.
        num_false: Number of false findings.
        num_missing: Number of missing findings.
        num_attribute: Number of attribute errors.
        num_error_types: Attribute errors by type, in the order of ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``; an
            error with several types counts for each.
    """

    credit: Tensor
    reference_weight: Tensor
    false_weight: Tensor
    missing_weight: Tensor
    attribute_weight: Tensor
    num_reference: Tensor
    num_predicted: Tensor
    num_matched: Tensor
    num_false: Tensor
    num_missing: Tensor
    num_attribute: Tensor
    num_error_types: Tensor

    @property
    def num_errors(self) -> Tensor:
        """Number of errors: false findings, missing findings and attribute errors; float64 ``(N,)``."""
        return self.num_false + self.num_missing + self.num_attribute

    @property
    def error_weight(self) -> Tensor:
        """Summed weight of the same errors; float64 ``(N,)``. The paper's "weighted E" (Table 1)."""
        return self.false_weight + self.missing_weight + self.attribute_weight


def crimson_statistics(
    evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]], checks: CrimsonChecks = "strict"
) -> CrimsonStatistics:
    r"""Compute weighted and unweighted counts of ``N`` evaluations.

    A matched reference finding of weight :math:`w_i` earns

    .. math::
        c_i = w_i \frac{w_i}{w_i + E_{attr,i}}, \qquad C = \sum_{i \in matched} c_i

    where :math:`E_{attr,i}` sums 0.5 for each significant and 0 for each negligible attribute error of the finding. A
    finding that is matched several times earns credit once. The weights are 1 for urgent, 0.5 for actionable, 0.25 for
    not actionable and 0 for benign or expected findings. As in the published code, any other label has the weight 0.25.

    With ``checks="published"``, an inconsistent evaluation has the statistics of the published code: an id that no
    finding has is counted and weighs 0, each entry of a list is counted, and of several findings with the same id the
    last one determines the weight of that id.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 1 and Section 3.3.

    Args:
        evaluations: ``N`` evaluations, or mappings in the published JSON form.
        checks: ``"strict"``, or ``"published"`` to accept what the published code scores; mappings are read as in
            :meth:`CrimsonEvaluation.from_dict`.

    Raises:
        ValueError: If an evaluation does not have the published form; names the row. With ``checks="strict"`` also if
            an id is unknown or not unique.

    Example:
        >>> finding = {"id": "R1", "finding": "mass", "clinical_significance": "actionable_not_urgent"}
        >>> statistics = crimson_statistics([{"reference_findings": [finding], "errors": {"missing_findings": ["R1"]}}])
        >>> statistics.reference_weight, statistics.missing_weight
        (tensor([0.5000], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    rows = [_statistics_row(evaluation) for evaluation in checked_evaluations(evaluations, checks)]
    scalars = len(CrimsonStatistics._fields) - 1
    table = torch.tensor(rows, dtype=torch.float64).view(len(rows), scalars + len(ATTRIBUTE_ERROR_TYPES))
    return CrimsonStatistics._make([*table[:, :scalars].unbind(1), table[:, scalars:]])


def checked_evaluations(
    evaluations: Iterable[CrimsonEvaluation | Mapping[str, Any]], checks: CrimsonChecks = "strict"
) -> Iterator[CrimsonEvaluation]:
    """Yield evaluations, read from mappings if need be, after the checks of :func:`crimson_statistics`.

    Raises:
        ValueError: As :func:`crimson_statistics`.
    """
    is_strict = not _is_published(checks)
    for row, evaluation in enumerate(evaluations):
        try:
            if not isinstance(evaluation, CrimsonEvaluation):
                evaluation = CrimsonEvaluation.from_dict(evaluation, checks)
            if is_strict:
                _check_ids(evaluation)
        except ValueError as error:
            raise ValueError(f"evaluations[{row}]: {error}") from error
        yield evaluation


def _check_ids(evaluation: CrimsonEvaluation) -> None:
    reference = _unique_ids("reference_findings", evaluation.reference_findings)
    predicted = _unique_ids("predicted_findings", evaluation.predicted_findings)
    matches, errors = evaluation.matched_findings, evaluation.attribute_errors
    for name, ids, known in (
        ("matched_findings", [ref_id for ref_id, _ in matches], reference),
        ("matched_findings", [pred_id for _, pred_id in matches], predicted),
        ("attribute_errors", [error.ref_id for error in errors], reference),
        ("attribute_errors", [error.pred_id for error in errors], predicted),
        ("missing_findings", evaluation.missing_findings, reference),
        ("false_findings", evaluation.false_findings, predicted),
    ):
        if unknown := [id_ for id_ in ids if id_ not in known]:
            raise ValueError(
                f"{name} has the id {unknown[0]!r}, which no finding has; known: {', '.join(map(str, known))}"
            )


def _unique_ids(kind: str, findings: Sequence[CrimsonFinding]) -> dict[str, None]:
    ids = dict.fromkeys(finding.id for finding in findings)
    if len(ids) < len(findings):
        raise ValueError(f"{kind} must have different ids, got {[finding.id for finding in findings]}")
    return ids


def _statistics_row(evaluation: CrimsonEvaluation) -> list[float]:
    reference, predicted = _weights(evaluation.reference_findings), _weights(evaluation.predicted_findings)
    matches = evaluation.matched_findings
    matched = dict.fromkeys(ref_id for ref_id, _ in matches if ref_id in reference)
    wrong = dict.fromkeys(matched, 0.0)
    attribute_weight = 0.0
    types = [0] * len(ATTRIBUTE_ERROR_TYPES)
    for error in evaluation.attribute_errors:
        weight = ATTRIBUTE_WEIGHTS.get(error.severity, UNKNOWN_WEIGHT)
        attribute_weight += weight
        if error.ref_id in wrong:
            wrong[error.ref_id] += weight
        for index, name in enumerate(ATTRIBUTE_ERROR_TYPES):
            types[index] += name in error.error_types
    credit = 0.0
    for id_ in matched:
        # A finding of weight 0 earns no credit. Credits are added as in the published code, because a difference in the
        # last bit can change the fourth digit, and sum() rounds in another way from Python 3.12 on.
        credit += reference[id_] ** 2 / (reference[id_] + wrong[id_]) if reference[id_] else 0.0
    listed = [finding_weight(finding) for finding in evaluation.reference_findings]
    return [
        credit,
        sum(listed) if listed else len(matches),
        sum(predicted.get(id_, 0.0) for id_ in evaluation.false_findings),
        sum(reference.get(id_, 0.0) for id_ in evaluation.missing_findings),
        attribute_weight,
        len(evaluation.reference_findings),
        len(evaluation.predicted_findings),
        len(matched),
        len(evaluation.false_findings),
        len(evaluation.missing_findings),
        len(evaluation.attribute_errors),
        *types,
    ]


def finding_weight(finding: CrimsonFinding) -> float:
    """Return the weight of a finding's clinical significance."""
    return SIGNIFICANCE_WEIGHTS.get(finding.clinical_significance, UNKNOWN_WEIGHT)


def _weights(findings: Sequence[CrimsonFinding]) -> dict[str, float]:
    return {finding.id: finding_weight(finding) for finding in findings}


def crimson_score_from_statistics(credit: Tensor, reference_weight: Tensor, false_weight: Tensor) -> Tensor:
    r"""Compute CRIMSON from the credit and the weights of reference and false findings.

    .. math::
        S = \begin{cases}
            (C - E_{false}) / W_{ref} & W_{ref} > 0 \\
            -E_{false} & W_{ref} = 0, E_{false} > 0 \\
            1 & W_{ref} = E_{false} = 0
        \end{cases}
        \qquad
        CRIMSON = \begin{cases}
            S & S \ge 0 \\
            -A / (1 + A), \; A = E_{false} - C & S < 0
        \end{cases}

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 2 and 3.

    Args:
        credit: :math:`C`, not negative and at most :math:`W_{ref}`; any shape.
        reference_weight: :math:`W_{ref}`, not negative; of the same shape.
        false_weight: :math:`E_{false}`, not negative; of the same shape.

    Returns:
        Scores in (-1, 1], of the shape and dtype of the arguments; higher is better.

    Example:
        >>> import torch
        >>> credit, false_weight = torch.tensor([0.5, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
        >>> crimson_score_from_statistics(credit, torch.tensor([1.0, 1.0, 0.0]), false_weight)
        tensor([ 0.5000, -0.5000, 1.0000])
    """
    has_findings = reference_weight > 0
    # The divisor 1 avoids 0/0 for reports without reference findings, whose quotient is replaced below.
    share = (credit - false_weight) / reference_weight.where(has_findings, torch.ones_like(reference_weight))
    share = share.where(has_findings, torch.ones_like(share))
    excess = (false_weight - credit).clamp(min=0)
    return share.where(excess == 0, -excess / (1 + excess))


def crimson_score(
    evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]] | CrimsonEvaluation | Mapping[str, Any],
    checks: CrimsonChecks = "strict",
) -> Tensor:
    r"""Compute CRIMSON of evaluated report pairs.

    A complete report without false findings scores 1. A normal report scores 0 if the reference has findings, and 1 if
    it has none. A report with a score below 0 is worse than a normal report. See :func:`crimson_statistics` and
    :func:`crimson_score_from_statistics` for the formulas.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 1 to 3.

    Args:
        evaluations: ``N`` evaluations or mappings in the published JSON form, or a single one.
        checks: ``"strict"``, or ``"published"`` to score whatever the published code scores, as it does; see
            :func:`crimson_statistics`.

    Returns:
        float64 tensor ``(N,)``, or a scalar for one evaluation; in (-1, 1], higher is better. The published code rounds
        its scores to four digits.

    Raises:
        ValueError: If an evaluation does not have the published form; names the row. With ``checks="strict"`` also if
            an id is unknown or not unique.

    Example:
        >>> from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding, crimson_score
        >>> mass = CrimsonFinding("R1", "right lung mass", "actionable_not_urgent")
        >>> crimson_score([CrimsonEvaluation((mass,), missing_findings=("R1",)), CrimsonEvaluation()])
        tensor([0., 1.], dtype=torch.float64)
        >>> crimson_score(CrimsonEvaluation((mass,), false_findings=("P1",)), checks="published")
        tensor(0., dtype=torch.float64)
    """
    if isinstance(evaluations, CrimsonEvaluation | Mapping):
        return crimson_score([evaluations], checks)[0]
    statistics = crimson_statistics(evaluations, checks)
    return crimson_score_from_statistics(*statistics[:3])
