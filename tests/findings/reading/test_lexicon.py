"""The lexicon files fit the engine and the label schemas."""

import re

import pytest

from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.schemas import CHEXBERT, CT_RATE


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("chest_ct", CT_RATE.labels),
        ("chest_xray", tuple(label for label in CHEXBERT.labels if label != "No Finding")),
    ],
)
def test_labels_are_those_of_the_schema(name, labels):
    lexicon = load_lexicon(name)
    assert tuple(lexicon.labels) == labels
    assert {concept for members in lexicon.labels.values() for concept in members} <= set(lexicon.concepts)


@pytest.mark.parametrize("name", ["chest_ct", "chest_xray"])
def test_every_concept_has_rules_that_stand_together(name):
    lexicon = load_lexicon(name)
    concepts = [rule.meaning for rule in lexicon.rules.phrases]
    assert concepts == sorted(concepts)
    assert set(concepts) == set(range(len(lexicon.concepts)))


@pytest.mark.parametrize("name", ["chest_ct", "chest_xray"])
def test_digest_is_short_and_stable(name):
    assert re.fullmatch("[0-9a-f]{8}", load_lexicon(name).digest)


def test_words_met_are_bounded(monkeypatch):
    from rrg_rewards.findings.reading import phrases

    monkeypatch.setattr(phrases, "_MAX_WORDS", 5)
    words = phrases.WordBits()
    words.add("nodul*", 1)
    assert [words[f"nodule{number}"] for number in range(20)] == [1] * 20
    assert len(words) == 5
