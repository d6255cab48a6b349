"""Inject known errors into real report text; the finding engine verifies every edit."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, partial
from itertools import islice, product
from typing import Any

from rrg_rewards.findings.comparing.matching import FindingComparison, compare_findings
from rrg_rewards.findings.editing.injected_report import (
    LETTERS,
    WHOLE_EXAMINATION,
    ErrorEdit,
    InjectedReport,
    draw_counts,
    requested_counts,
)
from rrg_rewards.findings.editing.paraphrase import reordered
from rrg_rewards.findings.editing.report_view import (
    Proposal,
    Replacement,
    ReportView,
    Sentence,
    apply,
    conflicting,
    corrected_article,
    drop_sentence,
    matching_case,
    only_compares,
    without_comparison,
)
from rrg_rewards.findings.editing.rewrite_rules import MEASURED_NUMBERS, change_numbers, scaled
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge, word_pattern
from rrg_rewards.findings.reading.finding import LUNG_LEVELS, Attributes, Finding
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
# Probability that "no acute disease" is removed when a finding is invented. Otherwise the candidate contradicts itself.
_SUMMARY_REMOVED = 0.7
# Maximum length in characters; a longer sentence states more than normal anatomy.
_LONGEST_NORMAL = 100
# Factors by which a size changes.
_FACTORS = (2.0, 2.5, 3.0, 0.4)
# A difference of at most this many mm may be a measurement error.
_CLEAR_MM = 4.0
# Minimum size in mm; smaller findings are not visible on a radiograph.
_LEAST_MM = 2.0
_MEASURE = re.compile(rf"{MEASURED_NUMBERS}\s*[cm]m\b", re.IGNORECASE)

_words = partial(word_pattern, "errors")
_Mention = tuple[str, str, Attributes]
_Options = Callable[[str], Sequence[str]]
Proposer = Callable[[ReportView, int], Iterator[Proposal]]


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
        counts: Numbers of errors by letter or name, or a sequence of all six. If None, they are drawn: zero to six
            errors, two thirds of which are false or missing findings.
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
            text, number = reordered(self.now.report, self._draws)
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


def inventions(view: ReportView, modality: str, draws: Draws) -> Iterator[Proposal]:
    """A: add a finding that the report does not contain, and remove the statements that it contradicts."""
    graph = concept_graph()
    held = {name for finding in view.findings for name in (finding.concept, *finding.alternatives)}
    entries = [entry for entry in load_knowledge("errors")["invented"] if "any" in entry or modality in entry]
    for entry in draws.shuffled(entries):
        concept, region = entry["concept"], entry["region"]
        if any(graph.akin(concept, name) for name in held):
            continue
        removed = _contradictions(view, concept, region, draws)
        if removed is None:
            continue
        text = draws.pick((*entry.get("any", ()), *entry.get(modality, ())))
        edit = ErrorEdit("A", "invented", concept)
        if removed and draws.chance(0.5) and removed[0].text == "":
            start, end, _ = removed[0]
            old = view.report[start:end]
            # Keep the spaces after the removed sentence.
            put = Replacement(start, end, text + old[len(old.rstrip()) :])
            yield Proposal(edit, (put, *removed[1:]))
        else:
            yield from _additions(view, region, (text,), edit, draws, removed)


def _contradictions(view: ReportView, concept: str, region: str, draws: Draws) -> list[Replacement] | None:
    """Return replacements that remove the statements that contradict a concept; ``None`` if that is impossible."""
    graph = concept_graph()
    removed: list[Replacement] = []
    for place, sentence in enumerate(view.sentences):
        absent = (mention for mention in sentence.mentions if mention.presence == "absent")
        if any(graph.relation(mention.concept, concept) for mention in absent):
            # Other denials of the sentence go with it, which is no error.
            only_denies = not sentence.abnormal and place not in view.comparing and _denies(sentence)
            changed = drop_sentence(view.sentences, place) if only_denies else []
            if not changed:
                return None
            removed += changed
        elif not sentence.abnormal:
            is_plain = len(sentence.text) <= _LONGEST_NORMAL and place not in view.comparing
            is_of_region = is_plain and _words("contradicted", region).search(sentence.text)
            is_normal = is_of_region and _words("normal_words").search(sentence.text)
            is_summary = _words("summaries").match(sentence.text) and draws.chance(_SUMMARY_REMOVED)
            if is_normal or is_summary:
                removed += drop_sentence(view.sentences, place)
    return removed


def _denies(sentence: Sentence) -> bool:
    """Whether a sentence clearly denies findings; "a calcification is not identified laterally" does not."""
    return _words("denials").match(sentence.text) is not None


def _additions(
    view: ReportView, region: str, texts: Sequence[str], edit: ErrorEdit, draws: Draws, removed: Sequence[Replacement]
) -> Iterator[Proposal]:
    """Propose to add one of several texts after a sentence about the region, or after any sentence if there is none."""
    free = [
        sentence
        for place, sentence in enumerate(view.sentences)
        if view.report[sentence.stop : sentence.end].startswith(".")
        and sentence.marker is None
        and not any(cut.start <= sentence.start < max(cut.end, cut.start + 1) for cut in removed)
        and not view.is_continued(place)
    ]
    near = [sentence for sentence in free if _words("regions", region).search(sentence.text)]
    if not free:
        return
    where = draws.pick(near or free).end
    text = draws.pick(texts)
    text = text.upper() if view.report.isupper() else text
    spaced = f"{text} " if view.report[where - 1 : where].isspace() else f" {text}"
    yield Proposal(edit, (*removed, Replacement(where, where, spaced)))


def global_comparisons(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """E and F: add a separate comparing sentence to a report without comparisons, or remove such a sentence."""
    if not view.comparing:
        texts = load_knowledge("errors")["comparison"]["added_sentences"]
        edit = ErrorEdit("E", "comparison added", WHOLE_EXAMINATION)
        yield from _additions(view, "lungs", texts, edit, draws, ())
    for place in sorted(view.comparing):
        sentence = view.sentences[place]
        is_alone = not sentence.abnormal and only_compares(sentence.text)
        if is_alone and (removed := drop_sentence(view.sentences, place)):
            yield Proposal(ErrorEdit("F", "comparison dropped", WHOLE_EXAMINATION, sentence.span), tuple(removed))


def normal_statements(view: ReportView, now: ReportView, draws: Draws) -> Iterator[Proposal]:
    """Harmless: deny a finding that neither the report nor the candidate mentions."""
    graph = concept_graph()
    named = {mention.concept for mention in (*view.mentions, *now.mentions)}
    for entry in draws.shuffled(load_knowledge("errors")["normal"]):
        concept = entry["concept"]
        if concept is not None and any(graph.akin(concept, name) for name in named):
            continue
        text = draws.pick(entry["sentences"])
        edit = ErrorEdit(None, "normal statement", concept or "anatomy")
        additions = list(_additions(view, entry["region"], (text,), edit, draws, ()))
        if text not in now.report:
            yield from additions


def denials_dropped(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """Harmless: remove a denial."""
    for place, sentence in draws.shuffled(list(enumerate(view.sentences))):
        is_denial = sentence.mentions and not sentence.abnormal and place not in view.comparing and _denies(sentence)
        if is_denial and (removed := drop_sentence(view.sentences, place)):
            edit = ErrorEdit(None, "denial dropped", sentence.mentions[0].concept, sentence.span)
            yield Proposal(edit, tuple(removed))


def synonyms(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """Harmless: replace an expression by a synonym."""
    words, options = _other_words("synonyms")
    for match in draws.shuffled(list(words.finditer(view.report))):
        text = draws.pick(options(match[0]))
        edit = ErrorEdit(None, "synonym", f"{text} for {match[0]}", match.span())
        yield Proposal(edit, (Replacement(match.start(), match.end(), text),))


def omissions(view: ReportView, target: int) -> Iterator[Proposal]:
    """B: remove every mention of the finding."""
    group, finding = view.groups[target], view.findings[target]
    if len(group) > 1 and finding.concept in load_knowledge("errors")["umbrellas"]:
        return
    replacements: list[Replacement] = []
    for place in view.places_of(group):
        sentence = view.sentences[place]
        own = [mention for mention in sentence.abnormal if mention in group]
        if len(own) > 1:
            # "A granuloma in the left lung and hilar granulomas" may be one finding or two.
            return
        # Mentions that were merged into the finding are removed with it: "opacity, likely atelectasis".
        is_shared = any(mention not in group and mention.concept != finding.concept for mention in sentence.abnormal)
        changed = [] if is_shared else drop_sentence(view.sentences, place)
        if not changed:
            return
        replacements += [replacement for replacement in changed if replacement not in replacements]
    edit = ErrorEdit("B", "dropped", finding.concept, (finding.start, finding.end))
    yield Proposal(edit, tuple(replacements), target)


def wrong_places(view: ReportView, target: int) -> Iterator[Proposal]:
    """C: move the finding to the other side, or to another level of the lung."""
    finding, knowledge = view.findings[target], load_knowledge("errors")
    if finding.concept in knowledge["unlocated"]:
        return
    if finding.attributes.laterality in ("left", "right"):
        yield from _reworded(view, target, "C", "moved", *_other_words("sides"))
    if LUNG_LEVELS.intersection(finding.attributes.location) and finding.concept not in knowledge["never_raised"]:
        yield from _reworded(view, target, "C", "moved", *_other_words("levels"))


def wrong_severities(view: ReportView, target: int) -> Iterator[Proposal]:
    """D: change a severity by at least two steps, or a size."""
    attributes = view.findings[target].attributes
    if attributes.severity is not None:
        yield from _reworded(view, target, "D", "severity", *_other_words("severities"))
    if (size := attributes.size_mm) is not None:
        clear = [
            partial(scaled, factor=Decimal(str(factor)))
            for factor in _FACTORS
            if abs(factor * size - size) > _CLEAR_MM and factor * size >= _LEAST_MM
        ]
        yield from _reworded(
            view, target, "D", "size", _MEASURE, lambda old: [change_numbers(old, scale) for scale in clear]
        )


@cache
def _other_words(table: str) -> tuple[re.Pattern[str], _Options]:
    """Return a pattern of the expressions of a table, and the expressions that may replace each."""
    knowledge = load_knowledge("errors")
    entries = knowledge[table]
    if not isinstance(entries, Mapping):
        # Of a group of synonyms, each replaces the others.
        entries = {text: [other for other in group if other != text] for group in entries for text in group}
    others = {old: [new] if isinstance(new, str) else new for old, new in entries.items()}
    # The left lung has no middle lobe.
    after = rf"(?!\W(?:{'|'.join(knowledge['one_sided'])}))" if table == "sides" else ""
    # Longest first, so that "no evidence of" is not matched as "no".
    words = re.compile(rf"\b(?:{'|'.join(sorted(others, key=len, reverse=True))})\b{after}", re.IGNORECASE)
    return words, lambda old: [matching_case(new, old) for new in others[old.lower()]]


def _reworded(
    view: ReportView, target: int, category: str, action: str, words: re.Pattern[str], options: _Options
) -> Iterator[Proposal]:
    """Propose other words for one expression in each sentence on a finding, and the articles that fit them.

    A finding may be "small" in one sentence and "tiny" in another; each word is replaced by its own opposite. Words of
    another finding are proposed, too: the engine then reads that finding otherwise, and the edit is not kept.

    Args:
        view: The report.
        target: Index of the finding.
        category: Category of the edits.
        action: Kind of the edits.
        words: Pattern of the expressions.
        options: Function that returns other words for the words of the report.
    """
    finding = view.findings[target]
    sentences = (view.sentences[place] for place in view.places_of(view.groups[target]))
    places = [
        [Replacement(sentence.start + found.start(), sentence.start + found.end(), found[0]) for found in matches]
        for sentence in sentences
        if (matches := list(words.finditer(sentence.text)))
    ]
    for olds in islice(product(*places), _TRIES) if places else ():
        for texts in zip(*(options(old.text) for old in olds), strict=False):
            news = [old._replace(text=text) for old, text in zip(olds, texts, strict=True)]
            # "An 8 mm nodule" becomes "a 24 mm nodule".
            articles = filter(None, (corrected_article(view.report, new.start, new.text) for new in news))
            detail = f"{texts[0]} for {olds[0].text}"
            # The units of a size are quoted as they are written.
            detail = f"{finding.concept}: {detail if action == 'size' else detail.lower()}"
            edit = ErrorEdit(category, action, detail, (finding.start, finding.end))
            yield Proposal(edit, (*news, *articles), target)


def added_comparisons(view: ReportView, target: int) -> Iterator[Proposal]:
    """E: add a change since a prior study to a finding without one."""
    finding, group = view.findings[target], view.groups[target]
    places = view.places_of(group)
    if any(place in view.comparing for place in places) or finding.attributes.change is not None:
        return
    for place in places:
        sentence = view.sentences[place]
        # In "Low volumes without consolidation, decreased" it is unclear what has decreased.
        plain = len(sentence.mentions) == 1 == len(sentence.abnormal)
        if plain and not view.is_continued(place) and sentence.text[-1].isalnum():
            for text in load_knowledge("errors")["comparison"]["added"]:
                edit = ErrorEdit("E", "comparison added", f"{finding.concept}: {text[2:]}", sentence.span)
                added = Replacement(sentence.stop - 1, sentence.stop, sentence.text[-1] + text)
                yield Proposal(edit, (added,), target)


def dropped_comparisons(view: ReportView, target: int) -> Iterator[Proposal]:
    """F: remove the change of a finding since a prior study."""
    finding, group = view.findings[target], view.groups[target]
    places = [place for place in view.places_of(group) if place in view.comparing]
    akin = partial(concept_graph().akin, finding.concept)
    others = (mention for place in view.comparing.difference(places) for mention in view.sentences[place].abnormal)
    if any(akin(mention.concept) for mention in others) or any(map(view.compared_next, view.places_of(group))):
        return
    replacements = []
    for place in places:
        sentence = view.sentences[place]
        # The sentence must describe the change of one finding only, under any of its names.
        if not all(akin(mention.concept) for mention in sentence.abnormal):
            return
        found = next(without_comparison(sentence.text), None)
        if found is None:
            return
        start, end, text = found
        replacements.append(Replacement(sentence.start + start, sentence.start + end, text))
    if replacements:
        edit = ErrorEdit("F", "comparison dropped", finding.concept, view.sentences[places[0]].span)
        yield Proposal(edit, tuple(replacements), target)


PROPOSERS: Mapping[str, Proposer] = {
    "B": omissions,
    "C": wrong_places,
    "D": wrong_severities,
    "E": added_comparisons,
    "F": dropped_comparisons,
}
"""Functions that propose errors in one finding, by letter of the category."""
