"""Propose errors in single findings and in whole reports, and harmless edits."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

from rrg_rewards.findings.editing.injected_report import WHOLE_EXAMINATION, ErrorEdit
from rrg_rewards.findings.editing.report_view import (
    Proposal,
    Replacement,
    ReportView,
    Sentence,
    corrected_article,
    drop_sentence,
    matching_case,
    only_compares,
    without_comparison,
    without_item,
)
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge, word_pattern
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.finding import LUNG_LEVELS
from rrg_rewards.findings.reading.tokens import locate, tokenise
from rrg_rewards.utilities.random_draws import Draws

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
_NUMBER = re.compile(r"\d*\.?\d+")
_WORD = re.compile(r"[A-Za-z]+")

_words = partial(word_pattern, "errors")
Proposer = Callable[[ReportView, int], Iterator[Proposal]]


@cache
def _synonyms() -> tuple[dict[str, tuple[str, ...]], re.Pattern[str]]:
    """Return the synonyms of each expression, and a pattern of all expressions."""
    groups = load_knowledge("errors")["synonyms"]
    others = {text: tuple(other for other in group if other != text) for group in groups for text in group}
    # Longest first, so that "no evidence of" is not matched as "no".
    texts = "|".join(map(re.escape, sorted(others, key=lambda text: (-len(text), text))))
    return others, re.compile(rf"\b(?:{texts})\b")


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
        denied = [mention for mention in absent if graph.relation(mention.concept, concept)]
        if denied:
            is_whole = len(denied) == len(sentence.mentions) and place not in view.comparing and _denies(sentence)
            changed = drop_sentence(view.sentences, place) if is_whole else without_item(sentence, denied)
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
    others, pattern = _synonyms()
    for match in draws.shuffled(list(pattern.finditer(view.report))):
        text = draws.pick(others[match[0]])
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
        changed = without_item(sentence, own) if is_shared else drop_sentence(view.sentences, place)
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
        yield from _reworded(
            view, target, "laterality", "C", partial(_swapped, knowledge["sides"], knowledge["one_sided"])
        )
    if LUNG_LEVELS.intersection(finding.attributes.location) and finding.concept not in knowledge["never_raised"]:
        yield from _reworded(view, target, "location", "C", partial(_swapped, knowledge["levels"], ()))


def _swapped(words: Mapping[str, str], kept: Sequence[str], old: str) -> list[str]:
    """Return a place with the opposite words, if it has any and none of the words that are kept."""
    new = _WORD.sub(lambda found: matching_case(words.get(found[0].lower(), found[0]), found[0]), old)
    return [] if new == old or not set(kept).isdisjoint(old.lower().split()) else [new]


def wrong_severities(view: ReportView, target: int) -> Iterator[Proposal]:
    """D: change a severity by at least two steps, or a size."""
    attributes, words = view.findings[target].attributes, load_knowledge("errors")["severities"]
    if attributes.severity is not None:
        yield from _reworded(
            view, target, "severity", "D", lambda old: [matching_case(new, old) for new in words.get(old.lower(), ())]
        )
    if (size := attributes.size_mm) is not None:
        clear = [k for k in _FACTORS if abs(k * size - size) > _CLEAR_MM and k * size >= _LEAST_MM]
        yield from _reworded(
            view, target, "size_mm", "D", lambda old: [_NUMBER.sub(partial(_scaled, k), old) for k in clear]
        )


def _scaled(factor: float, number: re.Match[str]) -> str:
    value = float(number[0]) * factor
    return f"{value:.1f}" if "." in number[0] or value < 1 else f"{value:.0f}"


def _reworded(
    view: ReportView, target: int, kind: str, category: str, options: Callable[[str], Sequence[str]]
) -> Iterator[Proposal]:
    """Propose other words for an attribute of a finding in all of its mentions, and the articles that fit them.

    A finding may be "small" in one sentence and "tiny" in another; each word is replaced by its own opposite.

    Args:
        view: The report.
        target: Index of the finding.
        kind: Name of the attribute.
        category: Category of the edits.
        options: Function that returns other words for the words of the report.
    """
    finding, action = view.findings[target], {"size_mm": "size", "severity": "severity"}.get(kind, "moved")
    olds = list(_modifiers(view, target, kind))
    for texts in zip(*(options(old.text) for old in olds), strict=False):
        news = [old._replace(text=text) for old, text in zip(olds, texts, strict=True)]
        # "An 8 mm nodule" becomes "a 24 mm nodule".
        articles = filter(None, (corrected_article(view.report, new.start, new.text) for new in news))
        detail = f"{texts[0]} for {olds[0].text}"
        # The units of a size are quoted as they are written.
        detail = f"{finding.concept}: {detail if action == 'size' else detail.lower()}"
        edit = ErrorEdit(category, action, detail, (finding.start, finding.end))
        yield Proposal(edit, (*news, *articles), target)


def _modifiers(view: ReportView, target: int, kind: str) -> Iterator[Replacement]:
    """Yield the words in the report of each modifier of a kind in all mentions of a finding."""
    group = view.groups[target]
    for place in view.places_of(group):
        sentence = view.sentences[place]
        tokens = tokenise(sentence.text)
        places = locate(sentence.text, tokens)
        ends = {sentence.start + end: i for i, (_, end) in enumerate(places)}
        named = {mention: ends.get(mention.end) for mention in sentence.mentions}
        spans = sorted({Span(i, i + 1) for i in named.values() if i is not None})
        own = {named[mention] for mention in sentence.mentions if mention in group}
        for modifier, owner in attribute_reader().owned(tokens, spans):
            value = dict(modifier.values).get(kind)
            # Of places, only levels of the lung are exchanged.
            if spans[owner].start in own and value is not None and (kind != "location" or value in LUNG_LEVELS):
                first, last = places[modifier.start][0], places[modifier.end - 1][1]
                yield Replacement(sentence.start + first, sentence.start + last, sentence.text[first:last])


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
