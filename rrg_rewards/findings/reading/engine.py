"""Find the mentions of a lexicon's concepts in reports."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, filterfalse, pairwise
from pathlib import Path
from typing import NamedTuple

from rrg_rewards.findings.knowledge.concepts import concept_graph, finding_organ, varies_in_organ
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.changes import is_compared, with_presence
from rrg_rewards.findings.reading.continuations import NOTHING_FURTHER, Further, add_further, further_attributes
from rrg_rewards.findings.reading.coverage import Reading, TokenCoverage, UnreadSpan, coverage_reader
from rrg_rewards.findings.reading.cue_codes import FILLED
from rrg_rewards.findings.reading.cue_errors import CueErrors
from rrg_rewards.findings.reading.finding import (
    DOUBTFUL,
    ELSEWHERE,
    OTHER,
    Attributes,
    Finding,
    Presence,
)
from rrg_rewards.findings.reading.lexicon import Lexicon, load_lexicon
from rrg_rewards.findings.reading.mention import Mention, joined, without_parts
from rrg_rewards.findings.reading.mentions import find_mentions, sentence_scope
from rrg_rewards.findings.reading.modifiers import Modifier
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT, UNCERTAIN, NegationScope
from rrg_rewards.findings.reading.open_findings import OpenStatement, open_statement_reader
from rrg_rewards.findings.reading.organ_lists import JOINTS, OrganReading, organ_readings
from rrg_rewards.findings.reading.phrases import Memo
from rrg_rewards.findings.reading.plain_text import PlainText, plain_text
from rrg_rewards.findings.reading.schema_words import (
    WordBook,
    density_names,
    foreign_spans,
    stated_words,
    with_ranges,
)
from rrg_rewards.findings.reading.sentences import UNIT_SEPARATOR, report_units, split_unit, tokenise_units
from rrg_rewards.findings.reading.statements import elsewhere_tokens
from rrg_rewards.findings.reading.tokens import locate_in, normalise, pad
from rrg_rewards.findings.reading.wordings import composed_concept

_PRESENCES: dict[int, Presence] = {PRESENT: "present", UNCERTAIN: "uncertain", ABSENT: "absent"}
# Maximum number of remembered units, and maximum length of a remembered unit in characters.
_MEMORY = 200_000
_MAX_REMEMBERED_LENGTH = 1_000
# Fewer units are remembered with their findings, because findings need about a kilobyte and masks a few bytes.
_MASKS_PER_FINDINGS = 10
# Maximum number of reports that are tokenised together.
_BATCH = 256
_NO_COVERAGE: TokenCoverage = (0, 0, ())
# Concept of a finding that a label lexicon does not have; it owns the words around it, and is not returned.
_FOREIGN = ""


class _TokenFinding(NamedTuple):
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
    attributes: Attributes = Attributes()

    @property
    def identity(self) -> tuple[str, str | None, int]:
        """What it has in common with the same finding of another reading of the sentence."""
        return self.concept, self.organ, self.end

    def at(self, tokens: Sequence[int]) -> "_TokenFinding":
        """Return the finding with the tokens of a sentence of which it was read in some."""
        start, end = tokens[self.start], tokens[self.end - 1] + 1
        return self._replace(start=start, end=end, span=Span(tokens[self.span.start], tokens[self.span.end - 1] + 1))

    def repeats(self, other: "_TokenFinding") -> bool:
        """Whether the finding shares words with one of the same concept in the same organ."""
        is_same = (self.concept, self.organ) == (other.concept, other.organ)
        return is_same and self.start < other.end and other.start < self.end


class _SentenceReading(NamedTuple):
    """What a sentence of a unit states.

    Attributes:
        findings: The findings, with offsets in the unit.
        further: The attributes that it adds to the finding before, and those of a further one like it; ``None`` for
            none.
        is_foreign: Whether the last finding that the sentence names is none of the lexicon.
        coverage: The words that were not read, with offsets in the unit.
        is_numbered: Whether it is only the number of an item, which counts as no sentence.
    """

    findings: tuple[Finding, ...]
    further: Further
    is_foreign: bool
    coverage: TokenCoverage
    is_numbered: bool = False


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
        vocabulary: Phrases of the caller. The attributes of the present and the uncertain findings then have the words
            of these phrases, those of absent findings are empty, and unread words are not looked for. The lexicon must
            be one of labels.

    Example:
        >>> engine = FindingEngine(load_lexicon("chest_ct"))
        >>> [(found.text, found.presence) for found in engine.extract("Hiatal hernia. No pleural effusion.")]
        [('Hiatal hernia', 'present'), ('pleural effusion', 'absent')]
    """

    def __init__(
        self,
        lexicon: Lexicon,
        memory: int = _MEMORY,
        open_findings: bool = False,
        vocabulary: WordBook | None = None,
    ) -> None:
        self.lexicon = lexicon
        self._vocabulary = vocabulary
        # A label lexicon lacks findings, whose attributes would be taken for those of others.
        self._has_foreign = not lexicon.exclusive and lexicon.base in ("chest_ct", "chest_xray")
        self.open_findings = open_findings
        self._coverage = coverage_reader(lexicon)
        self._errors = CueErrors(self._coverage)
        self._memory = memory
        self._masks: dict[str, int] = {}
        self._units = Memo(self._unit_readings, memory // _MASKS_PER_FINDINGS)

    def masks(self, reports: Sequence[str]) -> list[int]:
        """Return, for each report, the bit mask of its present and uncertain concepts.

        A sentence that several reports contain is read once.
        """
        batches = (reports[start : start + _BATCH] for start in range(0, len(reports), _BATCH))
        return list(chain.from_iterable(map(self._batch_masks, batches)))

    def _batch_masks(self, reports: Sequence[str]) -> list[int]:
        remembered = self._masks
        split = [report_units(plain_text(report).text) for report in reports]
        fresh = list(filterfalse(remembered.__contains__, set(chain.from_iterable(split))))
        new = dict(zip(fresh, map(self._unit_mask, tokenise_units(fresh)), strict=True)) if fresh else {}
        masks = []
        for units in split:
            of_report = 0
            for unit in units:
                mask = remembered.get(unit)
                of_report |= new[unit] if mask is None else mask
            masks.append(of_report)
        for unit, mask in new.items():
            if len(self._masks) >= self._memory:
                # Replaced instead of cleared, because another thread may be reading the old dictionary.
                self._masks = {}
            if self._memory and len(unit) <= _MAX_REMEMBERED_LENGTH:
                self._masks[unit] = mask
        return masks

    def _unit_mask(self, unit: list[list[str]]) -> int:
        mask = 0
        for tokens in unit:
            is_certain = self._errors.is_certain(tokens)
            if not is_certain:
                tokens = self._errors.divided(tokens)
            mentions, scope = find_mentions(self.lexicon, tokens)
            if scope is not None and scope.kinds & JOINTS:
                mentions = [*mentions, *self._mentions_of_lists(tokens, mentions, scope)]
            if mentions and not is_certain:
                for i in self._errors.governed(tokens, [(found.start, found.end) for found in mentions]):
                    mentions[i] = mentions[i]._replace(presence=UNCERTAIN)
            for found in mentions:
                if found.presence != ABSENT:
                    mask |= 1 << 2 * found.concept + found.presence
        return mask

    def _mentions_of_lists(
        self, tokens: Sequence[str], mentions: Sequence[Mention], scope: NegationScope
    ) -> Iterator[Mention]:
        """Yield the mentions of each organ of a list alone. Lists with "or" share only what is absent: no bits."""
        for reading in organ_readings(scope, tokens, ((found.start, found.end) for found in mentions)):
            if not reading.is_alternative:
                for found in find_mentions(self.lexicon, reading.of(tokens))[0]:
                    if reading.has_shared(scope, found.start, found.end):
                        yield found

    def extract(self, report: str) -> list[Finding]:
        """Return all mentions in a report with their attributes, in the order of the text."""
        return list(self.read(report).findings)

    def stated(self, report: str) -> list[Finding]:
        """Return all mentions as :meth:`extract`, but without their places in the report, which takes less time."""
        findings: list[Finding] = []
        for *_, reading in self._sentences(plain_text(report), findings):
            findings += reading.findings
        return findings

    def read(self, report: str) -> Reading:
        """Return all mentions in a report, and the words that were not read; see :class:`CoverageReader`."""
        findings: list[Finding] = []
        unread: list[UnreadSpan] = []
        num_words = num_unread = 0
        plain = plain_text(report)
        for index, offset, reading in self._sentences(plain, findings):
            for concept, presence, start, end, _, _, attributes, _, organ, words in reading.findings:
                # From the text, because wrapped lines are joined in the unit.
                text = plain.text[start + offset : end + offset]
                start, end = plain.in_report(start + offset, end + offset)
                findings.append(Finding(concept, presence, start, end, index, text, attributes, (), organ, words))
            size, size_unread, spans = reading.coverage
            num_words, num_unread = num_words + size, num_unread + size_unread
            for start, end in spans:
                text = plain.text[start + offset : end + offset]
                unread.append(UnreadSpan(*plain.in_report(start + offset, end + offset), text))
        return Reading(tuple(unread), num_words, num_unread, tuple(findings))

    def _sentences(self, plain: PlainText, findings: list[Finding]) -> Iterator[tuple[int, int, _SentenceReading]]:
        """Yield the index of each sentence, the offset of its unit, and what it states.

        What it says of ``findings``, which are those of the sentences before, is added to them.
        """
        index, offset, is_open, is_next = 0, 0, True, False
        for unit in report_units(plain.text):
            is_remembered = self._memory and len(unit) <= _MAX_REMEMBERED_LENGTH
            for reading in self._units[unit] if is_remembered else self._unit_readings(unit):
                is_named = bool(reading.findings)
                if findings and reading.further is not NOTHING_FURTHER:
                    is_named |= add_further(findings, reading.further, is_open, is_next, index)
                if not reading.is_numbered:
                    if self._has_foreign and reading.further[0] is None:
                        is_open = is_named and not reading.is_foreign
                    is_next = is_named
                yield index, offset, reading
                index += not reading.is_numbered
            offset += len(unit) + len(UNIT_SEPARATOR)

    def _unit_readings(self, unit: str) -> tuple[_SentenceReading, ...]:
        return tuple([self._read_sentence(*sentence) for sentence in split_unit(unit)])

    def _read_sentence(self, offset: int, sentence: str) -> _SentenceReading:
        """Read a sentence that starts at character ``offset`` of its unit."""
        text = normalise(sentence)
        tokens = pad(text).split()
        is_certain = self._errors.is_certain(tokens)
        if not is_certain:
            tokens = self._errors.divided(tokens)
        named = self._all_findings(tokens)
        is_foreign = bool(named) and named[-1].concept == _FOREIGN
        findings = [found for found in named if found.concept != _FOREIGN]
        places = [(found.start, found.end) for found in findings]
        doubted = [] if is_certain or not findings else list(self._errors.governed(tokens, places))
        for i in doubted:
            findings[i] = findings[i]._replace(presence=UNCERTAIN)
        further = NOTHING_FURTHER if findings else further_attributes(tokens, sentence, self._vocabulary)
        coverage = _NO_COVERAGE
        if not self._vocabulary:
            spans = [(found.presence, found.start, found.end) for found in findings]
            is_told = further is not NOTHING_FURTHER
            coverage = self._coverage.read(tokens, spans, is_told, [places[i] for i in doubted])
        num_words, num_unread, unread = coverage
        if not findings and not unread:
            return _SentenceReading((), further, is_foreign, coverage, not any(map(str.isalpha, sentence)))
        bounds = locate_in(text, tokens[: max(end for _, end in [*unread, *places])])
        starts, ends = [offset + start for start, _ in bounds], [offset + end for _, end in bounds]
        located = [
            Finding(
                found.concept,
                # Labels count what is unlikely as absent.
                "uncertain" if found.attributes.certainty == DOUBTFUL else _PRESENCES[found.presence],
                starts[found.start],
                ends[found.end - 1],
                sentence=0,
                text="",
                attributes=with_ranges(found.attributes, sentence) if found.attributes.words else found.attributes,
                organ=found.organ,
                words=found.words,
            )
            for found in findings
        ]
        placed = tuple([(starts[start], ends[end - 1]) for start, end in unread])
        return _SentenceReading(tuple(located), further, is_foreign, (num_words, num_unread, placed))

    def _all_findings(self, tokens: Sequence[str]) -> list[_TokenFinding]:
        """Return the named and the open findings of a sentence with their attributes.

        A finding that the organs of a list share is a finding of each organ.
        """
        findings, scope = self._read_tokens(tokens)
        if scope is None or not scope.kinds & JOINTS:
            return findings
        readings = organ_readings(scope, tokens, ((found.start, found.end) for found in findings))
        if not readings:
            return findings
        read = [(reading, self._read_organ(reading, tokens, scope)) for reading in readings]
        times = Counter((reading.organs, key) for reading, organ in read for key in organ)
        for reading, organ in read:
            # What is said of the organ alone, such as its side: "in the right lobe of the liver and the left kidney". A
            # finding of all organs, such as nodes, keeps what is said of all.
            single = () if reading.names_others else (key for key in organ if times[reading.organs, key] == 1)
            own = {key: organ[key].attributes for key in single}
            for i, found in enumerate(findings):
                if alone := own.get(found.identity):
                    # The words of a vocabulary say themselves of which organ they are.
                    words, place_words = found.attributes.words, found.attributes.place_words
                    findings[i] = found._replace(attributes=alone._replace(words=words, place_words=place_words))
            known = tuple(findings)
            findings += [found for found in organ.values() if not any(map(found.repeats, known))]
        return sorted(findings, key=lambda found: (found.span.end, found.start))

    def _read_organ(
        self, reading: OrganReading, tokens: Sequence[str], scope: NegationScope
    ) -> dict[tuple[str, str | None, int], _TokenFinding]:
        """Return the findings of one organ of a list that the organs share."""
        findings: dict[tuple[str, str | None, int], _TokenFinding] = {}
        for alone in self._read_tokens(reading.of(tokens))[0]:
            # "Nodule in the liver or the spleen" is in one of the two.
            is_stated = alone.presence == ABSENT or not reading.is_alternative
            if is_stated and reading.has_shared(scope, alone.start, alone.end):
                finding = alone.at(reading.kept)
                findings.setdefault(finding.identity, finding)
        return findings

    def _read_tokens(self, tokens: Sequence[str]) -> tuple[list[_TokenFinding], NegationScope | None]:
        """Return the findings of some tokens with their attributes, and their clauses if a phrase matches."""
        words: Sequence[Modifier] = ()
        if self.lexicon.exclusive:
            findings, scope = self._findings(tokens)
        else:
            findings, scope, words = self._label_findings(tokens)
        if self._vocabulary and all(finding.presence == ABSENT for finding in findings):
            return findings, scope
        spans = [finding.span for finding in findings]
        attributes = attribute_reader().attributes(tokens, spans, words) if findings else []
        for k, (sign, diagnosis) in enumerate(pairwise(findings), 1):
            # "Blunting of the right costophrenic angle, consistent with an effusion"
            is_open = not (attributes[k].laterality or attributes[k].location)
            is_sign = is_open and sign.concept in concept_graph().implied(diagnosis.concept)
            if is_sign and attribute_reader().link(tokens[sign.end : diagnosis.start]) == "stated":
                place = attributes[k - 1]
                attributes[k] = attributes[k]._replace(laterality=place.laterality, location=place.location)
        return [_timed(finding, own, tokens) for finding, own in zip(findings, attributes, strict=True)], scope

    def _findings(self, tokens: Sequence[str]) -> tuple[list[_TokenFinding], NegationScope | None]:
        """Return the named and the open findings of a sentence, in order, and its clauses if they were needed."""
        lexicon = self.lexicon
        mentions, scope = find_mentions(lexicon, tokens)
        mentions = without_parts(mentions)
        findings = [self._named(mention, mention.last_word(), scope) for mention in mentions]
        taken = {i for mention in mentions for i in range(mention.start, mention.end)}
        reader = open_statement_reader()
        roles = reader.roles(tokens, taken) if self.open_findings else {}
        if roles:
            scope = scope or sentence_scope(lexicon, tokens)
            sites = ((i, lexicon.organ(code)) for i, code in enumerate(scope.codes) if code & lexicon.sites)
            organs = {i: organ for i, organ in sites if organ}
            findings += map(_open, reader.statements(tokens, roles, scope, organs, taken))
        if len(findings) > 1:
            findings.sort(key=lambda finding: (finding.span.end, finding.start))
        return findings, scope

    def _label_findings(
        self, tokens: Sequence[str]
    ) -> tuple[list[_TokenFinding], NegationScope | None, Sequence[Modifier]]:
        """Return the findings of a sentence, whose phrases overlap, its clauses, and the words of the vocabulary."""
        mentions, scope = find_mentions(self.lexicon, tokens)
        mentions = joined(mentions)
        findings = [self._named(mention, mention.last_word()) for mention in mentions]
        if all(mention.presence == ABSENT for mention in mentions):
            return findings, scope, ()
        words = stated_words(self._vocabulary, tokens) if self._vocabulary else ()
        if self._has_foreign:
            foreign = foreign_spans(self.lexicon, tokens, mentions, words, self._vocabulary)
            findings += [_TokenFinding(_FOREIGN, PRESENT, span.start, span.end, span, None) for span in foreign]
        if self._vocabulary:
            densities = density_names(tokens, [finding.span for finding in findings])
            findings = [finding for finding in findings if finding.span not in densities]
        elsewhere = elsewhere_tokens(tokens, {i for found in findings for i in range(found.span.start, found.end)})
        findings = [found._replace(organ=ELSEWHERE) if found.span.start in elsewhere else found for found in findings]
        return sorted(findings, key=lambda found: (found.span.end, found.start)), scope, words

    def _named(self, mention: Mention, span: Span, scope: NegationScope | None = None) -> _TokenFinding:
        lexicon, start, end = self.lexicon, mention.start, mention.end
        concept, site = lexicon.concepts[mention.concept], None
        if scope and lexicon.sites and varies_in_organ(concept):
            # The organ that the clause names nearest to the mention.
            context = scope.context(start)
            site = lexicon.organ(scope.nearest(start, end, context))
        organ = finding_organ(concept, site) if lexicon.sites else None
        # With the further words of a compound, such as "lymph nodes".
        while scope and end < scope.size and scope.codes[end] & FILLED:
            end += 1
        return _TokenFinding(concept, mention.presence, start, end, span, organ)


def _open(statement: OpenStatement) -> _TokenFinding:
    """Return the finding of an open statement: of the concept that its words and its organ make, if there is one."""
    start, end, presence, organ, words, *_ = statement
    concept = composed_concept(organ, statement.signals, statement.clause, statement.subject)
    if concept is not None:
        organ, words = finding_organ(concept, organ), ()
    return _TokenFinding(concept or OTHER, presence, start, end, Span(end - 1, end, start), organ, words, is_open=True)


def _timed(finding: _TokenFinding, attributes: Attributes, tokens: Sequence[str]) -> _TokenFinding:
    """Return a finding with its attributes, of which the change fits its presence and its words."""
    if finding.is_open and attributes.change in ("increased", "decreased") and not is_compared(tokens):
        # "The density of the liver has decreased" describes the liver.
        attributes = attributes._replace(change=None)
    if finding.presence != ABSENT and attributes.certainty == DOUBTFUL:
        # "Small effusion, unlikely to be significant"
        attributes = attributes._replace(certainty=None)
    return finding._replace(attributes=with_presence(attributes, finding.presence == ABSENT, tokens, finding.start))


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


def read_findings(report: str, lexicon: str | Path = "chest", open_findings: bool = True) -> Reading:
    r"""Return the findings of a report, and the words of it that were not read.

    A word is read if it is a part of a finding (present, absent, uncertain or of the past), of a statement that
    something is normal, or of one about technique, quality, comparison or recommendation. Unread are words that no word
    list contains, such as rare diseases, misspellings and other languages, unless the report denies them; and
    statements of known words that say something which is none of these ("the bronchi are crowded"). With :math:`U`
    unread words among the :math:`W` content words of the report,

    .. math:: \mathrm{unread\_share} = U / W

    Content words are all words except articles, prepositions, pronouns, conjunctions and auxiliary verbs; "no" and
    "not" are content, and each Chinese character counts as one. Headings, places and measures count as read. Sections
    on the request and the technique are not counted.

    Args:
        report: Report text in English.
        lexicon: ``chest``, ``chest_ct``, ``chest_xray`` or the path of a ``.yaml`` file; see :func:`get_engine`. With
            other lexicons than ``chest``, findings that it has no label for are unread.
        open_findings: Whether abnormal statements that name no concept of the lexicon are read as findings; otherwise
            they are unread.

    Raises:
        TypeError: If ``report`` is not a string.
        ValueError: If the lexicon is unknown. The message names the nearest known one.

    Example:
        >>> reading = read_findings("Coarktation of the aorta. No effusion.")
        >>> [found.text for found in reading.findings], reading.unread
        (['effusion'], (UnreadSpan(start=0, end=11, text='Coarktation'),))
        >>> reading.num_words, round(reading.unread_share, 2)
        (4, 0.25)
    """
    _check_report(report)
    return get_engine(lexicon, open_findings).read(report)


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
    _check_report(report)
    return get_engine(lexicon, open_findings).extract(report)


def _check_report(report: str) -> None:
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
