"""Where two reports state the findings that a metric compares, and what became of each finding."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

from rrg_rewards.findings.reading.coverage import PairCoverage
from rrg_rewards.functional.crimson import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.question_answering import GradedAnswer
from rrg_rewards.judges.tasks.grounding import content_words
from rrg_rewards.labelers.rules import RuleLabeler
from rrg_rewards.metrics.crimson_scores import CrimsonScores
from rrg_rewards.metrics.ct_finebench_scores import Examination, FineBenchScores
from rrg_rewards.metrics.labelled import LabelledScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.schemas.labels import LABEL_SCHEMAS

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


def scored_findings(
    scores: Scores, references: Sequence[str | None], candidates: Sequence[str | None]
) -> list[list[list[Any]] | None] | None:
    """Return the findings of each pair that a metric compares: those of CRIMSON, labels, or findings with questions.

    Args:
        scores: Scores of ``N`` pairs.
        references: Texts of the references; ``None`` to leave out all report text.
        candidates: Texts of the candidates; ``None`` as above.

    Returns:
        What :func:`highlights` returns for each pair, ``None`` for a pair that was not compared; ``None`` alone if the
        metric compares no findings.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> pairs = ["Enlarged heart."], ["Cardiomegaly. Hiatal hernia."]
        >>> ((first, *_),) = scored_findings(ReportCRG().score(*pairs), pairs[1], pairs[0])
        >>> first
        [0, 'R3', 'matched', '', 'P3', 'Cardiomegaly', '', [[0, 12]]]
    """
    pairs = list(zip(references, candidates, strict=True))
    if isinstance(scores, CrimsonScores):
        evaluated = zip(scores.evaluations, scores.coverages, pairs, strict=True)
        return [_evaluated(evaluation, coverage, pair) for evaluation, coverage, pair in evaluated]
    if isinstance(scores, LabelledScores):
        rows = zip(scores.scored.tolist(), scores.target.tolist(), scores.preds.tolist(), pairs, strict=True)
        return [_labelled(scores.labels, (of, on), pair) if scored else None for scored, of, on, pair in rows]
    if isinstance(scores, FineBenchScores):
        examined = zip(scores.examinations, pairs, strict=True)
        return [None if examination is None else _examined(examination, pair) for examination, pair in examined]
    return None


def _evaluated(
    evaluation: CrimsonEvaluation | None, coverage: PairCoverage | None, pair: tuple[str | None, str | None]
) -> list[list[Any]] | None:
    # A pair without an evaluation may have a reference that was not read.
    found = highlights(evaluation or CrimsonEvaluation(coverage=coverage), *pair)
    return None if evaluation is None and not found else found


def _labelled(
    labels: Sequence[str], positive: tuple[Sequence[bool], Sequence[bool]], pair: tuple[str | None, str | None]
) -> list[list[Any]]:
    """Return the labels of both reports as findings; the name of a label is no text of a report."""
    found = []
    for pane, (letter, other, unmatched) in enumerate((("R", "P", "missed"), ("P", "R", "invented"))):
        report = pair[pane]
        places = {} if report is None else _label_places(tuple(labels), report)
        for number, (label, own, others) in enumerate(zip(labels, positive[pane], positive[1 - pane], strict=True), 1):
            if own:
                status, partner = ("matched", f"{other}{number}") if others else (unmatched, "")
                place = places.get(label, [])
                found.append([pane, f"{letter}{number}", status, "", partner, label, "", place])
    return found


def _label_places(labels: tuple[str, ...], report: str) -> dict[str, list[list[int]]]:
    """Return where rules read each label, or else where its words are: other labelers do not say why."""
    rules = _rules_of(labels)
    read = {} if rules is None else rules.explain(report)
    found = {}
    for label in labels:
        spans = [(one.start, one.end) for one in read.get(label, ())]
        place = None if spans else locate(report, label)
        found[label] = _in_units(report, spans if place is None else [place])
    return found


@cache
def _rules_of(labels: tuple[str, ...]) -> RuleLabeler | None:
    """Return the rules of the label set that has these labels, if there are any."""
    name = next((name for name, schema in LABEL_SCHEMAS.items() if set(labels) <= set(schema.labels)), None)
    return None if name is None else RuleLabeler(name)


def _examined(examination: Examination, pair: tuple[str | None, str | None]) -> list[list[Any]]:
    """Return the findings with questions: of the reference (recall), and of the candidate (precision)."""
    found = []
    for pane, (side, letter, unmatched) in enumerate((("recall", "R", "missed"), ("precision", "P", "invented"))):
        asked: dict[str, list[GradedAnswer]] = {}
        for one in examination.side(side):
            asked.setdefault(one.item.finding, []).append(one)
        for number, (finding, answers) in enumerate(asked.items(), 1):
            report = pair[pane]
            note = "; ".join(_answer_notes(answers, report is not None))
            status = unmatched if all(one.answer is None for one in answers) else "misdescribed" if note else "matched"
            place = None if report is None else locate(report, finding)
            places = [] if report is None or place is None else _in_units(report, [place])
            # The questions of a file may name findings in the words of a report.
            shown = "" if report is None else finding
            found.append([pane, f"{letter}{number}", status, "", "", shown, note, places])
    return found


def _answer_notes(answers: Sequence[GradedAnswer], with_text: bool) -> Iterator[str]:
    for one in answers:
        if one.grade < 1:
            given = f": {one.answer or 'not stated'} for {one.item.answer}" if with_text else ""
            yield f"{one.item.attribute}{given}"


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
    return _in_units(report, spans)


def _in_units(report: str, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    return [[_units(report[:start]), _units(report[:end])] for start, end in spans]


def _units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
