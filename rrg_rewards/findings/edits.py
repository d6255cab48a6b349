"""Report text as sentences that can be taken out, changed and added, with every place kept track of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rrg_rewards.findings.lines import unwrap
from rrg_rewards.findings.text import UNIT_SEPARATOR, pieces
from rrg_rewards.findings.types import Finding
from rrg_rewards.utilities.draws import Draws

__all__ = [
    "Move",
    "Replacement",
    "Sentence",
    "apply",
    "candidate_place",
    "conflicting",
    "drop_sentence",
    "read_sentences",
    "reordered",
    "without_item",
]

_TERMINATOR = re.compile(r"[.;]*[ \t]*")
# What stands before an item of a list: "1.", "2)", "-". The engine takes a number for a sentence of its own.
_MARKER = re.compile(r"\(?(\d{1,2})[.)]?$|[-*]$")
_NUMBER = re.compile(r"\d{1,2}")
# A sentence that begins so is about the one before it.
_GOES_ON = re.compile(
    r"(?:it|its|this|these|they|those|which|may|might|could|findings? (?:may|could|is|are|suggest)|again"
    r"|recommend|consider|differential|however|also|measuring"
    r"|the (?:tip|findings?|lesion|largest|appearance|latter|tube|catheter|opacity|nodule|effusion))\b",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r",? and (?:also )?|,? or |, ?")
_DETERMINER = re.compile(
    r"(?:there (?:is|are|has been|appears to be)(?: also| again| some)? )?"
    r"(?:(?:is|are) (?:seen|noted) )?"
    r"(?:no |without |a |an |no (?:definite |significant )?evidence (?:of|for) )?",
    re.IGNORECASE,
)
_PREDICATE = re.compile(
    r"\b(?:is|are|was|were|has|have|noted|seen|identified|present|demonstrated|may|could|in|within|at|of|on|involving|since"
    r"|from|which|suggest\w*|consistent|compatible|likely|appear\w*)\b",
    re.IGNORECASE,
)


class Replacement(NamedTuple):
    """Text to put in place of characters ``start`` to ``end`` of the reference."""

    start: int
    end: int
    text: str


class Move(NamedTuple):
    """Characters ``start`` to ``end`` that now stand ``by`` characters further on."""

    start: int
    end: int
    by: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a report.

    Args:
        index: As in ``Finding.sentence``.
        start: First character.
        stop: Just past its last word.
        end: Just past its full stop and the spaces after it.
        text: From ``start`` to ``stop``.
        mentions: What it says of findings.
    """

    index: int
    start: int
    stop: int
    end: int
    text: str
    mentions: tuple[Finding, ...]

    @property
    def abnormal(self) -> tuple[Finding, ...]:
        """What it calls present or possible."""
        return tuple(mention for mention in self.mentions if mention.presence != "absent")

    @property
    def marker(self) -> int | None:
        """The number, where the sentence is nothing but the number of a list item; 0 for a bullet."""
        found = _MARKER.fullmatch(self.text)
        return None if found is None else int(found[1] or 0)

    @property
    def goes_on(self) -> bool:
        """Whether it speaks of the sentence before it."""
        return _GOES_ON.match(self.text) is not None


def read_sentences(report: str, mentions: Iterable[Finding]) -> list[Sentence]:
    """Sentences of a report as the engine takes them, with what they mention.

    Args:
        report: Report text.
        mentions: From :func:`rrg_rewards.findings.extract_findings`.

    Example:
        >>> [sentence.text for sentence in read_sentences("1. Small effusion. 2. Scoliosis.", [])]
        ['1', 'Small effusion', '2', 'Scoliosis']
    """
    by_sentence: dict[int, list[Finding]] = {}
    for mention in mentions:
        by_sentence.setdefault(mention.sentence, []).append(mention)
    found, index, offset = [], 0, 0
    for unit in unwrap(report).split(UNIT_SEPARATOR):
        for place, piece in pieces(unit):
            stripped = piece.strip()
            if stripped:
                start = offset + place + piece.index(stripped)
                stop = start + len(stripped)
                match = _TERMINATOR.match(report, stop)
                end = stop if match is None else match.end()
                said = tuple(by_sentence.get(index, ()))
                found.append(Sentence(index, start, stop, end, report[start:stop], said))
            index += 1
        offset += len(unit) + len(UNIT_SEPARATOR)
    return found


def apply(report: str, replacements: Iterable[Replacement]) -> str:
    """The report with all replacements made.

    Example:
        >>> apply("Small left effusion.", [Replacement(6, 10, "right"), Replacement(0, 5, "Large")])
        'Large right effusion.'
    """
    parts, last = [], 0
    for start, end, text in sorted(replacements):
        parts += [report[last:start], text]
        last = end
    return "".join([*parts, report[last:]])


def conflicting(replacements: Iterable[Replacement]) -> bool:
    """Whether two of them touch the same characters, or put something in the same place.

    Example:
        >>> conflicting([Replacement(0, 5, ""), Replacement(5, 5, "x")]), conflicting([Replacement(0, 5, "")] * 2)
        (False, True)
    """
    return any(
        second.start < first.end or second.start == first.start for first, second in pairwise(sorted(replacements))
    )


def candidate_place(place: tuple[int, int], replacements: Iterable[Replacement]) -> tuple[int, int]:
    """Where characters of the reference, or what was put in their place, stand in the candidate.

    Example:
        >>> candidate_place((6, 10), [Replacement(0, 5, "Large"), Replacement(6, 10, "right")])
        (6, 11)
    """
    start, end = place
    before = inside = 0
    for begin, stop, text in replacements:
        longer = len(text) - (stop - begin)
        # What is added at either end of the place belongs to it only if the place is where it was added.
        if stop <= start and (begin < start or start < end):
            before += longer
        elif start <= begin and stop <= end and (begin < end or start == end):
            inside += longer
    return start + before, end + before + inside


def drop_sentence(sentences: Sequence[Sentence], place: int) -> list[Replacement]:
    """Take a sentence out, with the sentences that go on about it, and renumber the list that it was an item of.

    Args:
        sentences: Of the report.
        place: Which to take out, by its place in ``sentences``.

    Returns:
        No replacement where what follows could not stand without it.
    """
    last = place
    while last + 1 < len(sentences) and sentences[last + 1].goes_on:
        last += 1
        if sentences[last].mentions:
            return []
    first = place
    if place and sentences[place - 1].marker is not None and _is_item_end(sentences, last):
        first -= 1
    dropped = [Replacement(sentences[first].start, sentences[last].end, "")]
    if first < place:
        dropped += _renumbered(sentences[last + 1 :], sentences[first].marker or 0)
    return dropped


def _is_item_end(sentences: Sequence[Sentence], last: int) -> bool:
    return last + 1 == len(sentences) or sentences[last + 1].marker is not None


def _renumbered(rest: Sequence[Sentence], number: int) -> list[Replacement]:
    """Numbers of the items after one that was taken out."""
    changed = []
    for sentence in rest:
        if sentence.marker == number + 1:
            found = _NUMBER.search(sentence.text)
            if found is None:
                break
            start = sentence.start + found.start()
            changed.append(Replacement(start, sentence.start + found.end(), str(number)))
            number += 1
    return changed


def reordered(report: str, sentences: Sequence[Sentence], draws: Draws) -> tuple[str, list[Move]] | None:
    """Tell neighbouring sentences in another order; the last one, items of lists and headed sentences stay.

    Args:
        report: Report text.
        sentences: Of the report.
        draws: Where the order comes from.

    Returns:
        The text and what was moved; None where no two sentences can change places.
    """
    runs: list[list[tuple[int, int]]] = [[]]
    for place, sentence in enumerate(sentences[:-1]):
        plain = report.startswith(". ", sentence.stop) and ":" not in sentence.text and sentence.marker is None
        after_item = place and sentences[place - 1].marker is not None
        if not plain or after_item or "\n" in report[sentence.start : sentence.end]:
            runs.append([])
        elif sentence.goes_on and runs[-1]:
            runs[-1][-1] = (runs[-1][-1][0], sentence.stop + 1)
        else:
            runs[-1].append((sentence.start, sentence.stop + 1))
    run = max(runs, key=len)
    order = draws.shuffled(run)
    if order == run:
        return None
    moves, start = [], run[0][0]
    for first, last in order:
        moves.append(Move(first, last, start - first))
        start += last - first + 1
    text = " ".join(report[first:last] for first, last in order)
    return report[: run[0][0]] + text + report[run[-1][1] :], moves


def without_item(sentence: Sentence, targets: Sequence[Finding]) -> Replacement | None:
    """Take findings out of a sentence that lists others, too; None where its grammar is not plain enough.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> report = "There is no effusion, edema, or pneumothorax"
        >>> mentions = extract_findings(report)
        >>> apply(report, [without_item(read_sentences(report, mentions)[0], mentions[1:2])])
        'There is no effusion or pneumothorax'
    """
    bounds = [0]
    separators = list(_SEPARATOR.finditer(sentence.text))
    items: list[tuple[int, int]] = []
    for separator in separators:
        items.append((bounds[-1], separator.start()))
        bounds.append(separator.end())
    items.append((bounds[-1], len(sentence.text)))
    places = {_item_of(target, sentence, items) for target in targets}
    if len(places) != 1 or len(items) < 2:
        return None
    place = places.pop()
    others = [mention for mention in sentence.mentions if mention not in targets]
    if place is None or any(_item_of(other, sentence, items) in (place, None) for other in others):
        return None
    start, end = items[place]
    item = sentence.text[start:end]
    after = item[max(target.end for target in targets) - sentence.start - start :]
    # All items must hold a finding: in "calcified, 5 mm nodule and scar" a comma parts no two of them.
    holding = {_item_of(other, sentence, items) for other in others}
    if holding | {place} != set(range(len(items))) or (after.strip() and _PREDICATE.search(after)):
        return None
    if place == 0:
        found = _DETERMINER.match(item)
        lead = found.group() if found else ""
        if re.match(r"an? ", sentence.text[items[1][0] :]):
            lead = re.sub(r"\ban? $", "", lead)
        rest = sentence.text[items[1][0] :]
        if not lead:
            rest = rest[:1].upper() + rest[1:]
        text = lead + rest
        if len(items) > 2:
            text = text if len(items) > 3 else text.replace(", and ", " and ").replace(", or ", " or ")
        return Replacement(sentence.start, sentence.stop, text)
    kept = [i for i in range(len(items)) if i != place]
    parts = [sentence.text[slice(*items[i])] for i in kept]
    last = separators[-1].group()
    joint = last.replace(",", "") if len(parts) == 2 else last
    text = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + joint + parts[-1]
    return Replacement(sentence.start, sentence.stop, text)


def _item_of(mention: Finding, sentence: Sentence, items: Sequence[tuple[int, int]]) -> int | None:
    start, end = mention.start - sentence.start, mention.end - sentence.start
    return next((i for i, (first, last) in enumerate(items) if first <= start and end <= last), None)
