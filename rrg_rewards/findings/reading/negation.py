"""Decide from the cues in a clause whether a mention is present, uncertain or absent."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from rrg_rewards.findings.reading.clauses import (
    ABNORMAL,
    ASKING,
    BE,
    BOUNDARY,
    BREAKING,
    COMMA,
    CURRENT,
    DENYING,
    DOUBT,
    EXIST,
    FORMER,
    HAVE,
    HISTORY,
    JOINT,
    NORMAL,
    NOT,
    OPEN,
    PLACE,
    PURPOSE,
    QUERY,
    REQUEST,
    STATING,
    SURGERY,
    UNSTATED,
    VERB,
    WOULD,
    Clauses,
    any_between,
    first_between,
)

__all__ = ["ABSENT", "PRESENT", "UNCERTAIN", "NegationScope"]

PRESENT, UNCERTAIN, ABSENT = 0, 1, 2
# Maximum distances in tokens.
# Between a word of doubt and the mention: "suspicious for early pneumonia".
_DOUBT_REACH = 6
# Between "history of" and the mention: "history of mild centrilobular emphysema".
_HISTORY_REACH = 4
# Between "is" and what it states: "is locally thickened".
_PREDICATE_REACH = 4
# Between a mention and the verb that calls it normal, and between this verb and "normal": "thickness is within normal".
_NORMAL_REACH = 3
_UNASSERTED = REQUEST | UNSTATED | ASKING


class NegationScope(Clauses):
    """The clauses of one sentence, and what their cues of negation, doubt and history say about its mentions.

    Args:
        codes: Codes of the sentence's tokens.
        label: Bits of the sites that a label before the sentence names.
    """

    def __init__(self, codes: Sequence[int], label: int = 0) -> None:
        super().__init__(codes, label)
        self._closers: list[int] | None = None

    def presence(self, start: int, end: int) -> int:
        """Return ``PRESENT``, ``UNCERTAIN`` or ``ABSENT`` for the mention at tokens ``start`` to ``end``."""
        kinds, codes = self.kinds, self.codes
        if not kinds & (DENYING | HISTORY | FORMER | DOUBT | QUERY | NORMAL | SURGERY | _UNASSERTED):
            return PRESENT
        begin, stop = self.bounds(start)
        if kinds & _UNASSERTED and self._is_unasserted(begin, stop, start, end):
            return ABSENT
        # "not thickened", "not significantly thickened"
        if kinds & NOT and any(codes[i] & NOT for i in range(max(begin, start - 2), end)):
            return ABSENT
        if (self.ahead or self.back) and self._is_denied(begin, stop, start, end):
            return ABSENT
        # "the septa are of normal thickness"
        if kinds & NORMAL and (any(codes[i] & NORMAL for i in range(start, end)) or self._is_normal(end, stop)):
            return ABSENT
        if kinds & (HISTORY | SURGERY) and self._is_history(begin, stop, start, end):
            return ABSENT
        if kinds & FORMER and not self.has_news and self._is_former(begin, stop, start, end):
            return ABSENT
        if kinds & DOUBT and any(codes[i] & DOUBT for i in range(max(begin, start - _DOUBT_REACH), start)):
            return UNCERTAIN
        if kinds & QUERY and any(codes[i] & QUERY for i in range(end, min(stop, end + 2))):
            return UNCERTAIN
        return PRESENT

    def _is_unasserted(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether the clause asks for the mention, makes it a condition, or is about someone else."""
        codes, kinds = self.codes, self.kinds
        if kinds & UNSTATED and any(code & UNSTATED for code in codes[begin:stop]):
            return True
        if kinds & REQUEST and any(code & REQUEST for code in codes[begin:start]):
            return True
        if not codes[0] & ASKING or (self.size > 1 and codes[1] & (BE | VERB | NOT)):
            return False
        # "Is there a nodule?", "Were there a nodule, it would be seen", "Should a nodule grow, ..."
        return any(code & WOULD for code in codes) or any(code & QUERY for code in codes[end:])

    def _is_denied(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether a negation in the clause from ``begin`` to ``stop`` covers the mention."""
        # Only the nearest negation of each kind matters, because words that block it also block all farther ones.
        place = first_between(self.back, end, stop)
        # A statement in between blocks the negation: "there is effusion and it was not drained".
        if place >= 0 and not any_between(self.verbs, end, place - 1) and not self._has_own_statement(end, place):
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
        verb = first_between(self.spoken, end, denial)
        end = first_between(self.breaks, verb, denial) if verb >= 0 else -1
        # After "and", a verb without a subject continues the statement: "has decreased and was not seen today".
        return 0 <= end < denial - 1 and not self.codes[end + 1] & (BE | HAVE)

    def _list_ended(self, denial: int, start: int, stop: int) -> bool:
        """Whether a word between denial and mention begins a new statement: "no effusion, mild edema"."""
        openers = [first_between(self.openers, denial, start), first_between(self._list_closers(), denial, start)]
        opener = max(openers) if min(openers) < 0 else min(openers)
        # "no consolidation, large effusion or pneumothorax" is one list.
        return opener >= 0 and not any_between(self.others, opener, stop)

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
            if codes[i] & BREAKING:
                return False
            if codes[i] & BE:
                following = codes[i + 1 : min(stop, i + 1 + _NORMAL_REACH)]
                return any(code & NORMAL for code in following) and not any(c & (BREAKING | NOT) for c in following)
        return False

    def _is_history(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether the mention is only the reason for an earlier operation, or follows "history of"."""
        codes = self.codes
        # "cancer surgery"
        if end < stop and codes[end] & SURGERY:
            return True
        for i in range(start - 1, max(begin, start - _HISTORY_REACH) - 1, -1):
            if codes[i] & (STATING | BE | HAVE | COMMA):
                return False
            # "resection of a mass", "lobectomy for cancer"
            if codes[i] & HISTORY or (codes[i] & SURGERY and codes[i + 1] & PURPOSE):
                return True
        return False

    def _is_former(self, begin: int, stop: int, start: int, end: int) -> bool:
        """Whether the clause describes an earlier examination only."""
        place = self._former(begin, stop, start, end)
        # "In the previous examination there were nodules", or "there were nodules in the previous examination".
        return 0 <= place <= begin + 1 or (
            place > start and any(begin <= verb < start and self.codes[verb] & EXIST for verb in self.verbs)
        )

    def _former(self, begin: int, stop: int, start: int, end: int) -> int:
        """Return the first token that places a clause in the past; -1 if there is none or the clause is about now."""
        # "increased" in "increased markings" is a part of the name.
        if any(self.codes[i] & CURRENT for i in range(begin, stop) if not start <= i < end):
            return -1
        return next((i for i in range(begin, stop) if self.codes[i] & FORMER), -1)
