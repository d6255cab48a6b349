"""Random answers of judges for CRIMSON: consistent and inconsistent ones, odd types, and errors of JSON."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from rrg_rewards.schemas.errors import ATTRIBUTE_ERROR_TYPES, SIGNIFICANCE_WEIGHTS

LEVELS, TYPES = tuple(SIGNIFICANCE_WEIGHTS), tuple(ATTRIBUTE_ERROR_TYPES)
# Findings and explanations, some of which the repairs of the published code change.
TEXTS = (
    "small left effusion",
    "nodule of 7, mass",
    "fracture of T7, T8",
    'says "large", not small',
    "patient\u2019s \u201cold\u201d scar",
    "5 \\ 6 mm",
    "{see above}",
    "",
    "épanchement",
    "a, b",
    "x" * 50,
    "\ud800",
)
ODD = (
    None,
    True,
    False,
    0,
    1,
    1.0,
    -1,
    2.5,
    "",
    "R1",
    "P1",
    "1",
    "true",
    "urgent",
    "significant",
    "location and severity",
    [],
    {},
    [[]],
    ["R1"],
    ["P1", "P1"],
    [1, True],
    [None],
    ["location"],
    {"location": 1},
    {"R1": 0, "P2": 1},
    [{"id": "R1"}],
    [{"ref_id": "R1"}],
    {"id": "P1", "ref_id": "R2"},
    float("nan"),
    10**400,
)
KEYS = (
    *("id", "finding", "clinical_significance", "ref_id", "pred_id", "severity", "error_types"),
    *("explanation", "reference_findings", "predicted_findings", "matched_findings", "errors"),
    *("false_findings", "missing_findings", "attribute_errors"),
)


def random_answers(number: int, seed: int) -> Iterator[str]:
    """Yield answers: about a quarter without changes of the text, and most of the others with one or two."""
    draw = random.Random(seed)
    for _ in range(number):
        content = _evaluation(draw)
        for _ in range(draw.choice((0, 0, 0, 1, 1, 3))):
            content = _changed(draw, content)
        text = _written(draw, content)
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            text = draw.choice(draw.choice((_REPAIRED, _REPAIRED, _BROKEN)))(draw, text)
        yield text


def _evaluation(draw: random.Random) -> dict[str, Any]:
    """Return an evaluation that is consistent half of the time."""
    reference, predicted = (
        [
            {"id": f"{side}{i}", "finding": draw.choice(TEXTS), "clinical_significance": draw.choice(LEVELS)}
            for i in range(1, draw.choice((0, 1, 2, 3, 6)) + 1)
        ]
        for side in "RP"
    )
    if draw.random() < 0.2:
        for finding in draw.choice((reference, predicted)):
            finding["clinical_significance"] = draw.choice(("benign_expected", "moderate", ""))
    wild = draw.random() < 0.5
    known = [[one["id"] for one in findings] + (["R9", "P9"] if wild else []) for findings in (reference, predicted)]
    pairs = [{"ref_id": r, "pred_id": p} for r in known[0] for p in known[1]]
    matched = [draw.choice(pairs) for _ in range(draw.choice((0, 1, 2, 4)))] if pairs else []
    wrong = [
        {
            **draw.choice(pairs if wild else matched),
            "severity": draw.choice(("significant", "significant", "negligible", "huge")),
            "error_types": draw.sample(TYPES, draw.choice((0, 1, 1, 2))),
            "explanation": draw.choice(TEXTS),
        }
        for _ in range(draw.choice((0, 0, 1, 2, 3)) if matched else 0)
    ]
    seen = {id_ for match in matched for id_ in match.values()}
    missing, false = (
        [draw.choice(ids) for _ in range(draw.choice((0, 1, 2, 5)))]
        if wild and ids
        else [i for i in ids if i not in seen]
        for ids in known
    )
    errors = {"false_findings": false, "missing_findings": missing, "attribute_errors": wrong}
    return {
        "reference_findings": reference,
        "predicted_findings": predicted,
        "matched_findings": matched,
        "errors": errors,
    }


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container inside a value with a key or index of it."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _changed(draw: random.Random, content: Any) -> Any:
    """Return the content with one change of a value, a key or an entry."""
    if draw.random() < 0.02:
        return draw.choice(ODD)
    content = json.loads(json.dumps(content))
    if not (places := list(_places(content))):
        return content
    owner, key = draw.choice(places)
    kind = draw.choice(("odd", "odd", "drop", "copy", "add", "same"))
    if kind == "odd":
        owner[key] = draw.choice(ODD)
    elif kind == "drop":
        del owner[key]
    elif kind == "copy" and isinstance(owner, list):
        owner.insert(draw.randrange(len(owner) + 1), owner[key])
    elif kind == "add" and isinstance(owner, dict):
        owner[draw.choice(KEYS)] = draw.choice(ODD)
    else:
        # A value from elsewhere in the content.
        other, place = draw.choice(places)
        owner[key] = json.loads(json.dumps(other[place])) if place in other or isinstance(other, list) else None
    return content


def _written(draw: random.Random, content: Any) -> str:
    style: dict[str, Any] = draw.choice(({}, {"separators": (",", ":")}, {"indent": 2}, {"separators": (" , ", " : ")}))
    return json.dumps(content, ensure_ascii=draw.random() < 0.5, **style)


def _replaced(pattern: str, new: str | Callable[[random.Random], str]) -> Callable[[random.Random, str], str]:
    """Return a change of the text: replace one occurrence, drawn at random, of a pattern."""

    def change(draw: random.Random, text: str) -> str:
        if not (found := list(re.finditer(pattern, text))):
            return text
        match = draw.choice(found)
        return text[: match.start()] + match.expand(new if isinstance(new, str) else new(draw)) + text[match.end() :]

    return change


def _inserted(*texts: str) -> Callable[[random.Random, str], str]:
    def change(draw: random.Random, text: str) -> str:
        place = draw.randrange(len(text) + 1)
        return text[:place] + draw.choice(texts) + text[place:]

    return change


# Neighbours of a quote within a text, which may look like those of a JSON string.
_BEFORE_QUOTE = ("", " ", ":", "[", "{", ",", "7,", "],", "},", '",', r"\\")
_AFTER_QUOTE = ("", " ", ":", "]", "}", ",", ",7", ',"', ",[", ",{", r"\\")
# What the published code repairs, often or always.
_REPAIRED: tuple[Callable[[random.Random, str], str], ...] = (
    _replaced(r'(?<=[,{] )"(?=\w+"\s*:)|(?<=[,{])"(?=\w+"\s*:)', ""),
    _replaced(r'\[(?=["\d])', r'["":['),
    _replaced(r'(?<="),(?=\s*")', r', "pred_old",'),
    _replaced(r"\{(?=\s*\")", r'{"old",'),
    _replaced(
        r"(?<=\w) (?=\w)",
        lambda draw: draw.choice((r" \\_", r" \\\\\\ ", ' "', '" ', ' "x" ', '", ', "\u2019", " \u201cy\u201d")),
    ),
    _replaced(r"(?<=\w) (?=\w)", lambda draw: f'{draw.choice(_BEFORE_QUOTE)}"{draw.choice(_AFTER_QUOTE)}'),
    _replaced(r'\\"', '"'),
    _replaced(r'"(\w+)"\s*:\s*("[^"]*")', r'"\1": \2, "\1": "other"'),
    _replaced(r'"(\w+)"\s*:\s*("[^"]*")', r'"\1": "R1", "\1": \2'),
)

# What it rarely or never repairs.
_BROKEN: tuple[Callable[[random.Random, str], str], ...] = (
    _replaced(r"\]|\}", ""),
    _replaced(r"(?=[\]}])", ","),
    _replaced(r'"', ""),
    _replaced(r'"', "'"),
    _replaced(r'"', "”"),
    _replaced(r":", ""),
    _replaced(r",", ""),
    _replaced(r'"\w+"', lambda draw: draw.choice(("NaN", "-Infinity", "None", "7", "1e999", "01", "nul", "\u00b2"))),
    lambda draw, text: text[: draw.randrange(len(text) + 1)],
    lambda draw, text: draw.choice(
        ("```json\n{}\n```", "Answer: {}", "{} done.", "{}\n{}", "\ufeff{}", "<think>a</think>{}", " \n{}\t", '{} "x"')
    ).replace("{}", text, 1),
    _inserted('"', "\\", ",", ":", "{", "}", "[", "]", "\u2019", "\u201c", "\n", "\u00a0", "/* a */", "7, a", "\ud83d"),
    _inserted('"', '"', '"'),
)
