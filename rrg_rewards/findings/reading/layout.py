"""Remove the layout of a report: sections without findings, and line ends within sentences."""

import re
from itertools import pairwise

__all__ = ["blank_requests", "unwrap"]

# Headings of the sections on the request and the technique.
_HEADINGS = (
    r"indications?|clinical (?:indication|information|history|data|details)|history|reason(?: for (?:exam(?:ination)?|"
    r"study|test))?|exam(?:ination)?|study|procedure|technique|comparisons?|protocol"
)
# A pattern that begins with a character set is searched several times as fast as one that begins with a lookbehind.
_REQUEST = re.compile(rf"[\n.][ \t*#]*(?:{_HEADINGS})[ \t*]*:", re.IGNORECASE)
# Start of the next section: any heading at the start of a line or list item, or one of the listed headings anywhere.
_NEXT = re.compile(
    r"\n[ \t*#\u2022\u2023\u2013\u2014>+\d.)-]*[A-Za-z][A-Za-z /&]{2,40}:|"
    r"(?<=[\n. ])(?:findings?|impressions?|conclusions?|results?)[ \t*]*:",
    re.IGNORECASE,
)
# Starts of a line that begin a list item: bullets, "1.", "2)", "(3)", "a)".
_ITEM = re.compile(r"[*#|+>\-\u2022-\u2024\u2013\u2014]|\(?\d{1,2}[.)](?!\d)|[A-Za-z][.)]\s")
# Starts of a line that begin a statement even in lower case: "no ...", "there is ...", "heart size: ...".
_STATEMENT = re.compile(r"no\b|there (?:is|are|was|were)\b|[a-z]+(?: [a-z]+){0,2} ?:", re.IGNORECASE)
# Ends of a line that cannot end a sentence. An answer is an exception: "Effusion: no".
_OPEN_END = re.compile(
    r"(?:^|[^\s:])\s+(?:an?|the|this|these|its?|of|in|on|at|to|for|by|from|with|without|within|into|than|as|between|and|or"
    r"|nor|but|no|not|any|is|are|was|were|be|been|has|have|had|that|which|there)$|(?:[,(/]|\w-)$",
    re.IGNORECASE,
)
# Number of characters to search at the end of a line; more than the longest of these ends.
_END_SIZE = 40


def unwrap(report: str) -> str:
    r"""Replace line ends within sentences by spaces; the length does not change.

    A line end remains between paragraphs and list items, after a full stop or colon, and before a capital letter unless
    the preceding line is clearly unfinished. A text in capitals is wrapped prose if it contains full stops.

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
    """Whether the end of the line ``before`` also ends a sentence."""
    if not before or not after:
        return True
    if before[-1] in ".:;!":
        # A full stop ends the sentence anyway, and ". " must remain because it separates units.
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


def blank_requests(report: str) -> str:
    r"""Replace sections such as indication and technique by spaces; the length does not change.

    A section begins with its heading at the start of a line or sentence and ends before the next heading.

    Example:
        >>> blank_requests("INDICATION: Pneumonia?\nFINDINGS: Clear lungs.")
        '                      \nFINDINGS: Clear lungs.'
    """
    if ":" not in report:
        return report
    kept, place = [], 0
    # With a line end before the report, a heading starts in the report where its match starts in the longer text.
    for heading in _REQUEST.finditer("\n" + report):
        start = heading.start()
        if start < place:
            continue
        following = _NEXT.search(report, heading.end() - 1)
        end = following.start() if following else len(report)
        kept += [report[place:start], " " * (end - start)]
        place = end
    return "".join([*kept, report[place:]])
