"""Find the mentions of a lexicon's concepts in reports."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, filterfalse
from pathlib import Path
from typing import NamedTuple

from rrg_rewards.findings.knowledge.organs import finding_organ, varies_in_organ
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.compositions import composed_concept
from rrg_rewards.findings.reading.continuations import continued, further_attributes, has_items
from rrg_rewards.findings.reading.finding import OTHER, Attributes, Finding, Presence
from rrg_rewards.findings.reading.lexicon import Lexicon, load_lexicon
from rrg_rewards.findings.reading.mentions import Mention, find_mentions, mention_spans, sentence_codes
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT, UNCERTAIN, NegationScope
from rrg_rewards.findings.reading.open_findings import OpenStatement, open_statement_reader
from rrg_rewards.findings.reading.sentences import UNIT_SEPARATOR, report_units, split_unit, tokenise_units
from rrg_rewards.findings.reading.tokens import locate, tokenise

__all__ = ["FindingEngine", "engine_of", "extract_findings", "get_engine"]

_PRESENCES: dict[int, Presence] = {PRESENT: "present", UNCERTAIN: "uncertain", ABSENT: "absent"}
# Maximum number of remembered units, and maximum length of a remembered unit in characters.
_MEMORY = 200_000
_MAX_REMEMBERED_LENGTH = 1_000
# Fewer units are remembered with their findings, because findings need about a kilobyte and masks a few bytes.
_FINDINGS_PER_MASK = 0.1
# Maximum number of reports that are tokenised together.
_BATCH = 256


class FindingEngine:
    """Finds the concepts of one lexicon in reports.

    Many sentences occur in several reports. The engine therefore remembers the results of each unit, which is one or
    several whole sentences. In the bit masks of :meth:`masks`, bit ``2 * i`` means that concept ``i`` is present, and
    bit ``2 * i + 1`` that it is uncertain. The findings of :meth:`extract` are remembered for a tenth as many units.

    Args:
        lexicon: A compiled lexicon.
        memory: Maximum number of units to remember; 0 for none.
        open_findings: Whether :meth:`extract` also returns abnormal statements that name no concept, with the concept
            ``other_finding``. The lexicon must have sites.

    Example:
        >>> engine = FindingEngine(load_lexicon("chest_ct"))
        >>> [(found.text, found.presence) for found in engine.extract("Hiatal hernia. No pleural effusion.")]
        [('Hiatal hernia', 'present'), ('pleural effusion', 'absent')]
    """

    def __init__(self, lexicon: Lexicon, memory: int = _MEMORY, open_findings: bool = False) -> None:
        self.lexicon = lexicon
        self.memory = memory
        self.open_findings = open_findings
        self._masks: dict[str, int] = {}
        self._units: dict[str, tuple[_SentenceReading, ...]] = {}
        self._sentences: dict[tuple[str, ...], _TokensReading] = {}

    def masks(self, reports: Sequence[str]) -> list[int]:
        """Return, for each report, the bit mask of its present and uncertain concepts.

        A sentence that several reports contain is read once.
        """
        found: list[int] = []
        for start in range(0, len(reports), _BATCH):
            found += self._batch_masks(reports[start : start + _BATCH])
        return found

    def _batch_masks(self, reports: Sequence[str]) -> list[int]:
        # Other threads may add entries to this dictionary meanwhile. No entry is ever removed.
        known = self._masks
        split = [report_units(report) for report in reports]
        fresh = list(filterfalse(known.__contains__, set(chain.from_iterable(split))))
        new = dict(zip(fresh, map(self._unit_mask, tokenise_units(fresh)), strict=True)) if fresh else {}
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
            for mention in find_mentions(self.lexicon, tokens)[0]:
                if mention.presence != ABSENT:
                    mask |= 1 << (2 * mention.concept + mention.presence)
        return mask

    def _remember(self, new: dict[str, int]) -> None:
        known = self._masks
        for unit, mask in new.items():
            if len(unit) <= _MAX_REMEMBERED_LENGTH:
                if len(known) >= self.memory:
                    # Replaced instead of cleared, because another thread may be reading the old dictionary.
                    self._masks = known = {}
                known[unit] = mask

    def extract(self, report: str) -> list[Finding]:
        """Return all mentions in a report with their attributes, in the order of the text."""
        findings: list[Finding] = []
        known, index, offset = self._units, 0, 0
        for unit in report_units(report):
            readings = known.get(unit)
            if readings is None:
                readings = tuple(self._read_sentence(*sentence) for sentence in split_unit(unit))
                if self.memory and len(unit) <= _MAX_REMEMBERED_LENGTH:
                    if len(known) >= self.memory * _FINDINGS_PER_MASK:
                        # As in _remember.
                        self._units = known = {}
                    known[unit] = readings
            for reading in readings:
                if reading.continuation is not None and findings:
                    findings[-1] = continued(findings[-1], reading.continuation)
                elif reading.item is not None and findings and has_items(findings[-1], index):
                    # The name is that of the finding before.
                    findings.append(replace(findings[-1], sentence=index, attributes=reading.item))
                for concept, presence, begin, stop, attributes, organ, words in reading.findings:
                    start, end = begin + offset, stop + offset
                    # From the report, because wrapped lines are joined in the unit.
                    text = report[start:end]
                    findings.append(Finding(concept, presence, start, end, index, text, attributes, (), organ, words))
                index += 1
            offset += len(unit) + len(UNIT_SEPARATOR)
        return findings

    def _read_sentence(self, offset: int, sentence: str) -> "_SentenceReading":
        """Read a sentence that starts at character ``offset`` of its unit."""
        tokens = tokenise(sentence)
        stated, attributes, item = self._read_tokens(tuple(tokens))
        if not stated:
            return _SentenceReading((), attributes[0] if attributes else None, item)
        places = locate(sentence, tokens[: max(found.end for found in stated)])
        return _SentenceReading(
            tuple(
                [
                    _Read(
                        found.concept,
                        _PRESENCES[found.presence],
                        offset + places[found.start][0],
                        offset + places[found.end - 1][1],
                        own,
                        found.organ,
                        found.words,
                    )
                    for found, own in zip(stated, attributes, strict=True)
                ]
            ),
            None,
        )

    def _read_tokens(self, tokens: tuple[str, ...]) -> "_TokensReading":
        """Return the findings of a sentence, the attributes of each, and those of a further lesion like the one before.

        Without findings, the attributes are those that the sentence adds to the finding before; empty for none.
        Sentences that differ in case and punctuation only are read once.
        """
        known = self._sentences
        found = known.get(tokens)
        if found is None:
            found = self._stated_attributes(list(tokens))
            if self.memory and len(tokens) <= _MAX_REMEMBERED_LENGTH:
                if len(known) >= self.memory * _FINDINGS_PER_MASK:
                    # As in _remember.
                    self._sentences = known = {}
                known[tokens] = found
        return found

    def _stated_attributes(self, tokens: Sequence[str]) -> "_TokensReading":
        reader = attribute_reader()
        if self.lexicon.exclusive:
            stated = self._statements(tokens)
            attributes = reader.attributes(tokens, [found.span for found in stated]) if stated else []
        else:
            # Phrases overlap. The attributes of each phrase are read separately.
            mentions = sorted(find_mentions(self.lexicon, tokens)[0], key=lambda found: (found.start, found.end))
            stated = [self._named(found, Span(found.start, found.end)) for found in mentions]
            attributes = [reader.attributes(tokens, [found.span])[0] for found in stated]
        if not stated:
            return stated, *further_attributes(tokens)
        own = [_untimed(own) if found.is_open else own for found, own in zip(stated, attributes, strict=True)]
        return stated, own, None

    def _statements(self, tokens: Sequence[str]) -> list["_Stated"]:
        """Return the named and the open findings of a sentence, in order."""
        lexicon = self.lexicon
        mentions, scope = find_mentions(lexicon, tokens)
        named = [] if scope is None else mention_spans(mentions, scope.codes, exclusive=True)
        reader = open_statement_reader()
        found = [self._named(mention, span, scope) for mention, span in named]
        taken = {i for mention, _ in named for i in range(mention.start, mention.end)}
        roles = reader.roles(tokens, taken) if self.open_findings else {}
        if roles:
            scope = scope or NegationScope(sentence_codes(lexicon, tokens))
            sites = ((i, lexicon.organ(code)) for i, code in enumerate(scope.codes) if code & lexicon.sites)
            organs = {i: organ for i, organ in sites if organ}
            for stated in reader.statements(tokens, roles, scope, organs, taken):
                found.append(_open(stated))
        return sorted(found, key=lambda one: (one.span.end, one.start))

    def _site(self, scope: NegationScope, mention: Mention) -> str | None:
        """Return the organ that the clause of a mention names nearest to it."""
        begin, stop = scope.context(mention.start, self.lexicon.rules.heads, self.lexicon.sites)
        return self.lexicon.organ(scope.nearest(self.lexicon.sites, mention.start, mention.end, begin, stop))

    def _named(self, mention: Mention, span: Span, scope: NegationScope | None = None) -> "_Stated":
        concept = self.lexicon.concepts[mention.concept]
        organ = None
        if self.lexicon.sites:
            # The site is only looked for if it matters.
            organ = finding_organ(concept, self._site(scope, mention) if scope and varies_in_organ(concept) else None)
        return _Stated(concept, mention.presence, mention.start, mention.end, span, organ)


class _Stated(NamedTuple):
    """A finding at tokens ``start`` to ``end`` of a sentence; its attributes are read with ``span``.

    It is open if no phrase of the lexicon names it.
    """

    concept: str
    presence: int
    start: int
    end: int
    span: Span
    organ: str | None
    words: tuple[str, ...] = ()
    is_open: bool = False


def _open(stated: OpenStatement) -> _Stated:
    """Return the finding of an open statement: of the concept that its words and its organ make, if there is one."""
    start, end, presence, organ, words, *_ = stated
    span = Span(end - 1, end, start)
    concept = composed_concept(organ, stated.signals, stated.clause, stated.subject)
    if concept is None:
        return _Stated(OTHER, presence, start, end, span, organ, words, is_open=True)
    return _Stated(concept, presence, start, end, span, finding_organ(concept, organ), is_open=True)


class _Read(NamedTuple):
    """A finding at characters ``start`` to ``end`` of a unit."""

    concept: str
    presence: Presence
    start: int
    end: int
    attributes: Attributes
    organ: str | None
    words: tuple[str, ...]


_TokensReading = tuple[list[_Stated], list[Attributes], Attributes | None]


class _SentenceReading(NamedTuple):
    """The result of reading one sentence.

    Attributes:
        findings: The findings.
        continuation: Attributes that the sentence adds to the last finding of the preceding sentences; ``None`` if it
            names a finding itself or does not continue them.
        item: Attributes of a further lesion like the one before, if the sentence states only its size and place.
    """

    findings: tuple[_Read, ...]
    continuation: Attributes | None
    item: Attributes | None = None


def _untimed(attributes: Attributes) -> Attributes:
    """Return attributes without growth: "the density of the liver has decreased" describes the liver."""
    return replace(attributes, change=None) if attributes.change in ("increased", "decreased") else attributes


def get_engine(lexicon: str | Path, open_findings: bool = False) -> FindingEngine:
    """Return the engine of a lexicon, one per process with a shared memory.

    Args:
        lexicon: ``chest`` for the findings of chest X-rays and CTs; ``chest_ct`` for the conventions of the CT-RATE
            labels; ``chest_xray`` for those of the CheXbert labels; or the path of a ``.yaml`` file in the format of
            ``docs/labelers.md``.
        open_findings: Whether the engine also reads abnormal statements that name no concept of the lexicon.

    Raises:
        ValueError: If the lexicon is unknown (the message names the nearest known one), or an entry of the file is
            wrong.

    Example:
        >>> get_engine("chest_ct") is get_engine("chest_ct")
        True
    """
    return engine_of(load_lexicon(lexicon), open_findings)


@cache
def engine_of(lexicon: Lexicon, open_findings: bool = False) -> FindingEngine:
    """Return the engine of a compiled lexicon, one per process with a shared memory."""
    return FindingEngine(lexicon, open_findings=open_findings)


def extract_findings(report: str, lexicon: str | Path = "chest", open_findings: bool = False) -> list[Finding]:
    """Return the findings that a report mentions as present, absent or uncertain.

    Args:
        report: Report text.
        lexicon: ``chest``, ``chest_ct``, ``chest_xray`` or the path of a ``.yaml`` file; see :func:`get_engine`.
        open_findings: Whether to return also abnormal statements that name no concept of the lexicon. Their concept is
            ``other_finding``, and their content words are in ``words``. Only for the lexicon ``chest``.

    Returns:
        All mentions, in the order of the text.

    Raises:
        TypeError: If ``report`` is not a string.
        ValueError: If the lexicon is unknown. The message names the nearest known one.

    Example:
        >>> for finding in extract_findings("Nodules in both lungs, but no consolidation."):
        ...     print(finding.concept, finding.presence, finding.text)
        lung_nodule present Nodules
        consolidation absent consolidation
        >>> found = extract_findings("The portal vein is slightly widened.", open_findings=True)[0]
        >>> found.concept, found.organ, found.words, found.severity
        ('other_finding', 'vessel', ('vein', 'widened'), 'minimal')
    """
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    return get_engine(lexicon, open_findings).extract(report)
