"""Rules that rewrite report text, and records of their changes."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

from rrg_rewards.findings.editing.report_view import Replacement, apply, matching_case
from rrg_rewards.findings.knowledge.load import joined

# Least ratio of two clearly different sizes.
_LEAST_RATIO = Decimal("1.5")
# Digits that an exact result may have beyond those of the number.
_MORE_DIGITS = 8

NUMBER = re.compile(r"\d+(?:\.\d+)?")
"""A decimal number without a sign."""

MEASURED_NUMBERS = r"\d+(?:\.\d+)?(?:\s*(?:x|\xd7|\*|-|\u2013|,|to|and|or)\s*\d+(?:\.\d+)?)*"
"""Numbers that share one unit: ``8 x 5`` mm, ``2.3 and 3`` mm, ``4-6`` mm, ``2, 3 and 5`` mm."""


class Rewording(NamedTuple):
    """One change of a rewritten report.

    Args:
        kind: Kind of the change: ``side``, ``size``, ``phrase``, ...
        before: Words of the report.
        after: Words of the rewritten report.
    """

    kind: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RewrittenReport:
    """A report and its rewritten version.

    Args:
        reference: The report.
        candidate: The rewritten version.
        changes: The changes, in the order of the report.

    Example:
        >>> RewrittenReport("Left effusion.", "Right effusion.", (Rewording("side", "Left", "Right"),)).counts
        {'side': 1}
    """

    reference: str
    candidate: str
    changes: tuple[Rewording, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of changes by kind."""
        return dict(Counter(change.kind for change in self.changes))


class Rule(NamedTuple):
    r"""An expression and its replacements.

    Args:
        kind: Kind of detail that the rule changes.
        pattern: The expression.
        options: Replacements; ``\1`` inserts a group of the expression.
        where: Expression that the sentence must contain, if any.
    """

    kind: str
    pattern: re.Pattern[str]
    options: tuple[str, ...]
    where: re.Pattern[str] | None = None


def read_rules(entries: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Compile rules from sets with ``kind``, ``words`` and optionally ``where``, in order.

    Example:
        >>> rule = read_rules([{"kind": "side", "words": {"left": "right"}}])[0]
        >>> rule.pattern.findall("Left of the leftmost, left-sided"), rule.options
        (['Left', 'left'], ('right',))
    """
    return tuple(
        Rule(
            entry["kind"],
            joined([pattern]),
            (options,) if isinstance(options, str) else tuple(options),
            re.compile(entry["where"], re.IGNORECASE) if "where" in entry else None,
        )
        for entry in entries
        for pattern, options in entry["words"].items()
    )


class TextRewriter:
    """Collects replacements in a text that do not overlap.

    Args:
        text: The text.

    Example:
        >>> rewriter = TextRewriter("left main coronary artery, left lung")
        >>> rewriter.keep(0, 25), rewriter.put("side", 0, 4, "right"), rewriter.put("side", 27, 31, "right")
        (True, False, True)
        >>> rewriter.result()
        'left main coronary artery, right lung'
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._taken = bytearray(len(text))
        self._put: list[tuple[Replacement, str]] = []

    def is_free(self, start: int, end: int) -> bool:
        """Whether no character of a span has been kept or replaced."""
        return not any(self._taken[start:end])

    def keep(self, start: int, end: int) -> bool:
        """Protect a span from changes; return False if part of it is already kept or replaced."""
        if not self.is_free(start, end):
            return False
        self._taken[start:end] = b"\1" * (end - start)
        return True

    def keep_matches(self, pattern: re.Pattern[str], start: int, end: int) -> None:
        """Protect each match of an expression between ``start`` and ``end``."""
        for found in pattern.finditer(self.text, start, end):
            self.keep(*found.span())

    def put(self, kind: str, start: int, end: int, new: str) -> bool:
        """Replace a span; return False if part of it is already kept or replaced."""
        if not self.keep(start, end):
            return False
        self._put.append((Replacement(start, end, new), kind))
        return True

    def apply_rules(
        self, rules: Iterable[Rule], start: int, end: int, choose: Callable[[Rule, re.Match[str]], str]
    ) -> None:
        """Replace the free matches of rules in one sentence, in the order of the rules.

        Args:
            rules: The rules.
            start: First character of the sentence.
            end: End of the sentence.
            choose: Function that returns the replacement for a match of a rule; its case is adapted to the match.
        """
        for rule in rules:
            if rule.where is not None and not rule.where.search(self.text, start, end):
                continue
            for found in rule.pattern.finditer(self.text, start, end):
                if found[0] and self.is_free(*found.span()):
                    self.put(rule.kind, *found.span(), matching_case(choose(rule, found), found[0]))

    def result(self) -> str:
        """Return the text with all replacements."""
        return apply(self.text, [replacement for replacement, _ in self._put])

    def changes(self) -> tuple[Rewording, ...]:
        """Return the replacements in the order of the text."""
        return tuple(Rewording(kind, self.text[r.start : r.end], r.text) for r, kind in sorted(self._put))


def change_numbers(text: str, change: Callable[[str], str]) -> str:
    """Replace each number in a text. Decimals are exact in ``change``; by default, those of over 28 digits are rounded.

    Args:
        text: The text.
        change: Function that returns a number's replacement.

    Example:
        >>> from decimal import Decimal
        >>> change_numbers("9" * 30 + " x 4 mm", lambda number: str(Decimal(number) * 2))
        '1999999999999999999999999999998 x 8 mm'
    """
    with localcontext() as context:
        context.prec = max(context.prec, len(text) + _MORE_DIGITS)
        return NUMBER.sub(lambda number: change(number[0]), text)


def scaled(digits: str, factor: Decimal) -> str:
    """Multiply a number; keep its number of decimals if the result still differs by a factor of 1.5."""
    value = Decimal(digits)
    if not value:
        return digits
    exponent = Decimal(1).scaleb(-len(digits.partition(".")[2]))
    for step in (exponent, exponent / 10, exponent / 100):
        rounded = (value * factor).quantize(step)
        if rounded and max(rounded, value) >= _LEAST_RATIO * min(rounded, value):
            return f"{rounded:f}"
    return f"{value * factor:f}"
