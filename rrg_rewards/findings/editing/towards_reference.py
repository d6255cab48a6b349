"""Edit a candidate report towards its reference: invented findings are removed, and missing ones added."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rrg_rewards.findings.comparing.matching import FindingComparison, compare_findings
from rrg_rewards.findings.editing.report_view import ReportView
from rrg_rewards.findings.editing.text_edits import Replacement, apply, conflicting, drop_sentence, without_item
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS


class ReferenceEdit(NamedTuple):
    """An edit of a candidate report towards its reference.

    Args:
        removed: Invented finding that was removed, in the words of the candidate; empty if none was.
        added: Sentence of the reference that was added, or took the place of the removed one; empty if none was.
    """

    removed: str
    added: str


def edit_towards_reference(
    candidate: str, reference: str, most: int | None = 1
) -> tuple[str, tuple[ReferenceEdit, ...]]:
    """Correct false and missing findings of a candidate report with sentences of its reference.

    An edit is the first of these that leaves fewer false and missing findings, as
    :func:`rrg_rewards.findings.compare_findings` reads them, the most significant findings first:

    1. The sentence of a false finding is replaced by the reference's sentence of a missing finding in the same organ.
    2. A false finding is removed: its sentence, or it alone from a list.
    3. The reference's sentence of a missing finding is added at the end.

    Sentences that also state a finding of the reference are not removed. Wrong details of a finding that both reports
    contain are not corrected.

    Source: Zhang et al., "EditGRPO", 2025 (arXiv 2509.22812), which compares entities of RaTEScore, not findings.

    Args:
        candidate: Candidate report.
        reference: Reference report.
        most: Greatest number of edits; ``None`` for as many as are possible.

    Returns:
        The edited report, and the edits; the same report without edits if there is nothing to correct.

    Raises:
        ValueError: If ``most`` is negative.

    Example:
        >>> reference = "Small left effusion. Hiatal hernia."
        >>> text, edits = edit_towards_reference("Small left effusion. Emphysema.", reference, most=None)
        >>> text, edits[0]
        ('Small left effusion. Hiatal hernia.', ReferenceEdit(removed='Emphysema', added=''))
    """
    if most is not None and most < 0:
        raise ValueError(f"most must be at least 0 or None, got {most}")
    edits: list[ReferenceEdit] = []
    while most is None or len(edits) < most:
        before = compare_findings(reference, candidate)
        for text, edit in _proposals(candidate, reference, before):
            if _num_wrong(compare_findings(reference, text)) < _num_wrong(before):
                candidate = text
                edits.append(edit)
                break
        else:
            break
    return candidate, tuple(edits)


def _num_wrong(comparison: FindingComparison) -> int:
    return len(comparison.false) + len(comparison.missing)


def _proposals(candidate: str, reference: str, comparison: FindingComparison) -> Iterator[tuple[str, ReferenceEdit]]:
    """Yield edited texts with their edits, the best kind first; they may leave as much wrong as before."""
    ours, theirs = ReportView(candidate), ReportView(reference)
    false = _by_significance(comparison.candidate, comparison.candidate_significance, comparison.false)
    missing = _by_significance(comparison.reference, comparison.reference_significance, comparison.missing)
    right = [finding for i, finding in enumerate(comparison.candidate) if i not in comparison.false]
    mentions = [mention for sentence in ours.sentences for mention in sentence.abnormal]
    kept = [mention for mention in mentions if _is_of(mention, right, false)]
    invented = [(finding, sentence) for finding in false if (sentence := ours.sentence_of(finding))]
    sources = [(finding, sentence.text) for finding in missing if (sentence := theirs.sentence_of(finding))]
    for finding, sentence in invented:
        if not any(mention in kept for mention in sentence.mentions):
            for absent, text in sources:
                if finding.organ == absent.organ:
                    yield apply(candidate, [Replacement(*sentence.span, text)]), ReferenceEdit(finding.text, text)
    for finding, _ in invented:
        own = [mention for mention in mentions if mention not in kept and _is_of(mention, [finding])]
        replacements = _removal(own, ours, kept)
        if replacements and not conflicting(replacements):
            yield apply(candidate, replacements).strip(), ReferenceEdit(finding.text, "")
    for _, text in sources:
        yield _with_sentence(candidate, text), ReferenceEdit("", text)


def _by_significance(findings: Sequence[Finding], levels: Sequence[str], chosen: Sequence[int]) -> list[Finding]:
    order = sorted(chosen, key=lambda i: -SIGNIFICANCE_WEIGHTS[levels[i]])
    return [findings[i] for i in order]


def _is_of(mention: Finding, findings: Sequence[Finding], others: Sequence[Finding] = ()) -> bool:
    """Whether a mention states one of some findings: in its words, or, outside the words of others, by its concept."""
    around = [one for one in (*findings, *others) if one.start <= mention.start and mention.end <= one.end]
    if around:
        return around[0] in findings
    return any(mention.concept in (finding.concept, *finding.alternatives) for finding in findings)


def _removal(targets: Sequence[Finding], view: ReportView, kept: Sequence[Finding]) -> list[Replacement]:
    """Return what removes mentions from all their sentences; nothing if a sentence with a kept mention is no list."""
    removal: list[Replacement] = []
    for place, sentence in enumerate(view.sentences):
        own = [mention for mention in sentence.mentions if mention in targets]
        if not own:
            continue
        states_kept = any(mention in kept for mention in sentence.mentions)
        changes = (not states_kept and drop_sentence(view.sentences, place)) or without_item(sentence, own)
        if not changes:
            return []
        removal += changes
    return removal


def _with_sentence(report: str, sentence: str) -> str:
    r"""Return a report with a sentence at its end, on a line of its own if the report is a list of lines.

    Example:
        >>> _with_sentence("Cardiomegaly.", "Hiatal hernia")
        'Cardiomegaly. Hiatal hernia.'
        >>> _with_sentence("Cardiomegaly\nScoliosis", "Hiatal hernia")
        'Cardiomegaly\nScoliosis\nHiatal hernia'
    """
    given = report.strip()
    if "\n" in given:
        return f"{given}\n{sentence}{'.' if given.endswith('.') else ''}"
    if given and given[-1] not in ".!?":
        given += "."
    return f"{given} {sentence}.".strip()
