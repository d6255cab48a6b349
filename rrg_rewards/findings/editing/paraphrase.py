"""Paraphrase reports: the same findings and details in other words, with few common n-grams."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import NamedTuple

from rrg_rewards.findings.editing.report_view import AN, Replacement, apply, read_sentences
from rrg_rewards.findings.editing.rewrite_rules import (
    MEASURED_NUMBERS,
    Rewording,
    RewrittenReport,
    Rule,
    TextRewriter,
    change_numbers,
    read_rules,
)
from rrg_rewards.findings.knowledge.load import expand, load_knowledge, word_pattern
from rrg_rewards.utilities.random_draws import Draws, seeded_draws

_MEASURE = re.compile(rf"(?<![\w.:/])({MEASURED_NUMBERS})\s*([mc]m|(?:milli|centi)met(?:er|re)s?)(?!\w)", re.IGNORECASE)
# "Lungs: The ...", "Findings: There ...".
_LABEL = re.compile(r"[A-Z]\w+(?: \w+)?: +(?=[A-Z])")
_PRESENT = {"is": "is", "was": "is", "are": "are", "were": "are"}
_TWICE = re.compile(r"\b(the) the\b", re.IGNORECASE)
# Only before a lower-case word: the pronunciation of names and abbreviations is unknown.
_ARTICLE = re.compile(r"\b([Aa])(?:\(n\)|n)?(?= ([a-z0-9]\S*))")

_words = partial(word_pattern, "paraphrases")


class _Form(NamedTuple):
    """A form of a whole sentence, and its alternatives."""

    match: re.Pattern[str]
    options: Sequence[str]
    is_fragment: bool


@cache
def _rules() -> tuple[Rule, ...]:
    phrases = load_knowledge("paraphrases")["phrases"]
    words = {expand(pattern, "paraphrases"): options for pattern, options in phrases.items()}
    return read_rules([{"kind": "phrase", "words": words}])


@cache
def _forms() -> tuple[_Form, ...]:
    return tuple(
        _Form(re.compile(expand(form["match"], "paraphrases"), re.IGNORECASE), form["as"], form.get("fragment", False))
        for form in load_knowledge("paraphrases")["sentences"]
    )


def paraphrase_report(report: str, *, seed: int) -> RewrittenReport:
    r"""Rewrite a report with other words, order and units, without changing its meaning.

    Expressions are replaced by synonyms. The form of sentences changes (``CT shows ...`` replaces ``... is seen``), and
    anatomical locations move to the front. Millimetres become centimetres and vice versa, exactly. Sentences are
    reordered within a part of the report; a sentence that refers to the preceding one remains after it. The rules are
    in ``paraphrases.yaml``. They do not depend on the vocabulary of any metric, and a metric may not know some of the
    words.

    Args:
        report: Report of a chest or abdominal CT, in English.
        seed: Non-negative seed. The same report and seed give the same result.

    Raises:
        TypeError: If the report is not a string, or the seed is not an integer.
        ValueError: If the seed is negative.

    Example:
        >>> made = paraphrase_report("A nodule of 5 mm is seen in both lungs. No pleural effusion.", seed=0)
        >>> print(made.candidate.replace(". ", ".\n"))
        The scan reveals no effusion in the pleural space.
        In the lungs bilaterally, there is a nodule measuring 0.5 cm.
    """
    draws = seeded_draws(seed, "paraphrase", report)
    sentences = _sentence_spans(report)
    reworded = [_reworded(report[start:end], draws) for start, end in sentences]
    changes = [change for _, done in reworded for change in done]
    order = _order(report, sentences, draws)
    changes += [Rewording("order", report[slice(*sentences[i])], "") for i, place in enumerate(order) if i != place]
    put = [Replacement(*span, reworded[place][0]) for span, place in zip(sentences, order, strict=True)]
    return RewrittenReport(report, apply(report, put), tuple(changes))


def reordered(report: str, draws: Draws) -> tuple[str, int]:
    """Reorder the sentences within each part of a report, as :func:`paraphrase_report` does.

    Returns:
        The text, and the number of sentences that moved.
    """
    sentences = _sentence_spans(report)
    order = _order(report, sentences, draws)
    put = [Replacement(*span, report[slice(*sentences[i])]) for span, i in zip(sentences, order, strict=True)]
    return apply(report, put), sum(i != place for i, place in enumerate(order))


def _sentence_spans(report: str) -> list[tuple[int, int]]:
    """Return the spans of sentences, without numbers of items and labels such as ``Findings:``."""
    found = []
    for start, end in (sentence.span for sentence in read_sentences(report) if sentence.marker is None):
        while (label := _LABEL.match(report, start, end)) is not None:
            start = label.end()
        found.append((start, end))
    return found


def _order(report: str, sentences: Sequence[tuple[int, int]], draws: Draws) -> list[int]:
    """Return, for each position, the index of the sentence that moves there."""
    runs: list[list[list[int]]] = [[]]
    for index, (start, end) in enumerate(sentences):
        text = report[start:end]
        gap = report[sentences[index - 1][1] : start] if index else "\n"
        if gap.strip() != ".":
            runs.append([])
        # The parts before and after a semicolon do not move: "...; is stable".
        if ";" in (report[end : end + 1], gap.strip()) or _words("headings").match(text):
            runs += [[[index]], []]
            continue
        follows = _words("goes_on").match(text) or _words("within").search(text) or text[:1].islower()
        if runs[-1] and follows:
            runs[-1][-1].append(index)
        else:
            runs[-1].append([index])
    return [index for run in runs for block in draws.shuffled(run) for index in block]


def _reworded(sentence: str, draws: Draws) -> tuple[str, list[Rewording]]:
    """Return a sentence with other units, words and form, and its changes."""
    units = TextRewriter(sentence)
    for measure in _MEASURE.finditer(sentence):
        if not _words("kept").search(sentence, *measure.span()):
            units.put("unit", *measure.span(), _converted(measure))
    text = units.result()
    phrases = TextRewriter(text)
    phrases.keep_matches(_words("kept"), 0, len(text))
    phrases.apply_rules(_rules(), 0, len(text), lambda rule, found: found.expand(draws.pick(rule.options)))
    text = phrases.result()
    is_heading = _words("headings").match(sentence)
    formed = _with_articles(text if is_heading else _in_another_form(text, draws))
    changes = [*units.changes(), *phrases.changes()]
    if formed != text:
        changes.append(Rewording("form", text, formed))
    return formed, changes


def _with_articles(text: str) -> str:
    """Correct ``a`` and ``an`` before the word that follows, and remove repeated articles."""
    text = _TWICE.sub(r"\1", text)
    return _ARTICLE.sub(lambda found: found[1] + ("n" if AN.match(found[2]) else ""), text)


def _converted(measure: re.Match[str]) -> str:
    """Convert a measure from millimetres to centimetres or vice versa."""
    is_millimetres = measure[2].lower().startswith(("mm", "milli"))
    power = -1 if is_millimetres else 1
    numbers = change_numbers(measure[1], lambda number: f"{Decimal(number).scaleb(power).normalize():f}")
    return f"{numbers} {'cm' if is_millimetres else 'mm'}"


def _in_another_form(sentence: str, draws: Draws) -> str:
    """Return a sentence in another form, or unchanged if its form is unknown."""
    verbs = _words("verbs")
    is_fragment = not verbs.search(sentence)
    for form in _forms():
        if form.is_fragment and not (is_fragment and sentence[:1].isupper()):
            continue
        found = form.match.fullmatch(sentence)
        if found is None or verbs.search(found["x"]) or _words("clauses").search(found["x"]):
            continue
        parts = found.groupdict(default="")
        # The words after the subject may deny its findings.
        is_denied = form.is_fragment and _words("denials").search(found["x"])
        is_cut = any(part.count("(") != part.count(")") for part in parts.values())
        if is_cut or is_denied or _words("second_denials").search(parts.get("p", "")):
            continue
        for option in draws.shuffled(form.options):
            if (made := _filled(option, parts)) is not None:
                return made[:1].upper() + made[1:] if sentence[:1].isupper() else _inside(made)
        return sentence
    return sentence


def _filled(option: str, parts: Mapping[str, str]) -> str | None:
    """Return a form filled with the parts of a sentence, or ``None`` if they do not fit."""
    values = {"x": _inside(parts["x"]), "X": parts["x"], "p": parts.get("p", ""), "rest": parts.get("rest", "")}
    values["at"], values["place"] = _inside(parts.get("In", "")), _inside(parts.get("p", "").strip())
    values["is"] = _PRESENT.get(parts.get("is", "").lower(), "")
    if "{is}" in option and not values["is"]:
        return None
    more = ""
    if "{In}" in option:
        front, comma, after = values["p"].partition(",")
        if _words("verbs").search(values["p"]) or _words("clauses").search(front) or "(" in front:
            return None
        values["In"], more = (f"{front.strip()}, " if front else ""), comma + after
    return option.format(**values) + more


def _inside(text: str) -> str:
    """Return a text with a lower-case first letter, unless it begins with a name."""
    return text if _words("proper").match(text) else text[:1].lower() + text[1:]
