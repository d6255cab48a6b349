"""Find statements that are abnormal although they name no concept of the lexicon."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.attributes import attribute_reader
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT, UNCERTAIN, NegationScope
from rrg_rewards.findings.reading.phrases import PhraseBook

_SIGNALS = frozenset({"heads", "changes", "stated", "denied"})
_ROLES = ("stated", "neutral", "explained", "technical", "continuing", "heads", "changes", "normal")
# Maximum number of words between a denial and the word that it denies: "not very clear".
_DENIAL_REACH = 2
# Maximum number of words between a form of "be" and "normal", as in "the size of the cyst is normal".
_PREDICATE_REACH = 3
_BEING = frozenset({"is", "are", "was", "were"})
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
        link: The separator before it.
        tokens: Its tokens.
        roles: Tokens that have a role, with their roles.
        heads: Tokens that name an abnormality.
        changes: Tokens that describe an organ as abnormal.
        organ: The organ that it names nearest to these words, or ``None``.
        is_vague: Whether the word for the organ names a part of several organs.
    """

    start: int
    link: str
    tokens: Sequence[str]
    roles: list[tuple[int, str]]
    heads: tuple[int, ...]
    changes: tuple[int, ...]
    organ: str | None
    is_vague: bool

    @property
    def span(self) -> range:
        """Indices of its tokens in the sentence."""
        return range(self.start, self.start + len(self.tokens))

    def before(self, i: int, reach: int) -> Sequence[str]:
        """Return its words before a token of the sentence, as many as the reach."""
        return self.tokens[max(0, i - self.start - reach) : i - self.start]


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
        self._verbs = cue_words("statements", "verbs")
        self._adjectives = cue_words("adjectives", "descriptive")
        links = attribute_reader().links
        self._interpreting = frozenset(word for word in links if links[word] != "alternative")

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
            is_denied = (is_denied and clause.link in _ALTERNATIVE) or not self._denials.isdisjoint(clause.tokens)
            is_told = is_told and (clause.organ in (None, organ) or organ is None or clause.link in _RELATIVE)
            organ = organ if clause.is_vague and organ else clause.organ or organ
            subject = clause.start if clause.organ else subject
            if not named.isdisjoint(clause.span):
                is_told = True
                continue
            # "No dilatation or increase in diameter"
            signals = [] if is_denied and clause.link in _ALTERNATIVE else self._signals(clause, scope)
            if not signals:
                continue
            signals = self._observed(clause, signals, is_told or organ is None)
            has_head = any(i in clause.heads for i in signals)
            if not signals or self._continues(clause, has_head, is_told, organ):
                continue
            if has_head and organ is None:
                organ = _following_organ(clauses[place + 1 :], named)
            if clause.organ is None and not has_head and (is_told or organ is None):
                continue
            stated = OpenStatement(
                signals[0],
                signals[-1] + 1,
                UNCERTAIN if scope.presence(signals[0], signals[0] + 1) == UNCERTAIN else PRESENT,
                organ,
                # "The gallbladder was not observed"
                ("absent",) if roles[signals[0]] == "stated" else self._content(clause, organs),
                has_head,
                tuple(tokens[i] for i in signals),
                tuple(clause.tokens),
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
        for i, token in enumerate([*tokens, ""]):
            if token and not self._is_separator(tokens, i):
                continue
            if i > start:
                clauses.append(self._clause(start, link, tokens[start:i], roles, organs))
            start = i + 1
            link = link if link == "(" and token != ")" else token
        return clauses

    def _is_separator(self, tokens: Sequence[str], i: int) -> bool:
        """Whether a token ends a clause, as "with" does, but not in "consistent with"."""
        token = tokens[i]
        if token not in self._separators or (token == "with" and tokens[i - 1] in self._interpreting):
            return False
        # "Punctate and patchy hypodensities"
        is_joint = token in _COORDINATING and self._adjectives.issuperset(tokens[i + 1 : i + 2])
        return not (is_joint and i and tokens[i - 1] in self._adjectives)

    def _clause(
        self, start: int, link: str, tokens: Sequence[str], roles: Mapping[int, str], organs: Mapping[int, str]
    ) -> _Clause:
        span = range(start, start + len(tokens))
        within = [(i, roles[i]) for i in span if i in roles]
        heads = tuple([i for i, role in within if role in ("heads", "stated")])
        changes = tuple([i for i, role in within if role in ("changes", "denied")])
        anchor = (heads or changes or (start,))[0]
        # Of several words for organs, the nearest one that is not vague.
        sites = [(tokens[i - start].startswith(self._vague), abs(i - anchor), i) for i in span if i in organs]
        is_vague, _, site = min(sites, default=(False, 0, -1))
        return _Clause(start, link, tokens, within, heads, changes, organs.get(site), is_vague)

    def _continues(self, clause: _Clause, has_head: bool, is_told: bool, organ: str | None) -> bool:
        """Whether a clause describes or interprets the finding before it, or one of an earlier sentence."""
        link, is_placed = clause.link, clause.organ is not None
        is_relative = link in _RELATIVE and not (is_placed and has_head)
        if is_told and (link == "(" or is_relative or (link == ":" and not is_placed)):
            return True
        # "The pleura is thickened and calcified", "a mass, partly calcified, in the mediastinum"
        if is_told and not is_placed and clause.tokens[-1].endswith("ed") and len(clause.heads) == 1:
            is_appended = len(clause.tokens) in _APPENDED.get(link, ())
            return is_appended and self._verbs.isdisjoint(clause.tokens) and clause.span[-1] in clause.heads
        reach = clause.start + (_OPENING if has_head else len(clause.tokens))
        is_continuing = any(role == "continuing" and i < reach for i, role in clause.roles)
        return is_continuing and (is_told or organ is None)

    def _signals(self, clause: _Clause, scope: NegationScope) -> list[int]:
        """Return the tokens that make a clause abnormal; none if it is denied, normal or explained."""
        if stated := [i for i, role in clause.roles if role == "stated"]:
            return stated
        if any(role == "explained" for _, role in clause.roles):
            return []
        signals = [i for i, role in clause.roles if self._is_signal(clause, i, role, scope)]
        if not any(i in clause.heads for i in signals):
            is_normal = any(role in ("normal", "technical") for _, role in clause.roles)
            return [] if is_normal and not any((i, "denied") in clause.roles for i in signals) else signals
        # "The size of the cyst is normal"
        normal = (i for i, role in clause.roles if role == "normal")
        return [] if any(not _BEING.isdisjoint(clause.before(i, _PREDICATE_REACH)) for i in normal) else signals

    def _observed(self, clause: _Clause, signals: list[int], is_about: bool) -> list[int]:
        """Return the signals before an interpretation; all of them if it is about nothing that was named before."""
        link = next((i for i, token in enumerate(clause.tokens, clause.start) if token in self._interpreting), None)
        seen = signals if link is None else [i for i in signals if i < link]
        return seen if seen or is_about else signals

    def _is_signal(self, clause: _Clause, i: int, role: str, scope: NegationScope) -> bool:
        """Whether a token makes a clause abnormal: a normal word that is denied, or another signal that is not."""
        if role == "denied" or role not in _SIGNALS:
            return role == "denied"
        return self._denials.isdisjoint(clause.before(i, _DENIAL_REACH + 1)) and scope.presence(i, i + 1) != ABSENT

    def _content(self, clause: _Clause, organs: Mapping[int, str]) -> tuple[str, ...]:
        words = (word for i, word in enumerate(clause.tokens, clause.start) if i not in organs)
        return tuple(dict.fromkeys(word for word in words if word not in self._stop and word.isalpha()))


def _following_organ(clauses: Sequence[_Clause], named: AbstractSet[int]) -> str | None:
    """Return the organ that the words after a finding name as its place: "lesion, 20 mm, left kidney"."""
    if clauses and clauses[0].link == "and":
        # "Atrophic changes and stones in both kidneys"
        return clauses[0].organ
    for clause in clauses:
        if clause.link != "," or clause.roles or not named.isdisjoint(clause.span):
            return None
        if clause.organ is not None:
            return clause.organ
    return None


@cache
def open_statement_reader() -> OpenStatementReader:
    """Return the reader of the words in ``knowledge/open_findings.yaml``, one per process."""
    return OpenStatementReader()
