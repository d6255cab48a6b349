"""Templates of columns: what is left out, and errors that show the place."""

import pytest

from rrg_rewards.data.tables.table import ColumnTemplate

SECTIONS = "Findings: {findings} Impression: {impression}"


@pytest.mark.parametrize(
    ("template", "texts", "expected"),
    [
        (SECTIONS, {"findings": "Clear.", "impression": "Normal."}, "Findings: Clear. Impression: Normal."),
        (SECTIONS, {"findings": "Clear.", "impression": None}, "Findings: Clear."),
        (SECTIONS, {"findings": " ", "impression": "Normal."}, "Impression: Normal."),
        (SECTIONS, {"findings": None, "impression": ""}, None),
        (" {a} ", {"a": "x"}, " x "),
        ("{{{a}}} {b}.", {"a": "x", "b": "{y}"}, "{x} {y}."),
        ("{a}, {b} (end)", {"a": None, "b": "y"}, ", y (end)"),
        ("{a} {a}", {"a": "x"}, "x x"),
    ],
)
def test_column_template_fills_sections(template, texts, expected):
    parsed = ColumnTemplate.parse(template)
    assert parsed.fill(texts) == expected
    assert ColumnTemplate.parse(str(parsed)) == parsed


def test_column_template_missing_section_gets_the_text_and_an_empty_one_stays():
    template = ColumnTemplate.parse(SECTIONS)
    assert template.fill({"findings": "", "impression": None}, "None") == "Findings:  Impression: None"


def test_column_template_names_of_columns_may_be_changed():
    template = ColumnTemplate.parse("{{1}} {a b} and {c:d!r}")
    assert template.columns == ("a b", "c:d!r")
    assert str(template.with_columns({"a b": "x", "c:d!r": "y"})) == "{{1}} {x} and {y}"


def test_column_template_text_without_braces_is_none():
    assert ColumnTemplate.parse("findings") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Findings: {findings", "a brace without its counterpart, at '{findings'"),
        ("Findings: findings}", "a brace without its counterpart, at '}'"),
        ("{a{b}}", "a brace without its counterpart, at '{a{b}}'"),
        ("{} {a}", "a brace without its counterpart, at '{} {a}'"),
        ("{{a}}", "names no column in braces"),
    ],
)
def test_column_template_malformed_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        ColumnTemplate.parse(text)
