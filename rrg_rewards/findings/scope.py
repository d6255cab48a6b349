"""Clauses of a sentence, and what the cues in a clause say about a mention."""

from collections.abc import Sequence

from rrg_rewards.findings.vocabulary import CUES

__all__ = ["CUE_MASK", "Clauses"]

BOUNDARY, COMMA, JOINT, VERB, PREDICATE, BE, EXIST, SHOW, RELATIVE, NOT, NONE, ENDED, FORMER, CURRENT, OPEN, DOUBT, QUERY = (
    1 << i for i in range(len(CUES))
)
CUE_MASK = (1 << len(CUES)) - 1
# Words between "not" and the verb it negates: "was not clearly observed".
_NOT_REACH = 3
# Words before a mention within which a doubt is about it: "suspicious for early pneumonia".
_DOUBT_REACH = 6
PRESENT, UNCERTAIN, ABSENT = 0, 1, 2


class Clauses:
    """Clauses of one sentence and the cues in them.

    A clause ends at words such as "but", and at a comma or "and" between two statements that each have a verb of
    their own.

    Args:
        codes: Meanings of the sentence's tokens.
    """

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = codes
        self.size = len(codes)
        self.cues = [i for i, code in enumerate(codes) if code & CUE_MASK]
        self.verbs = [i for i in self.cues if self._is_finite(i)]
        self.denials = self._denials()
        self.starts = self._starts()

    def _is_finite(self, i: int) -> bool:
        """Whether the token makes a statement: "there is", "shows", "was observed"; not "nodules observed earlier"."""
        code, codes = self.codes[i], self.codes
        if code & (EXIST | SHOW):
            return True
        if not code & (VERB | PREDICATE):
            return False
        for j in range(i - 1, max(-1, i - 4), -1):
            if codes[j] & BE:
                return not (j and codes[j - 1] & RELATIVE)
        return False

    def _denials(self) -> list[tuple[int, bool]]:
        """Places of negation, each with whether it looks back ("was not observed") or ahead ("no")."""
        found = []
        for i in self.cues:
            code = self.codes[i]
            if code & NONE:
                found.append((i, False))
            elif code & ENDED:
                found.append((i, True))
            elif code & NOT:
                for j in range(i + 1, min(self.size, i + 1 + _NOT_REACH)):
                    if self.codes[j] & SHOW:
                        found.append((i, False))
                        break
                    if self.codes[j] & VERB:
                        found.append((i, True))
                        break
        return found

    def _starts(self) -> list[int]:
        """First tokens of the clauses."""
        starts, begin = [0], 0
        last_verb = self.verbs[-1] if self.verbs else -1
        for i in self.cues:
            code = self.codes[i]
            split = code & BOUNDARY or (
                code & (COMMA | JOINT)
                and i < last_verb
                # "nodules seen earlier, were not observed": what follows lacks a subject of its own
                and not self.codes[i + 1] & BE
                and any(begin <= verb < i for verb in self.verbs)
            )
            if split:
                starts.append(i)
                begin = i
        return starts

    def bounds(self, i: int) -> tuple[int, int]:
        """First token of the clause around token ``i``, and the token after its last."""
        begin, end = 0, self.size
        for start in self.starts:
            if start > i:
                end = start
                break
            begin = start
        return begin, end

    def presence(self, start: int, end: int) -> int:
        """Whether the mention at tokens ``start`` to ``end`` is there, in doubt or not there."""
        begin, stop = self.bounds(start)
        codes = self.codes
        if any(codes[i] & NOT for i in range(max(begin, start - 1), min(end, self.size))):
            return ABSENT
        for place, back in self.denials:
            if begin <= place < stop:
                if back and place >= end and not any(end <= verb < place - 1 for verb in self.verbs):
                    return ABSENT
                if not back and place < end and not self._list_ended(place, start):
                    return ABSENT
                if not back and self._is_denied_with_next(place, end):
                    return ABSENT
        if self._is_former(begin, stop, start):
            return ABSENT
        if any(codes[i] & DOUBT for i in range(max(begin, start - _DOUBT_REACH), start)):
            return UNCERTAIN
        if any(codes[i] & QUERY for i in range(end, min(stop, end + 2))):
            return UNCERTAIN
        return PRESENT

    def _list_ended(self, denial: int, start: int) -> bool:
        """Whether a comma between denial and mention opens a new statement: "no effusion, bilateral nodules"."""
        codes = self.codes
        return any(codes[i] & COMMA and codes[i + 1] & OPEN for i in range(denial + 1, start))

    def _is_denied_with_next(self, denial: int, end: int) -> bool:
        """Whether "no" after a mention covers it too: "infiltration, no consolidation was observed"."""
        if denial - end > 1 or (denial > end and not self.codes[end] & COMMA):
            return False
        return any(verb > denial for verb in self.verbs) and not any(verb < end for verb in self.verbs)

    def _is_former(self, begin: int, stop: int, start: int) -> bool:
        """Whether the clause only tells what an earlier examination showed."""
        former = [i for i in self.cues if begin <= i < stop and self.codes[i] & FORMER]
        if not former or any(self.codes[i] & CURRENT for i in self.cues if begin <= i < stop):
            return False
        # "in the previous examination there were nodules", or "there were nodules in the previous examination"
        return former[0] <= begin + 1 or (former[0] > start and any(start > verb >= begin and self.codes[verb] & EXIST for verb in self.verbs))
