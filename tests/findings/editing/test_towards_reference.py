"""Edits towards the reference: what is invented goes, what is missing comes, and nothing that is right is lost."""

import random
from itertools import pairwise

import pytest

from rrg_rewards.data import phantom_studies
from rrg_rewards.findings import compare_findings, edit_towards_reference

SENTENCES = [
    "Large right pleural effusion.",
    "Cardiomegaly.",
    "Hiatal hernia.",
    "Emphysema in both upper lobes.",
    "Thoracic scoliosis.",
    "A 4 mm nodule in the left upper lobe.",
    "Cholelithiasis.",
    "No pneumothorax.",
]


def wrong(reference, candidate):
    comparison = compare_findings(reference, candidate)
    return len(comparison.false) + len(comparison.missing)


@pytest.mark.parametrize("seed", range(20))
def test_edit_towards_reference_each_edit_leaves_less_wrong_until_nothing_is(seed):
    draw = random.Random(seed)
    candidate, reference = (" ".join(draw.sample(SENTENCES, draw.randint(0, 5))) for _ in range(2))
    before = wrong(reference, candidate)
    once, first = edit_towards_reference(candidate, reference)
    assert len(first) == (before > 0)
    assert wrong(reference, once) < before or not before
    text, edits = edit_towards_reference(candidate, reference, most=None)
    assert wrong(reference, text) == 0
    assert len(edits) <= before
    assert edit_towards_reference(text, reference, most=None) == (text, ())
    assert all(f"{edit.added}." in reference for edit in edits if edit.added)


@pytest.mark.parametrize(
    ("candidate", "reference", "edited"),
    [
        ("Cardiomegaly. Left lung mass.", "Cardiomegaly. Emphysema.", "Cardiomegaly. Emphysema."),
        (
            "1. Cardiomegaly. 2. Hiatal hernia. 3. Scoliosis.",
            "Cardiomegaly. Scoliosis.",
            "1. Cardiomegaly. 2. Scoliosis.",
        ),
        ("Effusion, emphysema and scoliosis.", "Effusion and scoliosis.", "Effusion and scoliosis."),
        (
            "Cardiomegaly\nScoliosis",
            "Cardiomegaly. Scoliosis. Hiatal hernia.",
            "Cardiomegaly\nScoliosis\nHiatal hernia",
        ),
        ("", "Nodule in the left lung.", "Nodule in the left lung."),
        ("Cardiomegaly", "Cardiomegaly. Hiatal hernia.", "Cardiomegaly. Hiatal hernia."),
        ("Hiatal hernia.", "", ""),
        # One finding of two mentions, one that is repeated, and one with its interpretation.
        ("Cardiomegaly. Fibrotic sequelae in both upper lobes.", "Cardiomegaly.", "Cardiomegaly."),
        ("Emphysema is seen. Cardiomegaly. Emphysema.", "Cardiomegaly.", "Cardiomegaly."),
        ("A hypodense liver lesion, possibly a cyst. Cardiomegaly.", "Cardiomegaly.", "Cardiomegaly."),
        ("Lungs are clear.", "No abnormality.", "Lungs are clear."),
    ],
)
def test_edit_towards_reference_of_one_edit(candidate, reference, edited):
    assert edit_towards_reference(candidate, reference)[0] == edited


@pytest.mark.parametrize(("style", "most_wrong"), [("compact", 0), ("full", 1)])
def test_edit_towards_reference_whole_reports_agree_in_nearly_all_findings(style, most_wrong):
    reports = [study.report for study in phantom_studies(13, seed=3, style=style)]
    left = 0
    for candidate, reference in pairwise(reports):
        text, _ = edit_towards_reference(candidate, reference, most=None)
        left += wrong(reference, text)
        assert edit_towards_reference(text, reference, most=None) == (text, ())
    assert left <= most_wrong
    assert sum(wrong(reference, candidate) for candidate, reference in pairwise(reports)) > 50


def test_edit_towards_reference_keeps_a_sentence_that_also_states_what_is_right():
    text, edits = edit_towards_reference("Cardiomegaly due to emphysema.", "Cardiomegaly.", most=None)
    assert wrong("Cardiomegaly.", text) == 0 or (text, edits) == ("Cardiomegaly due to emphysema.", ())
    assert not compare_findings("Cardiomegaly.", text).missing


def test_edit_towards_reference_refuses_a_negative_number():
    with pytest.raises(ValueError, match="most must be at least 0 or None, got -1"):
        edit_towards_reference("", "", most=-1)
