"""Messages for names that are not known."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["unknown_name_message"]


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is no known ``kind``, which known name is nearest, and what is known.

    Example:
        >>> unknown_name_message("metric", "crgg", ["crg", "crepe"])
        "unknown metric 'crgg'; did you mean 'crg'? Known: crepe, crg"
    """
    known = sorted(known)
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_lower_case, n=1)
    hint = f"; did you mean {by_lower_case[close[0]]!r}?" if close else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}"
