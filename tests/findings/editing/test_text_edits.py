"""Edits of sentences, and where they are afterwards."""

import pytest

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.editing.text_edits import Replacement, apply, candidate_place, read_sentences, without_item


@pytest.mark.parametrize(
    ("sentence", "concept", "left"),
    [
        ("No effusion, edema, or pneumothorax", "edema", "No effusion or pneumothorax"),
        ("No effusion, edema, or pneumothorax", "pleural_effusion", "No edema or pneumothorax"),
        ("No effusion, edema, or pneumothorax", "pneumothorax", "No effusion or edema"),
        ("No effusion or pneumothorax", "pleural_effusion", "No pneumothorax"),
        ("Cardiomegaly and scoliosis are seen", "scoliosis", None),
        ("Emphysema with scoliosis", "scoliosis", None),
    ],
)
def test_without_item_takes_items_out(sentence, concept, left):
    mentions = extract_findings(sentence)
    targets = [mention for mention in mentions if mention.concept == concept]
    found = without_item(read_sentences(sentence, mentions)[0], targets)
    assert (apply(sentence, found) if found else None) == left


def test_candidate_place_follows_replacements():
    done = [Replacement(0, 0, "So: "), Replacement(6, 10, "right"), Replacement(20, 20, " Indeed.")]
    text = apply("Small left effusion.", done)
    assert text == "So: Small right effusion. Indeed."
    assert text[slice(*candidate_place((6, 10), done))] == "right"
    assert text[slice(*candidate_place((0, 20), done))].startswith("Small right effusion.")
    assert text[slice(*candidate_place((20, 20), done))] == " Indeed."
