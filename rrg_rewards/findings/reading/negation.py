"""Decide from the cues in a clause whether a mention is present, uncertain or absent."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_

from rrg_rewards.findings.reading.lexicon import CUES

__all__ = ["CUE_MASK", "NegationScope"]

(
    BOUNDARY,
    COMMA,
    JOINT,
    VERB,
    PREDICATE,
    BE,
    HAVE,
    EXIST,
    SHOW,
    RELATIVE,
    NOT,
    NONE,
    ENDED,
    HISTORY,
    FORMER,
    CURRENT,
    OTHER,
    OPEN,
    DOUBT,
    QUERY,
    NORMAL,
    ABNORMAL,
    PLACE,
    DEGREE,
    WITH,
    SURGERY,
    PURPOSE,
) = (1 << i for i in range(len(CUES)))
CUE_MASK = (1 << len(CUES)) - 1
# Maximum distances in tokens.
# Between "not" and the verb that it negates: "was not clearly observed".
_NOT_REACH = 3
# Between "not" and the earlier examination that it applies to: "not observed in the previous examination".
_FORMER_REACH = 5
# Between a word of doubt and the mention: "suspicious for early pneumonia".
_DOUBT_REACH = 6
# Between "history of" and the mention: "history of mild centrilobular emphysema".
_HISTORY_REACH = 4
# Between "is" and what it states: "is locally thickened".
_PREDICATE_REACH = 4
# Between a mention and the verb that calls it normal, and between this verb and "normal": "thickness is within normal".
_NORMAL_REACH = 3
PRESENT, UNCERTAIN, ABSENT = 0, 1, 2
_STATING = VERB | PREDICATE | EXIST | SHOW
_DENYING = NOT | NONE | ENDED
_BREAKING = BOUNDARY | COMMA | JOINT


class NegationScope:
    """The clauses of one sentence and the cues of negation, doubt and history in them.

    A clause ends at words such as "but". It also ends at a comma or "and" if there is a verb both before and after it.

    Args:
        codes: Codes of the sentence's tokens.
    """

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = codes
        self.size = len(codes)
        kinds = 0
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
        self.others: list[int] = []
        self._closers: list[int] | None = None
        self._unions: dict[tuple[int, int], int] = {}
        self._formers: dict[int, int] = {}
        self._sites: list[int] | None = None
        for i, code in enumerate(codes):
            if not code & CUE_MASK:
                continue
            kinds |= code
            if code & BOUNDARY and self._is_answered(i):
                continue
            if code & _STATING and self._is_finite(i):
                self.verbs.append(i)
            if code & _DENYING:
                self._add_denial(i)
            if code & _BREAKING:
                self.breaks.append(i)
                if code & COMMA and i + 1 < self.size and codes[i + 1] & OPEN:
                    self.openers.append(i)
            elif code & (BE | HAVE):
                if not (i and codes[i - 1] & RELATIVE):
                    self.spoken.append(i)
            elif code & OTHER:
                self.others.append(i)
            # "no pneumothorax with a small effusion", "no mass and mild emphysema"
            if code & (WITH | JOINT) and i + 1 < self.size and codes[i + 1] & DEGREE:
                self.openers.append(i)
        self.kinds = kinds
        if self.breaks:
            self._split(self.breaks)

    def _is_finite(self, i: int) -> bool:
        """Whether a verb makes a statement, as in "was observed" but not in "nodules observed earlier"."""
        codes = self.codes
        if codes[i] & (EXIST | SHOW):
            return True
        for j in range(i - 1, max(-1, i - 4), -1):
            if codes[j] & BE:
                return not (j and codes[j - 1] & RELATIVE)
        return False

    def _is_answered(self, i: int) -> bool:
        """Whether only "no" follows a boundary, as in "effusion: no, pneumothorax: no"."""
        return i + 1 < self.size and bool(self.codes[i + 1] & NONE) and self._ends_at(i + 2)

    def _ends_at(self, i: int) -> bool:
        return i >= self.size or bool(self.codes[i] & (COMMA | BOUNDARY))

    def _add_denial(self, i: int) -> None:
        code = self.codes[i]
        if code & NOT:
            # "new nodules, which were not observed in the previous examination"
            if any(code & FORMER for code in self.codes[i + 1 : i + 1 + _FORMER_REACH]):
                self.has_news = True
                return
            for j in range(i + 1, min(self.size, i + 1 + _NOT_REACH)):
                if self.codes[j] & (SHOW | VERB):
                    (self.ahead if self.codes[j] & SHOW else self.back).append(i)
                    break
        else:
            leads = i == 0 or bool(self.codes[i - 1] & BOUNDARY)
            looks_back = not leads if code & ENDED else i > 0 and self._ends_at(i + 1)
            (self.back if looks_back else self.ahead).append(i)

    def _split(self, breaks: list[int]) -> None:
        """Collect the index of the first token of each clause."""
        codes, begin = self.codes, 0
        last_verb = self.verbs[-1] if self.verbs else -1
        for i, following in zip(breaks, [*breaks[1:], self.size], strict=True):
            if not codes[i] & BOUNDARY:
                # The list ends at the next verb: "there is no effusion, edema, or nodule, and the heart is normal".
                if self._opens_denied_list(begin) and not self._states(i, following):
                    continue
                # A statement such as "is normal," is complete; after other verbs a list may continue.
                if not 0 < i < self.size - 1 or (i > last_verb and not codes[i - 1] & PREDICATE):
                    continue
                # The words after the comma have no subject: "nodules seen earlier, were not observed".
                if codes[i + 1] & BE or not any(begin <= verb < i for verb in self.verbs):
                    continue
            self.starts.append(i)
            begin = i

    def _opens_denied_list(self, begin: int) -> bool:
        """Whether a clause starts with "there is no"."""
        start = _first_between(self.verbs, begin, begin + 3)
        return start >= 0 and bool(self.codes[start] & EXIST) and any(c & NONE for c in self.codes[start : start + 4])

    def _states(self, begin: int, stop: int) -> bool:
        """Whether there is a verb of any kind between two tokens."""
        return any(code & (_STATING | BE | HAVE) for code in self.codes[begin:stop])

    def bounds(self, i: int) -> tuple[int, int]:
        """Return the start and end of the clause that contains token ``i``."""
        place = bisect_right(self.starts, i)
        return self.starts[place - 1], self.starts[place] if place < len(self.starts) else self.size

    def union(self, begin: int, stop: int) -> int:
        """Return the union of the codes from ``begin`` to before ``stop``."""
        found = self._unions.get((begin, stop))
        if found is None:
            found = self._unions[begin, stop] = reduce(or_, self.codes[begin:stop], 0)
        return found

    def context(self, i: int, heads: int) -> tuple[int, int]:
        """Return the bounds of the words that can belong to the mention at token ``i``.

        These are the words of the clause. In a list of findings without a verb, they are the list items from the
        mention to the next finding: "dilated aorta, plaques in the left, right coronary".

        Args:
            i: Token of the mention.
            heads: Bits of the words that can begin a finding.
        """
        begin, stop = self.bounds(i)
        if not self.kinds & COMMA or _any_between(self.verbs, begin, stop):
            return begin, stop
        codes, breaks = self.codes, self.breaks
        place = bisect_left(breaks, i)
        for j in range(place - 1, -1, -1):
            if breaks[j] < begin:
                break
            if codes[breaks[j]] & COMMA:
                begin = breaks[j]
                break
        comma = -1
        for j in range(place, len(breaks)):
            if breaks[j] >= stop:
                break
            if codes[breaks[j]] & COMMA:
                if comma >= 0 and self.union(comma, breaks[j]) & heads:
                    return begin, comma
                comma = breaks[j]
        return begin, comma if comma >= 0 and self.union(comma, stop) & heads else stop

    def nearest(self, sites: int, start: int, end: int, begin: int, stop: int) -> int:
        """Return the bits of the site nearest to a phrase, between ``begin`` and ``stop``, or 0 if there is none."""
        if self._sites is None:
            self._sites = [i for i, code in enumerate(self.codes) if code & sites]
        places = self._sites
        after = bisect_left(places, start)
        best, distance = 0, self.size + 1
        if after and places[after - 1] >= begin:
            best, distance = places[after - 1], start - places[after - 1]
        elif after == len(places) or places[after] >= stop:
            return 0
        if after < len(places) and places[after] < stop and max(0, places[after] - end + 1) < distance:
            best = places[after]
        return self.codes[best] & sites

    def presence(self, start: int, end: int) -> int:
        """Return ``PRESENT``, ``UNCERTAIN`` or ``ABSENT`` for the mention at tokens ``start`` to ``end``."""
        kinds, codes = self.kinds, self.codes
        if not kinds & (_DENYING | HISTORY | FORMER | DOUBT | QUERY | NORMAL | SURGERY):
            return PRESENT
        begin, stop = self.bounds(start)
        # "not thickened", "not significantly thickened"
        if kinds & NOT and any(codes[i] & NOT for i in range(max(begin, start - 2), end)):
            return ABSENT
        if (self.ahead or self.back) and self._is_denied(begin, stop, start, end):
            return ABSENT
        if kinds & NORMAL and self._is_normal(end, stop):
            return ABSENT
        if kinds & (HISTORY | SURGERY) and self._is_history(begin, stop, start, end):
            return ABSENT
        if kinds & FORMER and not self.has_news and self._is_former(begin, stop, start):
            return ABSENT
        if kinds & DOUBT and any(codes[i] & DOUBT for i in range(max(begin, start - _DOUBT_REACH), start)):
            return UNCERTAIN
        if kinds & QUERY and any(codes[i] & QUERY for i in range(end, min(stop, end + 2))):
            return UNCERTAIN
        return PRESENT

    def _is_denied(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether a negation in the clause from ``begin`` to ``stop`` covers the mention."""
        # Only the nearest negation of each kind matters, because words that block it also block all farther ones.
        place = _first_between(self.back, end, stop)
        # A statement in between blocks the negation: "there is effusion and it was not drained".
        if place >= 0 and not _any_between(self.verbs, end, place - 1) and not self._has_own_statement(end, place):
            return True
        later = bisect_left(self.ahead, end)
        if later and (place := self.ahead[later - 1]) >= begin and not self._list_ended(place, start, stop):
            return True
        return (
            later < len(self.ahead)
            and self.ahead[later] < stop
            and self._is_denied_with_next(begin, self.ahead[later], end)
        )

    def _has_own_statement(self, end: int, denial: int) -> bool:
        """Whether the mention has a verb before the denial: "effusion has decreased and edema has resolved"."""
        verb = _first_between(self.spoken, end, denial)
        end = _first_between(self.breaks, verb, denial) if verb >= 0 else -1
        # After "and", a verb without a subject continues the statement: "has decreased and was not seen today".
        return 0 <= end < denial - 1 and not self.codes[end + 1] & (BE | HAVE)

    def _list_ended(self, denial: int, start: int, stop: int) -> bool:
        """Whether a word between denial and mention begins a new statement: "no effusion, mild edema"."""
        openers = [_first_between(self.openers, denial, start), _first_between(self._list_closers(), denial, start)]
        opener = max(openers) if min(openers) < 0 else min(openers)
        # "no consolidation, large effusion or pneumothorax" is one list.
        return opener >= 0 and not _any_between(self.others, opener, stop)

    def _list_closers(self) -> list[int]:
        """Return the commas and "and" that end a denied list by what surrounds them."""
        if self._closers is None:
            self._closers = [
                place
                for place, following in pairwise([*self.breaks, self.size])
                if self._has_own_predicate(place, following)
                or (self.codes[place] & COMMA and (self._is_complete(place) or self._has_own_place(place, following)))
            ]
        return self._closers

    def _has_own_predicate(self, begin: int, stop: int) -> bool:
        """Whether the words after a comma or "and" describe a subject: "no effusion and the heart is enlarged"."""
        verb = next((i for i in range(begin + 2, stop) if self.codes[i] & BE), stop)
        return any(code & ABNORMAL for code in self.codes[verb : min(stop, verb + _PREDICATE_REACH)])

    def _is_complete(self, comma: int) -> bool:
        """Whether a denial and its verb precede a comma: "no mass was seen in the liver, cysts in the kidneys"."""
        before = bisect_left(self.ahead, comma)
        verbs = bisect_left(self.verbs, comma)
        return before > 0 and verbs > 0 and self.verbs[verbs - 1] > self.ahead[before - 1]

    def _has_own_place(self, comma: int, stop: int) -> bool:
        """Whether a list item has its own place: "no effusion, nodules in the right lung are seen"."""
        for code in self.codes[comma + 2 : stop]:
            if code & (BE | VERB):
                return False
            if code & PLACE:
                return True
        return False

    def _is_denied_with_next(self, begin: int, denial: int, end: int) -> bool:
        """Whether "no" after a mention also denies the mention: "infiltration, no consolidation was observed"."""
        if denial - end > 1 or (denial > end and not self.codes[end] & COMMA):
            return False
        # "Mild emphysema, no consolidation was observed": the mention is a separate statement.
        if self.codes[begin] & (BOUNDARY | OPEN) or any(code & JOINT for code in self.codes[begin:denial]):
            return False
        return bool(self.verbs) and self.verbs[-1] > denial and self.verbs[0] >= end

    def _is_normal(self, end: int, stop: int) -> bool:
        """Whether the words after the mention call it normal: "wall thickness is normal"."""
        codes = self.codes
        for i in range(end, min(stop, end + _NORMAL_REACH)):
            if codes[i] & _BREAKING:
                return False
            if codes[i] & BE:
                following = codes[i + 1 : min(stop, i + 1 + _NORMAL_REACH)]
                return any(code & NORMAL for code in following) and not any(c & (_BREAKING | NOT) for c in following)
        return False

    def _is_history(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether the mention is only the reason for an earlier operation, or follows "history of"."""
        codes = self.codes
        # "cancer surgery"
        if end < stop and codes[end] & SURGERY:
            return True
        for i in range(start - 1, max(begin, start - _HISTORY_REACH) - 1, -1):
            if codes[i] & (_STATING | BE | HAVE | COMMA):
                return False
            # "resection of a mass", "lobectomy for cancer"
            if codes[i] & HISTORY or (codes[i] & SURGERY and codes[i + 1] & PURPOSE):
                return True
        return False

    def _is_former(self, begin: int, stop: int, start: int) -> bool:
        """Whether the clause describes an earlier examination only."""
        place = self._former(begin, stop)
        # "In the previous examination there were nodules", or "there were nodules in the previous examination".
        return 0 <= place <= begin + 1 or (
            place > start and any(begin <= verb < start and self.codes[verb] & EXIST for verb in self.verbs)
        )

    def _former(self, begin: int, stop: int) -> int:
        """Return the first token that places a clause in the past; -1 if there is none or the clause is about now."""
        if begin not in self._formers:
            codes = self.codes[begin:stop]
            place = next((begin + i for i, code in enumerate(codes) if code & FORMER), -1)
            self._formers[begin] = -1 if any(code & CURRENT for code in codes) else place
        return self._formers[begin]


def _first_between(places: list[int], begin: int, stop: int) -> int:
    """Return the first of ascending indices in [``begin``, ``stop``), or -1."""
    i = bisect_left(places, begin)
    return places[i] if i < len(places) and places[i] < stop else -1


def _any_between(places: list[int], begin: int, stop: int) -> bool:
    return _first_between(places, begin, stop) >= 0
