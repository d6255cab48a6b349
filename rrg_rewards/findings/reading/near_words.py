"""Find the word of a closed list that a misspelt word stands for."""

from collections.abc import Iterable

# Words of at least this many letters may have one wrong letter, and of the next two. Others are too like other words.
_SHORTEST, _SHORTEST_OF_TWO = 5, 7


def edits(word: str, other: str) -> int:
    """Return how many letters to insert, delete, replace or exchange with their neighbour make one word the other.

    Example:
        >>> edits("wihtout", "without"), edits("n0", "no"), edits("indicaton", "indication")
        (1, 1, 1)
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        before, last, row = row, before, [i]
        for j, target in enumerate(other, start=1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != target))
            if i > 1 < j and letter == other[j - 2] and word[i - 2] == target:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def is_near(word: str, words: Iterable[str]) -> bool:
    """Whether a word is one of some words, or a misspelling of one.

    A word of five or six letters may have one wrong letter, a longer one two.

    Example:
        >>> is_near("hisory", ["history"]), is_near("hilum", ["history"])
        (True, False)
    """
    return any(word == other or _is_misspelt(word, other) for other in words)


def _is_misspelt(word: str, other: str) -> bool:
    most = 2 if len(other) >= _SHORTEST_OF_TWO else 1 if len(other) >= _SHORTEST else 0
    return abs(len(word) - len(other)) <= most and edits(word, other) <= most
