"""The report in other words: the same findings and details, few of the same n-grams, and right."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from rrg_rewards.findings.errors import seeded_draws
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.rewriting import (
    MEASURED_NUMBERS,
    Places,
    Rewording,
    RewrittenReport,
    Rule,
    decimal_text,
    joined,
    matching_case,
    read_rules,
    spans,
)
from rrg_rewards.utilities.draws import Draws

__all__ = ["paraphrase_report"]

_MEASURE = re.compile(
    rf"(?<![\w.:/])({MEASURED_NUMBERS})\s*(mm|millimet(?:er|re)s?|cm|centimet(?:er|re)s?)(?!\w)",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
# "Lungs: The ...", "Findings: There ...".
_LABEL = re.compile(r"[A-Z]\w+(?: \w+)?: +(?=[A-Z])")
_DENIAL = re.compile(r"\b(?:no|not|none|normal|natural|unremarkable|without|within|negative|clear|preserved)\b", re.I)
_SECOND_DENIAL = re.compile(r"\b(?:no|not|nor|none|neither)\b", re.IGNORECASE)
_PRESENT = {"is": "is", "was": "is", "are": "are", "were": "are"}
_CLAUSE_WORDS = re.compile(r"\b(?:which|that|who|whose|where|because|although|but|when|while|if)\b", re.IGNORECASE)
_TWICE = re.compile(r"\b(the) the\b", re.IGNORECASE)
_MACRO = re.compile(r"(?<!\?P)(?<!\?)<([a-z]+)>")
# Before a small letter only: names and abbreviations are read in their own ways.
_ARTICLE = re.compile(r"\b([Aa])(?:\(n\)|n)?(?= (?:(one|uni|use|eu|hour)|([aeiou])|[a-z0-9]))")


class _Form(NamedTuple):
    """A form that a whole sentence may have, and its other forms."""

    match: re.Pattern[str]
    options: tuple[str, ...]
    is_fragment: bool


class _Words(NamedTuple):
    """The data of ``paraphrases.yaml``, compiled."""

    kept: re.Pattern[str]
    headings: re.Pattern[str]
    goes_on: re.Pattern[str]
    within: re.Pattern[str]
    proper: re.Pattern[str]
    verbs: re.Pattern[str]
    rules: tuple[Rule, ...]
    forms: tuple[_Form, ...]


@cache
def _words() -> _Words:
    data = read_knowledge("paraphrases")
    phrases = {
        pattern.replace("<size>", data["size"]).replace("<lesions>", data["lesions"]): options
        for pattern, options in data["phrases"].items()
    }
    return _Words(
        joined(data["kept"]),
        joined(data["headings"]),
        joined(data["goes_on"]),
        joined(data["within"]),
        re.compile(data["proper"]),
        joined([data["verbs"]]),
        read_rules([{"kind": "phrase", "words": phrases}]),
        tuple(
            _Form(
                re.compile(_expanded(entry["match"], data["macros"]), re.IGNORECASE),
                tuple(entry["as"]),
                entry.get("fragment", False),
            )
            for entry in data["sentences"]
        ),
    )


def _expanded(pattern: str, macros: Mapping[str, str]) -> str:
    """An expression with its macros, which may hold macros."""
    while (found := _MACRO.search(pattern)) is not None:
        pattern = pattern.replace(found[0], macros[found[1]])
    return pattern


def paraphrase_report(report: str, *, seed: int) -> RewrittenReport:
    r"""Tell a report in other words, in another order and in other units, without changing what it says.

    Expressions are exchanged for others of the same meaning, sentences take another form (``CT shows ...`` for
    ``... is seen``), places move to the front, millimetres become centimetres and the other way round, exactly, and
    sentences change places within their part of the report; one that speaks of the sentence before it stays behind it.
    The words are data: ``paraphrases.yaml``. They are nobody's vocabulary but their own: what a metric does not
    understand of them is the metric's.

    Args:
        report: Report of a chest or abdominal CT, in English.
        seed: Not negative; the same report and seed give the same version.

    Raises:
        TypeError: If the report is no text, or the seed is no integer.
        ValueError: If the seed is negative.

    Example:
        >>> made = paraphrase_report("A nodule of 5 mm is seen in both lungs. No pleural effusion.", seed=0)
        >>> print(made.candidate.replace(". ", ".\n"))
        The scan reveals no effusion in the pleural space.
        In the lungs bilaterally, there is a nodule measuring 0.5 cm.
    """
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    draws = seeded_draws(seed, "paraphrase", report)
    places = _sentence_places(report)
    texts, changes = [], []
    for start, end in places:
        text, done = _reworded(report[start:end], draws)
        texts.append(text)
        changes += done
    order = _order(report, places, draws)
    changes += [
        Rewording("order", report[start:end], "")
        for (start, end), place in zip(places, order, strict=True)
        if places[place] != (start, end)
    ]
    parts, last = [], 0
    for (start, end), place in zip(places, order, strict=True):
        parts += [report[last:start], texts[place]]
        last = end
    return RewrittenReport(report, "".join([*parts, report[last:]]), tuple(changes))


def _sentence_places(report: str) -> list[tuple[int, int]]:
    """Places of sentences, the label of a part of the report left out."""
    found = []
    for start, end in spans(report):
        while (label := _LABEL.match(report, start, end)) is not None:
            start = label.end()
        found.append((start, end))
    return found


def _order(report: str, places: Sequence[tuple[int, int]], draws: Draws) -> list[int]:
    """For each place the sentence that comes to stand there."""
    words = _words()
    runs: list[list[list[int]]] = [[]]
    for index, (start, end) in enumerate(places):
        text = report[start:end]
        gap = report[places[index - 1][1] : start] if index else "\n"
        if gap.strip() != ".":
            runs.append([])
        # "...; is stable": what stands around a semicolon stays there.
        if ";" in (report[end : end + 1], gap.strip()) or words.headings.match(text):
            runs += [[[index]], []]
            continue
        follows = words.goes_on.match(text) or words.within.search(text) or text[:1].islower()
        if runs[-1] and follows:
            runs[-1][-1].append(index)
        else:
            runs[-1].append([index])
    return [index for run in runs for block in draws.shuffled(run) for index in block]


def _reworded(sentence: str, draws: Draws) -> tuple[str, list[Rewording]]:
    """A sentence in other units, other words and another form."""
    units = Places(sentence)
    for measure in _MEASURE.finditer(sentence):
        if not _words().kept.search(sentence, *measure.span()):
            units.put("unit", *measure.span(), _converted(measure))
    text = units.result()
    phrases = Places(text)
    for kept in _words().kept.finditer(text):
        phrases.keep(*kept.span())
    for rule in _words().rules:
        for found in rule.pattern.finditer(text):
            if found[0] and phrases.is_free(*found.span()):
                new = matching_case(found.expand(draws.pick(rule.options)), found[0])
                phrases.put(rule.kind, *found.span(), new)
    text = phrases.result()
    is_heading = _words().headings.match(sentence)
    formed = _with_articles(text if is_heading else _in_another_form(text, draws))
    changes = [*units.changes(), *phrases.changes()]
    if formed != text:
        changes.append(Rewording("form", text, formed))
    return formed, changes


def _with_articles(text: str) -> str:
    """``a`` and ``an`` as the word behind them has it, and no article twice."""
    text = _TWICE.sub(r"\1", text)
    return _ARTICLE.sub(lambda found: found[1] + ("n" if found[3] or found[2] == "hour" else ""), text)


def _converted(measure: re.Match[str]) -> str:
    """A measure in centimetres for one in millimetres, and the other way round."""
    is_millimetres = measure[2].lower().startswith(("mm", "milli"))
    numbers = _DIGITS.sub(lambda number: decimal_text(number[0], -1 if is_millimetres else 1), measure[1])
    return f"{numbers} {'cm' if is_millimetres else 'mm'}"


def _in_another_form(sentence: str, draws: Draws) -> str:
    """A sentence in another form, if it has one of those that are known."""
    words = _words()
    is_fragment = not words.verbs.search(sentence)
    for form in words.forms:
        if form.is_fragment and not (is_fragment and sentence[:1].isupper()):
            continue
        found = form.match.fullmatch(sentence)
        if found is None or words.verbs.search(found["x"]) or _CLAUSE_WORDS.search(found["x"]):
            continue
        if form.is_fragment and _DENIAL.search(found["x"]):
            continue
        parts = found.groupdict(default="")
        # A second statement behind the first may deny what the first one states.
        if _SECOND_DENIAL.search(parts.get("p", "")) or any(
            part.count("(") != part.count(")") for part in parts.values()
        ):
            continue
        for option in draws.shuffled(form.options):
            made = _filled(option, parts)
            if made is not None:
                return _capitalised(made) if sentence[:1].isupper() else _inside(made)
        return sentence
    return sentence


def _filled(option: str, parts: Mapping[str, str]) -> str | None:
    """A form with its parts; None where it does not suit them."""
    values = {"x": _inside(parts["x"]), "X": parts["x"], "p": parts.get("p", ""), "rest": parts.get("rest", "")}
    values["at"], values["place"] = _inside(parts.get("In", "")), _inside(parts.get("p", "").strip())
    values["is"] = _PRESENT.get(parts.get("is", "").lower(), "")
    if "{is}" in option and not values["is"]:
        return None
    more = ""
    if "{In}" in option:
        front, comma, after = values["p"].partition(",")
        if _words().verbs.search(values["p"]) or _CLAUSE_WORDS.search(front) or "(" in front:
            return None
        values["In"], more = (f"{front.strip()}, " if front else ""), comma + after
    return option.format(**values) + more


def _inside(text: str) -> str:
    """A sentence's beginning inside another: without its capital, unless it is a name."""
    return text if _words().proper.match(text) else text[:1].lower() + text[1:]


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
