"""Findings of lungs, airways and pleura are read in the wordings of many radiologists, and not if they are denied."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings

WORDINGS = yaml.safe_load(Path(__file__).with_name("lung_wordings.yaml").read_text(encoding="utf-8"))
NORMAL = WORDINGS.pop("normal")
DENIALS = ("No {}.", "There is no evidence of {}.", "Without {}.")
VERBS = {
    "is",
    "are",
    "has",
    "have",
    "can",
    "lies",
    "appear",
    "appears",
    "sits",
    "harbour",
    "show",
    "shows",
    "surrounds",
}
VERBS |= {"accumulates", "tracks", "reaching", "contain", "layer"}


def _abnormal(text):
    return [found.concept for found in abnormal_findings(text, extract_findings(text, open_findings=True))]


def _denied(wording):
    """A wording without a verb, as it follows a denial."""
    first, *rest = wording.split()
    return " ".join([first if first[1:2].isupper() or first == "A" else first.lower(), *rest])


@pytest.mark.parametrize("concept", WORDINGS)
def test_wordings_are_read_as_their_concept(concept):
    read = {wording: _abnormal(f"{wording}.") for wording in WORDINGS[concept]}
    assert {wording: found for wording, found in read.items() if found != [concept]} == {}


@pytest.mark.parametrize("concept", WORDINGS)
def test_denied_wordings_are_no_findings(concept):
    denied = [
        denial.format(_denied(wording))
        for wording in WORDINGS[concept]
        if VERBS.isdisjoint(wording.split()) and ":" not in wording and "," not in wording
        for denial in DENIALS
    ]
    read = {sentence: _abnormal(sentence) for sentence in denied}
    assert denied
    assert {sentence: found for sentence, found in read.items() if found} == {}


def test_normal_wordings_are_no_findings():
    read = {wording: _abnormal(f"{wording}.") for wording in NORMAL}
    assert {wording: found for wording, found in read.items() if found} == {}
