"""The report with its details told otherwise: the same findings, most of the same words, and wrong."""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from rrg_rewards.findings.errors import seeded_draws
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.rewriting import (
    MEASURED_NUMBERS,
    Places,
    RewrittenReport,
    Rule,
    joined,
    matching_case,
    read_rules,
    spans,
)
from rrg_rewards.utilities.draws import Draws

__all__ = ["corrupt_report"]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FACTOR = Decimal("1.5")
_OPENING = re.compile(r"\W*(?:in|on|at|within|along|around|for)\b", re.IGNORECASE)
_CENTIMETRES = ("cm", "centi")


class _Words(NamedTuple):
    """The data of ``corruptions.yaml``, compiled."""

    kept: re.Pattern[str]
    harmless: re.Pattern[str]
    denials: re.Pattern[str]
    limited: re.Pattern[str]
    breaks: re.Pattern[str]
    verbs: re.Pattern[str]
    technique: re.Pattern[str]
    rules: tuple[Rule, ...]
    measure: re.Pattern[str]
    size: dict[str, Any]


@cache
def _words() -> _Words:
    data = read_knowledge("corruptions")
    size = data["size"]
    return _Words(
        joined(data["kept"]),
        joined(data["harmless"]),
        joined(data["denials"]),
        joined(data["limited"]),
        re.compile(data["breaks"], re.IGNORECASE),
        joined([data["verbs"]]),
        re.compile(data["technique"], re.IGNORECASE),
        read_rules(data["sets"]),
        re.compile(rf"(?<![\w.:])(-?{MEASURED_NUMBERS})\s*({size['units']})(?!\w)", re.IGNORECASE),
        size,
    )


def corrupt_report(report: str, *, seed: int) -> RewrittenReport:
    """Tell every detail of a report otherwise that can be, and leave which findings there are as it is.

    Sides, lobes and segments, zones, sizes (by a factor of 1.5 at least), densities, margins, severities,
    distributions, types, numbers and changes since an earlier examination become the opposite or another value; a
    detail told twice is changed alike. Denials, statements of normality and sentences on technique stay as they are,
    and so do names of anatomy such as ``right atrium`` and ``left main coronary artery``. The words are data:
    ``corruptions.yaml``.

    Args:
        report: Report of a chest or abdominal CT, in English.
        seed: Not negative; the same report and seed give the same version.

    Raises:
        TypeError: If the report is no text, or the seed is no integer.
        ValueError: If the seed is negative.

    Example:
        >>> made = corrupt_report("Small nodule of 5 mm in the left upper lobe. No effusion on the right.", seed=0)
        >>> made.candidate, made.counts
        ('Large nodule of 10 mm in the right lower lobe. No effusion on the right.',
         {'severity': 1, 'size': 1, 'side': 1, 'level': 1})
    """
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    draws = seeded_draws(seed, "corrupt", report)
    words, places = _words(), Places(report)
    chosen: dict[tuple[str, str], str] = {}
    for start, end in spans(report):
        _keep_denials(places, start, end)
        for kept in words.kept.finditer(report, start, end):
            places.keep(*kept.span())
        for measure in words.measure.finditer(report, start, end):
            _change_size(places, measure, chosen, draws)
        for rule in words.rules:
            _change_words(places, rule, (start, end), chosen, draws)
    return RewrittenReport(report, places.result(), places.changes())


def _keep_denials(places: Places, start: int, end: int) -> None:
    """Take the clauses that deny something, call it normal or tell how the examination was done."""
    words = _words()
    sentence = places.text[start:end]
    if words.technique.search(sentence):
        places.keep(start, end)
        return
    # What only looks like a denial must not be found, but keep its length.
    plain = words.harmless.sub(lambda found: "_" * len(found[0]), sentence)
    for limited in words.limited.finditer(plain):
        places.keep(start + limited.start(), start + limited.end())
    plain = words.limited.sub(lambda found: " " * len(found[0]), plain)
    for first, last in _clauses(plain):
        if words.denials.search(plain, first, last):
            # A place of it may be taken by a limited denial.
            for place in range(start + first, start + last):
                places.keep(place, place + 1)


def _clauses(sentence: str) -> Iterator[tuple[int, int]]:
    """Parts of a sentence that a denial does not reach beyond."""
    words = _words()
    cuts: list[int] = []
    for found in words.breaks.finditer(sentence):
        # "In the left axilla, no node was seen" is one statement.
        before = sentence[cuts[-1] if cuts else 0 : found.start()]
        if words.verbs.search(before) or not _OPENING.match(before):
            cuts.append(found.start())
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        first = start
        for joint in re.finditer(r",|(?<!\w)and(?!\w)", sentence[start:end]):
            cut = start + joint.start()
            following = re.search(r",|(?<!\w)and(?!\w)", sentence[cut + 1 : end])
            stop = end if following is None else cut + 1 + following.start()
            if words.verbs.search(sentence, first, cut) and words.verbs.search(sentence, cut, stop):
                yield first, cut
                first = cut
        yield first, end


def _change_size(places: Places, measure: re.Match[str], chosen: dict[tuple[str, str], str], draws: Draws) -> None:
    """Multiply the numbers of a measure; those of one measure alike, and a measure told twice alike."""
    numbers, unit = measure[1], measure[2]
    key = ("size", f"{numbers} {unit}".lower())
    if key not in chosen:
        size = _words().size
        first = _NUMBER.search(numbers)
        if first is None:
            return
        scale = 10 if unit.lower().startswith(_CENTIMETRES) else 1
        is_small = abs(Decimal(first[0])) * scale < size["below"]
        factor = Decimal(str(draws.pick(size["small" if is_small else "large"])))
        changed = _NUMBER.sub(lambda number: _times(number[0], factor), numbers)
        chosen[key] = changed
    start = measure.start(1)
    if chosen[key] != numbers:
        places.put("size", start, start + len(numbers), chosen[key])


def _times(digits: str, factor: Decimal) -> str:
    """A number times a factor, in as many decimals as it has if it then still differs by 1.5 times."""
    value = Decimal(digits)
    if not value:
        return digits
    exponent = Decimal(1).scaleb(-len(digits.partition(".")[2]))
    for step in (exponent, exponent / 10, exponent / 100):
        rounded = (value * factor).quantize(step)
        if rounded and max(rounded, value) >= _FACTOR * min(rounded, value):
            return str(rounded)
    return str(value * factor)


def _change_words(
    places: Places, rule: Rule, span: tuple[int, int], chosen: dict[tuple[str, str], str], draws: Draws
) -> None:
    start, end = span
    if rule.where is not None and not rule.where.search(places.text, start, end):
        return
    for found in rule.pattern.finditer(places.text, start, end):
        if not found[0] or not places.is_free(*found.span()):
            continue
        key = (rule.kind, found[0].lower())
        if key not in chosen:
            chosen[key] = found.expand(draws.pick(rule.options)).replace("  ", " ")
        places.put(rule.kind, *found.span(), matching_case(chosen[key], found[0]))
