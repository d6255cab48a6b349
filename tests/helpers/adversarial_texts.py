"""Random and adversarial texts with a fixed seed: what a policy may generate before it generates reports."""

import json
import random
from collections.abc import Callable

__all__ = ["REPEATED", "adversarial_texts", "repeated_text"]

WORDS = """
no without nodule nodules effusion pleural right left upper lobe lung of 5 mm x 4 12.5 cm HU increased since prior
the is was seen not, and or but . ; : ( ) ? possible cannot be excluded previously resolved new stable enlarged heart
liver kidney cyst lymph nodes calcification aorta Impression: Findings: 1) - * history for status post
"""
MARKUP = r"""
{} {0} {finding} {0.__class__} %s %(a)s %n ${HOME} $(id) `id` <b>nodule</b> <script>alert(1)</script> &lt;&amp;
<|im_start|>system [INST] ```json --- !!python/object/apply:os.system [ls] &a *a <<: | > # ' " \ \n \u0000
{"answers":[]} {"a":{"a":[[]]}} null NaN -Infinity 1e999 true yes off ../../etc/passwd \d+ (?P<x>.*)*
=cmd|'/c calc'!A1 +1 @SUM(1) ' OR 1=1;--
"""
CONTROLS = [chr(code) for code in (*range(32), 127, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF, 0xFFFD, 0xFFFE, 0x1E, 0xAD)]
SURROGATES = ["\ud800", "\udfff", "\udc80", "\ud83d\ude00"]
INVISIBLE = ["\u200b", "\u200d", "\u202e", "\u202d", "\u2066", "\u2069", "\u0301", "\u0338", "\U000e0041"]
RIGHT_TO_LEFT = ["\u05d0\u05d9\u05df", "\u0644\u0627", "\u202e", "nodule", "5 mm", "\u0661\u0662", "\u200f", "."]
# Letters that change length or their relation to others when their case changes, digits that are not decimal.
LETTERS = [
    *("\u00df", "\u0130", "\u0131", "\u017f", "\u0149", "\u01f0"),
    *("\u0390", "\ufb00", "\ufb03", "\u1e9e", "\u212a", "\u212b"),
    *("\u00b2", "\u2460", "\u0663", "\u0be7", "\u4e00", "\u3007", "\u2163", "\u00bd", "\U0001d7d8", "\U0001f3fd"),
]
REPEATED = (
    *("nodule ", "no ", "no nodule, ", "effusion and ", "possible ", "previously ", "right ", "5 mm ", "5 x ", "1,5-"),
    *(". ", "\n", "\r\n\t", ":", "?", ",", "(", "((", "[{", ")", "/", "-", "*", "a", " ", "0", "9.", "a\u0301"),
    *(
        "Findings:\n",
        "nodule of 5 mm in the right upper lobe, ",
        "There is no change. ",
        "cannot be excluded ",
        '"',
        "\\",
    ),
)
"""Texts whose repetitions have made readers of text slow or deep."""


def repeated_text(unit: str, length: int) -> str:
    """Return repetitions of a text with about the given number of characters."""
    return unit * max(1, length // len(unit))


def _random_unicode(draw: random.Random) -> str:
    return "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randrange(1, 120)))


def _words(*pools: list[str]) -> Callable[[random.Random], str]:
    def text(draw: random.Random) -> str:
        pieces = [draw.choice(draw.choice(pools)) for _ in range(draw.randrange(1, 60))]
        return draw.choice(["", " ", "\n", ". "]).join(pieces)

    return text


def _numbers(draw: random.Random) -> str:
    digits = "".join(draw.choices("0123456789", k=draw.choice([1, 5, 29, 101, 400, 5_000])))
    forms = (
        "nodule of {} mm",
        "{} x {} cm",
        "-{}e{}",
        "0.{}",
        "{}-{} mm nodule",
        "image {}",
        "{}%",
        "{},{} cm",
        "T{} 1/{}",
    )
    return draw.choice(forms).format(digits, digits[:7])


def _long_word(draw: random.Random) -> str:
    return "No " + draw.choice(["a", "nodul", "ß", "x1", "-", "\u0301"]) * draw.randrange(1_000, 8_000) + " effusion."


def _nested(draw: random.Random) -> str:
    depth = draw.choice([5, 100, 3_000])
    opening, closing = draw.choice(["()", "[]", "{}", "<>", ("(nodule ", ")"), ('{"a":', "}"), ("- ", "")])
    return opening * depth + draw.choice(["", "nodule", "no effusion"]) + closing * draw.choice([depth, 0, depth + 1])


def _repetition(draw: random.Random) -> str:
    return repeated_text(draw.choice(REPEATED), draw.choice([10, 300, 3_000]))


def _answer(draw: random.Random) -> str:
    """Return JSON that resembles answers of a judge."""
    leaf = [None, True, -1, 1e308, "", "yes", "Q1", "A1", "R1", "nodule", "\ud800", "5" * 300, [], {}]
    keys = ["answers", "question", "answer", "grades", "pair", "grade", "findings", "reference_findings", "id", "score"]
    keys += [
        "matched_findings",
        "errors",
        "attributes",
        "finding",
        "quote",
        "clinical_significance",
        "report",
        "scores",
    ]

    def value(depth: int) -> object:
        if depth == 0 or draw.random() < 0.3:
            return draw.choice(leaf)
        if draw.random() < 0.4:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        return {draw.choice(keys): value(depth - 1) for _ in range(draw.randrange(4))}

    text = json.dumps(value(4))
    return text if draw.random() < 0.6 else text[: draw.randrange(len(text) + 1)]


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    _random_unicode,
    _words(WORDS.split()),
    _words(WORDS.split(), CONTROLS),
    _words(WORDS.split(), SURROGATES, INVISIBLE),
    _words(WORDS.split(), MARKUP.split()),
    _words(MARKUP.split()),
    _words(RIGHT_TO_LEFT, WORDS.split()),
    _words(WORDS.split(), LETTERS),
    _numbers,
    _long_word,
    _nested,
    _repetition,
    _answer,
)


def adversarial_texts(count: int, seed: int = 0) -> list[str]:
    """Return texts of all kinds in turn, and before them the empty text and one of spaces."""
    draw = random.Random(seed)
    return ["", " \n\t", *(_KINDS[i % len(_KINDS)](draw) for i in range(count - 2))]
