"""Split a sentence into clauses, and decide from their cues whether a mention is present, uncertain or absent."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, takewhile

from rrg_rewards.findings.reading.lexicon import CUES, Lexicon
from rrg_rewards.findings.reading.phrases import union

PRESENT, UNCERTAIN, ABSENT = 0, 1, 2
# The bits of the cues, in the rows of CUES.
_BITS = [1 << i for i in range(len(CUES))]
BOUNDARY, COMMA, JOINT, VERB, PREDICATE, BE, HAVE, EXIST, SHOW, RELATIVE = _BITS[:10]
NOT, NONE, ENDED, HISTORY, FORMER, CURRENT, OTHER, OPEN, DOUBT, QUERY = _BITS[10:20]
NORMAL, ABNORMAL, PLACE, DEGREE, WITH, SURGERY, PURPOSE, EXCEPT, SAME = _BITS[20:29]
INSIDE, DEFINITE, ARTICLE, EXTENT, SURE = _BITS[29:34]
PERHAPS, SUPPOSED, INSTEAD, REQUEST, UNSTATED, ASKING, WOULD, QUALITY, UNABLE, CHANGING, TIED, FILLED = _BITS[34:46]
LINKING, REASON, REFUTED, THAN, WHETHER, MEASURE, LASTING, PARTLY = _BITS[46:54]
HEDGE, PLURAL, RECURRING, BETWEEN = _BITS[54:]
_CUE_MASK = (1 << len(CUES)) - 1
STATING = VERB | PREDICATE | EXIST | SHOW
DENYING = NOT | NONE | ENDED
BREAKING = BOUNDARY | COMMA | JOINT
# Cues that divide a sentence into clauses and lists.
_PARTING = STATING | DENYING | BREAKING | BE | HAVE | OTHER | WITH | PERHAPS
# A denied list does not go on after "and" and one of these.
_BEGINNING = ARTICLE | SHOW | HEDGE | LASTING
_UNASSERTED = REQUEST | UNSTATED | ASKING
# Cues without which every mention of a sentence is present.
_CHANGING = DENYING | HISTORY | FORMER | DOUBT | QUERY | PERHAPS | NORMAL | SURGERY | SUPPOSED | THAN | _UNASSERTED
# Maximum distances in tokens.
# Between "in the" and the mention: "in the known right nodule".
_HOST_REACH = 6
# Between "not" and the verb that it negates: "was not clearly observed".
_NOT_REACH = 3
# Between "not" and the earlier examination that it applies to: "not observed in the previous examination".
_FORMER_REACH = 5
# Between a word of doubt and the mention: "suspicious for early pneumonia".
_DOUBT_REACH = 6
# Between an article and the mention: "the left effusion".
_ARTICLE_REACH = 2
# Between "history of" or "resection of" and the mention: "resection of a right upper lobe mass".
_HISTORY_REACH = 6
# Between "is" and what it states: "is locally thickened".
_PREDICATE_REACH = 4
# Between a mention and the verb that calls it normal, and between this verb and "normal": "thickness is within normal".
_NORMAL_REACH = 3


class _Clauses:
    """The clauses of one sentence and the cues in them.

    A clause ends at words such as "but". It also ends at a comma or "and" if there is a verb both before and after it.

    Args:
        codes: Codes of the sentence's tokens.
        sentence: Their union.
        lexicon: The lexicon whose words they are.
        label: Bits of the sites that a label before the sentence names.
    """

    def __init__(self, codes: Sequence[int], sentence: int, lexicon: Lexicon, label: int = 0) -> None:
        self.codes = codes
        self.label = label
        self.heads, self.names, self.sites = lexicon.firsts, lexicon.names, lexicon.sites
        self.size = len(codes)
        self.kinds = sentence & _CUE_MASK
        self._unions: dict[tuple[int, int], int] = {}
        self._contexts: dict[int, range] = {}
        self._places: list[int] | None = None
        self._is_divided = False

    def _divide(self) -> None:
        """Find the clauses and the cues in them; many sentences have no cue, and their clauses are never asked for."""
        self._is_divided = True
        codes = self.codes
        self.verbs: list[int] = []
        # Cues that negate the words after them ("no"), and cues that negate the words before them ("was not observed").
        self.ahead: list[int] = []
        self.back: list[int] = []
        # Whether the sentence denies a finding for an earlier examination only; the finding is then new.
        self.has_news = False
        self.starts = [0]
        self.breaks: list[int] = []
        # Verbs with a preceding subject, words before which a list ends, and words that continue a list.
        self.spoken: list[int] = []
        self.openers: list[int] = []
        # Commas before an interpretation.
        self.links: list[int] = []
        self.others: list[int] = []
        if not self.kinds & _PARTING:
            return
        for i, code in enumerate(codes):
            # Arithmetic with the few bits of the cues is faster than with all.
            code &= _PARTING
            if not code:
                continue
            # "Effusion: no, pneumothorax: absent" is divided by the commas only.
            is_answer = code & BOUNDARY and union(codes[i + 1 : i + 2]) & (NONE | ENDED)
            if is_answer and self._ends_at(i + 2) and not union(codes[i + 2 : i + 3]) & FILLED:
                continue
            if code & STATING and self._is_finite(i):
                self.verbs.append(i)
            if code & DENYING:
                self._add_denial(i)
            if code & BREAKING:
                self.breaks.append(i)
                if code & COMMA and self.union(i + 1, i + 2) & (OPEN | HEDGE):
                    self.openers.append(i)
                elif code & COMMA and self._interprets(i + 1):
                    self.links.append(i)
            elif code & (BE | HAVE | PERHAPS):
                if not (i and codes[i - 1] & RELATIVE):
                    self.spoken.append(i)
            elif code & OTHER:
                self.others.append(i)
            # "no pneumothorax with a small effusion", "no mass and mild emphysema", "no mass, and a nodule is seen"
            if code & (WITH | JOINT) and self.union(i + 1, i + 2) & (DEGREE | HEDGE | (code & JOINT and _BEGINNING)):
                self.openers.append(i)
        if self.breaks:
            self._split(self.breaks)

    def _first_of(self, cue: int, barrier: int, tokens: range) -> int:
        """Return the first of some tokens with a cue, or -1 if one of the barriers precedes it."""
        i = next((i for i in tokens if self.codes[i] & (cue | barrier)), -1)
        return i if i >= 0 and self.codes[i] & cue else -1

    def _is_finite(self, i: int) -> bool:
        """Whether a verb makes a statement, as in "was observed" but not in "nodules observed earlier"."""
        codes = self.codes
        # "Effusion present, pneumothorax absent", but not "effusion noted earlier, resolved"
        is_answer = self.kinds & ENDED and not self.kinds & FORMER and self.union(i + 1, i + 2) & COMMA
        if codes[i] & (EXIST | SHOW) or (is_answer and not self.union(i + 2, i + 3) & (ENDED | BE | HAVE | CURRENT)):
            return True
        be = self._first_of(BE, 0, range(i - 1, max(-1, i - 4), -1))
        return be == 0 or (be > 0 and not codes[be - 1] & RELATIVE)

    def _interprets(self, i: int) -> bool:
        """Whether words say what the words before them are: "consistent with", "most likely", not "suspicious mass"."""
        return any(
            code & LINKING and (code & HEDGE or self.union(k, k + 1) & (PURPOSE | WITH | ARTICLE))
            for k, code in enumerate(self.codes[i : i + 2], i + 1)
        )

    def _ends_at(self, i: int) -> bool:
        i = next((k for k in range(i, self.size) if not self.codes[k] & FILLED), self.size)
        return i >= self.size or bool(self.codes[i] & (COMMA | BOUNDARY))

    def _add_denial(self, i: int) -> None:
        code = self.codes[i]
        if code & NOT:
            # "new nodules, which were not observed in the previous examination"
            if union(self.codes[i + 1 : i + 1 + _FORMER_REACH]) & FORMER:
                self.has_news = True
            elif (verb := self._first_of(SHOW | VERB, 0, range(i + 1, min(self.size, i + 1 + _NOT_REACH)))) >= 0:
                (self.ahead if self.codes[verb] & SHOW else self.back).append(i)
            elif self._ends_at(i + 1) and self.union(i - 1, i) & BE:
                self.back.append(i)
        else:
            # "Effusion, unlikely empyema", "the absent effusion", but not "effusion, now gone": "gone" has no code.
            is_last = self._ends_at(i + 1)
            is_adjective = not is_last and self.codes[i + 1] & ~FILLED
            # "None of the lobes"
            is_partitive = code & NONE and self.union(i + 1, i + 2) & PURPOSE
            introducing = BOUNDARY | ARTICLE | WITH | COMMA * bool(is_adjective)
            leads = i == 0 or is_partitive or (not is_last and self.codes[i - 1] & introducing)
            looks_back = not leads if code & ENDED else i > 0 and is_last
            (self.back if looks_back else self.ahead).append(i)

    def _split(self, breaks: list[int]) -> None:
        """Collect the index of the first token of each clause."""
        codes, start = self.codes, 0
        if not self.verbs and not self.kinds & BOUNDARY:
            # A clause without a verb does not end at a comma or "and".
            return
        last_verb = self.verbs[-1] if self.verbs else -1
        for i, following in zip(breaks, [*breaks[1:], self.size], strict=True):
            if not codes[i] & BOUNDARY:
                # The list ends at the next verb: "there is no effusion, edema, or nodule, and the heart is normal".
                if self._opens_denied_list(start) and not self.union(i, following) & (STATING | BE | HAVE):
                    continue
                # A statement such as "is normal," is complete; after other verbs a list may continue.
                if not 0 < i < self.size - 1 or (i > last_verb and not codes[i - 1] & PREDICATE):
                    continue
                # The words after the comma have no subject: "nodules seen earlier, were not observed".
                if codes[i + 1] & BE or not (
                    _any_between(self.verbs, start, i)
                    or self._is_denial(start, i, following)
                    or (codes[i] & COMMA and self._is_of_normal(start, i, following))
                ):
                    continue
            self.starts.append(i)
            start = i

    def _opens_denied_list(self, start: int) -> bool:
        """Whether a clause starts with "there is no"."""
        verb = _first_between(self.verbs, start, start + 3)
        return verb >= 0 and bool(self.codes[verb] & EXIST) and any(c & NONE for c in self.codes[verb : verb + 4])

    def _is_denial(self, start: int, i: int, following: int) -> bool:
        """Whether a denial with "be" precedes a statement: "the lungs are free of masses, emphysema is noted"."""
        denial = _first_between(self.ahead, start, i)
        return (
            denial >= 0
            and self._first_of(BE, JOINT, range(denial, start - 1, -1)) >= 0
            and bool(self.union(i, following) & STATING)
            and not self.codes[i + 1] & RELATIVE
        )

    def _is_of_normal(self, start: int, i: int, following: int) -> bool:
        """Whether a comma is beside a normal organ: "nodule, the heart is normal", "normal heart, a nodule is seen"."""
        after = self.union(i, following)
        return after & (BE | NORMAL) == BE | NORMAL or bool(self.union(start, i) & NORMAL and after & STATING)

    def clause(self, i: int) -> range:
        """Return the tokens of the clause that contains token ``i``."""
        if not self._is_divided:
            self._divide()
        k = bisect_right(self.starts, i)
        return range(self.starts[k - 1], self.starts[k] if k < len(self.starts) else self.size)

    def union(self, start: int, end: int) -> int:
        """Return the union of the codes from ``start`` to before ``end``."""
        codes = self._unions.get((start, end))
        if codes is None:
            codes = self._unions[start, end] = union(self.codes[start:end])
        return codes

    def context(self, i: int, is_wide: bool = False) -> range:
        """Return the tokens that can belong to the mention at token ``i``.

        These are the words of the clause. In a list of findings without a verb, they are the list items from the
        mention to the next finding: "dilated aorta, plaques in the left, right coronary".

        Args:
            i: Token of the mention.
            is_wide: Whether all tokens of the sentence can belong to it.
        """
        if is_wide:
            return range(self.size)
        context = self._contexts.get(i)
        if context is None:
            context = self._contexts[i] = self._context(i)
        return context

    def _context(self, i: int) -> range:
        context = self._item(i)
        if not self.kinds & JOINT:
            return context
        start, end = context.start, context.stop
        breaks = [start, *[k for k in self.breaks if start < k < end - 1], end]
        for before, k, after in zip(breaks, breaks[1:], breaks[2:], strict=False):
            if self.codes[k] & JOINT and (self._parts_findings(k) or self._parts_places(before, k, after)):
                if k < i:
                    start = k + 1
                else:
                    end = min(end, k)
        return range(start, end)

    def _parts_places(self, start: int, joint: int, end: int) -> bool:
        """Whether "and" parts two findings that each have their organ: "tortuous aorta and calcification in the lung"."""
        first, second = self.codes[start:joint], self.codes[joint + 1 : end]
        return not second[0] & (BE | HAVE) and (
            any(code & self.sites for code in first)
            and any(code & self.sites for code in second)
            and any(code & self.heads and not code & self.sites for code in first)
            and any(code & self.names and not code & self.sites for code in second)
        )

    def _parts_findings(self, joint: int) -> bool:
        """Whether "and" parts two findings, of which the second begins with its organ.

        "Emphysema and liver cyst", "tortuous aorta and splenic calcification"
        """
        site = joint + 1 + bool(self.union(joint + 1, joint + 2) & ARTICLE)
        organ, following = (self.union(i, i + 1) for i in (site, site + 1))
        if not organ & self.sites or following & self.sites or not following & self.heads:
            return False
        before = self.codes[joint - 1]
        if before & self.sites:
            described = self.union(joint - 2, joint - 1)
            return bool(described & self.heads and not described & self.sites and following & self.names)
        return bool(before & self.names)

    def _item(self, i: int) -> range:
        """Return the tokens of the clause of token ``i``, or those of its items in a list."""
        clause = self.clause(i)
        start, end = clause.start, clause.stop
        if not self.kinds & COMMA or _any_between(self.verbs, start, end):
            return clause
        commas = [k for k in self.breaks if start <= k < end and self.codes[k] & COMMA]
        after = bisect_left(commas, i)
        # "Hepatic nodule, suspicious for metastasis", "pericardium normal, without effusion"
        item = after
        while item:
            following = commas[item - 1] + 1
            if not (self.union(following, following + 2) & LINKING or self.codes[following] & TIED):
                break
            item -= 1
        if item:
            start = commas[item - 1]
        for comma, following in pairwise([*commas[after:], end]):
            # The words after a comma can name a finding, and not only its place.
            if any(code & self.heads and not code & (self.sites | PLACE) for code in self.codes[comma + 1 : following]):
                return range(start, comma)
        return range(start, end)

    def nearest(self, start: int, end: int, context: range) -> int:
        """Return the bits of the site nearest to the phrase at tokens ``start`` to ``end``, or else those of the label.

        Args:
            start: First token of the phrase.
            end: Token after the phrase.
            context: Tokens among which the site is looked for.
        """
        place = self._nearest(start, end, context)
        return (self.label if place is None else self.codes[self._site_places()[place]]) & self.sites

    def joined(self, start: int, end: int, context: range) -> int:
        """Return the bits of the site that "and" joins to the nearest one: "nodules in the liver and the lungs".

        The arguments are those of :meth:`nearest`. 0 if there is none.
        """
        # Most sentences have no "and", and this is asked of each rule that does not fit the nearest site.
        if not self.kinds & JOINT or (place := self._nearest(start, end, context)) is None:
            return 0
        named = self._site_places()
        # "Nodules in the lungs and liver", but not "nodules in the lungs and liver cyst"; "lung and liver nodules"
        k = place + 1 if named[place] >= end else place - 1
        if not 0 <= k < len(named) or named[k] not in context:
            return 0
        first, last = sorted((named[place], named[k]))
        between = self.codes[first + 1 : last]
        is_joined = between and between[0] & JOINT and all(code & (ARTICLE | PLACE | INSIDE) for code in between[1:])
        if k < place:
            is_alone = all(code & ARTICLE for code in self.codes[context.start : first]) and last + 1 == start
        else:
            is_alone = last + 1 >= context.stop or bool(self.codes[last + 1] & (COMMA | BOUNDARY))
        is_both = is_joined and is_alone and not self.union(end, first) & BETWEEN
        return self.codes[named[k]] & self.sites if is_both else 0

    def _site_places(self) -> list[int]:
        if self._places is None:
            self._places = [i for i, code in enumerate(self.codes) if code & self.sites]
        return self._places

    def _nearest(self, start: int, end: int, context: range) -> int | None:
        """Return the number, among all tokens that name a site, of the nearest one."""
        named = self._site_places()
        after = bisect_left(named, start)
        best, distance = None, self.size + 1
        if after and named[after - 1] >= context.start:
            best, distance = after - 1, start - named[after - 1]
        if (
            after == len(named)
            or named[after] >= context.stop
            or max(0, named[after] - end + 1) >= distance
            or self._is_of_next(end, named[after])
        ):
            return best
        # "In the left breast there is a mass, and the skin is thick"
        is_other = best is not None and not self._is_broken(named[best], start) and self._is_broken(end, named[after])
        return best if is_other else after

    def _is_of_next(self, end: int, site: int) -> bool:
        """Whether a site is an adjective of the finding after "and": "calcified nodule and hepatic steatosis"."""
        following = self.union(site + 1, site + 2)
        is_joined = self.union(end, end + 1) & JOINT and site in (end + 1, end + 2)
        return bool(is_joined and following & self.heads and not following & self.sites)

    def _is_broken(self, start: int, end: int) -> bool:
        """Whether a word that can end a clause, such as a comma or "and", is among some tokens."""
        return bool(self.union(start, end) & BREAKING)


class NegationScope(_Clauses):
    """The clauses of one sentence, and what their cues of negation, doubt and history say about its mentions.

    Args:
        codes: Codes of the sentence's tokens.
        sentence: Their union.
        lexicon: The lexicon whose words they are.
        label: Bits of the sites that a label before the sentence names.
    """

    def presence(self, start: int, end: int) -> int:
        """Return ``PRESENT``, ``UNCERTAIN`` or ``ABSENT`` for the mention at tokens ``start`` to ``end``."""
        kinds, codes = self.kinds, self.codes
        if not kinds & _CHANGING:
            return PRESENT
        clause = self.clause(start)
        # "No fracture other than that of the eighth rib"
        if kinds & SAME and union(codes[clause.start : clause.stop + 1]) & (SAME | OTHER | JOINT) == SAME:
            return PRESENT
        if kinds & _UNASSERTED and self._is_unasserted(clause, start, end):
            # "Assessment for edema is limited, and it cannot be excluded"
            return UNCERTAIN if kinds & PERHAPS and self.union(end, self.size) & PERHAPS else ABSENT
        # "not thickened", "not significantly thickened"
        if kinds & NOT and any(codes[i] & NOT for i in range(max(clause.start, start - 2), end)):
            return ABSENT
        # "Exclusion of a pneumothorax is not possible"
        is_unable = kinds & UNABLE and self._first_of(UNABLE, BREAKING | WITH, range(end, clause.stop)) >= 0
        if (self.ahead or self.back) and not is_unable and self._is_denied(clause, start, end):
            return ABSENT
        # "the septa are of normal thickness"
        is_normal = kinds & NORMAL and (self.union(start, end) & NORMAL or self._is_normal(end, clause.stop))
        # "the heart is not considered enlarged"
        is_ended = kinds & ENDED and any(code & ENDED and not code & CURRENT for code in codes[start + 1 : end - 1])
        if is_ended or (is_normal and not codes[clause.start] & EXCEPT):
            return ABSENT
        if kinds & (HISTORY | SURGERY) and self._is_history(clause, start, end):
            return ABSENT
        if kinds & FORMER and not self.has_news and self._is_former(clause, start, end):
            return ABSENT
        if kinds & SUPPOSED and self._is_retracted(clause, start, end):
            return ABSENT
        # "The suspicion of pneumonia is confirmed"
        if kinds & SURE and any(codes[i] & SURE for i in range(end, clause.stop)):
            return PRESENT
        is_doubted = (
            (kinds & DOUBT and self._is_doubted(clause, start))
            or (kinds & THAN and self._is_less_likely(clause, start))
            or (kinds & QUERY and union(codes[end : min(clause.stop, end + 2)]) & QUERY)
            or (kinds & PERHAPS and self._first_of(PERHAPS, BREAKING | STATING | WITH, range(end, clause.stop)) >= 0)
        )
        return UNCERTAIN if is_doubted else PRESENT

    def _words_before(self, clause: range, start: int, reach: int) -> list[int]:
        """Return the tokens before a mention, the nearest first; the further words of compounds do not count."""
        return [i for i in range(start - 1, clause.start - 1, -1) if not self.codes[i] & FILLED][:reach]

    def _is_doubted(self, clause: range, start: int) -> bool:
        """Whether a word before a mention puts it in doubt, which is not so in "it may be due to the effusion"."""
        codes = self.codes
        # "Possible organising pneumonia or a small mass", "whether the density at the left base is an effusion"
        is_list = self.union(max(clause.start, start - _DOUBT_REACH), start) & (OTHER | COMMA) == OTHER
        words = self._words_before(clause, start, _DOUBT_REACH * (1 + bool(is_list or self.kinds & WHETHER)))
        if self._is_presupposed(start, WHETHER):
            return False
        ends = (n for n, i in enumerate(words) if codes[i] & REASON or self._ends_doubt(i, clause))
        return any(codes[i] & DOUBT for i in words[: next(ends, None)])

    def _is_less_likely(self, clause: range, start: int) -> bool:
        """Whether a mention is the second of two: "a scar is likelier than pulmonary nodules"."""
        # "More than two nodules" compares nothing.
        than = self._first_of(THAN, BREAKING | STATING, range(start - 1, max(clause.start, start - 4), -1))
        return than >= 0 and (than == start - 1 or bool(self.union(clause.start, than) & (LINKING | DOUBT)))

    def _ends_doubt(self, i: int, clause: range) -> bool:
        """Whether a comma or "and" begins a certain statement: "possible effusion and mild edema"."""
        # "If at all, there is minimal edema", "atelectasis, the effusion or pneumonia"
        if i not in self.openers or _any_between(self.others, i, clause.stop):
            return False
        is_clause = self.codes[i] & JOINT or self.codes[i + 1] & (EXIST | ARTICLE)
        return bool(is_clause) and not self.union(i - 1, i) & (DOUBT | FILLED)

    def _is_presupposed(self, start: int, cue: int) -> bool:
        """Whether a mention has a definite article after a cue, as in "if the left effusion grows"."""
        reach = range(start - 1, max(-1, start - 1 - _ARTICLE_REACH), -1)
        article = self._first_of(DEFINITE, BREAKING | STATING | BE | HAVE | LINKING, reach)
        return article > 0 and any(self.codes[i] & cue for i in self._words_before(range(article), article, 1))

    def _is_retracted(self, clause: range, start: int, end: int) -> bool:
        """Whether a clause says what a supposed mention is instead: "the suspected nodule is a nipple shadow"."""
        codes = self.codes
        instead = self._first_of(INSTEAD | BE, BREAKING | WITH, range(end, clause.stop))
        is_instead = (instead >= 0 and codes[instead] & INSTEAD) or self.union(instead + 1, instead + 2) & ARTICLE
        before = self.union(max(clause.start, start - _DOUBT_REACH), start) | self.union(end, instead)
        return instead >= 0 and bool(is_instead and before & SUPPOSED)

    def _is_unasserted(self, clause: range, start: int, end: int) -> bool:
        """Whether the clause asks for the mention, makes it a condition, or is about someone else."""
        codes, kinds = self.codes, self.kinds
        if kinds & UNSTATED and any(code & UNSTATED for code in codes[clause.start : clause.stop]):
            return True
        # "If the effusion enlarges" states an effusion, and "if septic, this could be pneumonia" is no request.
        opened = max((i for i in self.openers if i < start and self.codes[i + 1] & DEGREE), default=clause.start)
        if kinds & REQUEST and self.union(max(opened, clause.start), start) & REQUEST:
            if self._is_presupposed(start, REQUEST):
                return False
            comma = self._first_of(COMMA, 0, range(start - 1, clause.start, -1))
            is_doubt = comma > 0 and codes[clause.start] & REQUEST
            return not (is_doubt and self.union(comma, clause.stop) & (DOUBT | PERHAPS))
        if not codes[0] & ASKING or (self.size > 1 and codes[1] & (BE | VERB | NOT)):
            return False
        # "Is there a nodule?", "Were there a nodule, it would be seen", "Should a nodule grow, ..."
        return any(code & WOULD for code in codes) or any(code & QUERY for code in codes[end:])

    def denies(self, i: int) -> bool:
        """Whether the clause of token ``i`` denies it or calls it normal, whatever it means."""
        if not self.kinds & (DENYING | NORMAL):
            return False
        clause = self.clause(i)
        is_not = self.union(max(clause.start, i - 2), i) & NOT
        is_normal = self.kinds & NORMAL and self._is_normal(i + 1, clause.stop)
        return bool(is_not or is_normal) or self._is_negated(clause, i, i + 1)

    def _is_denied(self, clause: range, start: int, end: int) -> bool:
        """Whether a negation in the clause covers the mention, also one of the mention after it."""
        later = _first_between(self.ahead, end, clause.stop)
        is_shared = later >= 0 and self._is_denied_with_next(clause.start, later, end)
        return is_shared or self._is_negated(clause, start, end)

    def _is_negated(self, clause: range, start: int, end: int) -> bool:
        """Whether a negation in the clause covers the mention."""
        # Only the nearest negation of each kind matters, because words that block it also block all farther ones.
        is_part = self.kinds & PARTLY and self.union(max(clause.start, start - _HOST_REACH), start) & PARTLY
        denial = -1 if is_part else _first_between(self.back, end, clause.stop)
        # "The effusion was drained, but has recurred"
        if self.kinds & RECURRING and not self.kinds & (NOT | NONE) and self.union(denial, self.size) & RECURRING:
            denial = -1
        # A statement in between blocks the negation: "there is effusion and it was not drained".
        if denial >= 0 and (
            self.codes[denial] & REFUTED
            or not (_any_between(self.verbs, end, denial - 1) or self._has_own_statement(start, end, denial))
        ):
            return True
        later = bisect_left(self.ahead, end)
        denial = self.ahead[later - 1] if later else -1
        return denial >= clause.start and not (
            self._list_ended(denial, start, clause.stop) or (self.kinds & DEFINITE and self._is_host(denial, start))
        )

    def _has_own_statement(self, start: int, end: int, denial: int) -> bool:
        """Whether the mention has a verb before the denial: "effusion has decreased and edema has resolved"."""
        parting = [i for i in self.breaks if end <= i < denial]
        if parting and parting[0] < denial - 1 and self._begins_clause(start, end, denial, parting):
            return True
        verb = _first_between(self.spoken, start, denial)
        stop = _first_between(self.breaks, max(verb, end), denial) if verb >= 0 else -1
        # After "and", a verb without a subject continues the statement: "has decreased and was not seen today".
        return 0 <= stop < denial - 1 and not self.codes[stop + 1] & (BE | HAVE)

    def _begins_clause(self, start: int, end: int, denial: int, parting: list[int]) -> bool:
        """Whether the first comma or "and" after a mention begins a statement, and not the next item of a list."""
        codes, first, clause = self.codes, parting[0], self.clause(start).start
        # "Effusion persists and edema has resolved", "stable effusion, edema has resolved", "tube in place, ..."
        described = start if codes[first] & JOINT else clause
        is_list = len(parting) > 1 or codes[first + 1] & OTHER
        if not is_list and self.union(described, first) & LASTING:
            return True
        has_verb = _any_between(self.verbs, clause, start)
        is_opened = bool(has_verb or self.union(clause, first) & DEGREE or codes[clause] & HEDGE)
        if codes[first] & JOINT:
            # "There is effusion and edema is not seen"
            return has_verb and len(parting) == 1
        if not codes[first] & COMMA or codes[first + 1] & RELATIVE or self.union(clause, first) & COMMA:
            return False
        if codes[first + 1] & JOINT:
            # "Nodules in both lungs, and effusion is not seen", but "effusion, and edema are not seen"
            return is_opened or first > end or _any_between(self.spoken, clause, start)
        # "Small effusions, edema are not seen" is one list
        is_statement = (is_opened or codes[first + 1] & ARTICLE) and not self.union(first, denial + 1) & PLURAL
        return bool(is_statement) and len(parting) == 1

    def _list_ended(self, denial: int, start: int, clause_end: int) -> bool:
        """Whether a word between denial and mention begins a new statement: "no effusion, mild edema"."""
        openers = [_first_between(self.openers, denial, start), _first_between(self._list_closers, denial, start)]
        opener = max(openers) if min(openers) < 0 else min(openers)
        # "Nodule without calcification, consistent with a granuloma"
        is_adjunct = denial and (self.codes[denial] & TIED or self.codes[denial - 1] & WITH)
        if is_adjunct and _any_between(self.links, denial, start):
            return True
        # "no consolidation, large effusion or pneumothorax" is one list.
        return opener >= 0 and not _any_between(self.others, opener, clause_end)

    def _is_host(self, denial: int, start: int) -> bool:
        """Whether something is denied in the mention, and not the mention: "no cavitation in the consolidation"."""
        reach = range(start - 1, max(denial + 2, start - _HOST_REACH), -1)
        # "No opacity in the lungs to suggest pneumonia" denies the pneumonia, too
        i = self._first_of(DEFINITE, BREAKING | OTHER | WITH | PURPOSE | DOUBT | LINKING, reach)
        # "no rupture of the", "no sign that the ... is resolving"
        before = self.union(i - 3, i) if i >= 0 else 0
        is_change = before & RELATIVE and self._first_of(CHANGING, BREAKING, range(start + 1, self.size)) >= 0
        is_inside = before & INSIDE or (before & PURPOSE and self.union(denial + 1, i) & QUALITY)
        is_host = is_change or (is_inside and not self.union(denial + 1, i) & EXTENT)
        # "No increase in the wall thickness of the bronchi"
        return bool(is_host) and not self.codes[start] & BREAKING and not self.union(start, start + 2) & MEASURE

    @cached_property
    def _list_closers(self) -> list[int]:
        """The commas and "and" that end a denied list by what surrounds them."""
        breaks = pairwise([*self.breaks, self.size])
        return [i for i, end in breaks if self._has_own_predicate(i, end) or self._is_complete(i, end)]

    def _has_own_predicate(self, start: int, end: int) -> bool:
        """Whether the words after a comma or "and" describe a subject: "no effusion and the heart is enlarged"."""
        if self.union(start, end) & (PERHAPS | (LASTING if self.codes[start] & JOINT else 0)):
            return True
        verb = next((i for i in range(start + 2, end) if self.codes[i] & BE), end)
        return any(code & ABNORMAL for code in self.codes[verb : min(end, verb + _PREDICATE_REACH)])

    def _is_complete(self, comma: int, end: int) -> bool:
        """Whether a denial and its verb precede a comma: "no mass was seen in the liver, cysts in the kidneys"."""
        if not self.codes[comma] & COMMA:
            return False
        before, verbs = bisect_left(self.ahead, comma), bisect_left(self.verbs, comma)
        # Or the item after it has its own place: "no effusion, nodules in the right lung are seen"
        has_place = self._first_of(PLACE, BE | VERB, range(comma + 2, end)) >= 0
        return has_place or (before > 0 and verbs > 0 and self.verbs[verbs - 1] > self.ahead[before - 1])

    def _is_denied_with_next(self, clause_start: int, denial: int, end: int) -> bool:
        """Whether "no" after a mention also denies the mention: "infiltration, no consolidation was observed"."""
        codes = self.codes
        # "Effusion without shift is seen"
        if denial - end > 1 or codes[denial] & TIED or (denial > end and not codes[end] & COMMA):
            return False
        # "Mild emphysema, no consolidation was observed": the mention is a separate statement.
        is_own = codes[clause_start] & (BOUNDARY | OPEN) or self.union(clause_start, denial) & JOINT
        return not is_own and bool(self.verbs) and self.verbs[-1] > denial and self.verbs[0] >= end

    def _is_normal(self, end: int, clause_end: int) -> bool:
        """Whether the words after the mention call it normal: "wall thickness is normal"."""
        i = self._first_of(BE, BREAKING, range(end, min(clause_end, end + _NORMAL_REACH)))
        following = union(self.codes[i + 1 : min(clause_end, i + 1 + _NORMAL_REACH)]) if i >= 0 else 0
        return bool(following & NORMAL) and not following & (BREAKING | NOT)

    def _is_history(self, clause: range, start: int, end: int) -> bool:
        """Whether the mention is only the reason for an earlier operation, or follows "history of"."""
        codes = self.codes
        # "bypass surgery of the stomach" is the operation itself
        if self.union(start, end) & SURGERY:
            return False
        parting = STATING | BE | HAVE | COMMA | WITH | ENDED
        before = takewhile(lambda i: not codes[i] & parting, self._words_before(clause, start, _HISTORY_REACH))
        # "resection of a mass", "lobectomy for cancer"
        is_reason = any(codes[i] & HISTORY or (codes[i] & SURGERY and codes[i + 1] & PURPOSE) for i in before)
        # "cancer surgery"
        return is_reason or bool(end < clause.stop and codes[end] & SURGERY)

    def _is_former(self, clause: range, start: int, end: int) -> bool:
        """Whether the clause describes an earlier examination only."""
        # "increased" in "increased markings" is a part of the name.
        if any(self.codes[i] & CURRENT for i in clause if not start <= i < end):
            return False
        past = next((i for i in clause if self.codes[i] & FORMER), -1)
        # "In the previous examination there were nodules", or "there were nodules in the previous examination".
        return 0 <= past <= clause.start + 1 or (
            past > start and any(clause.start <= verb < start and self.codes[verb] & EXIST for verb in self.verbs)
        )


def _first_between(indices: list[int], start: int, end: int) -> int:
    """Return the first of ascending indices in [``start``, ``end``), or -1."""
    i = bisect_left(indices, start)
    return indices[i] if i < len(indices) and indices[i] < end else -1


def _any_between(indices: list[int], start: int, end: int) -> bool:
    """Whether one of ascending indices is in [``start``, ``end``)."""
    return _first_between(indices, start, end) >= 0
