"""Error messages for unknown names and missing options."""

from collections.abc import Container, Iterable
from difflib import get_close_matches

_MOST_SHOWN = 200

# The keys of a trainer are more than 200, and their list would hide the suggestion.
_MOST_LISTED = 60


def shown(value: object) -> str:
    """Return the representation of a value for an error message: one line of at most 200 characters.

    Example:
        >>> shown([0.5, "crg"]), len(shown("a" * 1_000_000))
        ("[0.5, 'crg']", 200)
    """
    text = repr(value[:_MOST_SHOWN] if isinstance(value, str) else value)
    text = " ".join(text.split("\n"))
    is_short = len(text) <= _MOST_SHOWN and not (isinstance(value, str) and len(value) > _MOST_SHOWN)
    return text if is_short else f"{text[: _MOST_SHOWN - 3]}..."


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """Return an error message with the unknown name, the nearest known name and, unless they are many, all known names.

    Example:
        >>> unknown_name_message("metric", "crgg", ["crg", "crepe"])
        "unknown metric 'crgg'; did you mean 'crg'? Known: crepe, crg"
    """
    known = sorted(known)
    name = name[:_MOST_SHOWN]
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_lower_case, n=1)
    hint = f"; did you mean {by_lower_case[close[0]]!r}?" if close else "."
    if len(known) > _MOST_LISTED:
        return f"unknown {kind} {shown(name)}{hint if close else f'; none of {len(known)} names is similar'}"
    return f"unknown {kind} {shown(name)}{hint} Known: {', '.join(known)}"


def check_required(owner: str, required: Iterable[str], given: Container[str]) -> None:
    """Check that options without a default are given.

    Raises:
        ValueError: If one is not; the message names all that are missing.

    Example:
        >>> check_required("reward 'crepe'", ["model"], {})
        Traceback (most recent call last):
        ...
        ValueError: reward 'crepe' needs the option model (on the command line `set`)
    """
    missing = [name for name in required if name not in given]
    if missing:
        noun = "option" if len(missing) == 1 else "options"
        raise ValueError(f"{owner} needs the {noun} {', '.join(missing)} (on the command line `set`)")
