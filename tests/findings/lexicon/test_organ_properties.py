"""A property of an organ is its concept as an adjective, a verb and a noun, and nothing if it is denied."""

from pathlib import Path

import pytest
import yaml

from rrg_rewards.findings import extract_findings

TABLE = yaml.safe_load(Path(__file__).with_name("organ_properties.yaml").read_text(encoding="utf-8"))
PLURALS = ("bronchi", "septa")
SINGULARS = ("pancreas", "pelvis", "annulus", "choledochus", "esophagus", "bronchus")


def is_plural(organ):
    return organ.endswith(PLURALS) or (organ.endswith("s") and not organ.endswith(SINGULARS)) or " and " in organ


def asserted(organ, adjective, noun=None):
    be, appear, show = ("are", "appear", "show") if is_plural(organ) else ("is", "appears", "shows")
    yield f"The {organ} {be} {adjective}."
    yield f"The {organ} {appear} {adjective}."
    if " " not in adjective:
        yield f"{adjective.capitalize()} {organ}."
    if noun:
        yield f"{noun.capitalize()} of the {organ}."
        yield f"There is {noun} of the {organ}."
        yield f"The {organ} {show} slight {noun}."


def denied(organ, adjective, noun=None):
    be, do = ("are", "do") if is_plural(organ) else ("is", "does")
    yield f"The {organ} {be} not {adjective}."
    yield f"The {organ} {be} no longer {adjective}."
    yield f"The {organ} {do} not appear {adjective}."
    yield f"No {adjective} {organ}."
    if noun:
        yield f"No {noun} of the {organ}."
        yield f"The {organ} {do} not show {noun}."
        yield f"The {organ} {be} without {noun}."
        yield f"{noun.capitalize()} of the {organ} is not seen."


def present(sentence):
    return {found.concept for found in extract_findings(sentence, open_findings=True) if found.presence != "absent"}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["concepts"][0])
def test_a_property_of_an_organ_is_its_concept(row):
    sentences = [
        sentence for organ in row["organs"] for words in row["properties"] for sentence in asserted(organ, *words)
    ]
    sentences += [
        f"{adjective.capitalize()} {noun}."
        for adjective in row.get("adjectives", ())
        for _, *nouns in row["properties"]
        for noun in nouns
    ]
    read = {sentence: present(sentence) for sentence in sentences}
    assert {sentence: found for sentence, found in read.items() if found.isdisjoint(row["concepts"])} == {}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["concepts"][0])
def test_a_denied_property_of_an_organ_is_no_finding(row):
    sentences = [
        sentence for organ in row["organs"] for words in row["properties"] for sentence in denied(organ, *words)
    ]
    read = {sentence: present(sentence) for sentence in sentences}
    assert {sentence: found for sentence, found in read.items() if found} == {}
