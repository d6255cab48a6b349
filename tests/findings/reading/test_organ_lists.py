"""A list of organs that share a finding states the findings that the organs state alone."""

from itertools import permutations, product
from random import Random

import pytest

from rrg_rewards import RuleLabeler
from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.knowledge.load import cue_words
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

ORGANS = TABLES["organs"]
LESIONS = """
cysts nodules masses lesions calcifications metastases hemorrhage edema effusions thickening infarcts lacerations
abscesses tumors infiltration dilatation inflammation hematomas foci collections
"""
PROPERTIES = """
enlarged dilated thickened calcified edematous displaced compressed atrophic inflamed small prominent distended
infiltrated irregular heterogeneous nodular ectatic
"""
# The sentences of a form are so many that this number is read.
NUM_SENTENCES = 300


def stated(sentence):
    """Return the concept, the presence and the organ of each finding."""
    findings = extract_findings(sentence[0].upper() + sentence[1:], open_findings=True)
    return {(found.concept, found.presence, found.organ) for found in findings}


def sampled(words, organs, size):
    """Return some pairs of a word and of several organs."""
    return Random(0).sample(list(product(words.split(), permutations(organs, size))), NUM_SENTENCES)


@pytest.mark.parametrize(
    ("form", "alone", "words"),
    [
        ("{0} and {1} {x}.", "{0} {x}.", LESIONS),
        ("Multiple {0} and {1} {x}.", "Multiple {0} {x}.", LESIONS),
        ("There are {0}, {1} and {2} {x}.", "There are {0} {x}.", LESIONS),
        ("{0}, {1}, and {2} {x} are seen.", "{0} {x} are seen.", LESIONS),
        ("No {0}, {1} or {2} {x}.", "No {0} {x}.", LESIONS),
    ],
)
def test_adjectives_share_the_finding_after_them(form, alone, words):
    check(form, alone, words, list(ORGANS))


@pytest.mark.parametrize(
    ("form", "alone", "words"),
    [
        ("{x} in the {0} and {1}.", "{x} in the {0}.", LESIONS),
        ("{x} in the {0} and in the {1}.", "{x} in the {0}.", LESIONS),
        ("{x} are seen in the {0}, the {1} and the {2}.", "{x} are seen in the {0}.", LESIONS),
        ("{x} of the {0}, {1}, and {2}.", "{x} of the {0}.", LESIONS),
        ("{x} in the {0} as well as in the {1}.", "{x} in the {0}.", LESIONS),
        ("There are {x} in both the {0} and the {1}.", "There are {x} in the {0}.", LESIONS),
        ("No {x} in the {0}, {1} or {2}.", "No {x} in the {0}.", LESIONS),
        ("{x} {0} and {1}.", "{x} {0}.", PROPERTIES),
        ("There is {x} {0}, {1} and {2}.", "There is {x} {0}.", PROPERTIES),
        ("The {0} and {1} are {x}.", "The {0} are {x}.", PROPERTIES),
    ],
)
def test_nouns_share_the_finding_beside_them(form, alone, words):
    check(form, alone, words, list(ORGANS.values()))


@pytest.mark.parametrize(
    ("form", "alone", "words"),
    [
        ("{x} in the {0}, {1} and {2} normal.", "{x} in the {0}.", LESIONS),
        ("{x} in the {0} and {1} unremarkable.", "{x} in the {0}.", LESIONS),
        ("{x} of the {0}, {1} and {2} without abnormality.", "{x} of the {0}.", LESIONS),
        ("{x} {0}, {1} and {2} within normal limits.", "{x} {0}.", PROPERTIES),
        ("{x} {0}, {1} and {2} appear intact.", "{x} {0}.", PROPERTIES),
    ],
)
def test_normal_organs_after_a_finding_do_not_have_it(form, alone, words):
    wrong, num_findings = [], 0
    for word, chosen in sampled(words, list(ORGANS.values()), 3):
        sentence = form.format(*chosen, x=word)
        expected = {finding for finding in stated(alone.format(*chosen, x=word)) if finding[1] == "present"}
        num_findings += len(expected)
        wrong += [(sentence, *finding) for finding in stated(sentence) - expected if finding[1] == "present"]
    assert len(wrong) <= num_findings / 25, wrong


@pytest.mark.parametrize("word", sorted(cue_words("organ_lists", "parts", "places", "organs", "vessels")))
def test_words_of_a_list_can_be_its_last_ones(word):
    for form in (
        "Renal and {} metastases.",
        "Lesions in the liver and {}",
        "Lesions in the liver, {} and {}",
        "{} and {}",
    ):
        extract_findings(form.format(word, word), open_findings=True)


@pytest.mark.parametrize(
    "sentence",
    [
        "No left kidney mass, but masses in the liver and right kidney.",
        "Left kidney mass and masses in the liver and right kidney.",
        "Possible mass in the left kidney and definite masses in the liver and right kidney.",
    ],
)
def test_a_finding_in_a_list_and_another_one_in_one_of_its_organs(sentence):
    masses = [found for found in extract_findings(sentence) if found.concept == "renal_mass"]
    assert len(masses) == 2
    assert masses[1].presence == "present"
    assert masses[1].attributes.laterality == "right"


def test_a_list_with_two_joints_is_one_list():
    found = extract_findings("Cysts in the right lobe of the liver and the left kidney and the spleen.")
    assert {finding.organ: finding.attributes.laterality for finding in found} == {
        "liver": "right",
        "kidney": "left",
        "spleen": None,
    }
    assert len(found) == 3


def check(form, alone, words, organs):
    """Compare a list with each of its organs alone: at most one of 50 findings is another one."""
    wrong, num_findings = [], 0
    for word, chosen in sampled(words, organs, 3 if "{2}" in form else 2):
        parts = [stated(alone.format(organ, x=word)) for organ in chosen]
        if not all(parts):
            continue
        expected, sentence = set.union(*parts), form.format(*chosen, x=word)
        num_findings += len(expected)
        wrong += [(sentence, *finding) for finding in stated(sentence) ^ expected]
    assert num_findings > NUM_SENTENCES / 3
    assert len(wrong) <= num_findings / 50, wrong


@pytest.mark.parametrize(
    "sentence",
    [
        "There are hypodense lesions in the posterior segment of the right lobe of the liver and in the left kidney.",
        "There are hypodense lesions in the right lobe of the liver and the left kidney.",
        "Hypodense lesions in right hepatic segment 4 and the left kidney are seen.",
        "Right hepatic and left renal hypodense lesions.",
    ],
)
def test_each_organ_of_a_list_has_its_own_side(sentence):
    sides = {found.organ: found.attributes.laterality for found in extract_findings(sentence)}
    assert sides == {"liver": "right", "kidney": "left"}


def test_each_organ_of_a_list_has_its_own_size():
    sizes = {
        found.organ: found.attributes.size_mm for found in extract_findings("A 1.5 cm hepatic and a 2 cm renal cyst.")
    }
    assert sizes == {"liver": 15.0, "kidney": 20.0}


def test_a_finding_in_an_organ_takes_no_side_from_the_next_finding():
    found = extract_findings("Cysts in the liver and lesions in the left kidney.")
    assert {finding.organ: finding.attributes.laterality for finding in found} == {"liver": None, "kidney": "left"}


def test_both_is_no_side_of_two_organs():
    found = extract_findings("Cysts in both the liver and the spleen, and lesions in both kidneys and the pancreas.")
    assert {finding.organ: finding.attributes.laterality for finding in found} == {
        "liver": None,
        "spleen": None,
        "kidney": "bilateral",
        "pancreas": None,
    }


def test_one_finding_of_several_places_in_an_organ_keeps_them_all():
    (found,) = extract_findings("2 cm mediastinal, hilar and axillary lymphadenopathy.")
    assert found.attributes.location == ("central", "axilla")


def test_organs_share_no_diagnosis_that_the_finding_suggests():
    found = extract_findings("Mediastinal and hilar lymph nodes consistent with sarcoidosis.")
    assert [finding.concept for finding in found].count("sarcoidosis") == 1


def test_a_finding_in_one_of_two_organs_is_in_the_nearest():
    assert stated("A nodule in the liver or the spleen.") == stated("A nodule in the liver.")


@pytest.mark.parametrize(("sentence", "parts"), TABLES["separate"])
def test_organs_that_share_no_finding(sentence, parts):
    assert stated(sentence) == set.union(*map(stated, parts))


def test_labels_of_the_organs_of_a_list():
    labels = RuleLabeler("ct_rate")
    for sentence in ("Nodules in the liver, lungs and spleen.", "Hepatic, pulmonary and splenic nodules."):
        assert labels([sentence]).tolist() == labels(["Lung nodules."]).tolist()
