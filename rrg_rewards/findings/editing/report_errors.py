"""Errors and harmless edits in whole reports: invented findings, comparisons, normal statements and synonyms."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from rrg_rewards.findings.editing.injected_report import WHOLE_EXAMINATION, ErrorEdit
from rrg_rewards.findings.editing.prior_study import comparison_words
from rrg_rewards.findings.editing.report_view import Proposal, ReportView
from rrg_rewards.findings.editing.text_edits import Replacement, Sentence, drop_sentence, without_item
from rrg_rewards.findings.editing.word_lists import word_pattern
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.utilities.random_draws import Draws

__all__ = [
    "MODALITIES",
    "denials_dropped",
    "global_comparisons",
    "inventions",
    "normal_statements",
    "report_modality",
    "synonyms",
]

MODALITIES = ("ct", "xray")
"""Modalities of reports."""

# Probability that "no acute disease" is removed when a finding is invented. Otherwise the candidate contradicts itself.
_SUMMARY_REMOVED = 0.7
# Maximum length in characters; a longer sentence states more than normal anatomy.
_LONGEST_NORMAL = 100


@cache
def _inventions(modality: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return concept, region and sentences of the findings that can be invented in reports of a modality."""
    return [
        (entry["concept"], entry["region"], (*entry.get("any", ()), *entry.get(modality, ())))
        for entry in load_knowledge("errors")["invented"]
        if "any" in entry or modality in entry
    ]


@cache
def _synonyms() -> tuple[dict[str, tuple[str, ...]], re.Pattern[str]]:
    """Return the synonyms of each expression, and a pattern of all expressions."""
    groups = load_knowledge("errors")["synonyms"]
    others = {text: tuple(other for other in group if other != text) for group in groups for text in group}
    # Longest first, so that "no evidence of" is not matched as "no".
    texts = "|".join(map(re.escape, sorted(others, key=lambda text: (-len(text), text))))
    return others, re.compile(rf"\b(?:{texts})\b")


def report_modality(report: str) -> str:
    """Return ``ct`` if a report contains words of CT reports and no words of radiograph reports, else ``xray``.

    Example:
        >>> report_modality("Chest CT without contrast."), report_modality("PA and lateral views.")
        ('ct', 'xray')
    """
    is_ct, is_xray = (word_pattern("errors", "modalities", modality).search(report) for modality in MODALITIES)
    return "ct" if is_ct and not is_xray else "xray"


def inventions(view: ReportView, modality: str, draws: Draws) -> Iterator[Proposal]:
    """A: add a finding that the report does not contain, and remove the statements that it contradicts."""
    graph = concept_graph()
    held = {name for finding in view.findings for name in (finding.concept, *finding.alternatives)}
    for concept, region, sentences in draws.shuffled(_inventions(modality)):
        if any(graph.akin(concept, name) for name in held):
            continue
        removed = _contradictions(view, concept, region, draws)
        if removed is None:
            continue
        text = draws.pick(sentences)
        edit = ErrorEdit("A", "invented", concept)
        if removed and draws.chance(0.5) and removed[0].text == "":
            start, end, _ = removed[0]
            old = view.report[start:end]
            # Keep the spaces after the removed sentence.
            put = Replacement(start, end, text + old[len(old.rstrip()) :])
            yield Proposal(edit, (put, *removed[1:]), (start, end))
        else:
            yield from _additions(view, region, (text,), edit, draws, removed)


def _contradictions(view: ReportView, concept: str, region: str, draws: Draws) -> list[Replacement] | None:
    """Return replacements that remove the statements that contradict a concept; ``None`` if that is impossible."""
    graph = concept_graph()
    removed: list[Replacement] = []
    for place, sentence in enumerate(view.sentences):
        denied = [
            mention
            for mention in sentence.mentions
            if mention.presence == "absent" and graph.relation(mention.concept, concept) is not None
        ]
        if not denied:
            normal = (
                not sentence.abnormal
                and len(sentence.text) <= _LONGEST_NORMAL
                and place not in view.comparing
                and word_pattern("errors", "contradicted", region).search(sentence.text)
                and word_pattern("errors", "normal_words").search(sentence.text)
            )
            summary = (
                not sentence.abnormal
                and word_pattern("errors", "summaries").match(sentence.text)
                and draws.chance(_SUMMARY_REMOVED)
            )
            if normal or summary:
                removed += drop_sentence(view.sentences, place)
            continue
        if len(denied) == len(sentence.mentions) and place not in view.comparing and _denies(sentence):
            changed = drop_sentence(view.sentences, place)
        else:
            item = without_item(sentence, denied)
            changed = [] if item is None else [item]
        if not changed:
            return None
        removed += changed
    return removed


def _denies(sentence: Sentence) -> bool:
    """Whether a sentence clearly denies findings; "a calcification is not identified laterally" does not."""
    return word_pattern("errors", "denials").match(sentence.text) is not None


def _additions(
    view: ReportView,
    region: str,
    texts: Sequence[str],
    edit: ErrorEdit,
    draws: Draws,
    removed: Sequence[Replacement] = (),
) -> Iterator[Proposal]:
    """Propose to add one of several texts after a sentence about the region, or after any sentence if there is none."""
    free = []
    for place, sentence in enumerate(view.sentences):
        following = view.follows(place)
        ends = view.report[sentence.stop : sentence.end].startswith(".")
        taken = any(one.start <= sentence.start < max(one.end, one.start + 1) for one in removed)
        if ends and sentence.marker is None and not taken and (following is None or not following.goes_on):
            free.append(sentence)
    near = [sentence for sentence in free if word_pattern("errors", "regions", region).search(sentence.text)]
    if not free:
        return
    where = draws.pick(near or free).end
    text = draws.pick(texts)
    text = text.upper() if view.report.isupper() else text
    spaced = f"{text} " if view.report[where - 1 : where].isspace() else f" {text}"
    yield Proposal(edit, (*removed, Replacement(where, where, spaced)), (where, where))


def global_comparisons(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """E and F: add a separate comparing sentence to a report without comparisons, or remove such a sentence."""
    if not view.comparing:
        texts = load_knowledge("errors")["comparison"]["added_sentences"]
        edit = ErrorEdit("E", "comparison added", WHOLE_EXAMINATION)
        yield from _additions(view, "lungs", texts, edit, draws)
    for place in sorted(view.comparing):
        sentence = view.sentences[place]
        if not sentence.abnormal and comparison_words().is_alone(sentence.text):
            removed = drop_sentence(view.sentences, place)
            if removed:
                edit = ErrorEdit("F", "comparison dropped", WHOLE_EXAMINATION, (sentence.start, sentence.stop))
                yield Proposal(edit, tuple(removed))


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
        additions = list(_additions(view, entry["region"], (text,), edit, draws))
        if text not in now.report:
            yield from additions


def denials_dropped(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """Harmless: remove a denial."""
    for place, sentence in draws.shuffled(list(enumerate(view.sentences))):
        if sentence.mentions and not sentence.abnormal and place not in view.comparing and _denies(sentence):
            removed = drop_sentence(view.sentences, place)
            if removed:
                span = (sentence.start, sentence.stop)
                yield Proposal(ErrorEdit(None, "denial dropped", sentence.mentions[0].concept, span), tuple(removed))


def synonyms(view: ReportView, draws: Draws) -> Iterator[Proposal]:
    """Harmless: replace an expression by a synonym."""
    others, pattern = _synonyms()
    for match in draws.shuffled(list(pattern.finditer(view.report))):
        text = draws.pick(others[match[0]])
        edit = ErrorEdit(None, "synonym", f"{text} for {match[0]}", match.span())
        yield Proposal(edit, (Replacement(match.start(), match.end(), text),), match.span())
