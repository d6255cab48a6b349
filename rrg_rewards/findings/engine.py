"""Finds the mentions of a lexicon's concepts in report text, one pass over the tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, filterfalse
from operator import or_
from typing import NamedTuple

from rrg_rewards.findings.attributes import Span, attribute_reader
from rrg_rewards.findings.lines import unwrap
from rrg_rewards.findings.scope import ABSENT, BOUNDARY, COMMA, PRESENT, UNCERTAIN, Clauses
from rrg_rewards.findings.sections import blank_requests
from rrg_rewards.findings.text import UNIT_SEPARATOR, locate, pieces, sentences, tokenise
from rrg_rewards.findings.types import Attributes, Finding, Presence
from rrg_rewards.findings.vocabulary import Lexicon, Rule

__all__ = ["FindingEngine", "Mention", "named_spans", "report_units"]

_PRESENCES: dict[int, Presence] = {PRESENT: "present", UNCERTAIN: "uncertain", ABSENT: "absent"}
# Units remembered at most, and the longest unit worth remembering, in characters.
_MEMORY = 200_000
# Statements take a kilobyte a unit, masks next to nothing.
_STATEMENTS_PER_MASK = 0.1
_MEMORABLE = 1_000
# Reports read together at most.
_BATCH = 256
# A sentence that names no finding and begins so goes on about the last one: "It measures 5 mm", "The tip is in ...".
_GOES_ON = frozenset({"it", "this", "these", "tip", "measuring", "measures", "recommend", "which", "they"})
_ARTICLES = frozenset({"the", "its"})


class Mention(NamedTuple):
    """A concept named at tokens ``start`` to ``end`` of a sentence, by a rule."""

    concept: int
    presence: int
    start: int
    end: int
    rule: Rule


class FindingEngine:
    """Finds what reports say about the concepts of one lexicon.

    Sentences repeat from report to report, so the engine remembers what each said: as a bit mask, bit ``2 * i`` for
    concept ``i`` present and bit ``2 * i + 1`` for it uncertain; and, of a tenth as many, with attributes.

    Args:
        lexicon: A compiled lexicon.
        memory: Number of sentences to remember; 0 for none.

    Example:
        >>> from rrg_rewards.findings.vocabulary import load_lexicon
        >>> engine = FindingEngine(load_lexicon("chest_ct"))
        >>> [(found.text, found.presence) for found in engine.extract("Hiatal hernia. No pleural effusion.")]
        [('Hiatal hernia', 'present'), ('pleural effusion', 'absent')]
    """

    def __init__(self, lexicon: Lexicon, memory: int = _MEMORY) -> None:
        self.lexicon = lexicon
        self.memory = memory
        self._masks: dict[str, int] = {}
        self._units: dict[str, tuple[_Statement, ...]] = {}

    def masks(self, reports: Sequence[str]) -> list[int]:
        """For each report the bits of the concepts that it calls present or uncertain.

        Reports read together share the work on sentences that none had before.
        """
        found: list[int] = []
        for start in range(0, len(reports), _BATCH):
            found += self._batch_masks(reports[start : start + _BATCH])
        return found

    def _batch_masks(self, reports: Sequence[str]) -> list[int]:
        # Other threads may add to this memory while it is read, but nothing is ever taken out of it.
        known = self._masks
        split = [report_units(report) for report in reports]
        fresh = list(filterfalse(known.__contains__, set(chain.from_iterable(split))))
        new = dict(zip(fresh, map(self._unit_mask, sentences(fresh)), strict=True)) if fresh else {}
        found = []
        for units in split:
            union = 0
            for unit in units:
                mask = known.get(unit)
                union |= new[unit] if mask is None else mask
            found.append(union)
        if self.memory:
            self._remember(new)
        return found

    def _unit_mask(self, unit: list[list[str]]) -> int:
        mask = 0
        for tokens in unit:
            for mention in self.analyse(tokens):
                if mention.presence != ABSENT:
                    mask |= 1 << (2 * mention.concept + mention.presence)
        return mask

    def _remember(self, new: dict[str, int]) -> None:
        known = self._masks
        for unit, mask in new.items():
            if len(unit) <= _MEMORABLE:
                if len(known) >= self.memory:
                    # Replaced, not cleared: another thread may be reading the old one.
                    self._masks = known = {}
                known[unit] = mask

    def extract(self, report: str) -> list[Finding]:
        """All mentions in a report, in the order of the text, with their attributes."""
        findings: list[Finding] = []
        known, index, offset = self._units, 0, 0
        for unit in report_units(report):
            statements = known.get(unit)
            if statements is None:
                statements = self._unit_statements(unit)
                if self.memory and len(unit) <= _MEMORABLE:
                    if len(known) >= self.memory * _STATEMENTS_PER_MASK:
                        # Replaced, not cleared: another thread may be reading the old one.
                        self._units = known = {}
                    known[unit] = statements
            for statement in statements:
                if statement.more is not None and findings:
                    findings[-1] = _continued(findings[-1], statement.more)
                for concept, presence, start, end, attributes in statement.mentions:
                    start, end = start + offset, end + offset
                    # not the unit's text, in which wrapped lines are joined
                    findings.append(Finding(concept, presence, start, end, index, report[start:end], attributes))
                index += 1
            offset += len(unit) + len(UNIT_SEPARATOR)
        return findings

    def _unit_statements(self, unit: str) -> tuple["_Statement", ...]:
        return tuple(self._statement(offset, piece) for offset, piece in pieces(unit))

    def _statement(self, offset: int, piece: str) -> "_Statement":
        """What one sentence, ``offset`` characters into its unit, says."""
        tokens = tokenise(piece)
        codes, union = self.codes(tokens)
        mentions = self.mentions(codes, union) if union else []
        reader = attribute_reader()
        if not mentions:
            goes_on = tokens and (tokens[0] in _GOES_ON or (tokens[0] in _ARTICLES and tokens[1:2] == ["tip"]))
            more = reader.attributes(tokens, [Span(0, 0)])[0] if goes_on else None
            return _Statement((), more)
        if self.lexicon.exclusive:
            named = _exclusive(mentions, codes)
            attributes = reader.attributes(tokens, [span for _, span in named])
            mentions = [mention for mention, _ in named]
        else:
            # Phrases overlap, so each is read as if it were the only one.
            mentions.sort(key=lambda found: (found.start, found.end))
            attributes = [reader.attributes(tokens, [Span(found.start, found.end)])[0] for found in mentions]
        spans = locate(piece, tokens)
        return _Statement(
            tuple(
                (
                    self.lexicon.concepts[found.concept],
                    _PRESENCES[found.presence],
                    offset + spans[found.start][0],
                    offset + spans[found.end - 1][1],
                    said,
                )
                for found, said in zip(mentions, attributes, strict=True)
            ),
            None,
        )

    def analyse(self, tokens: list[str]) -> list[Mention]:
        """Mentions in one sentence, given as the tokens of :func:`rrg_rewards.findings.text.tokenise`."""
        codes, union = self.codes(tokens)
        return self.mentions(codes, union) if union else []

    def codes(self, tokens: list[str]) -> tuple[list[int], int]:
        """What each token can be, with compounds merged, and their union; 0 where nothing can be named."""
        lexicon = self.lexicon
        codes = list(map(lexicon.words.__getitem__, tokens))
        union = reduce(or_, codes, 0)
        if not union & lexicon.rules.heads:
            return codes, 0
        if lexicon.compounds.possible(union) and self._merge(codes, union):
            union = reduce(or_, codes, 0)
        return codes, union

    def _merge(self, codes: list[int], union: int) -> bool:
        """Replace phrases that are read as one other word, in place; returns whether there were any."""
        compounds, merged = self.lexicon.compounds, False
        heads = compounds.heads
        for i, code in enumerate(codes):
            if not code & heads:
                continue
            for compound in compounds[code]:
                if compound.words & union == compound.words and (end := _match(codes, i, compound.rest)):
                    codes[i] = self.lexicon.words[compound.meaning]
                    codes[i + 1 : end] = [0] * (end - i - 1)
                    merged = True
                    break
        return merged

    def mentions(self, codes: list[int], union: int) -> list[Mention]:
        """Mentions in one sentence, given what its tokens can be."""
        rules, mentions, clauses = self.lexicon.rules, [], None
        heads = rules.heads
        named: dict[int, int] = {}
        for i, code in enumerate(codes):
            if not code & heads:
                continue
            for rule in rules[code]:
                # One rule is enough: "pleural effusion" is not also the "effusion" in it.
                if rule.words & union != rule.words or named.get(rule.concept, 0) > i:
                    continue
                end = _match(codes, i, rule.rest) if rule.rest else i + 1
                if not end:
                    continue
                clauses = clauses or Clauses(codes)
                if not rule.cares & union or self._fits(rule, codes, i, end, clauses):
                    named[rule.concept] = end
                    presence = ABSENT if rule.absent else clauses.presence(i, end)
                    mentions.append(Mention(rule.concept, presence, i, end, rule))
        return mentions

    def _fits(self, rule: Rule, codes: list[int], start: int, end: int, clauses: Clauses) -> bool:
        """Whether the words around a phrase let it name the rule's concept."""
        if rule.not_next and any(code & rule.not_next for code in codes[end : end + 2]):
            return False
        if rule.not_previous and any(code & rule.not_previous for code in codes[max(0, start - 2) : start]):
            return False
        begin, stop = (0, len(codes)) if rule.wide else clauses.context(start, self.lexicon.rules.heads)
        if rule.needs or rule.bars:
            around = clauses.union(begin, stop)
            if around & rule.needs != rule.needs or around & rule.bars:
                return False
        if rule.at or rule.not_at:
            site = clauses.nearest(self.lexicon.sites, start, end, begin, stop)
            if rule.at and not site & rule.at:
                return False
            if site & rule.not_at:
                return False
        return True


def named_spans(engine: FindingEngine, tokens: list[str], exclusive: bool = False) -> list[tuple[Mention, Span]]:
    """Mentions in a sentence, in order, each with the last word of its phrase.

    Args:
        engine: Engine of a lexicon.
        tokens: Of :func:`rrg_rewards.findings.text.tokenise`.
        exclusive: Whether of overlapping phrases the longest counts.
    """
    codes, union = engine.codes(tokens)
    mentions = engine.mentions(codes, union) if union else []
    if exclusive:
        return _exclusive(mentions, codes)
    spans = [(mention, _matched(codes, mention)[-1]) for mention in mentions]
    named = [(mention, Span(last, last + 1, mention.start)) for mention, last in spans]
    return sorted(named, key=lambda found: (found[1].end, found[0].start))


def report_units(report: str) -> list[str]:
    """A report cut into what the engine remembers, without what was asked and how."""
    return unwrap(blank_requests(report)).split(UNIT_SEPARATOR)


class _Statement(NamedTuple):
    """What one sentence says: its mentions, or what it adds to the last one of the sentences before it.

    Attributes:
        mentions: Concept, presence, first character and end in the unit, and attributes.
        more: Attributes of what was named before, if the sentence names nothing itself.
    """

    mentions: tuple[tuple[str, Presence, int, int, Attributes], ...]
    more: Attributes | None


def _continued(finding: Finding, more: Attributes) -> Finding:
    """A finding with what the next sentence adds; only what it cannot have of something else."""
    said = Attributes(size_mm=more.size_mm, device_position=more.device_position, location=more.location)
    if more.device_position == "malpositioned":
        # "The tip is in the right atrium. It should be withdrawn."
        return replace(finding, attributes=replace(finding.attributes, device_position=None).filled(said))
    return replace(finding, attributes=finding.attributes.filled(said))


def _exclusive(mentions: list[Mention], codes: list[int]) -> list[tuple[Mention, Span]]:
    """Mentions whose words are not part of another one's, in order, with the last word of each.

    "Interstitial lung disease" is not also an "interstitial" pattern, but "pericardial effusion or thickening" is both,
    and so is "hydropneumothorax".
    """
    words = [_matched(codes, mention) for mention in mentions]
    masks = [sum(1 << i for i in places) for places in words]
    kept = [
        (mention, Span(places[-1], places[-1] + 1, mention.start))
        for mention, places, own in zip(mentions, words, masks, strict=True)
        if not any(own & mask == own and own != mask for mask in masks)
    ]
    return sorted(kept, key=lambda found: (found[1], found[0].start))


def _matched(codes: list[int], mention: Mention) -> list[int]:
    """Places of the words by which a mention was found."""
    places = [mention.start]
    for bit, _ in mention.rule.rest:
        places.append(next(i for i in range(places[-1] + 1, mention.end) if codes[i] & bit))
    return places


def _match(codes: list[int], i: int, rest: tuple[tuple[int, int], ...]) -> int:
    """Index after the last word of a phrase that starts at ``i``, or 0 if it does not."""
    position, size = i + 1, len(codes)
    for bit, gap in rest:
        for j in range(position, min(size, position + abs(gap) + 1)):
            code = codes[j]
            if code & bit:
                position = j + 1
                break
            if code & BOUNDARY or (gap > 0 and code & COMMA):
                return 0
        else:
            return 0
    return position
