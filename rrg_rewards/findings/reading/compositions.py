"""Name the concept that the words of a statement make together with its organ."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.phrases import WordBits, union
from rrg_rewards.findings.reading.wordings import head_bits, is_focal, quantities, wording

__all__ = ["composed_concept"]


class _Composition(NamedTuple):
    """A rule of ``knowledge/compositions.yaml``: bits of heads and of words."""

    heads: int
    is_focal: bool
    part: int
    unless: int
    concept: str

    def applies(self, heads: int, focal: bool, words: int) -> bool:
        """Whether a statement with these heads and words is of this concept."""
        return (
            heads & self.heads == self.heads
            and (focal or not self.is_focal)
            and (not self.part or bool(words & self.part))
            and not words & self.unless
        )


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
    named = quantities(clause) or quantities(subject)
    heads, focal = wording((*signals, *named)).heads, is_focal(clause)
    if not (heads or focal):
        return None
    words = union(_parts()[word] for word in (*clause, *subject))
    return next((rule.concept for rule in rules if rule.applies(heads, focal, words)), None)


@cache
def _parts() -> WordBits:
    """Return the words of all conditions, with one bit for each word of the file."""
    words = WordBits()
    for word, bit in _bits().items():
        words.add(word, bit)
    return words


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
    names = rule["says"].split()
    bits = _bits()
    part, unless = (union(bits[word] for word in rule.get(key, ())) for key in ("part", "unless"))
    return _Composition(
        head_bits(*(name for name in names if name != "focal")), "focal" in names, part, unless, rule["concept"]
    )
