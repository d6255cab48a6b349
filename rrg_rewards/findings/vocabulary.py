"""Lexicon YAML compiled to bit masks: what each word can be, and which phrases name a concept."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import yaml

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["CUES", "Lexicon", "Rule", "Words", "load_lexicon"]

_PACKAGE = "rrg_rewards.findings.lexicon"
_SHARED = "cues"
# Roles a word can play in scoping, in the order of their bits; `cues.yaml` says which words play them.
CUES = (
    *("boundary", "comma", "joint", "verb", "predicate", "be", "have", "exist", "show", "relative"),
    *("not", "none", "ended", "history", "former", "current", "other", "open", "doubt", "query"),
)
# The words remembered are capped, as numbers and misspellings never end.
_MAX_WORDS = 50_000


Phrase = TypeVar("Phrase", "Compound", "Rule")


class Starts(dict[int, tuple[Phrase, ...]]):
    """Which phrases can start at a word, by the word's bits, worked out when the bits are first met."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        super().__init__()
        self.phrases: tuple[Phrase, ...] = tuple(phrases)
        self.heads = _union(phrase.first for phrase in self.phrases)
        self._words = sorted({phrase.words for phrase in self.phrases})
        self.bits = _union(self._words)
        self._possible: dict[int, bool] = {}

    def possible(self, union: int) -> bool:
        """Whether a sentence whose words have the bits ``union`` can hold one of the phrases."""
        bits = union & self.bits
        found = self._possible.get(bits)
        if found is None:
            found = False
            for words in self._words:
                if words & bits == words:
                    found = True
                    break
            if len(self._possible) < _MAX_WORDS:
                self._possible[bits] = found
        return found

    def __missing__(self, code: int) -> tuple[Phrase, ...]:
        self[code] = found = tuple(phrase for phrase in self.phrases if phrase.first & code)
        return found


class Words(dict[str, int]):
    """What each word can be, as a bit mask, worked out when the word is first met."""

    def __init__(self) -> None:
        super().__init__()
        self.exact: dict[str, int] = {}
        # Stems by their first two letters, as most words share no stem's.
        self.stems: dict[str, list[tuple[str, int]]] = {}

    def add(self, word: str, bit: int) -> None:
        """Give ``word``, or with a trailing ``*`` all words that start with it, one more meaning."""
        if word.endswith("*"):
            self.stems.setdefault(word[:2], []).append((word[:-1], bit))
        else:
            self.exact[word] = self.exact.get(word, 0) | bit

    def __missing__(self, word: str) -> int:
        code = self.exact.get(word, 0)
        for stem, bit in self.stems.get(word[:2], ()):
            if word.startswith(stem):
                code |= bit
        if len(self) < _MAX_WORDS:
            self[word] = code
        return code


@dataclass(frozen=True, slots=True)
class Compound:
    """A phrase that is read as one other word.

    Args:
        first: Bits of the phrase's first word.
        rest: For each further word, its bits and how many words may stand before it.
        meaning: The word that it is read as.
        words: All bits that a sentence must have for the phrase to occur.
    """

    first: int
    rest: tuple[tuple[int, int], ...]
    meaning: str
    words: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A phrase that names a concept where its surroundings allow.

    Args:
        concept: Index of the concept.
        first: Bits of the phrase's first word.
        rest: For each further word, its bits and how many words may stand before it; negative if commas may.
        needs: Bits that must all occur in the clause, each a choice of words.
        bars: Bits none of which may occur in the clause.
        at: Site bits one of which must be the nearest site, or 0.
        not_at: Site bits none of which may be the nearest site.
        not_next: Bits none of which may occur in the two words after the phrase.
        not_previous: Bits none of which may occur in the two words before the phrase.
        wide: Whether ``needs`` and ``bars`` look at the sentence instead of the clause.
        absent: Whether the phrase itself says that the finding is not there.
        words: All bits that a sentence must have for the rule to apply.
        cares: Bits without which in the sentence nothing around the phrase matters.
    """

    concept: int
    first: int
    rest: tuple[tuple[int, int], ...]
    needs: int = 0
    bars: int = 0
    at: int = 0
    not_at: int = 0
    not_next: int = 0
    not_previous: int = 0
    wide: bool = False
    absent: bool = False
    words: int = 0
    cares: int = 0


@dataclass(frozen=True)
class Lexicon:
    """A compiled lexicon; :func:`load_lexicon` makes it.

    Args:
        name: Name of the lexicon's file.
        digest: Short hash of its contents.
        concepts: Concept identifiers; positions are the indices used by rules and bit masks.
        labels: For each label its concepts, where the lexicon has labels.
        words: Meanings of words.
        compounds: Phrases that are read as one other word.
        rules: Phrases that name concepts.
        sites: Mask of all site bits.
        exclusive: Whether a word names one finding only, so that of overlapping phrases one counts.
    """

    name: str
    digest: str
    concepts: tuple[str, ...]
    labels: dict[str, tuple[str, ...]]
    words: Words
    compounds: Starts[Compound]
    rules: Starts[Rule]
    sites: int
    exclusive: bool


class _Compiler:
    """Turns the word choices of a lexicon into bits, one bit for each different choice."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self.groups = groups
        self.words = Words()
        self.bits: dict[frozenset[str], int] = {}

    def bit(self, choice: str) -> int:
        """Bit of a choice written ``word|stem*|{group}``."""
        members = frozenset(self._members(choice))
        if members not in self.bits:
            self.bits[members] = bit = 1 << len(self.bits)
            for word in members:
                self.words.add(word, bit)
        return self.bits[members]

    def _members(self, choice: str) -> Iterable[str]:
        for part in choice.split("|"):
            if part.startswith("{"):
                yield from self._members(self.groups[part[1:-1]].replace(" ", "|"))
            else:
                yield part

    def phrase(self, text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Bits of a phrase's words; ``<n>`` lets up to ``n`` words stand between two, ``<n,>`` commas too."""
        steps: list[tuple[int, int]] = []
        gap = 0
        for part in text.split():
            if part.startswith("<"):
                # Kept with its sign: a negative gap may hold commas.
                gap = -int(part[1:-2]) if part.endswith(",>") else int(part[1:-1])
            else:
                steps.append((self.bit(part), gap))
                gap = 0
        return steps[0][0], tuple(steps[1:])

    def compound(self, phrase: str, meaning: str) -> Compound:
        """A phrase that is read as the word ``meaning``."""
        first, rest = self.phrase(phrase)
        return Compound(first, rest, meaning, first | _union(bit for bit, _ in rest))

    def any_of(self, choices: Iterable[str]) -> int:
        """Union of the bits of some choices."""
        return _union(map(self.bit, choices))


def _compile_rule(compiler: _Compiler, sites: Mapping[str, str], concept: int, entry: str | dict[str, Any]) -> Rule:
    fields: dict[str, Any] = {"phrase": entry} if isinstance(entry, str) else entry
    first, rest = compiler.phrase(fields["phrase"])
    words = first | _union(bit for bit, _ in rest)
    choices = {key: compiler.any_of(fields.get(key, ())) for key in ("with", "without", "not_next", "not_previous")}
    places = {
        key: compiler.any_of("|".join(sites[site].split()) for site in fields.get(key, ())) for key in ("at", "not_at")
    }
    return Rule(
        concept=concept,
        first=first,
        rest=rest,
        needs=choices["with"],
        bars=choices["without"],
        at=places["at"],
        not_at=places["not_at"],
        not_next=choices["not_next"],
        not_previous=choices["not_previous"],
        wide=fields.get("scope") == "sentence",
        absent=fields.get("says") == "absent",
        words=words | choices["with"],
        # A rule that wants a place must look even where no place is named.
        cares=_union([*choices.values(), *places.values(), words if places["at"] else 0]),
    )


def _union(bits: Iterable[int]) -> int:
    mask = 0
    for bit in bits:
        mask |= bit
    return mask


def _read(name: str) -> tuple[dict[str, Any], bytes]:
    content = (files(_PACKAGE) / f"{name}.yaml").read_bytes()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(content, Loader=loader), content


def _names() -> list[str]:
    stems = (path.name.removesuffix(".yaml") for path in files(_PACKAGE).iterdir() if path.name.endswith(".yaml"))
    return sorted(stem for stem in stems if stem != _SHARED)


@cache
def load_lexicon(name: str) -> Lexicon:
    """Read and compile a lexicon, once per process.

    Args:
        name: Name of a file in ``rrg_rewards/findings/lexicon`` without its ending.

    Raises:
        ValueError: For an unknown name, with the nearest known one.

    Example:
        >>> "pleural_effusion" in load_lexicon("chest_ct").concepts
        True
    """
    if name not in _names():
        raise ValueError(unknown_name_message("lexicon", name, _names()))
    shared, shared_content = _read(_SHARED)
    own, own_content = _read(name)
    sites: dict[str, str] = own.get("sites", {})
    compiler = _Compiler({**shared.get("groups", {}), **own.get("groups", {})})
    for cue in CUES:
        compiler.bit("|".join(shared["cues"][cue].split()))
    concepts = tuple(own["concepts"])
    compounds = [
        compiler.compound(phrase, meaning)
        for meaning, phrases in [*shared["compounds"].items(), *own.get("compounds", {}).items()]
        for phrase in phrases
    ]
    rules = [
        _compile_rule(compiler, sites, index, entry)
        for index, concept in enumerate(concepts)
        for entry in own["concepts"][concept]
    ]
    return Lexicon(
        name=name,
        digest=hashlib.sha256(shared_content + own_content).hexdigest()[:8],
        concepts=concepts,
        labels={label: tuple(members) for label, members in own.get("labels", {}).items()},
        words=compiler.words,
        # Longer phrases first: "no significant change" must be read before "no".
        compounds=Starts(sorted(compounds, key=lambda compound: -len(compound.rest))),
        rules=Starts(rules),
        sites=compiler.any_of("|".join(words.split()) for words in sites.values()),
        exclusive=own.get("exclusive", False),
    )
