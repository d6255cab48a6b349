"""Division of a long report pair into aligned pairs that an encoder can take."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["aligned_chunks"]

# After a full stop, but not that of a number; and at line ends.
_BOUNDARY = re.compile(r"(?<=[.!?;])\s+|[\r\n]+")
_WORD = re.compile(r"[a-z0-9]+")


def aligned_chunks(
    reference: str, candidate: str, lengths: Callable[[Sequence[str]], Sequence[int]], room: int
) -> list[tuple[str, str]]:
    """Divide a report pair at sentences into pairs of which each fits, if that is possible.

    The reference is divided into as few groups of consecutive sentences as do it, of about equal length. A sentence of
    the candidate goes to the group that holds the reference sentence most like it, by the words that they share, rare
    ones counting more; where it shares none with any, it goes to the group at its own place in the report. So a
    candidate that tells the same in another order meets the same sentences. A chunk of which no division makes a pair
    that fits, for a sentence alone is longer, is returned as it is.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        lengths: Tells how many tokens each of several texts has.
        room: Tokens of both texts of a chunk at most.

    Returns:
        Pairs of reference text and candidate text that together hold every sentence once. Either text may be empty.

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
        # Not merely the last: more groups do not help where the candidate's sentences gather in one.
        if max(sizes.values()) < smallest:
            smallest = max(sizes.values())
            best = [(_joined(first, groups, home), _joined(second, homes, home)) for home in sorted(sizes)]
        if smallest <= room:
            break
    return best


def _sentences(report: str) -> list[str]:
    return [sentence for sentence in map(str.strip, _BOUNDARY.split(report)) if sentence] or [""]


def _groups(lengths: Sequence[int], number: int) -> list[int]:
    """For each sentence, the group that its middle falls into, when the text is cut into equal parts."""
    total = max(sum(lengths), 1)
    ends, end = [], 0
    for length in lengths:
        ends.append(end + length / 2)
        end += length
    return [min(int(number * middle / total), number - 1) for middle in ends]


def _nearest(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """For each sentence of the second text, the sentence of the first that is most like it."""
    known = [frozenset(_WORD.findall(sentence.lower())) for sentence in first]
    spread = Counter(word for words in known for word in words)
    rarity = {word: math.log(1 + len(first) / count) for word, count in spread.items()}
    weights = [sum(rarity[word] for word in words) for words in known]
    nearest = []
    for place, sentence in enumerate(second):
        words = frozenset(_WORD.findall(sentence.lower()))
        own = sum(rarity.get(word, 1.0) for word in words)
        shared = [sum(rarity[word] for word in words & there) for there in known]
        alike = [2 * both / (own + there) if both else 0.0 for both, there in zip(shared, weights, strict=True)]
        nearest.append(_most_alike(alike, place * len(first) // len(second)))
    return nearest


def _most_alike(alike: Sequence[float], here: int) -> int:
    """Index of the highest value; of several, as where nothing is alike, the nearest to ``here``."""
    return max(range(len(alike)), key=lambda index: (alike[index], -abs(index - here)))


def _joined(sentences: Sequence[str], homes: Sequence[int], home: int) -> str:
    return " ".join(sentence for sentence, own in zip(sentences, homes, strict=True) if own == home)
