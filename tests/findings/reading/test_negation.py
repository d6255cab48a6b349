"""Where a denial, a doubt or a history ends within a sentence, and what names a finding without stating it."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings, get_engine
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.questions.engine import build_items
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

_MARKS = {"present": "+", "absent": "-", "uncertain": "?"}


@pytest.mark.parametrize(("sentence", "expected"), TABLES["sentences"])
def test_presence_of_each_finding(sentence, expected):
    named = {mark[1:] for mark in expected.split()}
    for report in (sentence, f"Trachea is open. {sentence} Other.", sentence.upper()):
        said = {_MARKS[found.presence] + found.concept for found in extract_findings(report) if found.concept in named}
        assert said == set(expected.split()), report


# Statement after a label that names only a place, and what it says of each finding.
LABELED = [
    ("Pleura: mild thickening on the right, without effusion.", "+pleural_thickening -pleural_effusion"),
    ("Thyroid: both lobes are enlarged.", "+thyroid_enlargement"),
    ("Right pleura: no effusion.", "-pleural_effusion"),
    ("Right lung: no mass, 5 mm nodule in the upper lobe.", "-lung_mass +lung_nodule"),
    ("Effusion: no, emphysema: mild.", "-pleural_effusion +emphysema"),
]


@pytest.mark.parametrize(("sentence", "expected"), LABELED)
def test_presence_label_is_the_place_of_its_statement(sentence, expected):
    test_presence_of_each_finding(sentence, expected)


def test_presence_coiled_cords_are_no_malposition_and_the_skull_base_no_lower_zone():
    (cords,) = extract_findings("Coiled cords in the right lung.")
    assert cords.device_position is None
    (lesion,) = extract_findings("A lesion at the skull base.")
    assert lesion.location == ()


# One or two sentences of each kind are tried with every concept.
UNASSERTED = TABLES["unasserted"]
MORE = TABLES["more"]
# Similar words that state a finding.
STATED = """
        Unlike before there is X. | The previous examination is available; X. | X as in the previous
        examination. | The previous examination showed X, which persists. | The previous CT showed X, now
        increased. | X is not only old. | Please note that there is no change; X. | X, no longer enlarging.
        | Not only X. | X: 5 mm. | X (new). | X (+)."""
LEXICONS = ("chest", "chest_ct", "chest_xray")


def sentences(*tables):
    return [" ".join(sentence.split()) for table in tables for text in table for sentence in text.split("|")]


def names(lexicon):
    """Each concept's identifier in words, of those that name a finding by themselves."""
    engine = get_engine(lexicon)
    words = [concept.replace("_", " ") for concept in engine.lexicon.concepts]
    return [
        word for word, mask in zip(words, engine.masks([f"There is {word}." for word in words]), strict=True) if mask
    ]


def filled(sentence, name):
    text = sentence.replace("X", name)
    return text[0].upper() + text[1:]


@pytest.mark.parametrize("lexicon", LEXICONS)
@pytest.mark.parametrize("kind", UNASSERTED)
def test_presence_no_concept_is_stated(kind, lexicon):
    known = names(lexicon)
    assert len(known) > 0.3 * len(get_engine(lexicon).lexicon.concepts)
    reports = [filled(sentence, name) for sentence in sentences([UNASSERTED[kind]]) for name in known]
    assert [r for r, mask in zip(reports, get_engine(lexicon).masks(reports), strict=True) if mask] == []


@pytest.mark.parametrize("kind", MORE)
def test_presence_no_finding_is_stated(kind):
    # "The gallbladder was not found" says that it is gone.
    for name in (name for name in names("chest")[::12] if not name.endswith(("gallbladder", "kidney"))):
        for sentence in sentences([UNASSERTED[kind], MORE[kind]]):
            report = filled(sentence, name)
            assert abnormal_findings(report, extract_findings(report, open_findings=True)) == [], report


@pytest.mark.parametrize("name", ["pleural effusion", "consolidation", "cardiomegaly", "emphysema"])
def test_presence_similar_words_state_a_finding(name):
    for sentence in sentences([STATED]):
        report = filled(sentence, name)
        assert abnormal_findings(report, extract_findings(report)), report


@pytest.mark.parametrize("schema", ["ct_rate", "chexbert"])
def test_presence_no_label_is_set(schema):
    labeler = RuleLabeler(schema)
    reports = [
        filled(sentence, name) for sentence in sentences(UNASSERTED.values()) for name in ("effusion", "consolidation")
    ]
    labels = labeler(reports)
    kept = [i for i, label in enumerate(labeler.labels) if label != "No Finding"]
    assert not labels[:, kept].any()


def test_presence_no_question_finds_it():
    for name in ("pleural effusion", "consolidation", "emphysema"):
        assert build_items(f"There is {name}.")
        for sentence in sentences(UNASSERTED.values()):
            assert build_items(filled(sentence, name)) == (), filled(sentence, name)
