"""Find and remove comparisons with a prior study."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from rrg_rewards.findings.editing.word_lists import expand, word_pattern
from rrg_rewards.findings.knowledge.load import load_knowledge

__all__ = ["ComparisonWords", "comparison_words"]


@dataclass(frozen=True)
class ComparisonWords:
    """Compiled expressions of comparisons with a prior study.

    Args:
        cue: Words that mark a sentence as a comparison.
        droppings: Expressions of comparison, each with the text that replaces it.
        alone: Sentences that contain only a comparison.
        dangling: Words that cannot end a sentence after the comparison has been removed.
    """

    cue: re.Pattern[str]
    droppings: tuple[tuple[re.Pattern[str], str], ...]
    alone: re.Pattern[str]
    dangling: re.Pattern[str]

    def compares(self, sentence: str) -> bool:
        """Whether a sentence compares with a prior study.

        Example:
            >>> words = comparison_words()
            >>> words.compares("Small effusion, unchanged"), words.compares("Increased markings")
            (True, False)
        """
        return self.cue.search(sentence) is not None

    def is_alone(self, sentence: str) -> bool:
        """Whether a sentence without abnormal findings contains only a comparison.

        Example:
            >>> comparison_words().is_alone("No significant interval change.")
            True
        """
        return self.alone.fullmatch(sentence.strip(" .")) is not None

    def without(self, sentence: str) -> Iterator[tuple[int, int, str]]:
        """Yield replacements ``(start, end, text)``, each of which removes the comparison from a sentence.

        Example:
            >>> [("Stable cardiomegaly"[:a] + text + "Stable cardiomegaly"[b:]) for a, b, text in
            ...  comparison_words().without("Stable cardiomegaly")]
            ['Cardiomegaly']
        """
        for pattern, left in self.droppings:
            for match in pattern.finditer(sentence):
                start, end, text = match.start(), match.end(), match.expand(left)
                if start == 0 and end < len(sentence) and not text:
                    # The next word becomes the first word of the sentence.
                    text, end = sentence[end].upper(), end + 1
                elif start == 0:
                    text = text[:1].upper() + text[1:]
                rest = sentence[:start] + text + sentence[end:]
                if rest.strip() and not self.compares(rest) and not self.dangling.search(rest.rstrip(" .")):
                    yield start, end, text


@cache
def comparison_words() -> ComparisonWords:
    """Return the expressions in ``errors.yaml``, compiled once per process."""
    droppings = load_knowledge("errors")["comparison"]["droppings"]
    return ComparisonWords(
        cue=word_pattern("errors", "comparison", "cues"),
        droppings=tuple(
            (re.compile(expand(pattern, "errors"), re.IGNORECASE), text) for pattern, text in droppings.items()
        ),
        alone=word_pattern("errors", "comparison", "alone"),
        dangling=word_pattern("errors", "comparison", "dangling"),
    )
