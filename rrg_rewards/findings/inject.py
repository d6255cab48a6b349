"""Candidates with known errors from real report text: edited where the finding engine is sure, and read again."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from rrg_rewards.findings.additions import (
    MODALITIES,
    denials_dropped,
    global_comparisons,
    inventions,
    normal_statements,
    report_modality,
    synonyms,
)
from rrg_rewards.findings.alterations import PROPOSERS
from rrg_rewards.findings.compare import FindingComparison, compare_findings
from rrg_rewards.findings.edits import Move, Replacement, apply, candidate_place, conflicting, reordered
from rrg_rewards.findings.errors import (
    LETTERS,
    ErrorEdit,
    InjectedReport,
    draw_counts,
    requested_counts,
    seeded_draws,
)
from rrg_rewards.findings.reading import Proposal, Reading
from rrg_rewards.findings.types import Attributes, Finding
from rrg_rewards.utilities.draws import Draws
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["inject_errors"]

# Scarcest first: a finding takes one error at most, and few have a comparison to lose.
_ORDER = "FDCEBA"
# Edits of a category that are tried before it is given up, and of them those of one finding.
_TRIES, _TRIES_OF_ONE = 12, 3
_MOST_HARMLESS = 3
_HARMLESS = ("synonym", "synonym", "normal statement", "denial dropped", "reordered")
# What an error of each category changes in the mentions that it is about.
_CHANGES = {
    "C": frozenset({"laterality", "location"}),
    "D": frozenset({"severity", "size_mm"}),
    "E": frozenset({"change"}),
    "F": frozenset({"change"}),
}
_LOCATION, _SEVERITY = "location", ("severity", "measurement")

_Mention = tuple[str, str, Attributes]


def inject_errors(
    report: str,
    counts: Mapping[str, int] | Sequence[int] | None = None,
    *,
    seed: int,
    harmless: int | None = None,
    modality: str | None = None,
) -> InjectedReport | None:
    """Make a candidate with a known number of errors from a report.

    Every edit is read again by the finding engine. It stays only if the candidate then differs from the report by
    exactly what was meant, in the mentions of findings, in :func:`rrg_rewards.findings.compare_findings` and in the
    sentences that compare with an earlier examination. Otherwise it is undone and another one is tried.

    One finding has one error at most, and an error is counted once:

    - A: a finding is invented; what the report says against it may go with it.
    - B: a finding is left out wherever the report tells it, with all that is said of it, comparisons included.
    - C: a finding is on the other side or at another level of the lung; it is neither missing nor false.
    - D: a severity is two steps off (small for large), or a size by twice or less than half and 4 mm.
    - E: a comparison with an earlier examination is added, of a finding that has none or of the whole examination.
    - F: what is said of a finding's change, or of the examination's, is left out; the finding stays.

    Another wording, another order of sentences, a further denial or a denial less is no error.

    Args:
        report: Report of a chest X-ray or chest CT.
        counts: Errors by letter or name, or all six; drawn as by :func:`rrg_rewards.findings.error_counts` where None.
        seed: Not negative; the same report, counts and seed give the same candidate.
        harmless: Harmless edits to try; up to three are drawn where None.
        modality: ``ct`` or ``xray``, whose words inventions are told in; told by the report's words where None.

    Returns:
        The candidate; ``declined`` says how many errors could not be made with certainty. None where the engine cannot
        read the report without doubt, or where errors were asked for and none could be made.

    Raises:
        TypeError: If the report is no text, or counts or seed are no integers.
        ValueError: For an unknown category or modality, or a negative number.

    Example:
        >>> injected = inject_errors("Small left effusion. The heart is normal.", {"D": 1}, seed=0, harmless=0)
        >>> injected.candidate, injected.counts, injected.edits[0].detail
        ('Large left effusion. The heart is normal.', (0, 0, 0, 1, 0, 0), 'pleural_effusion: large for small')
    """
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    if modality is not None and modality not in MODALITIES:
        raise ValueError(unknown_name_message("modality", modality, MODALITIES))
    if harmless is not None and harmless < 0:
        raise ValueError(f"harmless must not be negative, got {harmless}")
    draws = seeded_draws(seed, report)
    requested = draw_counts(draws) if counts is None else requested_counts(counts)
    number = int(draws.uniform() * (_MOST_HARMLESS + 1)) if harmless is None else harmless
    reading = Reading(report)
    if not any(character.isalpha() for character in report) or not _is_clear(reading):
        return None
    injection = _Injection(reading, draws, modality or report_modality(report))
    for letter in _ORDER:
        injection.add(letter, requested[LETTERS.index(letter)])
    if any(requested) and not any(injection.counts):
        return None
    injection.add_harmless(number)
    return InjectedReport(report, injection.candidate, tuple(injection.counts), requested, injection.edits())


def _is_clear(reading: Reading) -> bool:
    """Whether the engine finds a report to be the same as itself."""
    return _measured(compare_findings(reading.findings, reading.findings)) == (0, 0, 0, 0)


def _measured(comparison: FindingComparison) -> tuple[int, int, int, int] | None:
    """Errors A to D that a comparison shows; None if it shows what is none of them."""
    moved = graded = 0
    for match in comparison.matches:
        for discrepancy in match.discrepancies:
            if not discrepancy.significant:
                return None
            if discrepancy.type == _LOCATION:
                moved += 1
            elif discrepancy.type in _SEVERITY:
                graded += 1
            else:
                return None
    return len(comparison.false), len(comparison.missing), moved, graded


def _key(mention: Finding) -> _Mention:
    return mention.concept, mention.presence, mention.attributes


class _Injection:
    """A candidate as errors are added to it."""

    def __init__(self, reading: Reading, draws: Draws, modality: str) -> None:
        self._reference, self._draws, self._modality = reading, draws, modality
        self._made: list[Proposal] = []
        self._replacements: list[Replacement] = []
        self._now = reading
        self.counts = [0] * len(LETTERS)
        self._moves: list[Move] = []

    @property
    def candidate(self) -> str:
        """The report with all edits made."""
        return self._now.report

    def add(self, letter: str, number: int) -> None:
        """Make up to ``number`` errors of a category."""
        for _ in range(number):
            for proposal in islice(self._proposals(letter), _TRIES):
                if self._try(proposal):
                    break
            else:
                return

    def add_harmless(self, number: int) -> None:
        """Make up to ``number`` edits that change nothing; of these another order of sentences comes last."""
        drawn = [self._draws.pick(_HARMLESS) for _ in range(number)]
        for kind in drawn:
            for proposal in islice(self._harmless(kind), _TRIES):
                if self._try(proposal):
                    break
        if "reordered" in drawn:
            self._reorder()

    def _harmless(self, kind: str) -> Iterator[Proposal]:
        if kind == "synonym":
            yield from synonyms(self._reference, self._draws)
        elif kind == "denial dropped":
            yield from denials_dropped(self._reference, self._draws)
        elif kind == "normal statement":
            yield from normal_statements(self._reference, self._now, self._draws)

    def _reorder(self) -> None:
        """Tell the candidate's sentences in another order, if it then reads the same."""
        found = reordered(self._now.report, self._now.sentences, self._draws)
        if found is None:
            return
        now = Reading(found[0])
        if self._reads_as_meant(None, "", now, self.counts):
            self._now, self._moves = now, found[1]

    def _proposals(self, letter: str) -> Iterator[Proposal]:
        if letter == "A":
            yield from inventions(self._reference, self._modality, self._draws)
            return
        reading, draws = self._reference, self._draws
        taken = {proposal.target for proposal in self._made}
        targets = [
            target
            for target in range(len(reading.findings))
            if target not in taken and reading.groups[target] and (letter in "EF" or reading.stands_alone(target))
        ]
        offers = [list(PROPOSERS[letter](reading, target)) for target in targets]
        if letter in "EF":
            whole = [found for found in global_comparisons(reading, draws) if found.edit.category == letter]
            offers += [[found] for found in whole]
        for offer in draws.shuffled(offers):
            yield from draws.shuffled(offer)[:_TRIES_OF_ONE]

    def _try(self, proposal: Proposal) -> bool:
        """Make an edit if the candidate then reads as meant."""
        replacements = [*self._replacements, *proposal.replacements]
        if conflicting(replacements):
            return False
        text = apply(self._reference.report, replacements).rstrip()
        if text.count("  ") > self._reference.report.count("  "):
            return False
        now = Reading(text)
        letter = proposal.edit.category
        counts = list(self.counts)
        if letter is not None:
            counts[LETTERS.index(letter)] += 1
        if not self._reads_as_meant(letter, proposal.edit.detail, now, counts):
            return False
        self._made.append(proposal)
        self._replacements, self._now, self.counts = replacements, now, counts
        return True

    def _reads_as_meant(self, letter: str | None, detail: str, now: Reading, counts: Sequence[int]) -> bool:
        before, after = Counter(map(_key, self._now.mentions)), Counter(map(_key, now.mentions))
        compared = len(now.comparing) - len(self._now.comparing)
        return (
            _mentions_fit(letter, detail, (before - after).elements(), (after - before).elements())
            and _comparisons_fit(letter, compared)
            and _measured(compare_findings(self._reference.findings, now.findings)) == tuple(counts[:4])
        )

    def edits(self) -> tuple[ErrorEdit, ...]:
        """What was done, with places in the candidate."""
        text = apply(self._reference.report, self._replacements)
        found = []
        for proposal in self._made:
            place = proposal.shown
            if place is not None:
                place = self._moved(_trimmed(text, candidate_place(place, self._replacements)))
            found.append(replace(proposal.edit, candidate=place))
        if self._moves:
            found.append(ErrorEdit(None, "reordered", f"{len(self._moves)} sentences"))
        return tuple(found)

    def _moved(self, place: tuple[int, int]) -> tuple[int, int]:
        by = next((move.by for move in self._moves if move.start <= place[0] < move.end), 0)
        return place[0] + by, place[1] + by


def _trimmed(text: str, place: tuple[int, int]) -> tuple[int, int]:
    """A place without the spaces around it."""
    start, end = place
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - (len(inside) - len(inside.rstrip()))


def _comparisons_fit(letter: str | None, change: int) -> bool:
    """Whether an edit may change the number of sentences that compare by so many."""
    if letter == "E":
        return change == 1
    if letter == "F":
        return change < 0
    return change <= 0 if letter == "B" else change == 0


def _mentions_fit(letter: str | None, detail: str, gone: Iterable[_Mention], come: Iterable[_Mention]) -> bool:
    """Whether an edit of a category may take these mentions away and bring those."""
    lost, won = list(gone), list(come)
    if letter == "A":
        return all(presence == "absent" for _, presence, _ in lost) and {
            (concept, presence) for concept, presence, _ in won
        } == {(detail, "present")}
    if letter == "B":
        return not won
    if letter is None:
        return all(presence == "absent" for _, presence, _ in (*lost, *won))
    if Counter(found[:2] for found in lost) != Counter(found[:2] for found in won):
        return False
    allowed = _CHANGES[letter]
    return all(
        any(_changed(first[2], second[2]) <= allowed for second in won if second[:2] == first[:2]) for first in lost
    )


def _changed(first: Attributes, second: Attributes) -> set[str]:
    return {name for name in Attributes.__slots__ if getattr(first, name) != getattr(second, name)}
