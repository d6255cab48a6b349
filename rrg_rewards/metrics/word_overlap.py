"""ROUGE of two texts, with the longest common subsequence in bit-parallel arithmetic, and chrF."""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from string import punctuation

__all__ = ["chrf", "longest_common_subsequence", "rouge_f"]

# Number of occurrences from which the mask of a word is kept.
_FREQUENT = 64
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


def rouge_f(candidate: str, reference: str, variant: str) -> float:
    r"""Return the F measure of ROUGE, :math:`2 m / (|c| + |r|)` with :math:`m` common units; 0 without a common unit.

    The units are words for ``rouge1`` and ``rougeL``, and pairs of adjacent words for ``rouge2``. Words are lower-case
    and contain only Latin letters and digits.

    Example:
        >>> rouge_f("Small pleural effusion.", "Small left pleural effusion.", "rouge2")
        0.4
    """
    ours, theirs = (_NOT_A_WORD.sub(" ", text.lower()).split() for text in (candidate, reference))
    if variant == "rougeL":
        size, common = len(ours) + len(theirs), longest_common_subsequence(ours, theirs)
    else:
        length = 1 if variant == "rouge1" else 2
        first, second = _n_grams(ours, length), _n_grams(theirs, length)
        size, common = first.total() + second.total(), (first & second).total()
    return 2 * common / size if common else 0.0


def chrf(candidate: str, reference: str, char_order: int = 6, word_order: int = 0, beta: float = 2.0) -> float:
    r"""Return chrF: the mean F of n-grams of characters without spaces and, up to ``word_order``, of words.

    .. math::
        \mathrm{chrF}_\beta = \frac{1}{N} \sum_n \frac{(1 + \beta^2) m_n}{|c|_n + \beta^2 |r|_n}

    with :math:`m_n` common n-grams of :math:`|c|_n` in the candidate and :math:`|r|_n` in the reference; 0 for a length
    without a common n-gram. A punctuation mark at the end or start of a word is a word of its own.

    Example:
        >>> round(chrf("Small pleural effusion.", "Small left pleural effusion."), 3)
        0.729
    """
    texts = (candidate, reference)
    units: list[tuple[int, list[Sequence[str]]]] = [
        (char_order, [text.strip().replace(" ", "") for text in texts]),
        (word_order, [_words_and_marks(text) for text in texts]),
    ]
    scores = []
    for order, (ours, theirs) in units:
        for length in range(1, order + 1):
            first, second = _n_grams(ours, length), _n_grams(theirs, length)
            common = (first & second).total()
            size = first.total() + beta**2 * second.total()
            scores.append((1 + beta**2) * common / size if common else 0.0)
    return sum(scores) / len(scores)


def _words_and_marks(text: str) -> list[str]:
    words: list[str] = []
    for word in text.split():
        if len(word) > 1 and word[-1] in punctuation:
            words += [word[:-1], word[-1]]
        elif len(word) > 1 and word[0] in punctuation:
            words += [word[0], word[1:]]
        else:
            words.append(word)
    return words


def _n_grams(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(length)), strict=False))


def longest_common_subsequence(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    A row of the dynamic program is one integer with a bit for each item of ``first`` (Hyyrö, "Bit-Parallel LCS-length
    Computation Revisited", 2004). The result is exact. The number of operations is linear in the length of ``second``;
    each is on integers of as many bits as ``first`` has items. Equal ends and items of one sequence alone cost nothing.

    Example:
        >>> longest_common_subsequence("small left effusion".split(), "left basal effusion".split())
        2
    """
    start, stop = 0, min(len(first), len(second))
    while start < stop and first[start] == second[start]:
        start += 1
    end = 0
    while end < stop - start and first[-1 - end] == second[-1 - end]:
        end += 1
    shared = {*first[start : len(first) - end]} & {*second[start : len(second) - end]}
    ours = [item for item in first[start : len(first) - end] if item in shared]
    theirs = [item for item in second[start : len(second) - end] if item in shared]
    places: dict[Hashable, list[int]] = {}
    for i, item in enumerate(ours):
        places.setdefault(item, []).append(i)
    # Not of all items, because the masks of many distinct words would take memory of the square of their number.
    masks = {item: _mask(found) for item, found in places.items() if len(found) >= _FREQUENT}
    full = (1 << len(ours)) - 1
    # A bit is 0 where the length grows by 1.
    row = full
    for item in theirs:
        matched = row & (masks[item] if item in masks else _mask(places[item]))
        row = ((row + matched) | (row - matched)) & full
    return start + end + len(ours) - row.bit_count()


def _mask(places: Sequence[int]) -> int:
    """Return the integer with the bits of ascending indices, built from bytes, because shifts would copy it."""
    bits = bytearray(places[-1] // 8 + 1)
    for i in places:
        bits[i // 8] |= 1 << i % 8
    return int.from_bytes(bits, "little")
