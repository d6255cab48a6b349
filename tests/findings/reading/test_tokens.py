"""Tokens keep their places in the sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings.reading.sentences import tokenise_units
from rrg_rewards.findings.reading.tokens import locate, normalise, tokenise


@given(st.text())
def test_locate_finds_each_token(piece):
    tokens = tokenise(piece)
    text = normalise(piece)
    assert len(text) == len(piece)
    assert [text[start:end] for start, end in locate(piece, tokens)] == tokens


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
        # an answer, and no beginning of a word
        ("Effusion: -ve, para -vertebral mass", "effusion : neg , para vertebral mass"),
        # questions before a word, and whole answers
        ("Opacity, ?pneumonia", "opacity , \u00bf pneumonia"),
        ("?PE (?old)", "\u00bf pe ( \u00bf old )"),
        ("Nodule? Granuloma ? Cyst?", "nodule ? granuloma ? cyst ?"),
        ("Effusion: no evidence", "effusion : none"),
        ("Effusion - No evidence, edema: no signs", "effusion none , edema : none"),
        ("Findings: no evidence of effusion", "findings : no evidence of effusion"),
        ("Edema (+), effusion +ve, L1+L2", "edema \x7f , effusion \x7f , l1 l2"),
        ("Rib #, nodule #2, # Findings", "rib # , nodule 2 , findings"),
    ],
)
def test_tokenise_commas_questions_and_answers(sentence, expected):
    assert " ".join(tokenise(sentence)) == expected
    assert list(tokenise_units(["Clear", sentence, "Hazy"]))[1] == [tokenise(sentence)]
