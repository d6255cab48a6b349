"""The vocabulary of answers: phrases for values, parts of the body, sides and details, and their relations."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import Any

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.modifiers import Modifier
from rrg_rewards.findings.reading.schema_words import Meanings, Numbers, Word, WordBook
from rrg_rewards.utilities.yaml_files import package_yaml

_TOKEN = re.compile(r"[^\W_]+(?:\.\d+)?|[,;/()?.:]")
# Numbered segments of the liver. "Segment IVa" is "segment 4a".
_ROMAN = {name: str(n) for n, name in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"], start=1)}
_SEGMENTS = {text: f"segment {n}" for roman, n in _ROMAN.items() for text in (roman, n)}
_SEGMENTS |= {f"{four}{half}": f"segment 4{half}" for four in ("iv", "4") for half in "ab"}
_SEGMENT = "segment"
_UNITS = frozenset({"mm", "cm", "x"})
_VERTEBRA = re.compile(r"[tlc]\d{1,2}")

# Groups whose values findings have as attributes, in the words of ``knowledge/attributes.yaml``.
_OF_FINDINGS = ("severity", "change")
_PLACES = ("side", "part", "detail")


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
        >>> vocabulary.answer_words("sub-solid nodule")
        [Word(kind='value', name='part-solid', section=0)]
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        # "Mild to moderate" as an answer names both degrees.
        phrases_of_findings = {
            name: {value: [text for text in texts if " to " not in text] for value, texts in phrases.items()}
            for name in _OF_FINDINGS
            for phrases in (load_knowledge("attributes")[name],)
        }
        self.digest = hashlib.sha256(repr((config, phrases_of_findings)).encode()).hexdigest()[:8]
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
        numbers = Numbers(self._is_numbered, _numbered)
        signs = frozenset(self.groups["signs"])
        self.report_words = WordBook(_phrases(config, {}), numbers, signs)
        self._answer_words = WordBook(_phrases(config, phrases_of_findings), numbers, signs)
        self.values = frozenset(value for values in self.groups.values() for value in values)

    def answer_hits(self, tokens: Sequence[str]) -> list[Modifier]:
        """Return the phrases in an answer, in order, also those without a meaning."""
        return self._answer_words.matches(tokens)

    def answer_words(self, text: str) -> list[Word]:
        """Return the words of an answer that state a value or a place."""
        return [word for hit in self.answer_hits(answer_tokens(text)) for _, word in hit.values]

    def _is_numbered(self, word: str) -> bool:
        """Whether a word is a vertebra or can begin a numbered segment."""
        return word == _SEGMENT or (word in self.parts and _VERTEBRA.fullmatch(word) is not None)


def _numbered(tokens: Sequence[str], i: int) -> tuple[int, Meanings] | None:
    """Return the end and the meaning of a vertebra or of a numbered segment, but not of a measure: "segment 5 mm"."""
    if _VERTEBRA.fullmatch(tokens[i]):
        return i + 1, (("place_words", Word("part", tokens[i])),)
    is_measure = tokens[i] != _SEGMENT or not _UNITS.isdisjoint(tokens[i + 2 : i + 3])
    name = None if is_measure else _SEGMENTS.get("".join(tokens[i + 1 : i + 2]))
    return None if name is None else (i + 2, (("place_words", Word("detail", name)),))


def _phrases(config: Mapping[str, Any], of_findings: Mapping[str, Any]) -> list[tuple[str, Meanings]]:
    """Return the phrases of reports or, with those of findings' attributes, of answers, with their meanings."""
    meanings: dict[str, list[tuple[str, Word]]] = {}

    def add(kind: str, name: str, texts: Iterable[str]) -> None:
        for text in texts:
            held = meanings.setdefault(str(text), [])
            meaning = ("place_words" if kind in _PLACES else "words", Word(kind, name))
            if meaning not in held:
                held.append(meaning)

    for side, texts in config["sides"].items():
        add("side", side, texts)
    for kind in ("part", "detail"):
        for name, entry in config[f"{kind}s"].items():
            add(kind, name, entry["phrases"])
    for group, entry in config["groups"].items():
        if entry.get("in_answers") and not of_findings:
            continue
        for value, texts in entry["values"].items():
            add("value", value, [*texts, *of_findings.get(group, {}).get(value, ())])
    meanings.update((text, []) for text in config["ignored"])
    return [(text.lower().replace("-", " "), tuple(held)) for text, held in meanings.items()]


@cache
def answer_vocabulary() -> AnswerVocabulary:
    """Return the vocabulary in ``questions/vocabulary.yaml``, loaded once per process."""
    return AnswerVocabulary(package_yaml("rrg_rewards.questions", "vocabulary"))
