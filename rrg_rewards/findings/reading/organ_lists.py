"""Find the lists of organs that share a finding, such as "hepatic, splenic and renal cysts"."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_endings, cue_words
from rrg_rewards.findings.reading.clauses import Clauses
from rrg_rewards.findings.reading.cue_codes import (
    ARTICLE,
    BE,
    BOUNDARY,
    COMMA,
    CURRENT,
    ENDED,
    EXIST,
    FILLED,
    HAVE,
    HEDGE,
    INSIDE,
    JOINT,
    LASTING,
    LINKING,
    NONE,
    NORMAL,
    OTHER,
    PLACE,
    PLURAL,
    PREDICATE,
    PURPOSE,
    REASON,
    RELATIVE,
    SHOW,
    STATING,
    VERB,
    WITH,
)

# Cues that join two organs of a list, and that are between two of its organs.
JOINTS = JOINT | OTHER
_SEPARATORS = COMMA | JOINTS
# Cues that begin no finding that the organs before them share.
_NO_FINDING = (
    _SEPARATORS | BOUNDARY | STATING | BE | HAVE | INSIDE | PURPOSE | WITH | NONE | RELATIVE | LINKING | REASON
)
# Cues before a list that shares the words after it.
_INTRODUCING = BOUNDARY | NONE | EXIST | BE | SHOW | HAVE | WITH | HEDGE | VERB
# Cues that part a finding from a list.
_PARTING = LINKING | REASON | WITH | BOUNDARY
# Cues that say that an organ is normal, and the number of words after the organ among which they are.
_HEALTHY, _HEALTHY_REACH = NORMAL | PREDICATE, 3


class OrganReading(NamedTuple):
    """A sentence with one organ of a list alone.

    Attributes:
        kept: Indices of its tokens.
        organs: The tokens of the whole list.
        is_alternative: Whether the list has an "or".
        names_others: Whether the sentence names another organ of the list after it: "..., the largest in the kidney".
    """

    kept: list[int]
    organs: range
    is_alternative: bool
    names_others: bool

    def of(self, tokens: Sequence[str]) -> list[str]:
        """Return its tokens, from those of the whole sentence."""
        return [tokens[i] for i in self.kept]

    def has_shared(self, scope: Clauses, start: int, end: int) -> bool:
        """Whether the organs of the list share the finding at tokens ``start`` to ``end`` of those that were kept.

        In "mediastinal and hilar lymph nodes consistent with sarcoidosis" they share the lymph nodes only.
        """
        first, after = self.kept[start], self.kept[end - 1] + 1
        # Nothing is between a finding and a list that overlap.
        return not scope.union(min(after, self.organs.stop), max(first, self.organs.start)) & _PARTING


def organ_readings(scope: Clauses, tokens: Sequence[str], named: Iterable[tuple[int, int]]) -> list[OrganReading]:
    """Return a sentence with each organ of a list alone, if the organs share a finding.

    "Hepatic, splenic and renal cysts" is read as "hepatic cysts", as "splenic cysts" and as "renal cysts", and "cysts
    in the liver and both kidneys" as "cysts in the liver" and as "cysts in both kidneys".

    Args:
        scope: Clauses of the sentence. It has no list without one of the cues :data:`JOINTS`.
        tokens: Its tokens.
        named: First token of each finding, and the token after it. An organ whose words name a finding, such as
            "tracheal bronchus", is none of a list.
    """
    # Most sentences have no such list.
    if len(places := scope.site_places()) < 2:
        return []
    readings: list[OrganReading] = []
    lists, spans = _OrganLists(scope, tokens), list(named)
    # The last joint first: it has all organs of a list with several.
    for joint in range(places[-1] - 1, places[0], -1):
        if not scope.codes[joint] & JOINTS or any(joint in reading.organs for reading in readings):
            continue
        organs = lists.organs_around(joint)
        if organs and lists.are_sharing(organs) and not any(lists.are_name(organs, *span) for span in spans):
            readings += lists.readings(organs)
    return readings


class _OrganLists:
    """Finds the organs of lists in a sentence, and tells whether they share a finding.

    Args:
        scope: Clauses of the sentence.
        tokens: Its tokens.
    """

    def __init__(self, scope: Clauses, tokens: Sequence[str]) -> None:
        self.scope, self.codes, self.tokens, self.size = scope, scope.codes, tokens, scope.size
        self.inner = scope.sites | FILLED | PLACE

    def has(self, i: int, *names: str) -> bool:
        """Whether a token is in one of some lists of words."""
        return 0 <= i < self.size and self.tokens[i] in cue_words("organ_lists", *names)

    def is_organ(self, i: int) -> bool:
        """Whether a token names an organ."""
        return bool(self.codes[i] & self.scope.sites) or self.has(i, "organs")

    def is_inner(self, i: int) -> bool:
        """Whether a token can be among the words of an organ: its names, its sides, and further words of compounds."""
        return bool(self.codes[i] & self.inner) or self.has(i, "organs")

    def is_part(self, i: int) -> bool:
        """Whether a token after the name of an organ belongs to it, such as "gland"."""
        return self.has(i, "parts") and not self.is_organ(i)

    def is_place(self, i: int) -> bool:
        """Whether a token names a part or a side of an organ, or a number."""
        is_number = self.tokens[i].replace(".", "").isdigit()
        return bool(self.codes[i] & PLACE) or self.has(i, "places") or is_number

    def is_adjective(self, organ: range) -> bool:
        """Whether the last word of an organ is an adjective, such as "hepatic"."""
        last = organ.stop - 1
        return self.is_organ(last) and self.tokens[last].endswith(cue_endings("organ_lists"))

    def is_placing(self, i: int) -> bool:
        """Whether the places of a finding follow the word at ``i``: "in", or "to" in "metastasis to the liver"."""
        return self.has(i, "prepositions") or (i > 0 and self.tokens[i] == "to" and self.has(i - 1, "spreading"))

    def organs_around(self, joint: int) -> list[range]:
        """Return the tokens of each organ of the list whose last organ follows a joint; empty if there is no list."""
        codes = self.codes
        organs: list[range] = []
        separator = joint
        while separator > 0 and codes[separator] & _SEPARATORS:
            # ", and"
            separator -= bool(codes[separator - 1] & COMMA)
            organ = self._before(separator)
            if organ is None:
                break
            # "In the liver, in the spleen and in the kidneys"
            has_own = organ.start > 1 and codes[organ.start - 1] & INSIDE and codes[organ.start - 2] & _SEPARATORS
            organs.insert(0, range(organ.start - bool(has_own), organ.stop))
            separator = organs[0].start - 1
        # Looked for second, because most joints do not follow an organ.
        last = self._after(joint + 1) if organs else None
        if last is None:
            return []
        if "of" in self.tokens[last.start : last.stop] and any(map(self._is_vague, organs)):
            # "The middle zone and upper pole of the right kidney"
            return []
        first = organs[0]
        if self.is_adjective(first):
            # The nodes of "mediastinal and hilar lymph nodes" are those of both.
            last = range(last.start, next(i + 1 for i in reversed(last) if not self.is_part(i)))
        # "Portal and splenic veins"
        if self.has(last.stop, "vessels"):
            return []
        has_preposition = bool(self.scope.union(last.start, last.stop) & INSIDE)
        return [self._with_part(first, has_preposition), *organs[1:], last]

    def _is_vague(self, organ: range) -> bool:
        """Whether the words of an organ of the lungs are those of parts of other organs, too: "zone", "base"."""
        return cue_words("labels", "vague").issuperset(self.tokens[i] for i in organ if self.is_organ(i))

    def _after(self, start: int) -> range | None:
        """Return the tokens of the organ that begins at ``start``: "the left kidney" or "in the pole of the kidney"."""
        codes = self.codes
        # The further words of "as well as"
        while start < self.size and codes[start] & FILLED:
            start += 1
        i = start
        while i < self.size and not self.is_organ(i):
            is_of_part = self.tokens[i] == "of" and i > start and self.is_place(i - 1)
            if not (codes[i] & (ARTICLE | INSIDE) or self.is_place(i) or is_of_part):
                return None
            i += 1
        if i == self.size:
            return None
        end = i + 1
        while end < self.size and self.is_inner(end):
            end += 1
        while end < self.size and self.is_part(end):
            end += 1
        return range(start, end)

    def _before(self, end: int) -> range | None:
        """Return the tokens of the organ that ends before ``end``."""
        codes, start = self.codes, end
        while start and self.is_part(start - 1):
            start -= 1
        whole = start
        while start and (self.is_inner(start - 1) or self.is_place(start - 1)):
            start -= 1
        # The further words of a compound that is no organ: "cannot be distinguished from the liver"
        while start < whole and codes[start] & FILLED:
            start += 1
        if not any(map(self.is_organ, range(start, whole))):
            return None
        while start and codes[start - 1] & ARTICLE:
            start -= 1
        # "Both the liver and the spleen", but not "both kidneys and the liver"
        is_pair = start and self.tokens[start - 1] == "both"
        return range(start - bool(is_pair), end)

    def _with_part(self, organ: range, has_preposition: bool) -> range:
        """Return an organ with its part, and with its preposition if the last organ has its own.

        "In the right lobe of" the liver and "in" the kidney
        """
        start = organ.start
        while start > 1 and self.tokens[start - 1] == "of" and self.is_place(start - 2):
            start -= 1
            while start and (self.codes[start - 1] & ARTICLE or self.is_place(start - 1)):
                start -= 1
        is_preposition = has_preposition and start and self.codes[start - 1] & INSIDE
        return range(start - bool(is_preposition), organ.stop)

    def are_sharing(self, organs: Sequence[range]) -> bool:
        """Whether the organs share the finding before or after them."""
        start, end = organs[0].start, organs[-1].stop
        before, after = self.scope.union(start - 1, start), self.scope.union(end, end + 1)
        if end < self.size and not after & (_NO_FINDING | LASTING):
            return self._share_next(organs[0], before)
        if not start or before & BOUNDARY:
            # "The liver and the spleen are large"
            return end < self.size
        if self._are_subject(start, end):
            return False
        if self.is_placing(start) or self.is_placing(start - 1):
            return True
        # "Edematous liver and spleen", but not "between the liver and the spleen"
        return not before & (_NO_FINDING | NORMAL) and self.tokens[start - 1] not in cue_words("limits", "beside")

    def _share_next(self, first: range, before: int) -> bool:
        """Whether the organs share the words directly after them: "hepatic and renal cysts"."""
        if before & INSIDE or self.is_placing(first.start - 1) or self.has(first.stop - 1, "parts"):
            return False
        introduces = not first.start or before & _INTRODUCING or self.has(first.start - 1, "counts")
        return bool(introduces or self.is_adjective(first))

    def _are_subject(self, start: int, end: int) -> bool:
        """Whether the words after the list are said of its organs, or of the last ones.

        "Cysts in the liver and the spleen is large", "cyst in the liver, spleen and kidneys normal", but not "cysts in
        the liver and spleen are seen"
        """
        union = self.scope.union
        after, next_ = union(end, end + 1), union(end + 1, end + 3)
        is_of_finding = next_ & (VERB | SHOW) or (after & PLURAL and next_ & (CURRENT | ENDED | LASTING))
        if after & SHOW or (after & (BE | HAVE) and not is_of_finding):
            return True
        stop = min(end + _HEALTHY_REACH, self.size)
        stop = next((i for i in range(end, stop) if self.codes[i] & (_SEPARATORS | BOUNDARY)), stop)
        is_healthy = any(code & _HEALTHY and not code & LASTING for code in self.codes[end:stop])
        has_comma = union(start, end) & COMMA
        return is_healthy or bool(has_comma and union(end, stop) & NONE)

    def are_name(self, organs: Sequence[range], start: int, end: int) -> bool:
        """Whether tokens ``start`` to ``end``, which name a finding, are the words of an organ of the list."""
        is_in = organs[0].start <= start and end <= organs[-1].stop
        return is_in and all(code & self.inner for code in self.codes[start:end])

    def readings(self, organs: Sequence[range]) -> Iterator[OrganReading]:
        """Yield the sentence with each organ alone, if the list has several. Words of the same sites are one organ."""
        sites, union, start, end = self.scope.sites, self.scope.union, organs[0].start, organs[-1].stop
        by_site: dict[int, list[range]] = {}
        for organ in organs:
            by_site.setdefault(union(organ.start, organ.stop) & sites, []).append(organ)
        if len(by_site) == 1:
            return
        first, following = organs[0], union(end, self.size)
        is_both = self.tokens[first.start] == "both" and not self.tokens[first.stop - 1].endswith("s")
        is_alternative = bool(union(start, end) & OTHER)
        for site, (kept, *others) in by_site.items():
            # Without the "both" of "both the liver and the spleen". Each other part follows its separator.
            words = [*kept[is_both and kept == first :]]
            for other in others:
                words += range(other.start - 1, other.stop)
            tokens = [*range(start), *words, *range(end, self.size)]
            names_others = any(other & following for other in by_site if other != site)
            yield OrganReading(tokens, range(start, end), is_alternative, names_others)
