"""Texts that files and requests can represent, and texts that stand for a missing report."""

import re
from collections.abc import Iterable
from hashlib import blake2b

# Without punctuation at both ends.
_PLACEHOLDERS = frozenset(
    {"nan", "none", "null", "n/a", "na", "to_generate", "not given", "not available", "not provided", "no report"}
    | {f"{report} {missing}" for report in ("report", "findings", "text") for missing in ("not available", "not given")}
    | {f"{report} {missing}" for report in ("report", "text") for missing in ("missing", "unavailable", "to follow")}
)
_ENDS = " \t\r\n.<>[]()_-*\"'"

# C0 without tab and line feed, delete, C1, direction marks and overrides, separators of lines, surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

REPLACEMENT = "\ufffd"
"""Unicode's character for one that cannot be represented."""


def encodable_text(text: str) -> str:
    r"""Replace unpaired surrogates, which UTF-8 cannot represent, by U+FFFD. Two halves of a pair become a character.

    Example:
        >>> encodable_text("a\ud800b"), encodable_text("\ud83e\udec1") == "\U0001fac1"
        ('a\ufffdb', True)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def printable(text: str) -> str:
    r"""Replace characters that control a terminal or the direction of its text by escape sequences.

    Line feeds and tabs stay. Unpaired surrogates, as in names of files that are not UTF-8, cannot be printed either.

    Example:
        >>> printable("red \x1b[31m, back \r, turned \u202e\nnext line")
        'red \\x1b[31m, back \\r, turned \\u202e\nnext line'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def text_hash(text: str) -> int:
    """Return a hash of 64 bits, which is the same in each process, unlike that of :func:`hash`.

    Example:
        >>> text_hash("No effusion.") == text_hash("No effusion."), text_hash("No effusion.") < 2**64
        (True, True)
    """
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class PlaceholderWarning(UserWarning):
    """Reports are texts such as ``NaN``, which stand for a missing report."""


def find_placeholders(texts: Iterable[str | None]) -> list[str]:
    """Return the texts that stand for a missing report, in any case.

    They are those of pandas (NaN, None, null, N/A, <NA>), those of data sets ("to_generate", "Report not available.",
    "Not given."), and signs without letters or digits such as "___". A reference that is such a text is missing for
    all metrics and rewards. A prediction may be what a model wrote, so it counts as a report. Both with a warning.

    Example:
        >>> find_placeholders(["NaN", "No effusion.", None, " none ", "Report not available.", "___"])
        ['NaN', ' none ', 'Report not available.', '___']
    """
    return [text for text in texts if isinstance(text, str) and _is_placeholder(text)]


def without_placeholders(texts: Iterable[str | None]) -> list[str | None]:
    """Return texts with ``None`` in place of those that :func:`find_placeholders` finds.

    Example:
        >>> without_placeholders(["No effusion.", "Not given.", None])
        ['No effusion.', None, None]
    """
    return [None if text is None or _is_placeholder(text) else text for text in texts]


def _is_placeholder(text: str) -> bool:
    bare = text.strip(_ENDS).lower()
    return bare in _PLACEHOLDERS or (bool(text.strip()) and not any(map(str.isalnum, bare)))


def placeholder_message(where: str, found: int, total: int, example: str, remedy: str) -> str:
    """Return the warning about the result of :func:`find_placeholders`.

    Args:
        where: The column or argument that contains the texts.
        found: Number of such texts.
        total: Number of all texts.
        example: One of them.
        remedy: What the user can do.
    """
    return (
        f"{found} of {total} texts in {where} are words such as {example!r}, which stand for a missing report: "
        f"references are unscorable, other texts count as reports; {remedy}"
    )
