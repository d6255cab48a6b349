"""Split a sentence into clauses, and find the cues of negation in them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import reduce
from operator import or_

from rrg_rewards.findings.reading.lexicon import CUES

__all__ = ["Clauses", "any_between", "first_between"]

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
    REQUEST,
    UNSTATED,
    ASKING,
    WOULD,
) = (1 << i for i in range(len(CUES)))
_CUE_MASK = (1 << len(CUES)) - 1
STATING = VERB | PREDICATE | EXIST | SHOW
DENYING = NOT | NONE | ENDED
BREAKING = BOUNDARY | COMMA | JOINT
# Cues that divide a sentence into clauses and lists.
_PARTING = STATING | DENYING | BREAKING | BE | HAVE | OTHER | WITH
# Maximum distances in tokens.
# Between "not" and the verb that it negates: "was not clearly observed".
_NOT_REACH = 3
# Between "not" and the earlier examination that it applies to: "not observed in the previous examination".
_FORMER_REACH = 5


class Clauses:
    """The clauses of one sentence and the cues in them.

    A clause ends at words such as "but". It also ends at a comma or "and" if there is a verb both before and after it.

    Args:
        codes: Codes of the sentence's tokens.
        label: Bits of the sites that a label before the sentence names.
    """

    def __init__(self, codes: Sequence[int], label: int = 0) -> None:
        self.codes = codes
        self.label = label
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
        self._unions: dict[tuple[int, int], int] = {}
        self._contexts: dict[int, tuple[int, int]] = {}
        self._sites: list[int] | None = None
        for i, code in enumerate([code & _CUE_MASK for code in codes]):
            kinds |= code
            if not code & _PARTING or (code & BOUNDARY and self._is_answered(i)):
                continue
            if code & STATING and self._is_finite(i):
                self.verbs.append(i)
            if code & DENYING:
                self._add_denial(i)
            if code & BREAKING:
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
        if not self.verbs and not self.kinds & BOUNDARY:
            # A clause without a verb does not end at a comma or "and".
            return
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
                if codes[i + 1] & BE or not any_between(self.verbs, begin, i):
                    continue
            self.starts.append(i)
            begin = i

    def _opens_denied_list(self, begin: int) -> bool:
        """Whether a clause starts with "there is no"."""
        start = first_between(self.verbs, begin, begin + 3)
        return start >= 0 and bool(self.codes[start] & EXIST) and any(c & NONE for c in self.codes[start : start + 4])

    def _states(self, begin: int, stop: int) -> bool:
        """Whether there is a verb of any kind between two tokens."""
        return bool(self.union(begin, stop) & (STATING | BE | HAVE))

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

    def context(self, i: int, heads: int, places: int) -> tuple[int, int]:
        """Return the bounds of the words that can belong to the mention at token ``i``.

        These are the words of the clause. In a list of findings without a verb, they are the list items from the
        mention to the next finding: "dilated aorta, plaques in the left, right coronary".

        Args:
            i: Token of the mention.
            heads: Bits of the words that can begin a finding.
            places: Bits of the words that name organs. A list item of places only belongs to the finding before it.
        """
        found = self._contexts.get(i)
        if found is None:
            found = self._contexts[i] = self._context(i, heads, places | PLACE)
        return found

    def _context(self, i: int, heads: int, places: int) -> tuple[int, int]:
        begin, stop = self.bounds(i)
        if not self.kinds & COMMA or any_between(self.verbs, begin, stop):
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
                if comma >= 0 and self._names_finding(comma, breaks[j], heads, places):
                    return begin, comma
                comma = breaks[j]
        return begin, comma if comma >= 0 and self._names_finding(comma, stop, heads, places) else stop

    def _names_finding(self, comma: int, stop: int, heads: int, places: int) -> bool:
        """Whether the words after a comma can name a finding, and not only its place."""
        return any(code & heads and not code & places for code in self.codes[comma + 1 : stop])

    def nearest(self, sites: int, start: int, end: int, begin: int, stop: int) -> int:
        """Return the bits of the site nearest to a phrase in [``begin``, ``stop``), or else those of the label."""
        if self._sites is None:
            self._sites = [i for i, code in enumerate(self.codes) if code & sites]
        places = self._sites
        after = bisect_left(places, start)
        best, distance = 0, self.size + 1
        if after and places[after - 1] >= begin:
            best, distance = places[after - 1], start - places[after - 1]
        elif after == len(places) or places[after] >= stop:
            return self.label & sites
        if after < len(places) and places[after] < stop and max(0, places[after] - end + 1) < distance:
            best = places[after]
        return self.codes[best] & sites


def first_between(places: list[int], begin: int, stop: int) -> int:
    """Return the first of ascending indices in [``begin``, ``stop``), or -1."""
    i = bisect_left(places, begin)
    return places[i] if i < len(places) and places[i] < stop else -1


def any_between(places: list[int], begin: int, stop: int) -> bool:
    """Whether one of ascending indices is in [``begin``, ``stop``)."""
    return first_between(places, begin, stop) >= 0
