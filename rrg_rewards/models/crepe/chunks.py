"""Division of a long report pair into aligned pairs that fit an encoder."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["aligned_chunks"]

# White space after the end of a sentence, and line ends. No white space follows a decimal point.
_BOUNDARY = re.compile(r"(?<=[.!?;])\s+|[\r\n]+")
_WORD = re.compile(r"[a-z0-9]+")


def aligned_chunks(
    reference: str, candidate: str, lengths: Callable[[Sequence[str]], Sequence[int]], room: int
) -> list[tuple[str, str]]:
    """Divide a report pair at sentence boundaries into aligned pairs that fit, if possible.

    The reference is divided into the smallest sufficient number of groups of consecutive sentences, of about equal
    length. Each sentence of the candidate is assigned to the group with the most similar reference sentence. Similarity
    counts shared words, with higher weights for rare words. A sentence without shared words is assigned by its relative
    position. A candidate with the same sentences in another order is therefore compared with the same groups. If no
    division makes all chunks fit, because a single sentence is too long, the best division is returned.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        lengths: Function that returns the number of tokens of each text.
        room: Maximum number of tokens of the two texts of a chunk together.

    Returns:
        Pairs of reference text and candidate text that together contain every sentence once. Either text may be empty.

    Example:
        >>> words = lambda texts: [len(text.split()) for text in texts]
        >>> aligned_chunks("Small effusion. No nodule.", "No lung nodule. Large effusion.", words, room=5)
        [('Small effusion.', 'Large effusion.'), ('No nodule.', 'No lung nodule.')]
    """
    first, second = _sentences(reference), _sentences(candidate)
    first_lengths, second_lengths = lengths(first), lengths(second)
    nearest = _nearest(first, second)
    fewest = max(2, math.ceil((sum(first_lengths) + sum(second_lengths)) / room))
    best, smallest = [(reference, candidate)], math.inf
    for number in range(fewest, max(fewest, len(first)) + 1):
        groups = _groups(first_lengths, number)
        homes = [groups[index] for index in nearest]
        sizes = Counter[int]()
        for home, length in zip([*groups, *homes], [*first_lengths, *second_lengths], strict=True):
            sizes[home] += length
        # Keep the best division: more groups do not help if one group has most of the candidate's sentences.
        if max(sizes.values()) < smallest:
            smallest = max(sizes.values())
            best = [(_joined(first, groups, home), _joined(second, homes, home)) for home in sorted(sizes)]
        if smallest <= room:
            break
    return best


def _sentences(report: str) -> list[str]:
    return [sentence for sentence in map(str.strip, _BOUNDARY.split(report)) if sentence] or [""]


def _groups(lengths: Sequence[int], number: int) -> list[int]:
    """Return the group of each sentence: the one that contains its middle if all groups have equal lengths."""
    total = max(sum(lengths), 1)
    ends, end = [], 0
    for length in lengths:
        ends.append(end + length / 2)
        end += length
    return [min(int(number * middle / total), number - 1) for middle in ends]


def _nearest(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Return for each sentence of the second text the index of the most similar sentence of the first."""
    known = [frozenset(_WORD.findall(sentence.lower())) for sentence in first]
    spread = Counter(word for words in known for word in words)
    rarity = {word: math.log(1 + len(first) / count) for word, count in spread.items()}
    weights = [sum(rarity[word] for word in words) for words in known]
    nearest = []
    for index, sentence in enumerate(second):
        words = frozenset(_WORD.findall(sentence.lower()))
        own = sum(rarity.get(word, 1.0) for word in words)
        shared = [sum(rarity[word] for word in words & there) for there in known]
        alike = [2 * both / (own + there) if both else 0.0 for both, there in zip(shared, weights, strict=True)]
        # Among equally similar sentences, the one nearest to the same relative position.
        position = index * len(first) // len(second)
        nearest.append(max(range(len(alike)), key=lambda other: (alike[other], -abs(other - position))))
    return nearest


def _joined(sentences: Sequence[str], homes: Sequence[int], home: int) -> str:
    return " ".join(sentence for sentence, own in zip(sentences, homes, strict=True) if own == home)
