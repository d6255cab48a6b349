"""Wordings of the findings outside the lungs: each is read as its concept, and not if it is denied."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.findings import abnormal_findings, extract_findings

WORDINGS = yaml.safe_load(Path(__file__).with_name("body_wordings.yaml").read_text(encoding="utf-8"))
NORMAL = WORDINGS.pop("normal")
VERBS = frozenset({"is", "are", "was", "were", "has", "have", "shows", "show", "contains", "contain", "end", "being"})
ARTICLES = ("A", "An", "The")
# Operations and replaced organs are not denied in these forms.
OPERATIONS = frozenset({"postsurgical_change", "cholecystectomy", "prosthetic_valve"})


def sentences(text: str) -> list[str]:
    """Return the sentences of a block."""
    return [f"{sentence}." for sentence in text.rstrip(".").split(". ")]


def concepts(sentence: str) -> list[str]:
    """Return the concepts of the abnormal findings of a sentence."""
    found = abnormal_findings(sentence, extract_findings(sentence, open_findings=True))
    return [finding.concept for finding in found]


def denials(sentence: str) -> list[str]:
    """Return denials of a sentence that is a noun phrase, and none for other sentences."""
    words = sentence.rstrip(".").split()
    if ":" in sentence or VERBS.intersection(word.lower() for word in words):
        return []
    phrase = " ".join(words[1:] if words[0] in ARTICLES else words)
    phrase = phrase if phrase[:2].isupper() else phrase[0].lower() + phrase[1:]
    return [f"No {phrase}.", f"No evidence of {phrase}.", f"{phrase[0].upper()}{phrase[1:]} was not detected."]


@pytest.mark.parametrize("concept", WORDINGS)
def test_each_wording_is_read_as_its_concept(concept):
    wrong = {text: found for text in sentences(WORDINGS[concept]) if (found := concepts(text)) != [concept]}
    assert wrong == {}


@pytest.mark.parametrize("concept", sorted(WORDINGS.keys() - OPERATIONS))
def test_a_denied_wording_is_no_finding(concept):
    denied = [denial for text in sentences(WORDINGS[concept]) for denial in denials(text)]
    assert denied
    assert {text: found for text in denied if (found := concepts(text))} == {}


def test_normal_sentences_state_no_finding():
    assert {text: found for text in sentences(NORMAL) if (found := concepts(text))} == {}
