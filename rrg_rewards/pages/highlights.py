"""Where two reports state the findings of an evaluation, and what became of each finding."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from rrg_rewards.findings.reading.coverage import PairCoverage
from rrg_rewards.functional.crimson import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.tasks.grounding import content_words

Status = Literal["unread", "matched", "misdescribed", "missed", "invented"]

_SENTENCE = re.compile(r"[^.;!?\n]+")
# Share of the words of a finding that a sentence must contain.
_MIN_SHARE = 0.5


def locate(report: str, finding: str) -> tuple[int, int] | None:
    """Return where a report states a finding: the same words, or else the sentence with most of them.

    Returns:
        Offsets of the first character and after the last one; ``None`` if no sentence contains half of the words.

    Example:
        >>> locate("No effusion. Large  left pneumothorax.", "large left pneumothorax")
        (13, 37)
        >>> locate("Heart normal. There is a large pneumothorax.", "pneumothorax, large")
        (14, 43)
    """
    words = finding.split()
    if words and (found := re.search(r"\s+".join(map(re.escape, words)), report, re.IGNORECASE)):
        return found.span()
    wanted = content_words(finding)
    best, place = 0.0, None
    for sentence in _SENTENCE.finditer(report) if wanted else ():
        share = len(wanted & content_words(sentence[0])) / len(wanted)
        if share > best:
            start = sentence.start() + len(sentence[0]) - len(sentence[0].lstrip())
            best, place = share, (start, sentence.end())
    return place if best >= _MIN_SHARE else None


def highlights(evaluation: CrimsonEvaluation, reference: str | None, candidate: str | None) -> list[list[Any]]:
    """Return the findings and the unread words of both reports for the view of a report.

    Args:
        evaluation: A judge's comparison of the reports.
        reference: Text of the reference; ``None`` to leave out all report text: findings, reasons and places.
        candidate: Text of the candidate; ``None`` as above.

    Returns:
        For each finding: pane (0 reference, 1 candidate), id, status, significance, ids of the findings that it is
        matched with, text, note, and places in UTF-16 units, as scripts count. Then the same of the words that
        were not read, with the status ``unread`` and no significance.

    Example:
        >>> from rrg_rewards.judges import ReportPair, RuleJudge
        >>> pair = ReportPair("Left effusion.", "Left effusion. Emphysema.")
        >>> for finding in highlights(RuleJudge().evaluation(pair), pair.reference, pair.candidate):
        ...     print(finding)
        [0, 'R1', 'matched', 'actionable_not_urgent', 'P1', 'effusion', '', [[5, 13]]]
        [1, 'P1', 'matched', 'actionable_not_urgent', 'R1', 'effusion', '', [[5, 13]]]
        [1, 'P2', 'invented', 'not_actionable_not_urgent', '', 'Emphysema', '', [[15, 24]]]
    """
    sides = (
        (0, evaluation.reference_findings, set(evaluation.missing_findings), "missed", reference),
        (1, evaluation.predicted_findings, set(evaluation.false_findings), "invented", candidate),
    )
    found = []
    for pane, findings, unmatched, name, report in sides:
        for finding in findings:
            errors = [error for error in evaluation.attribute_errors if finding.id == _ids(error)[pane]]
            status = name if finding.id in unmatched else "misdescribed" if errors else "matched"
            partners = [pair[1 - pane] for pair in evaluation.matched_findings if pair[pane] == finding.id]
            shown = finding.finding if report is not None else ""
            note = "; ".join(_note(error, report is not None) for error in errors)
            places = [] if report is None else _places(report, finding)
            level = finding.clinical_significance
            found.append([pane, finding.id, status, level, ", ".join(partners), shown, note, places])
    return found + _unread(evaluation.coverage, reference, candidate)


def _unread(coverage: PairCoverage | None, reference: str | None, candidate: str | None) -> list[list[Any]]:
    found: list[list[Any]] = []
    for pane, (one, report) in enumerate(zip(coverage or (), (reference, candidate), strict=False)):
        if report is None:
            continue
        for start, end, text in one.unread:
            place = [_units(report[:start]), _units(report[:end])]
            found.append([pane, f"U{len(found) + 1}", "unread", "", "", text, "", [place]])
    return found


def _ids(error: CrimsonAttributeError) -> tuple[str, str]:
    return error.ref_id, error.pred_id


def _note(error: CrimsonAttributeError, with_text: bool) -> str:
    """Describe an error; its explanation may quote the report."""
    kinds = f"{', '.join(error.error_types)} ({error.severity})"
    return f"{kinds}: {error.explanation}" if with_text and error.explanation else kinds


def _places(report: str, finding: CrimsonFinding) -> list[list[int]]:
    spans: Sequence[tuple[int, int]] = finding.spans
    if not spans:
        found = locate(report, finding.finding)
        spans = () if found is None else (found,)
    return [[_units(report[:start]), _units(report[:end])] for start, end in spans]


def _units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
