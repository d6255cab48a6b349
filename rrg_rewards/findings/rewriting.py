"""What corrupting and paraphrasing share: rules as data, places that are taken, numbers, and the record of changes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rrg_rewards.findings.edits import Replacement, apply

__all__ = [
    "MEASURED_NUMBERS",
    "Places",
    "Rewording",
    "RewrittenReport",
    "Rule",
    "decimal_text",
    "joined",
    "matching_case",
    "read_rules",
    "spans",
]

# A sentence ends at a full stop before a space, at a line end, and at the quotes and bullets between the lines of an
# impression. A stop without a space behind it is a decimal point or an abbreviation more often than an end.
_BOUNDARY = re.compile(r'[.!;]+(?=[\s"“”•]|$)|[\n\r"“”•]+|(?<=[a-z)])\.(?=[A-Z])')

MEASURED_NUMBERS = r"\d+(?:\.\d+)?(?:\s*(?:x|\xd7|\*|-|\u2013|,|to|and|or)\s*\d+(?:\.\d+)?)*"
"""Numbers that share one unit: ``8 x 5`` mm, ``2.3 and 3`` mm, ``4-6`` mm, ``2, 3 and 5`` mm."""


class Rewording(NamedTuple):
    """One thing that a rewritten report says in other words.

    Args:
        kind: Of the rule: ``side``, ``size``, ``synonym``, ...
        before: Words of the report.
        after: Words in their place.
    """

    kind: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RewrittenReport:
    """A report and a version of it.

    Args:
        reference: The report.
        candidate: Its version.
        changes: What was changed, in the order of the report.

    Example:
        >>> RewrittenReport("Left effusion.", "Right effusion.", (Rewording("side", "Left", "Right"),)).counts
        {'side': 1}
    """

    reference: str
    candidate: str
    changes: tuple[Rewording, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Changes by kind."""
        found: dict[str, int] = {}
        for change in self.changes:
            found[change.kind] = found.get(change.kind, 0) + 1
        return found


class Rule(NamedTuple):
    r"""An expression and what may stand in its place.

    Args:
        kind: What the rule is about.
        pattern: The expression.
        options: Replacements, with groups of the expression as ``\1``.
        where: What its sentence must hold, too.
    """

    kind: str
    pattern: re.Pattern[str]
    options: tuple[str, ...]
    where: re.Pattern[str] | None = None


def read_rules(entries: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Rules in order of their data: a list of sets, each with ``kind``, ``words`` and, if need be, ``where``.

    Example:
        >>> rule = read_rules([{"kind": "side", "words": {"left": "right"}}])[0]
        >>> rule.pattern.findall("Left of the leftmost, left-sided"), rule.options
        (['Left', 'left'], ('right',))
    """
    return tuple(
        Rule(
            entry["kind"],
            re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE),
            (options,) if isinstance(options, str) else tuple(options),
            re.compile(entry["where"], re.IGNORECASE) if "where" in entry else None,
        )
        for entry in entries
        for pattern, options in entry["words"].items()
    )


def spans(report: str) -> Iterator[tuple[int, int]]:
    """First character and end of each sentence, without its full stop and the spaces around it.

    Example:
        >>> text = 'Nodule of 2.5 mm. " Effusion'
        >>> [text[start:end] for start, end in spans(text)]
        ['Nodule of 2.5 mm', 'Effusion']
    """
    start = 0
    for end, after in [*((found.start(), found.end()) for found in _BOUNDARY.finditer(report)), (len(report),) * 2]:
        inside = report[start:end]
        if inside.strip():
            first = start + len(inside) - len(inside.lstrip())
            yield first, first + len(inside.strip())
        start = after


class Places:
    """Parts of a text that are taken, so that no word is changed twice, and what stands in their place.

    Args:
        text: The text.

    Example:
        >>> places = Places("left main coronary artery, left lung")
        >>> places.keep(0, 25), places.put("side", 0, 4, "right"), places.put("side", 27, 31, "right")
        (True, False, True)
        >>> places.result()
        'left main coronary artery, right lung'
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._taken = bytearray(len(text))
        self._put: list[tuple[Replacement, str]] = []

    def is_free(self, start: int, end: int) -> bool:
        """Whether nothing there is taken."""
        return not any(self._taken[start:end])

    def keep(self, start: int, end: int) -> bool:
        """Take a part and leave it as it is; False if a part of it is taken."""
        if not self.is_free(start, end):
            return False
        self._taken[start:end] = b"\1" * (end - start)
        return True

    def put(self, kind: str, start: int, end: int, new: str) -> bool:
        """Take a part and put words in its place; False if a part of it is taken."""
        if not self.keep(start, end):
            return False
        self._put.append((Replacement(start, end, new), kind))
        return True

    def result(self) -> str:
        """The text with all that was put."""
        return apply(self.text, [replacement for replacement, _ in self._put])

    def changes(self) -> tuple[Rewording, ...]:
        """What was put, in order."""
        return tuple(Rewording(kind, self.text[r.start : r.end], r.text) for r, kind in sorted(self._put))


def matching_case(new: str, old: str) -> str:
    """Words with a capital where those that they replace have one.

    Example:
        >>> matching_case("right", "Left"), matching_case("lul", "RUL"), matching_case("both", "A")
        ('Right', 'LUL', 'Both')
    """
    if len(old) > 1 and old.isupper() and old.isalpha():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def decimal_text(digits: str, places: int) -> str:
    """A decimal number times a power of ten, exactly, as text.

    Example:
        >>> decimal_text("12", -1), decimal_text("2.3", 1), decimal_text("0.5", 1), decimal_text("40", -1)
        ('1.2', '23', '5', '4')
    """
    whole, _, fraction = digits.partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    together = (whole + fraction).rjust(len(whole + fraction) + max(0, -places), "0")
    point = len(together) - len(fraction) + places
    together = together.ljust(max(point, len(together)), "0")
    left, right = together[:point].lstrip("0") or "0", together[point:].rstrip("0")
    return f"{sign}{left}.{right}" if right else sign + left


def joined(patterns: Sequence[str]) -> re.Pattern[str]:
    """One expression of many, as whole words."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)
