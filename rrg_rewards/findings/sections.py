"""Sections of a report that tell what was asked and how, not what was found."""

import re

__all__ = ["blank_requests"]

_HEADINGS = (
    r"indications?|clinical (?:indication|information|history|data|details)|history|reason(?: for (?:exam(?:ination)?|"
    r"study|test))?|exam(?:ination)?|study|procedure|technique|comparisons?|protocol"
)
_REQUEST = re.compile(rf"(?:^|(?<=[\n.]))[ \t*#]*(?:{_HEADINGS})[ \t*]*:", re.IGNORECASE)
# Where the next section begins: a heading at the start of a line, or one of these anywhere.
_NEXT = re.compile(
    r"\n[ \t*#]*[A-Za-z][A-Za-z /&]{2,40}:|(?<=[\n. ])(?:findings?|impressions?|conclusions?|results?)[ \t*]*:",
    re.IGNORECASE,
)


def blank_requests(report: str) -> str:
    r"""Blank sections such as indication, history and technique; every character keeps its place.

    A section begins with its heading at the start of a line or sentence, and ends before the next heading.

    Example:
        >>> blank_requests("INDICATION: Pneumonia?\nFINDINGS: Clear lungs.")
        '                      \nFINDINGS: Clear lungs.'
    """
    if ":" not in report:
        return report
    kept, place = [], 0
    for heading in _REQUEST.finditer(report):
        if heading.start() < place:
            continue
        following = _NEXT.search(report, heading.end())
        end = following.start() if following else len(report)
        kept += [report[place : heading.start()], " " * (end - heading.start())]
        place = end
    return "".join([*kept, report[place:]])
