"""Inject known errors into real report text; the finding engine verifies every edit."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rrg_rewards.findings.comparing.matching import FindingComparison, compare_findings
from rrg_rewards.findings.editing.error_proposals import (
    PROPOSERS,
    denials_dropped,
    global_comparisons,
    inventions,
    normal_statements,
    synonyms,
)
from rrg_rewards.findings.editing.injected_report import (
    LETTERS,
    ErrorEdit,
    InjectedReport,
    draw_counts,
    requested_counts,
)
from rrg_rewards.findings.editing.report_view import (
    Proposal,
    Replacement,
    ReportView,
    apply,
    conflicting,
    reordered,
)
from rrg_rewards.findings.reading.finding import Attributes, Finding
from rrg_rewards.findings.reading.modality import MODALITIES, report_majority
from rrg_rewards.findings.reading.plain_text import plain_text
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.random_draws import Draws, seeded_draws

# Rarest first, because a finding has at most one error and few findings have a comparison to remove.
_ORDER = "FDCEBA"
# Maximum number of edits to try for one error, in all and for each finding.
_TRIES, _TRIES_OF_ONE = 12, 3
_MOST_HARMLESS = 3
_HARMLESS = ("synonym", "synonym", "normal statement", "denial dropped", "reordered")
# Attributes that an error of each category changes in a mention.
_CHANGES = {"C": ("laterality", "location"), "D": ("severity", "size_mm"), **dict.fromkeys("EF", ("change",))}

_Mention = tuple[str, str, Attributes]


def inject_errors(
    report: str,
    counts: Mapping[str, int] | Sequence[int] | None = None,
    *,
    seed: int,
    harmless: int | None = None,
    modality: str | None = None,
) -> InjectedReport | None:
    """Inject a known number of errors into a report.

    The finding engine reads the candidate again after every edit. An edit is kept only if the candidate then differs
    from the report exactly as intended: in the mentions of findings, in the result of
    :func:`rrg_rewards.findings.compare_findings`, and in the sentences that compare with a prior study. Otherwise the
    edit is undone and another one is tried.

    A finding has at most one error. Each error is counted in one category:

    - A: a finding is invented; statements that contradict it may be removed.
    - B: every mention of a finding is removed, with its attributes and comparisons.
    - C: a finding moves to the other side or to another level of the lung; it is neither missing nor false.
    - D: a severity changes by at least two steps (small to large), or a size changes by more than 4 mm and is at least
      doubled or less than half.
    - E: a comparison with a prior study is added, for a finding without one or for the whole examination.
    - F: the change of a finding, or of the whole examination, is removed; the finding remains.

    Synonyms, another order of sentences, an additional denial or a removed denial are not errors.

    Args:
        report: Report of a chest X-ray or chest CT. Markup and other ways to write plain text are taken out first.
        counts: Numbers of errors by letter or name, or a sequence of all six. If None,
            :func:`rrg_rewards.findings.error_counts` draws them.
        seed: Non-negative seed. The same report, counts and seed give the same candidate.
        harmless: Number of harmless edits to try. If None, it is drawn, up to three.
        modality: Modality of invented findings, ``ct`` or ``xray``. If None, it is derived from the report's words.

    Returns:
        The candidate; ``declined`` counts the errors that could not be injected with certainty. None if the engine
        cannot read the report with certainty, or if errors were requested and none could be injected.

    Raises:
        TypeError: If the report is not a string, or counts or seed are not integers.
        ValueError: For an unknown category or modality, or a negative number.

    Example:
        >>> injected = inject_errors("Small left effusion. The heart is normal.", {"D": 1}, seed=0, harmless=0)
        >>> injected.candidate, injected.counts, injected.edits[0].detail
        ('Large left effusion. The heart is normal.', (0, 0, 0, 1, 0, 0), 'pleural_effusion: large for small')
    """
    draws = seeded_draws(seed, report)
    report = plain_text(report).text
    if modality not in (None, *MODALITIES):
        raise ValueError(unknown_name_message("modality", str(modality), MODALITIES))
    if harmless is not None and harmless < 0:
        raise ValueError(f"harmless must not be negative, got {harmless}")
    requested = draw_counts(draws) if counts is None else requested_counts(counts)
    number = int(draws.uniform() * (_MOST_HARMLESS + 1)) if harmless is None else harmless
    view = ReportView(report)
    # The engine must find no difference between the report and itself.
    is_clear = _measured(compare_findings(view.findings, view.findings)) == (0, 0, 0, 0, 0)
    if not any(character.isalpha() for character in report) or not is_clear:
        return None
    injection = _Injection(view, draws, modality or report_majority(report) or "xray")
    for letter in _ORDER:
        injection.add(letter, requested[LETTERS.index(letter)])
    if any(requested) and not any(injection.counts):
        return None
    injection.add_harmless(number)
    return InjectedReport(report, injection.now.report, tuple(injection.counts), requested, injection.edits())


def _measured(comparison: FindingComparison) -> tuple[int, int, int, int, int] | None:
    """Return the numbers of errors A to D in a comparison and of temporal errors; ``None`` if it has other errors."""
    errors = Counter(
        error.type if error.significant or error.type == "temporal" else "negligible"
        for match in comparison.matches
        for error in match.discrepancies
    )
    if not errors.keys() <= {"location", "severity", "measurement", "temporal"}:
        return None
    severities = errors["severity"] + errors["measurement"]
    return len(comparison.false), len(comparison.missing), errors["location"], severities, errors["temporal"]


def _key(mention: Finding) -> _Mention:
    return mention.concept, mention.presence, mention.attributes


class _Injection:
    """A candidate report while errors are injected into it."""

    def __init__(self, view: ReportView, draws: Draws, modality: str) -> None:
        self._reference, self._draws, self._modality = view, draws, modality
        self._made: list[Proposal] = []
        self._replacements: list[Replacement] = []
        # The report with all edits applied.
        self.now = view
        self.counts = [0] * len(LETTERS)
        self._reordered = 0

    def add(self, letter: str, number: int) -> None:
        """Inject up to ``number`` errors of a category."""
        for _ in range(number):
            if not self._apply_one(self._proposals(letter)):
                return

    def add_harmless(self, number: int) -> None:
        """Apply up to ``number`` harmless edits. Sentences are reordered last."""
        drawn = [self._draws.pick(_HARMLESS) for _ in range(number)]
        for kind in drawn:
            offers = {
                "synonym": synonyms(self._reference, self._draws),
                "denial dropped": denials_dropped(self._reference, self._draws),
                "normal statement": normal_statements(self._reference, self.now, self._draws),
            }
            self._apply_one(offers.get(kind, ()))
        if "reordered" in drawn:
            text, number = reordered(self.now.report, self.now.sentences, self._draws)
            now = ReportView(text)
            if self._reads_as_meant(None, "", now, self.counts):
                self.now, self._reordered = now, number

    def _apply_one(self, proposals: Iterable[Proposal]) -> bool:
        """Apply the first edit that has the intended effect; return whether one was applied."""
        return any(map(self._try, islice(proposals, _TRIES)))

    def _proposals(self, letter: str) -> Iterator[Proposal]:
        view, draws = self._reference, self._draws
        if letter == "A":
            yield from inventions(view, self._modality, draws)
            return
        taken = {proposal.target for proposal in self._made}
        offers = [
            list(PROPOSERS[letter](view, target))
            for target, group in enumerate(view.groups)
            if target not in taken and group and (letter in "EF" or view.stands_alone(target))
        ]
        if letter in "EF":
            offers += [[found] for found in global_comparisons(view, draws) if found.edit.category == letter]
        for offer in draws.shuffled(offers):
            yield from draws.shuffled(offer)[:_TRIES_OF_ONE]

    def _try(self, proposal: Proposal) -> bool:
        """Apply an edit if it has the intended effect; return whether it was applied."""
        replacements = [*self._replacements, *proposal.replacements]
        if conflicting(replacements):
            return False
        text = apply(self._reference.report, replacements).rstrip()
        if text.count("  ") > self._reference.report.count("  "):
            return False
        now = ReportView(text)
        letter = proposal.edit.category
        counts = [number + (name == letter) for name, number in zip(LETTERS, self.counts, strict=True)]
        if not self._reads_as_meant(letter, proposal.edit.detail, now, counts):
            return False
        self._made.append(proposal)
        self._replacements, self.now, self.counts = replacements, now, counts
        return True

    def _reads_as_meant(self, letter: str | None, detail: str, now: ReportView, counts: Sequence[int]) -> bool:
        before, after = Counter(map(_key, self.now.mentions)), Counter(map(_key, now.mentions))
        if not _mentions_fit(letter, detail, [*(before - after).elements()], [*(after - before).elements()]):
            return False
        compared = len(now.comparing) - len(self.now.comparing)
        if not {"B": compared <= 0, "E": compared == 1, "F": compared < 0}.get(letter or "", compared == 0):
            return False
        measured = _measured(compare_findings(self._reference.findings, now.findings))
        # A comparison of the whole examination is no error of a finding.
        return measured is not None and measured[:4] == tuple(counts[:4]) and measured[4] <= sum(counts[4:])

    def edits(self) -> tuple[ErrorEdit, ...]:
        """Return all edits."""
        moved = [ErrorEdit(None, "reordered", f"{self._reordered} sentences")] if self._reordered else []
        return (*(proposal.edit for proposal in self._made), *moved)


def _mentions_fit(letter: str | None, detail: str, lost: Sequence[_Mention], won: Sequence[_Mention]) -> bool:
    """Whether an edit of a category may remove and add these mentions."""
    if letter == "A":
        is_added = {mention[:2] for mention in won} == {(detail, "present")}
        return is_added and all(presence == "absent" for _, presence, _ in lost)
    if letter == "B":
        return not won
    if letter is None:
        return all(presence == "absent" for _, presence, _ in (*lost, *won))
    blank: dict[str, Any] = dict.fromkeys(_CHANGES[letter])
    old, new = ([(found[:2], found[2]._replace(**blank)) for found in mentions] for mentions in (lost, won))
    return Counter(name for name, _ in old) == Counter(name for name, _ in new) and set(old) <= set(new)
