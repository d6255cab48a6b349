"""Finds the mentions of a lexicon's concepts in report text, one pass over the tokens."""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain, filterfalse
from operator import or_
from typing import NamedTuple

from rrg_rewards.findings.lines import unwrap
from rrg_rewards.findings.scope import ABSENT, BOUNDARY, COMMA, PRESENT, UNCERTAIN, Clauses
from rrg_rewards.findings.text import UNIT_SEPARATOR, locate, pieces, sentences, tokenise
from rrg_rewards.findings.types import Finding, Presence
from rrg_rewards.findings.vocabulary import Lexicon, Rule

__all__ = ["FindingEngine", "Mention"]

_PRESENCES: dict[int, Presence] = {PRESENT: "present", UNCERTAIN: "uncertain", ABSENT: "absent"}
# Units remembered at most, and the longest unit worth remembering, in characters.
_MEMORY = 200_000
_MEMORABLE = 1_000
# Reports read together at most.
_BATCH = 256


class Mention(NamedTuple):
    """A concept named at tokens ``start`` to ``end`` of a sentence."""

    concept: int
    presence: int
    start: int
    end: int


class FindingEngine:
    """Finds what reports say about the concepts of one lexicon.

    Sentences repeat from report to report, so the engine remembers what each said, as a bit mask: bit ``2 * i``
    for concept ``i`` present, bit ``2 * i + 1`` for it uncertain.

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
        split = [unwrap(report).split(UNIT_SEPARATOR) for report in reports]
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
            for concept, presence, _, _ in self.analyse(tokens):
                if presence != ABSENT:
                    mask |= 1 << (2 * concept + presence)
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
        """All mentions in a report, in the order of the text."""
        findings = []
        for index, (offset, piece) in enumerate(self._sentences(report)):
            tokens = tokenise(piece)
            mentions = self.analyse(tokens)
            if not mentions:
                continue
            spans = locate(piece, tokens)
            for mention in sorted(mentions, key=lambda found: (found.start, found.end)):
                start, end = spans[mention.start][0], spans[mention.end - 1][1]
                findings.append(
                    Finding(
                        concept=self.lexicon.concepts[mention.concept],
                        presence=_PRESENCES[mention.presence],
                        start=offset + start,
                        end=offset + end,
                        sentence=index,
                        # not the piece's, in which wrapped lines are joined
                        text=report[offset + start : offset + end],
                    )
                )
        return findings

    def analyse(self, tokens: list[str]) -> list[Mention]:
        """Mentions in one sentence, given as the tokens of :func:`rrg_rewards.findings.text.tokenise`."""
        lexicon = self.lexicon
        codes = list(map(lexicon.words.__getitem__, tokens))
        union = reduce(or_, codes, 0)
        if not union & lexicon.rules.heads:
            return []
        if lexicon.compounds.possible(union) and self._merge(codes, union):
            union = reduce(or_, codes, 0)
        return self._mentions(codes, union)

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

    def _mentions(self, codes: list[int], union: int) -> list[Mention]:
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
                    mentions.append(Mention(rule.concept, ABSENT if rule.absent else clauses.presence(i, end), i, end))
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

    @staticmethod
    def _sentences(report: str) -> Iterable[tuple[int, str]]:
        offset = 0
        for unit in unwrap(report).split(UNIT_SEPARATOR):
            for start, piece in pieces(unit):
                yield offset + start, piece
            offset += len(unit) + len(UNIT_SEPARATOR)


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
