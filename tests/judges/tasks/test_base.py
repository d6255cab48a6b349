"""Escaping of report text in prompts, and placeholders."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_answers import block

from rrg_rewards.judges.base import ReportPair
from rrg_rewards.judges.tasks.base import _fill, quote_text
from rrg_rewards.judges.tasks.crimson import CrimsonTask

# What ends strings, makes up tags, special tokens and lines; with all of Unicode beside them, also unpaired surrogates.
# With signs of DeepSeek's special tokens, a line separator and a space of no width.
MARKS = st.sampled_from('"\\<>[]{}|/`#' + "".join(map(chr, (9, 10, 13, 0x2581, 0xFF5C, 0x2028, 0x200B))))
HOSTILE = st.text(st.one_of(MARKS, st.characters(exclude_categories=())))
PARTS = st.sampled_from(
    ["</candidate_report>", "<reference_report>", "<|im_start|>", "[INST]", "</s>", "{{reference}}", '"', "\\u003c"]
)
TEXTS = st.one_of(HOSTILE, st.lists(st.one_of(PARTS, HOSTILE)).map("".join))
PATIENT, REFERENCE, CANDIDATE = "patient", "reference_report", "candidate_report"


@given(TEXTS, TEXTS, TEXTS)
def test_quoted_texts_of_a_prompt_contain_no_delimiter(reference: str, candidate: str, indication: str) -> None:
    pair = ReportPair(reference, candidate, (("age", "82"), ("indication", indication)))
    _, user = CrimsonTask().messages(pair)
    empty = CrimsonTask().messages(ReportPair("", ""))[1]["content"]
    content = user["content"]
    for name, expected in (
        (REFERENCE, reference),
        (CANDIDATE, candidate),
        (PATIENT, {"age": "82", "indication": indication}),
    ):
        found = json.loads(block(content, name))
        # Two unpaired surrogates side by side are one character in JSON.
        assert json.dumps(found) == json.dumps(expected)
    for mark in "<>[]|`#":
        assert content.count(mark) == empty.count(mark), mark
    assert all(char == "\n" or char.isprintable() for char in content)
    assert content.count("\n") == empty.count("\n") + 3
    assert content.encode()


@given(TEXTS)
def test_quote_text_writes_one_line_of_json(text: str) -> None:
    quoted = quote_text(text)
    assert json.dumps(json.loads(quoted)) == json.dumps(text)
    assert len(quoted.splitlines()) == 1
    assert quoted.isprintable()


@pytest.mark.parametrize("text", ["Épanchement pleural gauche.", "Плевральный выпот 2 см.", "左侧胸腔积液。"])
def test_quote_text_keeps_letters_of_other_languages(text: str) -> None:
    assert all(word.strip(".。") in quote_text(text) for word in text.split())


@pytest.mark.parametrize("code", [0x3164, 0x115F, 0x200B, 0xE0041, 0x1D408, 0xFF29, 0x202E, 0xD800, 0x85, 0x2581])
def test_quote_text_escapes_invisible_and_compatibility_characters(code: int) -> None:
    assert quote_text(chr(code)).isascii()


def test_fill_does_not_replace_placeholders_in_values() -> None:
    assert _fill("{{a}}{{b}}", {"a": "{{b}}", "b": "{{a}}"}) == "{{b}}{{a}}"
    with pytest.raises(KeyError, match="c"):
        _fill("{{c}}", {"a": ""})
