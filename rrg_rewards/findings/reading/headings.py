"""Recognise the headings of a report, also misspelt and short ones."""

import re
from functools import lru_cache

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.near_words import is_near

_PARTS = re.compile(r"[/&,+]|\band\b")
_BRACKETS = re.compile(r"\(.*?\)")
_WORD = re.compile("[a-z]+")


def is_result(heading: str) -> bool:
    """Whether a heading begins a section on what the images show."""
    return not cue_words("headings", "results").isdisjoint(_WORD.findall(heading.lower()))


@lru_cache(maxsize=10_000)
def is_request(heading: str) -> bool:
    """Whether a heading, also a misspelt one, begins a section on the request or the technique of an examination.

    Args:
        heading: Text before the colon.

    Example:
        >>> [is_request(heading) for heading in ("Clin hx", "HISTORY/INDICATION", "Reason for exam", "Impression")]
        [True, True, True, False]
    """
    parts = [_WORD.findall(part) for part in _PARTS.split(_BRACKETS.sub(" ", heading.lower()))]
    return not is_result(heading) and any(_requests(part) for part in parts)


def _requests(words: list[str]) -> bool:
    """Whether some words are the name of such a section, with words of a kind before it ("brief clinical history")."""

    def is_in(word: str, name: str) -> bool:
        return is_near(word, cue_words("headings", name))

    if not words:
        return False
    size = next((i for i, word in enumerate(words[:-1]) if not is_in(word, "kinds")), len(words) - 1)
    name, *more = words[size:]
    if is_in(name, "reasons"):
        return not more or more[0] in ("for", "of")
    return not more and (is_in(name, "requests") or (size > 0 and is_in(name, "requests_of_a_kind")))
