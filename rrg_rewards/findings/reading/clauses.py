"""Split a sentence into clauses, and find its cues, the words that belong to a mention, and the organs in it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from rrg_rewards.findings.reading.cue_codes import (
    ARTICLE,
    BE,
    BOUNDARY,
    BREAKING,
    COMMA,
    CUE_MASK,
    CURRENT,
    DEFINITE,
    DEGREE,
    DENYING,
    ENDED,
    EXIST,
    FADED,
    FILLED,
    FORMER,
    HAVE,
    HEDGE,
    INSIDE,
    JOINT,
    LASTING,
    LINKING,
    MEASURE,
    NONE,
    NORMAL,
    NOT,
    OPEN,
    OTHER,
    PERHAPS,
    PLACE,
    PREDICATE,
    PURPOSE,
    RELATIVE,
    SHOW,
    STATING,
    TIED,
    VERB,
    WITH,
)
from rrg_rewards.findings.reading.lexicon import Lexicon
from rrg_rewards.findings.reading.phrases import union

# Cues that divide a sentence into clauses and lists.
_DIVIDING = STATING | DENYING | BREAKING | BE | HAVE | OTHER | WITH | PERHAPS
# Words between which and the start of an item there is no finding of the list: "cysts and, in the lung, a nodule".
_ATTACHING = INSIDE | PURPOSE | LINKING
# Maximum distances in tokens.
# Between "not" and the verb that it negates: "was not clearly observed".
_NOT_REACH = 3
# Adverbs before a participle: "and previously seen, now resolved".
_ADVERBS = 2
# Between "not" and the earlier examination that it applies to: "not observed in the previous examination".
_FORMER_REACH = 5


class Clauses:
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
        self.firsts, self.names, self.sites = lexicon.firsts, lexicon.names, lexicon.sites
        self.belly = lexicon.organs.get("belly", 0)
        self.size = len(codes)
        self.kinds = sentence & CUE_MASK
        self._contexts: dict[int, range] = {}
        self._partings: dict[range, list[int]] = {}
        self._places: list[int] | None = None
        self._is_divided = False

    def _divide(self) -> None:
        """Find the clauses and the cues in them. This is done on first use, because many sentences need no clauses."""
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
        if not self.kinds & _DIVIDING:
            return
        # Arithmetic with the few bits of the cues is faster than with all.
        for i, code in [(i, cues) for i, code in enumerate(codes) if (cues := code & _DIVIDING)]:
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
                if not codes[i - 1] & RELATIVE:
                    self.spoken.append(i)
            elif code & OTHER:
                self.others.append(i)
            # "no pneumothorax with persistent effusion", "no mass and mild emphysema", "no mass, and a nodule is seen"
            begun = DEGREE | HEDGE | LASTING | (ARTICLE | SHOW if code & JOINT else 0)
            # "No pneumothorax with the tube in place", but not "consistent with the"
            if code & WITH and not self.union(i - 1, i) & LINKING:
                begun |= DEFINITE
            if code & (WITH | JOINT) and self.union(i + 1, i + 2 + bool(self.union(i + 1, i + 2) & ARTICLE)) & begun:
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
        elif not code & FADED or i == 0 or self._describes_next(i):
            # "Effusion, unlikely empyema", "the absent effusion", but not "effusion, now gone": "gone" has no code.
            is_last = self._ends_at(i + 1)
            is_adjective = not is_last and self.codes[i + 1] & ~FILLED
            # "None of the lobes"
            is_partitive = code & NONE and self.union(i + 1, i + 2) & PURPOSE
            introducing = BOUNDARY | ARTICLE | WITH | COMMA * bool(is_adjective)
            leads = i == 0 or is_partitive or (not is_last and self.codes[i - 1] & introducing)
            leads = leads or (code & ENDED and self._describes_next(i))
            looks_back = not leads if code & ENDED else i > 0 and is_last
            (self.back if looks_back else self.ahead).append(i)

    def _describes_next(self, i: int) -> bool:
        """Whether a participle after "and" belongs to the finding after it: "hernia and now resolved edema"."""
        before = range(i - 1, max(0, i - _ADVERBS - 2), -1)
        joint = self._first_of(JOINT | WITH, self.names | BREAKING | BE | HAVE, before)
        ends = BREAKING | STATING | BE | HAVE | INSIDE | PURPOSE | WITH | CURRENT
        return joint > 0 and self._first_of(self.names, ends, range(i + 1, self.size)) >= 0

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
                    any_between(self.verbs, start, i)
                    or self._is_denial(start, i, following)
                    or (codes[i] & COMMA and self._is_of_normal(start, i, following))
                ):
                    continue
            self.starts.append(i)
            start = i

    def _opens_denied_list(self, start: int) -> bool:
        """Whether a clause starts with "there is no"."""
        verb = first_between(self.verbs, start, start + 3)
        return bool(self.codes[verb] & EXIST) and verb >= 0 and bool(self.union(verb, verb + 4) & NONE)

    def _is_denial(self, start: int, i: int, following: int) -> bool:
        """Whether a denial with "be" precedes a statement: "the lungs are free of masses, emphysema is noted"."""
        denial = first_between(self.ahead, start, i)
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
        return union(self.codes[start:end])

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
        item = self._item(i)
        if not self.kinds & (JOINT | COMMA):
            return item
        partings = self._partings.get(item)
        if partings is None:
            partings = self._partings[item] = self._parted(item)
        after = bisect_left(partings, i)
        start = partings[after - 1] + 1 if after else item.start
        return range(start, partings[after] if after < len(partings) else item.stop)

    def _parted(self, item: range) -> list[int]:
        """Return the tokens at which "and" or a comma parts two findings."""
        breaks = [item.start, *[k for k in self.breaks if item.start < k < item.stop - 1], item.stop]
        return [
            k
            for before, k, after in zip(breaks, breaks[1:], breaks[2:], strict=False)
            if (self._joins(before, k, after) if self.codes[k] & JOINT else self._leads(before, k, after))
        ]

    def _joins(self, start: int, joint: int, end: int) -> bool:
        """Whether "and" parts two findings that each have their organ: "tortuous aorta and scar in the lung"."""
        first, second = self.codes[start:joint], self.codes[joint + 1 : end]
        return (
            not self.union(joint + 1, joint + 2) & (BE | HAVE)
            and any(code & self.sites for code in first)
            and any(code & self.firsts and not code & self.sites for code in first)
            and self._has_finding(second)
        )

    def _leads(self, start: int, comma: int, end: int) -> bool:
        """Whether a comma parts two findings, or a place from a finding that has another one.

        "Calcifications in both lungs, dilated bronchi", "in the upper abdominal sections, a cyst is seen in the liver"
        """
        # "In the lung, adjacent to the pleura", "nodes, some of which are in the hilum"
        if self.union(comma + 1, comma + 2) & (INSIDE | LINKING | STATING) or self.union(comma, comma + 4) & RELATIVE:
            return False
        first, second = self.codes[start:comma], self.codes[comma + 1 : end]
        return self._has_finding(second) and (self._has_finding(first) or self._is_container(first, second))

    def _has_finding(self, codes: Sequence[int]) -> bool:
        """Whether some words have a name of a finding and an organ."""
        return any(code & self.sites for code in codes) and any(
            code & self.names and not code & self.sites for code in codes
        )

    def _is_container(self, first: Sequence[int], second: Sequence[int]) -> bool:
        """Whether the only organ of the first words is the belly, and the second ones have an organ in it."""
        # Not every lexicon has the belly.
        is_belly = self.belly and union(first) & self.sites == self.belly
        return bool(is_belly and union(second) & self.sites & ~self.belly)

    def _item(self, i: int) -> range:
        """Return the tokens of the clause of token ``i``, or those of its items in a list."""
        clause = self.clause(i)
        start, end = clause.start, clause.stop
        if not self.kinds & COMMA or any_between(self.verbs, start, end):
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
            if any(
                code & self.firsts and not code & (self.sites | PLACE) for code in self.codes[comma + 1 : following]
            ):
                return range(start, comma)
        return range(start, end)

    def own_item(self, start: int, end: int) -> range:
        """Return the tokens of the context of a phrase without the other findings that "and" or "with" joins to it.

        The phrase is in a list without a verb but "there is". It has its own words ("hepatic cysts and calcified
        granuloma", but not "hepatic cysts and hemangiomas"), or the next item has its own organ ("granuloma and changes
        of the spine", but not "hemangiomas and cysts in the liver").
        """
        context = self.context(start)
        # Not the "with" of "consistent with"
        joints = [i for i in context if self.codes[i] & (JOINT | OTHER | WITH) and not self.union(i - 1, i) & LINKING]
        first = max((i + 1 for i in joints if i < start), default=context.start)
        after = min((i for i in joints if i >= end), default=context.stop)
        if self._is_statement(context) or self.union(first, start) & _ATTACHING or self.union(end, after) & INSIDE:
            return context
        if sum(not code & (ARTICLE | DEGREE) for code in self.codes[first:end]) < 2:
            first = context.start
        if after > end + 2 or self.union(after, context.stop) & INSIDE:
            after = context.stop
        return range(first, after)

    def _is_statement(self, context: range) -> bool:
        """Whether the words of a context have a verb other than that of "there is"."""
        verbs = [self.codes[i] for i in context if self.codes[i] & (STATING | BE | HAVE)]
        return bool(verbs) and not (len(verbs) == 2 and verbs[0] & EXIST and verbs[1] & BE)

    def nearest(self, start: int, end: int, context: range) -> int:
        """Return the bits of the site nearest to the phrase at tokens ``start`` to ``end``, or else those of the label.

        Args:
            start: First token of the phrase.
            end: Token after the phrase.
            context: Tokens among which the site is looked for.
        """
        place = self._nearest(start, end, context)
        return (self.label if place is None else self.codes[self.site_places()[place]]) & self.sites

    def site_places(self) -> list[int]:
        """Return the indices of the tokens that name a site."""
        if self._places is None:
            self._places = [i for i, code in enumerate(self.codes) if code & self.sites]
        return self._places

    def _nearest(self, start: int, end: int, context: range) -> int | None:
        """Return the number, among all tokens that name a site, of the nearest one."""
        named = self.site_places()
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
        """Whether a site is an adjective of the next finding: "nodule and hepatic steatosis", "with rib fracture"."""
        following = self.union(site + 1, site + 2)
        between = self.union(end, site)
        is_joined = between & (JOINT | WITH | NONE) and not between & (INSIDE | PURPOSE | LINKING)
        return bool(is_joined and following & self.names and not following & (self.sites | MEASURE))

    def _is_broken(self, start: int, end: int) -> bool:
        """Whether a word that can end a clause, such as a comma or "and", is among some tokens."""
        return bool(self.union(start, end) & BREAKING)


def first_between(indices: list[int], start: int, end: int) -> int:
    """Return the first of ascending indices in [``start``, ``end``), or -1."""
    i = bisect_left(indices, start)
    return indices[i] if i < len(indices) and indices[i] < end else -1


def any_between(indices: list[int], start: int, end: int) -> bool:
    """Whether one of ascending indices is in [``start``, ``end``)."""
    return first_between(indices, start, end) >= 0
