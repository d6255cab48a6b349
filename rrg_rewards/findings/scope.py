"""Clauses of a sentence, and what the cues in a clause say about a mention."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import reduce
from operator import or_

from rrg_rewards.findings.vocabulary import CUES

__all__ = ["CUE_MASK", "Clauses"]

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
) = (1 << i for i in range(len(CUES)))
CUE_MASK = (1 << len(CUES)) - 1
# Words between "not" and the verb it negates: "was not clearly observed".
_NOT_REACH = 3
# Words between "not" and the earlier examination in which something was not seen.
_FORMER_REACH = 5
# Words before a mention within which a doubt is about it: "suspicious for early pneumonia".
_DOUBT_REACH = 6
# Words before a mention within which "history of" is about it: "history of mild centrilobular emphysema".
_HISTORY_REACH = 4
PRESENT, UNCERTAIN, ABSENT = 0, 1, 2
_STATING = VERB | PREDICATE | EXIST | SHOW
_DENYING = NOT | NONE | ENDED
_BREAKING = BOUNDARY | COMMA | JOINT


class Clauses:
    """Clauses of one sentence and the cues in them.

    A clause ends at words such as "but", and at a comma or "and" between two statements that each have a verb
    of their own.

    Args:
        codes: Meanings of the sentence's tokens.
    """

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = codes
        self.size = len(codes)
        kinds = 0
        self.verbs: list[int] = []
        # Places of negation that looks ahead ("no"), and of such that looks back ("was not observed").
        self.ahead: list[int] = []
        self.back: list[int] = []
        # Whether a denial is of an earlier examination only, so that what it denies is new.
        self.has_news = False
        self.starts = [0]
        self.breaks: list[int] = []
        # Verbs that are said of what stands before them, commas that open a statement, words that keep a list going.
        self.spoken: list[int] = []
        self.openers: list[int] = []
        self.others: list[int] = []
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
        self.kinds = kinds
        if self.breaks:
            self._split(self.breaks)

    def _is_finite(self, i: int) -> bool:
        """Whether the token makes a statement: "there is", "was observed"; not "nodules observed earlier"."""
        codes = self.codes
        if codes[i] & (EXIST | SHOW):
            return True
        for j in range(i - 1, max(-1, i - 4), -1):
            if codes[j] & BE:
                return not (j and codes[j - 1] & RELATIVE)
        return False

    def _is_answered(self, i: int) -> bool:
        """Whether a bare "no" follows, as in "effusion: no, pneumothorax: no"."""
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
        """Find the first tokens of the clauses."""
        codes, begin = self.codes, 0
        last_verb = self.verbs[-1] if self.verbs else -1
        for i, following in zip(breaks, [*breaks[1:], self.size], strict=True):
            if not codes[i] & BOUNDARY:
                # "there is no effusion, edema, or nodule, and the heart is normal": a list goes on without a verb
                if self._opens_denied_list(begin) and not self._states(i, following):
                    continue
                # "is normal," is complete; after other verbs a list may go on
                if not 0 < i < self.size - 1 or (i > last_verb and not codes[i - 1] & PREDICATE):
                    continue
                # "nodules seen earlier, were not observed": what follows lacks a subject of its own
                if codes[i + 1] & BE or not any(begin <= verb < i for verb in self.verbs):
                    continue
            self.starts.append(i)
            begin = i

    def _opens_denied_list(self, begin: int) -> bool:
        """Whether a clause starts with "there is no"."""
        start = _first_between(self.verbs, begin, begin + 3)
        return start >= 0 and bool(self.codes[start] & EXIST) and any(c & NONE for c in self.codes[start : start + 4])

    def _states(self, begin: int, stop: int) -> bool:
        """Whether there is a verb of whatever kind between two tokens."""
        return any(code & (_STATING | BE | HAVE) for code in self.codes[begin:stop])

    def bounds(self, i: int) -> tuple[int, int]:
        """First token of the clause around token ``i``, and the token after its last."""
        place = bisect_right(self.starts, i)
        return self.starts[place - 1], self.starts[place] if place < len(self.starts) else self.size

    def union(self, begin: int, stop: int) -> int:
        """Bits of the tokens from ``begin`` to ``stop``."""
        found = self._unions.get((begin, stop))
        if found is None:
            found = self._unions[begin, stop] = reduce(or_, self.codes[begin:stop], 0)
        return found

    def context(self, i: int, heads: int) -> tuple[int, int]:
        """First and last bound of the words that can belong to the mention at token ``i``.

        That is its clause; in a mere list of findings, without a verb, it is the mention's own item and those that
        follow until the next finding, which ``heads`` tells: "dilated aorta, plaques in the left, right coronary".
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
        """Bits of the one of ``sites`` nearest to a phrase, from ``begin`` to ``stop``; 0 for none."""
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
        """Whether the mention at tokens ``start`` to ``end`` is there, in doubt or not there."""
        kinds, codes = self.kinds, self.codes
        if not kinds & (_DENYING | HISTORY | FORMER | DOUBT | QUERY):
            return PRESENT
        begin, stop = self.bounds(start)
        if kinds & NOT and any(codes[i] & NOT for i in range(max(begin, start - 1), end)):
            return ABSENT
        if (self.ahead or self.back) and self._is_denied(begin, stop, start, end):
            return ABSENT
        if kinds & HISTORY and self._is_history(begin, start):
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
        # Only the nearest one of each kind matters: what stops it stops those farther away, too.
        place = _first_between(self.back, end, stop)
        # "there is effusion and it was not drained": a statement in between keeps its own truth
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
        """Whether the mention is spoken of before the denial: "effusion has decreased and edema has resolved"."""
        verb = _first_between(self.spoken, end, denial)
        end = _first_between(self.breaks, verb, denial) if verb >= 0 else -1
        # "has decreased and was not seen today" has no other subject
        return 0 <= end < denial - 1 and not self.codes[end + 1] & (BE | HAVE)

    def _list_ended(self, denial: int, start: int, stop: int) -> bool:
        """Whether a comma between denial and mention opens a new statement: "no effusion, mild edema"."""
        opener = _first_between(self.openers, denial, start)
        # "no consolidation, large effusion or pneumothorax" is still one list
        return opener >= 0 and not _any_between(self.others, opener, stop)

    def _is_denied_with_next(self, begin: int, denial: int, end: int) -> bool:
        """Whether "no" after a mention covers it too: "infiltration, no consolidation was observed"."""
        if denial - end > 1 or (denial > end and not self.codes[end] & COMMA):
            return False
        # "Mild emphysema, no consolidation was observed" is a statement of its own.
        if self.codes[begin] & (BOUNDARY | OPEN):
            return False
        return bool(self.verbs) and self.verbs[-1] > denial and self.verbs[0] >= end

    def _is_history(self, begin: int, start: int) -> bool:
        """Whether "history of" leads to the mention, with no statement or comma in between."""
        for code in reversed(self.codes[max(begin, start - _HISTORY_REACH) : start]):
            if code & (_STATING | BE | HAVE | COMMA):
                return False
            if code & HISTORY:
                return True
        return False

    def _is_former(self, begin: int, stop: int, start: int) -> bool:
        """Whether the clause only tells what an earlier examination showed."""
        place = self._former(begin, stop)
        # "in the previous examination there were nodules", or "there were nodules in the previous one"
        return 0 <= place <= begin + 1 or (
            place > start and any(begin <= verb < start and self.codes[verb] & EXIST for verb in self.verbs)
        )

    def _former(self, begin: int, stop: int) -> int:
        """First token of a clause that places it in the past; -1 if none does, or the clause is about now, too."""
        if begin not in self._formers:
            codes = self.codes[begin:stop]
            place = next((begin + i for i, code in enumerate(codes) if code & FORMER), -1)
            self._formers[begin] = -1 if any(code & CURRENT for code in codes) else place
        return self._formers[begin]


def _first_between(places: list[int], begin: int, stop: int) -> int:
    """First of some ascending places from ``begin`` to before ``stop``, or -1."""
    i = bisect_left(places, begin)
    return places[i] if i < len(places) and places[i] < stop else -1


def _any_between(places: list[int], begin: int, stop: int) -> bool:
    return _first_between(places, begin, stop) >= 0
