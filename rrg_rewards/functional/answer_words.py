"""The words of answers: which phrases mean which value, part of the body or side, read from the answer vocabulary."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any, NamedTuple

import yaml

__all__ = ["AnswerVocabulary", "Hit", "PartWords", "answer_tokens", "answer_vocabulary"]

_TOKEN = re.compile(r"[^\W_]+(?:\.\d+)?|[,;/()?.:]")
# The words remembered are capped, as numbers and misspellings never end.
_MAX_STARTS = 20_000
# Segments by number, as those of the liver: "segment IVa" is "segment 4a".
_ROMAN = {name: str(n) for n, name in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"], start=1)}
_SEGMENTS = {text: f"segment {n}" for roman, n in _ROMAN.items() for text in (roman, n)}
_SEGMENTS |= {f"{four}{half}": f"segment 4{half}" for four in ("iv", "4") for half in "ab"}
_UNITS = frozenset({"mm", "cm", "x"})
_VERTEBRA = re.compile(r"[tlc]\d{1,2}")


class Hit(NamedTuple):
    """Tokens ``start`` to ``end`` and the meanings of their phrase, each a kind and a name."""

    start: int
    end: int
    meanings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PartWords:
    """A part of the body: the part that it belongs to, and the side that it has by itself."""

    parent: str | None
    side: str | None


@dataclass(frozen=True, slots=True)
class _Phrase:
    """For each word its exact forms, its stems, and how many words may stand before it."""

    words: tuple[tuple[frozenset[str], tuple[str, ...], int], ...]
    meanings: tuple[tuple[str, str], ...]

    def end(self, tokens: Sequence[str], start: int) -> int:
        """Token after the phrase that starts at ``start``, or 0."""
        position = start
        for exact, stems, gap in self.words:
            for place in range(position, min(len(tokens), position + gap + 1)):
                token = tokens[place]
                if token in exact or (stems and token.startswith(stems)):
                    position = place + 1
                    break
                if token in ",;:.":
                    return 0
            else:
                return 0
        return position


def answer_tokens(text: str) -> list[str]:
    """Words, numbers and what parts them, in lower case; hyphens are spaces.

    Example:
        >>> answer_tokens("Part-solid, 2.5 mm")
        ['part', 'solid', ',', '2.5', 'mm']
    """
    return _TOKEN.findall(text.lower())


def _compile(text: str, meanings: tuple[tuple[str, str], ...]) -> _Phrase:
    words, gap = [], 0
    for part in text.lower().replace("-", " ").split():
        if part.startswith("<"):
            gap = int(part[1:-1])
            continue
        choices = part.split("|")
        exact = frozenset(choice for choice in choices if not choice.endswith("*"))
        words.append((exact, tuple(choice[:-1] for choice in choices if choice.endswith("*")), gap))
        gap = 0
    return _Phrase(tuple(words), meanings)


def _numbered_segment(tokens: Sequence[str], i: int) -> str | None:
    """Name of a segment that is told by its number, unless the number is a measure: "segment 5 mm"."""
    if tokens[i] != "segment" or not _UNITS.isdisjoint(tokens[i + 2 : i + 3]):
        return None
    return _SEGMENTS.get(tokens[i + 1]) if i + 1 < len(tokens) else None


def _closure(relation: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """For each name all that it leads to, over any number of steps."""
    found: dict[str, frozenset[str]] = {}

    def reached(name: str) -> frozenset[str]:
        if name not in found:
            found[name] = frozenset()
            direct = relation.get(name, ())
            found[name] = frozenset(direct).union(*map(reached, direct))
        return found[name]

    for name in relation:
        reached(name)
    return found


def _pairs(groups: Iterable[Iterable[str]]) -> frozenset[tuple[str, str]]:
    ordered = [pair for group in groups for pair in combinations(tuple(group), 2)]
    return frozenset(ordered + [(second, first) for first, second in ordered])


class AnswerVocabulary:
    """Values, parts of the body, sides and details of places, with their phrases and relations.

    Args:
        config: Contents of ``schemas/answer_vocabulary.yaml``, which explains itself.

    Attributes:
        digest: Short hash of all that it says, for signatures.

    Example:
        >>> vocabulary = answer_vocabulary()
        >>> [hit.meanings for hit in vocabulary.hits(["sub", "solid", "nodule"])]
        [(('value', 'part-solid'),)]
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.digest = hashlib.sha256(repr(config).encode()).hexdigest()[:8]
        groups: Mapping[str, Any] = config["groups"]
        self.groups = {name: tuple(group["values"]) for name, group in groups.items()}
        self.broader = _closure(config["broader"])
        self.near = _pairs(config["near"])
        opposed = [*config["opposed"], *(group["values"] for group in groups.values() if group.get("exclusive"))]
        self.opposed = frozenset(
            (one, other)
            for one, other in _pairs(opposed)
            if other not in self.broader.get(one, ()) and one not in self.broader.get(other, ())
        )
        self.parts = {name: PartWords(part.get("in"), part.get("side")) for name, part in config["parts"].items()}
        self.within = _closure({name: [part.parent] if part.parent else [] for name, part in self.parts.items()})
        spines = {"t": "thoracic spine", "l": "lumbar spine", "c": "cervical spine"}
        for letter, spine in spines.items():
            for level in range(1, 13):
                self.parts[f"{letter}{level}"] = PartWords(spine, None)
                self.within[f"{letter}{level}"] = frozenset({spine, "spine"})
        self.midline = frozenset(" ".join(config["midline"].split()).split(", "))
        details: Mapping[str, Any] = config["details"]
        self.implied = {name: detail["implies"] for name, detail in details.items() if "implies" in detail}
        self.wider_details = _closure({name: detail.get("of", ()) for name, detail in details.items()})
        self.wider_details |= {name: frozenset() for name in _SEGMENTS.values()}
        self.wider_details |= {f"segment 4{half}": frozenset({"segment 4"}) for half in "ab"}
        whole = [name for name in dict.fromkeys(_SEGMENTS.values()) if name[-1].isdigit()]
        self.opposed_details = _pairs([*config["exclusive_details"], whole, ["segment 4a", "segment 4b"]])
        self.noise = frozenset(config["noise"].split())
        self.answers = {kind: frozenset(config[kind]) for kind in ("affirmed", "denied", "doubted", "unanswered")}
        self._phrases = _by_letter(_phrases(config))
        self._starts: dict[str, tuple[_Phrase, ...]] = {}
        self.values = frozenset(value for values in self.groups.values() for value in values)

    def _starting_with(self, token: str) -> tuple[_Phrase, ...]:
        found = self._starts.get(token)
        if found is None:
            found = tuple(
                phrase
                for phrase in self._phrases.get(token[0], ())
                if token in phrase.words[0][0] or (phrase.words[0][1] and token.startswith(phrase.words[0][1]))
            )
            if len(self._starts) < _MAX_STARTS:
                self._starts[token] = found
        return found

    def hits(self, tokens: Sequence[str]) -> list[Hit]:
        """Phrases of the vocabulary among tokens, in order; of those that start at a token the longest."""
        found, i = [], 0
        while i < len(tokens):
            for phrase in self._starting_with(tokens[i]):
                end = phrase.end(tokens, i)
                if end:
                    found.append(Hit(i, end, phrase.meanings))
                    i = end
                    break
            else:
                end = i + 1
                if tokens[i] in self.parts and _VERTEBRA.fullmatch(tokens[i]):
                    found.append(Hit(i, end, (("part", tokens[i]),)))
                elif name := _numbered_segment(tokens, i):
                    end = i + 2
                    found.append(Hit(i, end, (("detail", name),)))
                i = end
        return found


def _phrases(config: Mapping[str, Any]) -> list[_Phrase]:
    """All phrases, longer ones first; one that several things share has all their meanings."""
    meanings: dict[str, list[tuple[str, str]]] = {}

    def add(kind: str, name: str, texts: Iterable[str]) -> None:
        for text in texts:
            held = meanings.setdefault(str(text), [])
            if (kind, name) not in held:
                held.append((kind, name))

    for side, texts in config["sides"].items():
        add("side", side, texts)
    for kind in ("part", "detail"):
        for name, entry in config[f"{kind}s"].items():
            add(kind, name, entry["phrases"])
    for group in config["groups"].values():
        for value, texts in group["values"].items():
            add("value", value, texts)
    extra = {"biapical": "both", "bibasilar": "both", "bibasal": "both", "bihilar": "both", "retrocardiac": "left"}
    extra |= {"rul": "right", "rml": "right", "rll": "right", "lul": "left", "lll": "left"}
    for text, side in extra.items():
        add("side", side, [text])
    meanings.update((text, []) for text in config["ignored"])
    phrases = [_compile(text, tuple(held)) for text, held in meanings.items()]
    return sorted(phrases, key=lambda phrase: -len(phrase.words))


def _by_letter(phrases: Iterable[_Phrase]) -> dict[str, list[_Phrase]]:
    """Phrases by the letters that their first words may begin with, in the same order."""
    found: dict[str, list[_Phrase]] = {}
    for phrase in phrases:
        exact, stems, _ = phrase.words[0]
        for letter in {choice[0] for choice in (*exact, *stems)}:
            found.setdefault(letter, []).append(phrase)
    return found


@cache
def answer_vocabulary() -> AnswerVocabulary:
    """The package's own vocabulary, one per process."""
    content = (files("rrg_rewards.schemas") / "answer_vocabulary.yaml").read_bytes()
    return AnswerVocabulary(yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
