"""Corrupt reports: the same findings in mostly the same words, with wrong sides, sizes and severities."""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache, partial
from itertools import pairwise

from rrg_rewards.findings.editing.report_view import read_sentences
from rrg_rewards.findings.editing.rewrite_rules import (
    MEASURED_NUMBERS,
    NUMBER,
    RewrittenReport,
    Rule,
    TextRewriter,
    change_numbers,
    read_rules,
    scaled,
)
from rrg_rewards.findings.knowledge.load import load_knowledge, word_pattern
from rrg_rewards.utilities.random_draws import Draws, seeded_draws

_OPENING = re.compile(r"\W*(?:in|on|at|within|along|around|for)\b", re.IGNORECASE)
_JOINT = re.compile(r",|(?<!\w)and(?!\w)")
_CENTIMETRES = ("cm", "centi")

_words = partial(word_pattern, "corruptions")


@cache
def _rules() -> tuple[Rule, ...]:
    return read_rules(load_knowledge("corruptions")["sets"])


@cache
def _measure() -> re.Pattern[str]:
    units = load_knowledge("corruptions")["size"]["units"]
    return re.compile(rf"(?<![\w.:])(-?{MEASURED_NUMBERS})\s*({units})(?!\w)", re.IGNORECASE)


def corrupt_report(report: str, *, seed: int) -> RewrittenReport:
    """Change all details of a report that can be changed, and keep its findings.

    Sides, lobes, segments, zones, sizes (by a factor of at least 1.5), densities, margins, severities, distributions,
    types, numbers and changes since a prior study become the opposite or another value. A repeated detail changes to
    the same value each time. Denials, statements of normality, sentences on technique, and anatomical names such as
    ``right atrium`` do not change. The rules are in ``corruptions.yaml``.

    Args:
        report: Report of a chest or abdominal CT, in English.
        seed: Non-negative seed. The same report and seed give the same result.

    Raises:
        TypeError: If the report is not a string, or the seed is not an integer.
        ValueError: If the seed is negative.

    Example:
        >>> made = corrupt_report("Small nodule of 5 mm in the left upper lobe. No effusion on the right.", seed=0)
        >>> made.candidate, made.counts
        ('Large nodule of 10 mm in the right lower lobe. No effusion on the right.',
         {'severity': 1, 'size': 1, 'side': 1, 'level': 1})
    """
    draws = seeded_draws(seed, "corrupt", report)
    rewriter = TextRewriter(report)
    chosen: dict[tuple[str, str], str] = {}

    def choose(rule: Rule, found: re.Match[str]) -> str:
        key = (rule.kind, found[0].lower())
        if key not in chosen:
            chosen[key] = found.expand(draws.pick(rule.options)).replace("  ", " ")
        return chosen[key]

    for start, end in (sentence.span for sentence in read_sentences(report)):
        _keep_denials(rewriter, start, end)
        rewriter.keep_matches(_words("kept"), start, end)
        for measure in _measure().finditer(report, start, end):
            _change_size(rewriter, measure, chosen, draws)
        rewriter.apply_rules(_rules(), start, end, choose)
    return RewrittenReport(report, rewriter.result(), rewriter.changes())


def _keep_denials(rewriter: TextRewriter, start: int, end: int) -> None:
    """Protect denials, statements of normality and descriptions of technique in a sentence from changes."""
    sentence = rewriter.text[start:end]
    if _words("technique").search(sentence):
        rewriter.keep(start, end)
        return
    # Mask harmless expressions, which are not denials, with text of the same length.
    plain = _words("harmless").sub(lambda found: "_" * len(found[0]), sentence)
    for limited in _words("limited").finditer(plain):
        rewriter.keep(start + limited.start(), start + limited.end())
    plain = _words("limited").sub(lambda found: " " * len(found[0]), plain)
    for first, last in _clauses(plain):
        if _words("denials").search(plain, first, last):
            # Character by character, because some of them may already be protected.
            for place in range(start + first, start + last):
                rewriter.keep(place, place + 1)


def _clauses(sentence: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the clauses, which limit the scope of a denial."""
    verbs = _words("verbs")
    cuts: list[int] = []
    for found in _words("breaks").finditer(sentence):
        # "In the left axilla, no node was seen" is one clause.
        before = sentence[cuts[-1] if cuts else 0 : found.start()]
        if not _OPENING.match(before) or verbs.search(before):
            cuts.append(found.start())
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        joints = [start + joint.start() for joint in _JOINT.finditer(sentence[start:end])]
        first = start
        has_verb = verbs.search(sentence, start, (joints or [end])[0]) is not None
        for cut, stop in pairwise([*joints, end]):
            has_next = verbs.search(sentence, cut, stop) is not None
            if has_verb and has_next:
                yield first, cut
                first = cut
            has_verb = has_verb or has_next
        yield first, end


def _change_size(
    rewriter: TextRewriter, measure: re.Match[str], chosen: dict[tuple[str, str], str], draws: Draws
) -> None:
    """Multiply all numbers of a measure by one factor; a repeated measure gets the same value."""
    numbers, unit = measure[1], measure[2]
    key = ("size", f"{numbers} {unit}".lower())
    if key not in chosen:
        size = load_knowledge("corruptions")["size"]
        scale = 10 if unit.lower().startswith(_CENTIMETRES) else 1
        is_small = Decimal(NUMBER.findall(numbers)[0]) * scale < size["below"]
        factor = Decimal(str(draws.pick(size["small" if is_small else "large"])))
        chosen[key] = change_numbers(numbers, partial(scaled, factor=factor))
    start = measure.start(1)
    if chosen[key] != numbers:
        rewriter.put("size", start, start + len(numbers), chosen[key])
