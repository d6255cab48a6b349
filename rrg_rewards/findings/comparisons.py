"""Statements that compare with an earlier examination: finding them, dropping them, adding them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rrg_rewards.findings.knowledge_base import read_knowledge

__all__ = ["ComparisonWords", "comparison_words"]

# Words that a sentence cannot end with once its comparison is gone.
_DANGLING = re.compile(
    r"(?:^|\s)(?:and|or|but|with|in|of|to|from|the|an?|is|are|was|were|has|have|been|which|appear\w*|as|no|not|than|when)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ComparisonWords:
    """Expressions around comparisons, compiled.

    Args:
        cue: What makes a sentence a comparison.
        droppings: Expressions, each with what is left in its place.
        alone: Sentences that say nothing but a comparison.
    """

    cue: re.Pattern[str]
    droppings: tuple[tuple[re.Pattern[str], str], ...]
    alone: re.Pattern[str]

    def compares(self, sentence: str) -> bool:
        """Whether a sentence compares with an earlier examination.

        Example:
            >>> words = comparison_words()
            >>> words.compares("Small effusion, unchanged"), words.compares("Increased markings")
            (True, False)
        """
        return self.cue.search(sentence) is not None

    def is_alone(self, sentence: str) -> bool:
        """Whether a sentence without abnormal findings says nothing but that something changed or did not.

        Example:
            >>> comparison_words().is_alone("No significant interval change.")
            True
        """
        return self.alone.fullmatch(sentence.strip(" .")) is not None

    def without(self, sentence: str) -> Iterator[tuple[int, int, str]]:
        """Places of a sentence and what to put there, so that it compares no more.

        Example:
            >>> [("Stable cardiomegaly"[:a] + text + "Stable cardiomegaly"[b:]) for a, b, text in
            ...  comparison_words().without("Stable cardiomegaly")]
            ['Cardiomegaly']
        """
        for pattern, left in self.droppings:
            for match in pattern.finditer(sentence):
                start, end, text = match.start(), match.end(), match.expand(left)
                if start == 0 and end < len(sentence) and not text:
                    # The next word begins the sentence now.
                    text, end = sentence[end].upper(), end + 1
                elif start == 0:
                    text = text[:1].upper() + text[1:]
                rest = sentence[:start] + text + sentence[end:]
                if rest.strip() and not self.compares(rest) and not _DANGLING.search(rest.rstrip(" .")):
                    yield start, end, text


def _compiled(rules: dict[str, Any]) -> ComparisonWords:
    cue = re.compile(rf"\b(?:{'|'.join(rules['cues'])})\b", re.IGNORECASE)
    adverb, word = f"(?:(?:{rules['adverbs']}) )?", f"(?:{rules['words']})"
    since = r"(?:(?:from|since|to|with|as|when|in comparison|compared|over|in) .*?)?"
    other = f"similar|not {adverb}changed|increased|decreased|enlarged|progressed|regressed"
    state = f"(?:{adverb}(?:{rules['words']}|{other}))"
    which = "(?:(?:which|and|but|that) )?(?:(?:is|are|has|have|appears?|remains?|overall) )*"
    droppings = (
        # ", which is unchanged from the prior study", ", stable", ", with no interval change"
        (rf"(?:,| -|;) ?{which}{state} ?{since}$", ""),
        (rf" (?:(?:but|and) )?{state} ?{since}$", ""),
        (rf",? (?:with(?:out)? )?(?:no )?{adverb}(?:interval )?change ?{since}$", ""),
        (r",? (?:as |when )?(?:compared|in comparison|since) .*?$", ""),
        # "is stable and within normal limits", "there is no change in the scar", "remains enlarged"
        (rf"\b(is|are) {state} and (?=\w)", r"\1 "),
        (r"^(?:there (?:is|has been) )?no (?:\w+ )?change in (?:the )?(?=\w)", "There is "),
        (r"\bremains (?=\w)", "is "),
        (r"\bremain (?=\w)", "are "),
        # "Cardiomegaly is unchanged"
        (rf"\b(is|are) {state} ?{since}$", r"\1 present"),
        (rf"\b(?:remains?|appears?) {state} ?{since}$", "is present"),
        # "Stable cardiomegaly", "there is persistent opacity"
        (rf"\ban? {adverb}{word} (?=[aeiou])", "an "),
        (rf"\ban? {adverb}{word} (?=\w)", "a "),
        (rf"\b{adverb}{word} (?=\w)", ""),
        # "is again seen"
        (r"\b(?:once )?again,? (?=\w)", ""),
        (r",? (?:once )?again\b", ""),
    )
    # What stands here is asked of sentences without an abnormal finding only.
    normal = f"{rules['structures']}(?: and {rules['structures']})?"
    alone = (
        rf"(?:(?:there (?:is|are|has been|have been) )?(?:no|without) (?:\w+ ){{0,3}}change"
        rf"(?: (?:since|from|in the interval|compared|in comparison|when)(?: \w+){{0,8}})?"
        rf"|(?:{adverb}(?:stable|unchanged) (?:chest|exam\w*|appearance|study)(?: \w+){{0,4}})"
        rf"|(?:{adverb}(?:stable|unchanged))"
        rf"|(?:(?:the )?{normal} (?:is|are|appears?|remains?) {adverb}(?:stable|unchanged)(?: {since})?)"
        rf"|(?:{adverb}(?:stable|unchanged) (?:normal )?(?:appearance of the )?{normal})"
        rf"|(?:findings are|the (?:exam\w*|chest) is) (?:stable|unchanged)(?: \w+){{0,6}})"
    )
    return ComparisonWords(
        cue,
        tuple((re.compile(pattern, re.IGNORECASE), left) for pattern, left in droppings),
        re.compile(alone, re.IGNORECASE),
    )


@cache
def comparison_words() -> ComparisonWords:
    """The package's own expressions, one set per process."""
    return _compiled(read_knowledge("errors")["comparison"])
