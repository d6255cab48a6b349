"""Decide from the cues of a sentence whether a mention in it is present, uncertain or absent."""

from bisect import bisect_left
from functools import cached_property
from itertools import pairwise, takewhile

from rrg_rewards.findings.reading.clauses import Clauses, any_between, first_between
from rrg_rewards.findings.reading.cue_codes import (
    ABNORMAL,
    ALIKE,
    ALSO,
    ARRIVED,
    ARTICLE,
    ASKING,
    BE,
    BOUNDARY,
    BREAKING,
    CHANGING,
    COMMA,
    CURRENT,
    DEFINITE,
    DEGREE,
    DENYING,
    DOUBT,
    ENDED,
    EXCEPT,
    EXCHANGE,
    EXIST,
    EXTENT,
    FILLED,
    FORMER,
    HAVE,
    HEDGE,
    HISTORY,
    INSIDE,
    INSTEAD,
    JOINT,
    LASTING,
    LINKING,
    MEASURE,
    NONE,
    NORMAL,
    NOT,
    OPEN,
    OTHER,
    PARTLY,
    PERHAPS,
    PLACE,
    PLURAL,
    PURPOSE,
    QUALITY,
    QUERY,
    REASON,
    REFUTED,
    RELATIVE,
    REQUEST,
    SAME,
    STATING,
    SUPPOSED,
    SURE,
    SURGERY,
    THAN,
    TIED,
    UNABLE,
    UNSTATED,
    VERB,
    WHETHER,
    WITH,
    WITHDRAWN,
    WOULD,
)
from rrg_rewards.findings.reading.phrases import union

PRESENT, UNCERTAIN, ABSENT = 0, 1, 2
_UNASSERTED = REQUEST | UNSTATED | ASKING
# Cues without which every mention of a sentence is present.
_CERTAIN = DENYING | HISTORY | FORMER | EXCHANGE | WITHDRAWN | NORMAL | SURGERY | SUPPOSED
_CHANGING = _CERTAIN | DOUBT | QUERY | PERHAPS | ALIKE | THAN | _UNASSERTED
# Cues of the words that an item has which a whole answer such as "nil", after the next one, does not deny.
_OWN = ABNORMAL | CURRENT | LASTING | INSIDE | PLACE
# Maximum distances in tokens.
# Between "in the" and the mention: "in the known right nodule".
_HOST_REACH = 6
# Between a word of doubt and the mention: "suspicious for early pneumonia".
_DOUBT_REACH = 6
# Between an article and the mention: "the left effusion".
_ARTICLE_REACH = 2
# Between "history of" or "resection of" and the mention: "resection of a right upper lobe mass".
_HISTORY_REACH = 6
# Between a mention and the verb that calls it normal, and between this verb and "normal": "thickness is within normal".
_NORMAL_REACH = 3


class NegationScope(Clauses):
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
        if kinds & (EXCHANGE | WITHDRAWN) and self._is_exchanged(clause, start, end):
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
            or (kinds & ALIKE and self._first_of(ALIKE, BOUNDARY | COMMA | STATING, range(end, clause.stop)) >= 0)
            or (kinds & PERHAPS and self._first_of(PERHAPS, BREAKING | STATING | WITH, range(end, clause.stop)) >= 0)
        )
        return UNCERTAIN if is_doubted else PRESENT

    def _words_before(self, clause: range, start: int, reach: int) -> list[int]:
        """Return the tokens before a mention, the nearest first; the further words of compounds do not count."""
        return [i for i in range(start - 1, clause.start - 1, -1) if not self.codes[i] & FILLED][:reach]

    def _is_doubted(self, clause: range, start: int) -> bool:
        """Whether a word before a mention puts it in doubt, which is not so in "it may be due to the effusion"."""
        codes = self.codes
        # "Possible atelectasis, pneumonia or a small mass", "whether the density at the left base is an effusion"
        near = self.union(max(clause.start, start - _DOUBT_REACH), start)
        other, barrier = OTHER | ALSO, BOUNDARY | STATING | BE | HAVE
        is_list = near & other or self._first_of(other, barrier, range(start, clause.stop)) >= 0
        words = self._words_before(clause, start, _DOUBT_REACH * (3 if is_list else 1 + bool(self.kinds & WHETHER)))
        if self._is_presupposed(start, WHETHER):
            return False
        ends = (n for n, i in enumerate(words) if codes[i] & REASON or self._ends_doubt(i, clause))
        words = words[: next(ends, None)]
        return any(codes[i] & DOUBT for i in (words if is_list else words[:_DOUBT_REACH])) or any(
            codes[i] & WHETHER for i in words
        )

    def _is_exchanged(self, clause: range, start: int, end: int) -> bool:
        """Whether another device takes the place of a mention: "exchange of the tube for a tracheostomy"."""
        before = range(start - 1, clause.start - 1, -1)
        # "Withdrawal of the tube with insertion of a drain"
        is_withdrawn = self._first_of(WITHDRAWN, BREAKING | WITH, before) >= 0
        if is_withdrawn and self.union(clause.stop, clause.stop + 1) & ARRIVED:
            return True
        exchange = self._first_of(EXCHANGE, BREAKING | WITH, before)
        is_first = exchange >= 0 and not self.union(exchange + 2, start) & PURPOSE
        return is_first and self._first_of(WITH | PURPOSE, BREAKING | STATING | BE, range(end, clause.stop)) >= 0

    def _is_less_likely(self, clause: range, start: int) -> bool:
        """Whether a mention is the second of two: "a scar is likelier than pulmonary nodules"."""
        # "More than two nodules" compares nothing.
        than = self._first_of(THAN, BREAKING | STATING, range(start - 1, max(clause.start, start - 4), -1))
        return than >= 0 and (than == start - 1 or bool(self.union(clause.start, than) & (LINKING | DOUBT)))

    def _ends_doubt(self, i: int, clause: range) -> bool:
        """Whether a comma or "and" begins a certain statement: "possible effusion and mild edema"."""
        # "If at all, there is minimal edema", "atelectasis, the effusion or pneumonia"
        if i not in self.openers or any_between(self.others, i, clause.stop):
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
        # "If septic, this could be pneumonia" is no request.
        if kinds & REQUEST and self.union(clause.start, start) & REQUEST:
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
        later = first_between(self.ahead, end, clause.stop)
        is_shared = later >= 0 and self._is_denied_with_next(clause.start, later, end)
        return is_shared or self._is_negated(clause, start, end)

    def _is_negated(self, clause: range, start: int, end: int) -> bool:
        """Whether a negation in the clause covers the mention."""
        # Only the nearest negation of each kind matters, because words that block it also block all farther ones.
        is_part = self.kinds & PARTLY and self.union(max(clause.start, start - _HOST_REACH), start) & PARTLY
        denial = -1 if is_part else first_between(self.back, end, clause.stop)
        # A statement in between blocks the negation: "there is effusion and it was not drained".
        if denial >= 0 and (
            self.codes[denial] & REFUTED
            or not (any_between(self.verbs, end, denial - 1) or self._has_own_statement(start, end, denial))
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
        verb = first_between(self.spoken, start, denial)
        stop = first_between(self.breaks, max(verb, end), denial) if verb >= 0 else -1
        # After "and", a verb without a subject continues the statement: "has decreased and was not seen today".
        return 0 <= stop < denial - 1 and not self.codes[stop + 1] & (BE | HAVE)

    def _begins_clause(self, start: int, end: int, denial: int, parting: list[int]) -> bool:
        """Whether the first comma or "and" after a mention begins a statement, and not the next item of a list."""
        codes, first, clause = self.codes, parting[0], self.clause(start).start
        # "Effusion persists and edema has resolved", "stable effusion, edema has resolved", "tube in place, ..."
        described = start if codes[first] & JOINT else clause
        is_list = len(parting) > 1 or codes[first + 1] & OTHER
        if not is_list and self.union(described, first) & (LASTING | (CURRENT if codes[first] & JOINT else 0)):
            return True
        has_verb = any_between(self.verbs, clause, start)
        # "Nodule in the right upper lobe, effusion nil", "effusion decreased, pneumothorax none"
        own = DEGREE | (_OWN if codes[denial] & (ENDED | NONE) and not self.kinds & (BE | HAVE) else 0)
        is_opened = bool(has_verb or self.union(clause, first) & own or codes[clause] & HEDGE)
        if codes[first] & JOINT:
            # "There is effusion and edema is not seen"
            return has_verb and len(parting) == 1
        if not codes[first] & COMMA or codes[first + 1] & RELATIVE or self.union(clause, first) & COMMA:
            return False
        if codes[first + 1] & JOINT:
            # "Nodules in both lungs, and effusion is not seen", but "effusion, and edema are not seen"
            return is_opened or first > end or any_between(self.spoken, clause, start)
        # "Small effusions, edema are not seen" is one list
        is_statement = (is_opened or codes[first + 1] & ARTICLE) and not self.union(first, denial + 1) & PLURAL
        return bool(is_statement) and len(parting) == 1

    def _list_ended(self, denial: int, start: int, clause_end: int) -> bool:
        """Whether a word between denial and mention begins a new statement: "no effusion, mild edema"."""
        openers = [first_between(self.openers, denial, start), first_between(self._list_closers, denial, start)]
        opener = max(openers) if min(openers) < 0 else min(openers)
        # "Nodule without calcification, consistent with a granuloma"
        is_adjunct = denial and (self.codes[denial] & TIED or self.codes[denial - 1] & WITH)
        if is_adjunct and any_between(self.links, denial, start):
            return True
        # "Removal of the tube and the drain"
        is_pair = opener >= 0 and self.codes[opener] & JOINT and self.union(opener + 1, opener + 2) & DEFINITE
        is_pair = is_pair and self.union(denial + 1, denial + 3) & DEFINITE
        if is_pair and not self.union(opener, clause_end) & (STATING | BE | HAVE | LASTING | CURRENT):
            return False
        # "no consolidation, large effusion or pneumothorax" is one list.
        return opener >= 0 and not any_between(self.others, opener, clause_end)

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
        return [i for i, end in breaks if self._is_doubtful(i, end) or self._is_complete(i, end)]

    def _is_doubtful(self, start: int, end: int) -> bool:
        """Whether the words after a comma or "and" leave something in doubt, or say that it persists."""
        return bool(self.union(start, end) & (PERHAPS | (LASTING if self.codes[start] & JOINT else 0)))

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
        before = list(takewhile(lambda i: not codes[i] & parting, self._words_before(clause, start, _HISTORY_REACH)))
        joint = next((i for i in before if codes[i] & JOINT), -1)
        if 0 < joint < end - 2 and not codes[joint - 1] & (self.sites | SURGERY):
            # "Operated breast cancer and right pneumothorax", but not "operated breast and lung cancer"
            before = [i for i in before if i > joint or codes[i] & (HISTORY | SURGERY) != HISTORY | SURGERY]
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
