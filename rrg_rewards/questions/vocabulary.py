"""The vocabulary of answers: phrases for values, parts of the body, sides and details, and their relations."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, compress
from typing import Any, NamedTuple

from rrg_rewards.findings.reading.phrases import PhraseBook, WordTable
from rrg_rewards.utilities.yaml_files import package_yaml

_TOKEN = re.compile(r"[^\W_]+(?:\.\d+)?|[,;/()?.:]")
# Numbered segments of the liver. "Segment IVa" is "segment 4a".
_ROMAN = {name: str(n) for n, name in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"], start=1)}
_SEGMENTS = {text: f"segment {n}" for roman, n in _ROMAN.items() for text in (roman, n)}
_SEGMENTS |= {f"{four}{half}": f"segment 4{half}" for four in ("iv", "4") for half in "ab"}
_SEGMENT = "segment"
_UNITS = frozenset({"mm", "cm", "x"})
_VERTEBRA = re.compile(r"[tlc]\d{1,2}")

Meanings = tuple[tuple[str, str], ...]
"""The meanings of a phrase, each a kind (``side``, ``part``, ``detail`` or ``value``) and a name."""


class Hit(NamedTuple):
    """Tokens ``start`` to ``end`` that form a phrase, and the meanings of the phrase."""

    start: int
    end: int
    meanings: Meanings


@dataclass(frozen=True, slots=True)
class PartWords:
    """A part of the body: the part that contains it, and its side if it exists on one side only."""

    parent: str | None
    side: str | None


def answer_tokens(text: str) -> list[str]:
    """Return the words, numbers and punctuation of a text in lower case. Hyphens are treated as spaces.

    Example:
        >>> answer_tokens("Part-solid, 2.5 mm")
        ['part', 'solid', ',', '2.5', 'mm']
    """
    return _TOKEN.findall(text.lower())


def _numbered_segment(tokens: Sequence[str], i: int) -> str | None:
    """Return the name of a numbered segment, or None if the number is a measure: "segment 5 mm"."""
    if tokens[i] != _SEGMENT or not _UNITS.isdisjoint(tokens[i + 2 : i + 3]):
        return None
    return _SEGMENTS.get(tokens[i + 1]) if i + 1 < len(tokens) else None


def _closure(relation: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return the transitive closure of a relation."""
    closure: dict[str, frozenset[str]] = {}

    def reached(name: str) -> frozenset[str]:
        if name not in closure:
            closure[name] = frozenset()
            direct = relation.get(name, ())
            closure[name] = frozenset(direct).union(*map(reached, direct))
        return closure[name]

    for name in relation:
        reached(name)
    return closure


def _pairs(groups: Iterable[Iterable[str]]) -> frozenset[tuple[str, str]]:
    ordered = [pair for group in groups for pair in combinations(tuple(group), 2)]
    return frozenset(ordered + [(second, first) for first, second in ordered])


class AnswerVocabulary:
    """Values, sides, parts of the body and details of places, with their phrases and relations.

    Args:
        config: Contents of ``questions/vocabulary.yaml``.

    Attributes:
        digest: Short hash of the contents, for signatures.

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
        self.lobes = frozenset((side, lobe) for side, lobes in config["lobes"].items() for lobe in lobes)
        self.vacuous_bounds = {
            kind: (Fraction(bounds["below"]), Fraction(bounds["above"]))
            for kind, bounds in config["vacuous_bounds"].items()
        }
        self.noise = frozenset(config["noise"].split())
        self.answers = {kind: frozenset(config[kind]) for kind in ("affirmed", "denied", "doubted", "unanswered")}
        self._phrases = PhraseBook(_phrases(config), boundary=",|;|:|.")
        self._numbered = WordTable(self._is_numbered)
        self.values = frozenset(value for values in self.groups.values() for value in values)

    def hits(self, tokens: Sequence[str]) -> list[Hit]:
        """Return the phrases among tokens, in order. If several phrases start at a token, the longest is returned."""
        hits, end = [], 0
        phrases = self._phrases.matches(tokens)
        numbered = list(compress(range(len(tokens)), map(self._numbered.__getitem__, tokens)))
        for i in sorted({*phrases, *numbered}) if numbered else phrases:
            if i < end:
                continue
            if i in phrases:
                hit = Hit(i, *phrases[i])
            elif tokens[i] != _SEGMENT:
                hit = Hit(i, i + 1, (("part", tokens[i]),))
            elif name := _numbered_segment(tokens, i):
                hit = Hit(i, i + 2, (("detail", name),))
            else:
                continue
            hits.append(hit)
            end = hit.end
        return hits

    def _is_numbered(self, word: str) -> bool:
        """Whether a word is a vertebra or can begin a numbered segment."""
        return word == _SEGMENT or (word in self.parts and _VERTEBRA.fullmatch(word) is not None)


def _phrases(config: Mapping[str, Any]) -> list[tuple[str, Meanings]]:
    """Return all phrases with their meanings."""
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
    return [(text.lower().replace("-", " "), tuple(held)) for text, held in meanings.items()]


@cache
def answer_vocabulary() -> AnswerVocabulary:
    """Return the vocabulary in ``questions/vocabulary.yaml``, loaded once per process."""
    return AnswerVocabulary(package_yaml("rrg_rewards.questions", "vocabulary"))
