"""Sentences and tokens keep their places in the report."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rrg_rewards.findings.reading.sentences import split_unit, tokenise_units
from rrg_rewards.findings.reading.tokens import locate, normalise, tokenise


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("Clear lungs", ["Clear lungs"]),
        ('Clear lungs." Hernia', ["Clear lungs", " Hernia"]),
        ("Window; clear", ["Window", " clear"]),
        ("Size 2.5 mm", ["Size 2.5 mm"]),
        ("Clear.Hernia", ["Clear", "Hernia"]),
        ("• Hernia • Effusion", [" Hernia ", " Effusion"]),
        ("one\ntwo\r\nthree", ["one", "two", "three"]),
        ("", []),
        ("...", []),
    ],
)
def test_sentences_end_at_boundaries(unit, expected):
    assert [piece for _, piece in split_unit(unit)] == expected


def test_parts_of_an_endless_sentence_are_bounded_and_complete():
    unit = "nodule " * 5_000
    found = split_unit(unit)
    assert max(len(piece) for _, piece in found) <= 2_000
    assert "".join(piece for _, piece in found) == unit


@given(st.text())
def test_sentences_lie_where_they_say(unit):
    assert all(unit[start : start + len(piece)] == piece for start, piece in split_unit(unit))


@given(st.text())
def test_tokens_lie_where_they_say(piece):
    tokens = tokenise(piece)
    text = normalise(piece)
    assert len(text) == len(piece)
    assert [text[start:end] for start, end in locate(piece, tokens)] == tokens


texts = st.text(
    alphabet=st.sampled_from(["a", "B", "2", " ", ".", ",", ";", "\n", '"', "•", "(", "\x1e", "é", "-", "m", "*"]),
    max_size=20,
)


@given(st.lists(texts, max_size=5))
# the asterisk in the second unit is no sign of dimensions, whatever the first one contains
@example(["6*4 mm", "length in mm * 2"])
def test_units_read_together_are_units_read_alone(parts):
    alone = [[tokens for _, piece in split_unit(part) if (tokens := tokenise(piece))] for part in parts]
    assert [[tokens for tokens in unit if tokens] for unit in tokenise_units(parts)] == alone


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Hazy, patchy opacities", "hazy patchy opacities"),
        ("A small, ill-defined, round lesion", "a small ill defined round lesion"),
        ("There are dilated, thick-walled bronchi", "there are dilated thick walled bronchi"),
        # the first adjective is a statement
        ("The hila are not large, patchy opacities", "the hila are not large , patchy opacities"),
        ("Aorta dilated, small effusion", "aorta dilated , small effusion"),
        ("Effusion, small", "effusion , small"),
    ],
)
def test_commas_between_adjectives_end_no_clause(sentence, expected):
    assert " ".join(tokenise(sentence)) == expected
    assert list(tokenise_units(["Clear", sentence, "Hazy"]))[1] == [tokenise(sentence)]
