"""Which line ends of a report end a sentence, and which only wrap it."""

import re
from itertools import pairwise

__all__ = ["unwrap"]

# Starts of a line that always begin something new: bullets, "1.", "2)", "(3)", "a)".
_ITEM = re.compile(r"[*#|+>\-\u2022-\u2024\u2013\u2014]|\(?\d{1,2}[.)](?!\d)|[A-Za-z][.)]\s")
# Starts of a line that begin a statement also where capitals tell nothing: "no ...", "there is ...", "heart size: ...".
_STATEMENT = re.compile(r"no\b|there (?:is|are|was|were)\b|[a-z]+(?: [a-z]+){0,2} ?:", re.IGNORECASE)
# Ends of a line after which no sentence can end, save for an answer ("Effusion: no").
_OPEN_END = re.compile(
    r"(?:^|[^\s:])\s+(?:an?|the|this|these|its?|of|in|on|at|to|for|by|from|with|without|within|into|than|as|between|and|or"
    r"|nor|but|no|not|any|is|are|was|were|be|been|has|have|had|that|which|there)$|(?:[,(/]|\w-)$",
    re.IGNORECASE,
)
# More than the longest end, and its line's word before it.
_END_SIZE = 40


def unwrap(report: str) -> str:
    r"""Blank the line ends that only wrap a sentence; every character keeps its place.

    A line end is kept between paragraphs and list items, after a full stop or colon, and before a capital unless the
    line before is visibly unfinished. Where a text is all in capitals, those that use full stops are taken for prose.

    Example:
        >>> unwrap("No pleural\neffusion.\nCardiomegaly\nNo nodule")
        'No pleural effusion. Cardiomegaly\nNo nodule'
    """
    if "\n" not in report and "\r" not in report:
        return report
    lines = report.replace("\r\n", " \n").replace("\r", "\n").split("\n")
    bare = [line.strip() for line in lines]
    is_prose = any(line.endswith(".") for line in bare)
    parts = [lines[0]]
    for line, (before, after) in zip(lines[1:], pairwise(bare), strict=True):
        parts.append("\n" if _is_break(before, after, is_prose) else " ")
        parts.append(line)
    return "".join(parts)


def _is_break(before: str, after: str, is_prose: bool) -> bool:
    """Whether the end of the line ``before`` ends a sentence, too."""
    if not before or not after:
        return True
    if before[-1] in ".:;!":
        # A full stop needs no help, and the engine remembers what lies between ". ".
        return before[-1] != "."
    if _ITEM.match(after):
        return True
    if _OPEN_END.search(before[-_END_SIZE:]):
        return False
    if _STATEMENT.match(after):
        return True
    if not after[0].isupper():
        return False
    return not (is_prose and before.isupper() and after.isupper())
