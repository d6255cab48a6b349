"""What can be added to a report or said in other words: inventions, comparisons and what changes nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from rrg_rewards.findings.alterations import error_knowledge
from rrg_rewards.findings.comparisons import comparison_words
from rrg_rewards.findings.concepts import concept_graph
from rrg_rewards.findings.edits import Replacement, Sentence, drop_sentence, without_item
from rrg_rewards.findings.errors import ErrorEdit
from rrg_rewards.findings.reading import Proposal, Reading
from rrg_rewards.utilities.draws import Draws

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
"""What a report may be about."""

_CT = re.compile(
    r"\b(?:(?:chest|thorax|thoracic|non.?contrast) ct|ct shows|the scan|hrct|axial|ground.?glass"
    r"|main bronchi|pericardial|peribronchial|in the liver|mediastinal window)\b",
    re.IGNORECASE,
)
_XRAY = re.compile(r"\b(?:radiograph\w*|x.?rays?|views?|film|silhouette|costophrenic|hemidiaphragm)\b", re.IGNORECASE)
# Chance that "no acute disease" goes when a finding is invented; other reports contradict themselves.
_SUMMARY_GOES = 0.7
# Longer sentences say more than that something is normal.
_LONGEST_NORMAL = 100


@dataclass(frozen=True)
class _Bank:
    """The sentences that are added, by modality, with the expressions around them."""

    invented: dict[str, list[tuple[str, str, tuple[str, ...]]]]
    normal: list[tuple[str | None, str, tuple[str, ...]]]
    regions: dict[str, re.Pattern[str]]
    contradicted: dict[str, re.Pattern[str]]
    normal_words: re.Pattern[str]
    summaries: re.Pattern[str]
    denials: re.Pattern[str]
    synonyms: dict[str, tuple[str, ...]]
    synonym: re.Pattern[str]


@cache
def _bank() -> _Bank:
    rules = error_knowledge()
    invented = {
        modality: [
            (entry["concept"], entry["region"], (*entry.get("any", ()), *entry.get(modality, ())))
            for entry in rules["invented"]
            if "any" in entry or modality in entry
        ]
        for modality in MODALITIES
    }
    others = {text: tuple(other for other in group if other != text) for group in rules["synonyms"] for text in group}
    # Longest first, so that "no evidence of" is not taken for "no".
    texts = "|".join(map(re.escape, sorted(others, key=lambda text: (-len(text), text))))
    return _Bank(
        invented=invented,
        normal=[(entry["concept"], entry["region"], tuple(entry["sentences"])) for entry in rules["normal"]],
        regions={name: re.compile(text, re.IGNORECASE) for name, text in rules["regions"].items()},
        contradicted={
            name: re.compile(rf"\b(?:{text})\b" if text else r"(?!)", re.IGNORECASE)
            for name, text in rules["contradicted"].items()
        },
        normal_words=re.compile(rules["normal_words"], re.IGNORECASE),
        summaries=re.compile("|".join(rules["summaries"]), re.IGNORECASE),
        denials=re.compile(rules["denials"], re.IGNORECASE),
        synonyms=others,
        synonym=re.compile(rf"\b(?:{texts})\b"),
    )


def report_modality(report: str) -> str:
    """``ct`` where a report has words of CT reports and none of radiographs, else ``xray``.

    Example:
        >>> report_modality("Chest CT without contrast."), report_modality("PA and lateral views.")
        ('ct', 'xray')
    """
    return "ct" if _CT.search(report) and not _XRAY.search(report) else "xray"


def inventions(reading: Reading, modality: str, draws: Draws) -> Iterator[Proposal]:
    """A: findings that the report does not hold, with what they contradict taken out."""
    graph, bank = concept_graph(), _bank()
    held = {name for finding in reading.findings for name in (finding.concept, *finding.alternatives)}
    for concept, region, sentences in draws.shuffled(bank.invented[modality]):
        if any(graph.akin(concept, name) for name in held):
            continue
        gone = _contradictions(reading, concept, region, draws)
        if gone is None:
            continue
        text = draws.pick(sentences)
        edit = ErrorEdit("A", "invented", concept)
        if gone and draws.chance(0.5) and gone[0].text == "":
            first = gone[0]
            put = replace_text(reading, first, text)
            yield Proposal(edit, (put, *gone[1:]), (first.start, first.end))
        else:
            where = _opening(reading, region, gone, draws)
            if where is not None:
                added = Replacement(where, where, _spaced(reading, where, text))
                yield Proposal(edit, (*gone, added), (where, where))


def replace_text(reading: Reading, gone: Replacement, text: str) -> Replacement:
    """A sentence in place of one that is taken out, with the spaces that it had behind it."""
    taken = reading.report[gone.start : gone.end]
    return Replacement(gone.start, gone.end, text + taken[len(taken.rstrip()) :])


def _contradictions(reading: Reading, concept: str, region: str, draws: Draws) -> list[Replacement] | None:
    """What the report says against a concept, taken out; None where that cannot be done."""
    graph, bank = concept_graph(), _bank()
    gone: list[Replacement] = []
    for place, sentence in enumerate(reading.sentences):
        denied = [
            mention
            for mention in sentence.mentions
            if mention.presence == "absent" and graph.relation(mention.concept, concept) is not None
        ]
        if not denied:
            normal = (
                not sentence.abnormal
                and len(sentence.text) <= _LONGEST_NORMAL
                and place not in reading.comparing
                and bank.contradicted[region].search(sentence.text)
                and bank.normal_words.search(sentence.text)
            )
            summary = not sentence.abnormal and bank.summaries.match(sentence.text) and draws.chance(_SUMMARY_GOES)
            if normal or summary:
                gone += drop_sentence(reading.sentences, place)
            continue
        if len(denied) == len(sentence.mentions) and place not in reading.comparing and _denies(sentence):
            changed = drop_sentence(reading.sentences, place)
        else:
            item = without_item(sentence, denied)
            changed = [] if item is None else [item]
        if not changed:
            return None
        gone += changed
    return gone


def _denies(sentence: Sentence) -> bool:
    """Whether a sentence without findings is plainly one: "a calcification is not identified laterally" is not."""
    return _bank().denials.match(sentence.text) is not None


def _opening(reading: Reading, region: str, gone: list[Replacement], draws: Draws) -> int | None:
    """Where a sentence may be added: behind one of its region, or behind any."""
    free = []
    for place, sentence in enumerate(reading.sentences):
        following = reading.follows(place)
        ends = reading.report[sentence.stop : sentence.end].startswith(".")
        taken = any(one.start <= sentence.start < max(one.end, one.start + 1) for one in gone)
        if ends and sentence.marker is None and not taken and (following is None or not following.goes_on):
            free.append(sentence)
    near = [sentence for sentence in free if _bank().regions[region].search(sentence.text)]
    return draws.pick(near or free).end if free else None


def _spaced(reading: Reading, where: int, text: str) -> str:
    """A sentence with the space that parts it from its neighbours at a place between two sentences."""
    text = text.upper() if reading.report.isupper() else text
    before = reading.report[where - 1 : where]
    return f"{text} " if before.isspace() else f" {text}"


def global_comparisons(reading: Reading, draws: Draws) -> Iterator[Proposal]:
    """E and F as statements of their own: added where the report compares nothing, or dropped."""
    if not reading.comparing:
        where = _opening(reading, "lungs", [], draws)
        if where is not None:
            text = draws.pick(error_knowledge()["comparison"]["added_sentences"])
            added = Replacement(where, where, _spaced(reading, where, text))
            yield Proposal(ErrorEdit("E", "comparison added", "the examination"), (added,), (where, where))
    for place in sorted(reading.comparing):
        sentence = reading.sentences[place]
        if not sentence.abnormal and comparison_words().is_alone(sentence.text):
            gone = drop_sentence(reading.sentences, place)
            if gone:
                edit = ErrorEdit("F", "comparison dropped", "the examination", (sentence.start, sentence.stop))
                yield Proposal(edit, tuple(gone))


def normal_statements(reading: Reading, now: Reading, draws: Draws) -> Iterator[Proposal]:
    """Harmless: a denial of what neither the report nor the candidate mentions."""
    graph = concept_graph()
    named = {mention.concept for mention in (*reading.mentions, *now.mentions)}
    for concept, region, sentences in draws.shuffled(_bank().normal):
        if concept is not None and any(graph.akin(concept, name) for name in named):
            continue
        text = draws.pick(sentences)
        where = _opening(reading, region, [], draws)
        if where is not None and text not in now.report:
            added = Replacement(where, where, _spaced(reading, where, text))
            yield Proposal(ErrorEdit(None, "normal statement", concept or "anatomy"), (added,), (where, where))


def denials_dropped(reading: Reading, draws: Draws) -> Iterator[Proposal]:
    """Harmless: a denial less."""
    for place, sentence in draws.shuffled(list(enumerate(reading.sentences))):
        if sentence.mentions and not sentence.abnormal and place not in reading.comparing and _denies(sentence):
            gone = drop_sentence(reading.sentences, place)
            if gone:
                span = (sentence.start, sentence.stop)
                yield Proposal(ErrorEdit(None, "denial dropped", sentence.mentions[0].concept, span), tuple(gone))


def synonyms(reading: Reading, draws: Draws) -> Iterator[Proposal]:
    """Harmless: the same in other words."""
    bank = _bank()
    for match in draws.shuffled(list(bank.synonym.finditer(reading.report))):
        text = draws.pick(bank.synonyms[match[0]])
        edit = ErrorEdit(None, "synonym", f"{text} for {match[0]}", match.span())
        yield Proposal(edit, (Replacement(match.start(), match.end(), text),), match.span())
