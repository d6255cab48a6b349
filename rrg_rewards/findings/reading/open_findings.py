"""Find statements that are abnormal although they name no concept of the lexicon."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.attributes import attribute_reader
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT, UNCERTAIN, NegationScope
from rrg_rewards.findings.reading.phrases import PhraseBook

_SIGNALS = frozenset({"heads", "changes", "stated", "denied"})
_ROLES = ("stated", "neutral", "explained", "technical", "continuing", "heads", "changes", "normal")
# Maximum number of words between a denial and the word that it denies: "not very clear".
_DENIAL_REACH = 2
# Maximum number of words between a form of "be" and "normal".
_PREDICATE_REACH = 3
# Separators that begin a description of the finding before.
_RELATIVE = frozenset({"with", "which"})
# Separators that also join adjectives.
_COORDINATING = frozenset({"and", "or", "/"})
# Separators that continue a denied list.
_ALTERNATIVE = frozenset({"or", "nor", "/"})
# Numbers of words in which a participle is appended to the finding before, after each separator.
_APPENDED = {"and": range(1, 2), ",": range(2, 5)}
# Number of words in which a clause about the finding before says so.
_OPENING = 4
# Shortest word whose end is compared with the suffixes.
_SHORTEST = 6


class OpenStatement(NamedTuple):
    """A statement that is abnormal and names no concept.

    Attributes:
        start: First token of the words that make it abnormal.
        end: Token after the last of these words.
        presence: ``PRESENT`` or ``UNCERTAIN``.
        organ: The organ that the statement is about, or ``None``.
        words: Content words.
        has_head: Whether a word names an abnormality; otherwise the words describe the organ.
        signals: The words that make it abnormal.
        clause: All words of the clause.
        subject: Words of the clauses before, from the one that names the organ.
    """

    start: int
    end: int
    presence: int
    organ: str | None
    words: tuple[str, ...]
    has_head: bool
    signals: tuple[str, ...] = ()
    clause: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()


class _Clause(NamedTuple):
    """A part of a sentence between separators, and the roles of its words.

    Attributes:
        start: First token.
        end: Token after the last.
        link: The separator before it.
        heads: Tokens that name an abnormality.
        changes: Tokens that describe an organ as abnormal.
        organ: The organ that it names nearest to these words, or ``None``.
        is_vague: Whether the word for the organ names a part of several organs.
    """

    start: int
    end: int
    link: str
    heads: tuple[int, ...]
    changes: tuple[int, ...]
    organ: str | None
    is_vague: bool


class OpenStatementReader:
    """Reads the abnormal statements of a sentence that no mention of a concept explains."""

    def __init__(self) -> None:
        knowledge = load_knowledge("open_findings")
        self._suffixes = tuple(knowledge["suffixes"])
        self._exceptions = frozenset(knowledge["exceptions"])
        phrases = [(text, role) for role in _ROLES for text in knowledge[role]]
        self._book = PhraseBook(phrases, ",|(|)|:", others=(self._is_head, "heads"))
        self._vague = tuple(knowledge["vague"])
        self._stop = frozenset(word for line in knowledge["stop"] for word in line.split())
        self._denials = cue_words("denials", "always", "in_series")
        self._separators = cue_words("connectives", "separators") | {"(", ")", "which", "while", "although"}
        self._adjectives = cue_words("adjectives", "descriptive")
        self._interpreting = frozenset(
            word for word, kind in attribute_reader().links.items() if kind in ("stated", "doubted")
        )

    def statements(
        self,
        tokens: Sequence[str],
        roles: Mapping[int, str],
        scope: NegationScope,
        organs: Mapping[int, str],
        named: AbstractSet[int],
    ) -> list[OpenStatement]:
        """Return the open statements of a sentence, in order.

        Args:
            tokens: Tokens of the sentence.
            roles: Their roles, from :meth:`roles`.
            scope: Its clauses and cues of negation.
            organs: Tokens that name organs, with the organs.
            named: Indices of the tokens that name concepts.
        """
        statements: list[OpenStatement] = []
        organ: str | None = None
        subject = 0
        # Whether the sentence has named a finding of this organ.
        is_told = is_denied = False
        clauses = self._clauses(tokens, roles, organs)
        for place, clause in enumerate(clauses):
            is_denied = (is_denied and clause.link in _ALTERNATIVE) or not self._denials.isdisjoint(
                tokens[clause.start : clause.end]
            )
            is_told = is_told and (clause.organ in (None, organ) or organ is None or clause.link in _RELATIVE)
            organ = organ if clause.is_vague and organ else clause.organ or organ
            subject = clause.start if clause.organ else subject
            if not named.isdisjoint(range(clause.start, clause.end)):
                is_told = True
                continue
            # "No dilatation or increase in diameter"
            signals = [] if is_denied and clause.link in _ALTERNATIVE else self._signals(tokens, clause, roles, scope)
            if not signals:
                continue
            signals = self._observed(tokens, clause, signals, is_told or organ is None)
            has_head = any(i in clause.heads for i in signals)
            if not signals or self._continues(tokens, clause, roles, has_head, is_told, organ):
                continue
            if has_head and organ is None:
                organ = _following_organ(clauses[place + 1 :], roles, named)
            if clause.organ is None and not has_head and (is_told or organ is None):
                continue
            stated = OpenStatement(
                signals[0],
                signals[-1] + 1,
                UNCERTAIN if scope.presence(signals[0], signals[0] + 1) == UNCERTAIN else PRESENT,
                organ,
                # "The gallbladder was not observed"
                ("absent",) if roles[signals[0]] == "stated" else self._content(tokens, clause, organs),
                has_head,
                tuple(tokens[i] for i in signals),
                tuple(tokens[clause.start : clause.end]),
                tuple(tokens[subject : clause.start]),
            )
            previous = statements[-1] if is_told and statements else None
            if previous and not has_head and not previous.has_head and previous.organ == organ:
                words = tuple(dict.fromkeys((*previous.words, *stated.words)))
                statements[-1] = previous._replace(end=stated.end, words=words)
            else:
                statements.append(stated)
            is_told = True
        return statements

    def roles(self, tokens: Sequence[str], named: Collection[int]) -> dict[int, str]:
        """Return the role of each token that has one, or none if only tokens that name concepts can be abnormal.

        A denied normal word has the role ``denied``.

        Args:
            tokens: Tokens of the sentence.
            named: Indices of the tokens that name concepts.
        """
        roles: dict[int, str] = {}
        end = 0
        # A clause with a named concept makes no open statement.
        has_signal = False
        for i, (phrase_end, role) in self._book.matches(tokens).items():
            if i < end:
                continue
            end = phrase_end
            if role == "normal" and "not" in tokens[max(0, i - _DENIAL_REACH) : i]:
                role = "denied"
            # In "is not large" and "density is low" the last word counts, which may be denied.
            for k in (i, end - 1) if role == "heads" else (end - 1,) if role == "changes" else range(i, end):
                roles[k] = role
                has_signal = has_signal or (role in _SIGNALS and k not in named)
        return roles if has_signal else {}

    def _is_head(self, word: str) -> bool:
        """Whether the end of a word says that it names an abnormality."""
        return len(word) >= _SHORTEST and word.endswith(self._suffixes) and word not in self._exceptions

    def _clauses(self, tokens: Sequence[str], roles: Mapping[int, str], organs: Mapping[int, str]) -> list[_Clause]:
        clauses = []
        start, link = 0, ""
        separators, interpreting = self._separators, self._interpreting
        for i in (
            *(
                i
                for i, token in enumerate(tokens)
                # "With" ends a clause, but not in "consistent with".
                if token in separators
                and not (token == "with" and tokens[i - 1] in interpreting)
                and not (token in _COORDINATING and self._joins_adjectives(tokens, i))
            ),
            len(tokens),
        ):
            if i > start:
                clauses.append(self._clause(tokens, start, i, link, roles, organs))
            start = i + 1
            link = tokens[i] if i < len(tokens) and not (link == "(" and tokens[i] != ")") else link
        return clauses

    def _joins_adjectives(self, tokens: Sequence[str], i: int) -> bool:
        """Whether the words around a token describe one noun: "punctate and patchy hypodensities"."""
        return i > 0 and tokens[i - 1] in self._adjectives and self._adjectives.issuperset(tokens[i + 1 : i + 2])

    def _clause(
        self,
        tokens: Sequence[str],
        start: int,
        end: int,
        link: str,
        roles: Mapping[int, str],
        organs: Mapping[int, str],
    ) -> _Clause:
        within = [(k, roles[k]) for k in range(start, end) if k in roles]
        heads = tuple([k for k, role in within if role in ("heads", "stated")])
        changes = tuple([k for k, role in within if role in ("changes", "denied")])
        anchor = (heads or changes or (start,))[0]
        sites = [k for k in range(start, end) if k in organs]
        site = sites[0] if sites else -1
        if len(sites) > 1:
            site = min(sites, key=lambda k: (tokens[k].startswith(self._vague), abs(k - anchor)))
        is_vague = site >= 0 and tokens[site].startswith(self._vague)
        return _Clause(start, end, link, heads, changes, organs.get(site), is_vague)

    def _continues(
        self,
        tokens: Sequence[str],
        clause: _Clause,
        roles: Mapping[int, str],
        has_head: bool,
        is_told: bool,
        organ: str | None,
    ) -> bool:
        """Whether a clause describes or interprets the finding before it, or one of an earlier sentence."""
        if is_told and clause.link == ":" and clause.organ is None:
            return True
        if is_told and (clause.link == "(" or (clause.link in _RELATIVE and (clause.organ is None or not has_head))):
            return True
        # "The pleura is thickened and calcified", "a mass, partly calcified, in the mediastinum"
        if is_told and clause.organ is None and tokens[clause.end - 1].endswith("ed") and len(clause.heads) == 1:
            is_appended = clause.end - clause.start in _APPENDED.get(clause.link, ())
            has_verb = not cue_words("statements", "verbs").isdisjoint(tokens[clause.start : clause.end])
            return is_appended and not has_verb and clause.end - 1 in clause.heads
        opening = range(clause.start, min(clause.end, clause.start + _OPENING))
        is_continuing = any(
            roles.get(i) == "continuing" for i in (opening if has_head else range(clause.start, clause.end))
        )
        return is_continuing and (is_told or organ is None)

    def _signals(
        self, tokens: Sequence[str], clause: _Clause, roles: Mapping[int, str], scope: NegationScope
    ) -> list[int]:
        """Return the tokens that make a clause abnormal; none if it is denied, normal or explained."""
        if not (clause.heads or clause.changes):
            return []
        within = [(i, roles[i]) for i in range(clause.start, clause.end) if i in roles]
        if stated := [i for i, role in within if role == "stated"]:
            return stated
        if any(role == "explained" for _, role in within):
            return []
        signals = [
            i
            for i in sorted((*clause.heads, *clause.changes))
            if roles[i] == "denied" or not self._is_denied(tokens, clause, i, scope)
        ]
        if not any(i in clause.heads for i in signals):
            is_normal = any(role in ("normal", "technical") for _, role in within)
            return [] if is_normal and not any(roles[i] == "denied" for i in signals) else signals
        is_normal = any(role == "normal" and self._is_predicate(tokens, i, clause.start) for i, role in within)
        return [] if is_normal else signals

    def _observed(self, tokens: Sequence[str], clause: _Clause, signals: list[int], is_about: bool) -> list[int]:
        """Return the signals before an interpretation; all of them if it is about nothing that was named before."""
        link = next((i for i in range(clause.start, clause.end) if tokens[i] in self._interpreting), clause.end)
        seen = [i for i in signals if i < link]
        return seen if seen or is_about else signals

    def _is_denied(self, tokens: Sequence[str], clause: _Clause, i: int, scope: NegationScope) -> bool:
        before = tokens[max(clause.start, i - _DENIAL_REACH - 1) : i]
        return not self._denials.isdisjoint(before) or scope.presence(i, i + 1) == ABSENT

    def _is_predicate(self, tokens: Sequence[str], i: int, start: int) -> bool:
        """Whether a word says what something is: "the size of the cyst is normal"."""
        return not {"is", "are", "was", "were"}.isdisjoint(tokens[max(start, i - _PREDICATE_REACH) : i])

    def _content(self, tokens: Sequence[str], clause: _Clause, organs: Mapping[int, str]) -> tuple[str, ...]:
        words = (tokens[i] for i in range(clause.start, clause.end) if i not in organs)
        return tuple(dict.fromkeys(word for word in words if word not in self._stop and word.isalpha()))


def _following_organ(clauses: Sequence[_Clause], roles: Mapping[int, str], named: Collection[int]) -> str | None:
    """Return the organ that the words after a finding name as its place: "lesion, 20 mm, left kidney"."""
    if clauses and clauses[0].link == "and":
        # "Atrophic changes and stones in both kidneys"
        return clauses[0].organ
    for clause in clauses:
        if clause.link != "," or any(i in roles or i in named for i in range(clause.start, clause.end)):
            return None
        if clause.organ is not None:
            return clause.organ
    return None


@cache
def open_statement_reader() -> OpenStatementReader:
    """Return the reader of the words in ``knowledge/open_findings.yaml``, one per process."""
    return OpenStatementReader()
