"""Classes of words that say the same of an organ, and the concepts that they make together with the organ."""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.phrases import WordBits, union
from rrg_rewards.utilities.yaml_files import package_yaml

# Two words that have no class in ``knowledge/wordings.yaml`` are equal in these first letters without an ending.
_STEM, _ENDING = 6, re.compile("(?:ing|ed|ions?|e?s)$")


class Wording(NamedTuple):
    """What some words say.

    Attributes:
        heads: One bit for each of the ``heads`` in ``wordings.yaml`` that the words say; see :func:`_head_bits`.
        stems: Stems of the words that no class contains.
        is_general: Whether a word can stand for any lesion.
    """

    heads: int
    stems: frozenset[str]
    is_general: bool


class _Classes(NamedTuple):
    """The compiled classes of words.

    Attributes:
        words: Codes of words: a bit for each class.
        bits: The bit of each class.
        heads: Union of the bits of all heads.
        combinations: Bits of an amount and of a quantity, and the bit of the head that they make together.
        amounts: The bit of each amount, and of the head that it is without a quantity.
    """

    words: WordBits
    bits: dict[str, int]
    heads: int
    combinations: tuple[tuple[int, int, int], ...]
    amounts: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1 << 14)
def wording(words: tuple[str, ...]) -> Wording:
    """Return what some words say.

    Example:
        >>> wording(("increased", "caliber")).heads == wording(("dilated",)).heads == _head_bits("large")
        True
    """
    table = _classes()
    codes = [table.words[word] for word in words]
    said = union(codes)
    combined = union(head for amount, quantity, head in table.combinations if said & amount and said & quantity)
    return Wording(
        said & table.heads | (combined or union(head for amount, head in table.amounts if said & amount)),
        frozenset(_ENDING.sub("", word)[:_STEM] for word, code in zip(words, codes, strict=True) if not code),
        bool(said & table.bits["general"]),
    )


def _quantities(words: Iterable[str]) -> list[str]:
    """Return the words that name a quantity."""
    table = _classes()
    named = union(quantity for _, quantity, _ in table.combinations)
    return [word for word in words if table.words[word] & named]


def _head_bits(*names: str) -> int:
    """Return the union of the bits of some heads."""
    return union(_classes().bits[name] for name in names)


@cache
def lesion_bits() -> int:
    """Return the bits of the heads that a general word is wider than."""
    return _head_bits(*load_knowledge("wordings")["lesions"])


@cache
def opposite_bits() -> Sequence[tuple[int, int]]:
    """Return the bits of each two heads that contradict each other."""
    return tuple((_head_bits(first), _head_bits(second)) for first, second in load_knowledge("wordings")["opposites"])


@cache
def _classes() -> _Classes:
    rules = load_knowledge("wordings")
    sites = package_yaml("rrg_rewards.findings.lexicon", "chest")["sites"].values()
    named = [word for site in sites for word in site.split() if not word.startswith("~")]
    members: dict[str, Iterable[str]] = {
        **rules["heads"],
        **{name: amount["words"] for name, amount in rules["amounts"].items()},
        **{quantity["words"][0]: quantity["words"] for quantity in rules["quantities"]},
        **{name: rules[name] for name in ("general", "focal")},
        "places": [*rules["places"], *named],
    }
    bits = {name: 1 << i for i, name in enumerate(members)}
    return _Classes(
        WordBits((word, bits[name]) for name, words in members.items() for word in words),
        bits,
        union(bits[name] for name in rules["heads"]),
        tuple(
            (bits[amount], bits[quantity["words"][0]], bits[quantity[amount]])
            for quantity in rules["quantities"]
            for amount in rules["amounts"]
        ),
        tuple((bits[name], bits[amount["alone"]]) for name, amount in rules["amounts"].items()),
    )


class _Composition(NamedTuple):
    """A rule of ``knowledge/compositions.yaml``: bits of heads and of words."""

    heads: int
    part: int
    unless: int
    concept: str


def composed_concept(
    organ: str | None, signals: Sequence[str], clause: Sequence[str], subject: Sequence[str] = ()
) -> str | None:
    """Return the concept that the words of a statement about an organ name, or ``None``.

    Args:
        organ: The organ that the statement is about.
        signals: The words that make the statement abnormal.
        clause: All words of its clause.
        subject: Words of the clauses before, from the one that names the organ.

    Example:
        >>> composed_concept("aorta", ["increased"], "arch is of increased caliber".split())
        'aortic_aneurysm'
        >>> words = ["dilated"]
        >>> composed_concept("kidney", words, words, ["collecting", "system"]), composed_concept("kidney", words, words)
        ('hydronephrosis', None)
    """
    rules = _compositions().get(organ)
    if not rules:
        return None
    named = _quantities(clause) or _quantities(subject)
    focal = union(_classes().words[word] for word in clause) & _head_bits("focal")
    heads = wording((*signals, *named)).heads | focal
    words = union(_parts()[word] for word in (*clause, *subject))
    for said, part, unless, concept in rules:
        if heads & said == said and not words & unless and (not part or words & part):
            return concept
    return None


@cache
def _parts() -> WordBits:
    """Return the words of all conditions, with one bit for each word of the file."""
    return WordBits(_bits().items())


@cache
def _bits() -> dict[str, int]:
    rules = [rule for rules in load_knowledge("compositions").values() for rule in rules]
    named = dict.fromkeys(word for rule in rules for key in ("part", "unless") for word in rule.get(key, ()))
    return {word: 1 << i for i, word in enumerate(named)}


@cache
def _compositions() -> dict[str | None, tuple[_Composition, ...]]:
    return {
        None if organ == "none" else organ: tuple(map(_composition, rules))
        for organ, rules in load_knowledge("compositions").items()
    }


def _composition(rule: dict[str, Any]) -> _Composition:
    part, unless = (union(_bits()[word] for word in rule.get(key, ())) for key in ("part", "unless"))
    return _Composition(_head_bits(*rule["says"].split()), part, unless, rule["concept"])


@cache
def relating_words() -> dict[tuple[str, str], tuple[WordBits, bool]]:
    """Return the words of a concept's mention that relate it to another, and whether they make it a diagnosis of it.

    The keys are pairs of concepts, from ``worded`` in ``knowledge/concepts.yaml``.
    """
    found = {}
    for rule in load_knowledge("concepts")["worded"]:
        relation = "interprets" if "interprets" in rule else "near"
        words = WordBits((word, 1) for word in rule["words"])
        found[rule["concept"], rule[relation]] = words, relation == "interprets"
    return found


@cache
def diagnosing_words(concept: str) -> tuple[WordBits, ...]:
    """Return the words that make a mention of a concept a diagnosis: "metastasis" of a lesion."""
    relating = relating_words().items()
    return tuple([words for (named, _), (words, is_diagnosis) in relating if named == concept and is_diagnosis])
