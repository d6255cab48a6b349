"""A report as its findings and sentences, edits of its sentences, and the sentences that compare with a prior study."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import NamedTuple

from rrg_rewards.findings.editing.injected_report import ErrorEdit
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import expand, load_knowledge, word_pattern
from rrg_rewards.findings.reading.engine import extract_findings
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings
from rrg_rewards.findings.reading.sentences import UNIT_SEPARATOR, report_units, split_unit

_TERMINATOR = re.compile(r"[.;]*[ \t]*")
# The marker of a list item: "1.", "2)", "-". The engine reads a number as a separate sentence.
_MARKER = re.compile(r"\(?(\d{1,2})[.)]?$|[-*]$")
_NUMBER = re.compile(r"\d{1,2}")
_words = partial(word_pattern, "errors", "comparison")
_INDEFINITE = re.compile(r"\b(an?) $", re.IGNORECASE)
AN = re.compile(r"(?!one|uni|use|eu)(?:hour|[aeiou]|8|1[18](?!\d))", re.IGNORECASE)
"""Start of a word or number before which ``a`` is ``an``: "upper", "hour", "8", "18.5", and not "1.1"."""


class Replacement(NamedTuple):
    """Text that replaces characters ``start`` to ``end`` of the reference."""

    start: int
    end: int
    text: str


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without leading and trailing spaces.

    Example:
        >>> trimmed("Clear. No effusion ", 6, 19)
        (7, 18)
    """
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a report.

    Args:
        index: Index of the sentence, as in ``Finding.sentence``; -1 for the number of an item.
        start: First character.
        stop: End of its last word.
        end: End of its full stop and the spaces after it.
        text: Characters from ``start`` to ``stop``.
        mentions: Findings that it mentions.
    """

    index: int
    start: int
    stop: int
    end: int
    text: str
    mentions: tuple[Finding, ...]

    @property
    def span(self) -> tuple[int, int]:
        """Start and end in the report, without the full stop."""
        return self.start, self.stop

    @property
    def abnormal(self) -> tuple[Finding, ...]:
        """Mentions that are present or possible."""
        return tuple(mention for mention in self.mentions if mention.presence != "absent")

    @property
    def marker(self) -> int | None:
        """Number of a list item if the sentence is only its marker, 0 for a bullet; ``None`` for other sentences."""
        found = _MARKER.fullmatch(self.text)
        return None if found is None else int(found[1] or 0)

    @property
    def goes_on(self) -> bool:
        """Whether the sentence refers to the one before it."""
        return word_pattern("errors", "goes_on").match(self.text) is not None


def read_sentences(report: str, mentions: Iterable[Finding] = ()) -> list[Sentence]:
    """Split a report into the finding engine's sentences, with the findings that they mention.

    Args:
        report: Report text.
        mentions: Findings of the report, from :func:`rrg_rewards.findings.extract_findings`.

    Example:
        >>> [sentence.text for sentence in read_sentences("1. Small effusion. 2. Scoliosis.")]
        ['1', 'Small effusion', '2', 'Scoliosis']
    """
    by_sentence = defaultdict(list)
    for mention in mentions:
        by_sentence[mention.sentence].append(mention)
    sentences, index, offset = [], 0, 0
    for unit in report_units(report):
        for piece_start, piece in split_unit(unit):
            is_numbered = not any(map(str.isalpha, piece))
            if piece.strip():
                start, stop = trimmed(report, offset + piece_start, offset + piece_start + len(piece))
                # Always found, because it also matches no character.
                end = next(_TERMINATOR.finditer(report, stop)).end()
                own = -1 if is_numbered else index
                sentences.append(Sentence(own, start, stop, end, report[start:stop], tuple(by_sentence[own])))
            index += not is_numbered
        offset += len(unit) + len(UNIT_SEPARATOR)
    return sentences


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit that can be applied.

    Args:
        edit: Description of the edit.
        replacements: Replacements of characters of the reference.
        target: Index of the reference's finding that the edit changes, if any.
    """

    edit: ErrorEdit
    replacements: tuple[Replacement, ...]
    target: int | None = None


class ReportView:
    """Findings and sentences that the finding engine reads in a report.

    Args:
        report: Report text.

    Example:
        >>> view = ReportView("Small effusion. Stable cardiomegaly.")
        >>> [finding.concept for finding in view.findings], view.comparing
        (['pleural_effusion', 'cardiomegaly'], {1})
    """

    def __init__(self, report: str) -> None:
        self.report = report
        self.mentions = extract_findings(report)
        self.findings = tuple(abnormal_findings(report, self.mentions))

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences, without empty ones."""
        return read_sentences(self.report, self.mentions)

    @cached_property
    def comparing(self) -> set[int]:
        """Indices in ``sentences`` of the sentences that compare with a prior study."""
        return {i for i, sentence in enumerate(self.sentences) if compares(sentence.text)}

    @cached_property
    def groups(self) -> tuple[tuple[Finding, ...], ...]:
        """All mentions of each finding; empty if they are ambiguous or the finding is not certainly present."""
        return tuple(map(self._mentions_of, range(len(self.findings))))

    def stands_alone(self, place: int) -> bool:
        """Whether no other finding may be the same one under another name, such as an opacity and a pneumonia."""
        graph, finding = concept_graph(), self.findings[place]
        return not any(
            graph.akin(first, second)
            for other in self.findings
            if other.concept != finding.concept
            for first in (finding.concept, *finding.alternatives)
            for second in (other.concept, *other.alternatives)
        )

    def _mentions_of(self, place: int) -> tuple[Finding, ...]:
        concept = self.findings[place].concept
        named = [mention for mention in self.mentions if mention.concept == concept]
        # A finding that is both present and absent is ambiguous: "Small effusion ... resolution of the effusion".
        if any(mention.presence != "present" for mention in named):
            return ()
        alike = [i for i, finding in enumerate(self.findings) if concept in (finding.concept, *finding.alternatives)]
        if len(alike) == 1:
            return tuple(named)
        if len(alike) == len(named) and all(not self.findings[i].alternatives for i in alike):
            return (named[alike.index(place)],)
        return ()

    def places_of(self, mentions: Sequence[Finding]) -> list[int]:
        """Return the indices in ``sentences`` of the sentences that contain mentions, in order."""
        indices = {mention.sentence for mention in mentions}
        return [i for i, sentence in enumerate(self.sentences) if sentence.index in indices]

    def compared_next(self, place: int) -> bool:
        """Whether the next sentence is a comparison without a finding: "Decreased from before"."""
        return place + 1 in self.comparing and not self.sentences[place + 1].mentions

    def is_continued(self, place: int) -> bool:
        """Whether the next sentence refers to this one."""
        return any(sentence.goes_on for sentence in self.sentences[place + 1 : place + 2])


def matching_case(new: str, old: str) -> str:
    """Return words with the capitals of the words that they replace.

    Example:
        >>> matching_case("right", "Left"), matching_case("lul", "RUL"), matching_case("both", "A")
        ('Right', 'LUL', 'Both')
    """
    if len(old) > 1 and old.isupper() and old.isalpha():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def apply(report: str, replacements: Iterable[Replacement]) -> str:
    """Return the report with all replacements made.

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
    """Whether two replacements overlap or insert text at the same position.

    Example:
        >>> conflicting([Replacement(0, 5, ""), Replacement(5, 5, "x")]), conflicting([Replacement(0, 5, "")] * 2)
        (False, True)
    """
    return any(
        second.start < first.end or second.start == first.start for first, second in pairwise(sorted(replacements))
    )


def corrected_article(report: str, start: int, text: str) -> Replacement | None:
    """Return the edit of ``a`` or ``an`` before a word that is replaced; ``None`` if there is none or it fits.

    Example:
        >>> corrected_article("an 8 mm nodule", 3, "24 mm").text
        'a'
    """
    found = _INDEFINITE.search(report[max(0, start - 4) : start])
    article = "an" if AN.match(text) else "a"
    if not found or article == found[1].lower():
        return None
    return Replacement(start - len(found[0]), start - 1, matching_case(article, found[1]))


def drop_sentence(sentences: Sequence[Sentence], place: int) -> list[Replacement]:
    """Remove a sentence and the sentences that refer to it, and renumber its list.

    Args:
        sentences: Sentences of the report.
        place: Index in ``sentences`` of the sentence to remove.

    Returns:
        Replacements; empty if a sentence that refers to the removed one mentions findings.
    """
    following = list(takewhile(attrgetter("goes_on"), sentences[place + 1 :]))
    if any(sentence.mentions for sentence in following):
        return []
    first, rest = sentences[place], sentences[place + 1 + len(following) :]
    end = following[-1].end if following else first.end
    number = sentences[place - 1].marker if place else None
    if number is None or (rest and rest[0].marker is None):
        return [Replacement(first.start, end, "")]
    dropped = [Replacement(sentences[place - 1].start, end, "")]
    for sentence in rest:
        if sentence.marker == number + 1:
            start, stop = next(_NUMBER.finditer(sentence.text)).span()
            dropped.append(Replacement(sentence.start + start, sentence.start + stop, str(number)))
            number += 1
    return dropped


def compares(sentence: str) -> bool:
    """Whether a sentence compares with a prior study.

    Example:
        >>> compares("Small effusion, unchanged"), compares("Increased markings")
        (True, False)
    """
    return _words("cues").search(sentence) is not None


def only_compares(sentence: str) -> bool:
    """Whether a sentence without abnormal findings contains only a comparison.

    Example:
        >>> only_compares("No significant interval change.")
        True
    """
    return _words("alone").fullmatch(sentence.strip(" .")) is not None


def without_comparison(sentence: str) -> Iterator[tuple[int, int, str]]:
    """Yield replacements ``(start, end, text)``, each of which removes the comparison from a sentence.

    Example:
        >>> [("Stable cardiomegaly"[:a] + text + "Stable cardiomegaly"[b:]) for a, b, text in
        ...  without_comparison("Stable cardiomegaly")]
        ['Cardiomegaly']
    """
    for pattern, left in _droppings():
        for match in pattern.finditer(sentence):
            start, end, text = match.start(), match.end(), match.expand(left)
            if start == 0 and end < len(sentence) and not text:
                # The next word becomes the first word of the sentence.
                text, end = sentence[end].upper(), end + 1
            elif start == 0:
                text = text[:1].upper() + text[1:]
            rest = sentence[:start] + text + sentence[end:]
            if rest.strip() and not compares(rest) and not _words("dangling").search(rest.rstrip(" .")):
                yield start, end, text


@cache
def _droppings() -> list[tuple[re.Pattern[str], str]]:
    """Return expressions of comparison, each with the text that replaces it."""
    droppings = load_knowledge("errors")["comparison"]["droppings"]
    return [(re.compile(expand(pattern, "errors"), re.IGNORECASE), text) for pattern, text in droppings.items()]
