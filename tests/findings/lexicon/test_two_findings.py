"""Each concept beside each other one, and beside each normal organ: none is lost, and no other one is added."""

from itertools import permutations

import pytest

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

# The sentences of a form are so many that every 102nd is read.
STEP = 101


def stated(sentence, concept):
    """Return the presences of a concept in a sentence."""
    return {found.presence for found in extract_findings(sentence, open_findings=True) if found.concept == concept}


def stated_concepts(sentence):
    """Return the concepts in a sentence."""
    return {found.concept for found in extract_findings(sentence, open_findings=True)}


@pytest.fixture(scope="module")
def names():
    """Return the concepts whose own name is read as the concept."""
    concepts = {concept: concept.replace("_", " ") for concept in load_knowledge("concepts")["concepts"]}
    return {concept: name for concept, name in concepts.items() if stated(f"{name.capitalize()}.", concept)}


@pytest.mark.parametrize(
    ("form", "presences", "most_wrong"),
    [
        ("{} with {}.", ("present", "present"), 0.007),
        ("{} and {}.", ("present", "present"), 0.005),
        ("{} without {}.", ("present", "absent"), 0.015),
        ("No {}, but {}.", ("absent", "present"), 0.006),
        ("{} versus {}.", ("uncertain", "uncertain"), 0.03),
    ],
)
def test_both_of_two_findings_are_read(names, form, presences, most_wrong):
    pairs = list(permutations(names, 2))[:: STEP + 1]
    wrong = []
    for pair in pairs:
        sentence = form.format(*(names[concept] for concept in pair))
        sentence = sentence[0].upper() + sentence[1:]
        if any(stated(sentence, one) != {presence} for one, presence in zip(pair, presences, strict=True)):
            wrong.append(sentence)
    assert len(wrong) <= most_wrong * len(pairs), wrong


@pytest.mark.parametrize(
    ("form", "most_wrong"),
    [
        ("{} with {}.", 0.008),
        ("{} and {}.", 0.005),
        ("{}, {}.", 0.003),
        ("{} due to {}.", 0.006),
        ("No {} or {}.", 0.006),
    ],
)
def test_two_findings_state_no_third_one(names, form, most_wrong):
    alone = {concept: stated_concepts(f"{name.capitalize()}.") for concept, name in names.items()}
    pairs = list(permutations(names, 2))[:: STEP + 1]
    wrong = []
    for first, second in pairs:
        sentence = form.format(names[first], names[second])
        sentence = sentence[0].upper() + sentence[1:]
        if stated_concepts(sentence) - alone[first] - alone[second]:
            wrong.append(sentence)
    assert len(wrong) <= most_wrong * len(pairs), wrong


@pytest.mark.parametrize(
    "form",
    ["{0}, the {1} {2} normal.", "{0} and normal {1}.", "The {1} {2} normal, {0} is seen.", "Normal {1}, {0} is seen."],
)
def test_a_finding_beside_a_normal_organ_is_read(names, form):
    cases = [(concept, organ) for concept in names for organ in TABLES["organs"]][:: STEP // 10 + 1]
    wrong = []
    for concept, organ in cases:
        sentence = form.format(names[concept], organ, "are" if organ.endswith("s") else "is").capitalize()
        if stated(sentence, concept) != {"present"}:
            wrong.append(sentence)
    assert len(wrong) <= 0.02 * len(cases), wrong


@pytest.mark.parametrize("end", ["and", "and the", "and normal", "and, normal", "with normal"])
def test_a_sentence_may_end_where_the_second_finding_is_missing(names, end):
    names = list(names.items())[:: STEP // 10]
    assert [name for concept, name in names if not stated(f"{name.capitalize()} {end}.", concept)] == []
