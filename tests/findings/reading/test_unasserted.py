"""Sentences that name a finding and do not state that the patient has it, with every concept of each lexicon."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings, get_engine
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.questions.engine import build_items

# One or two sentences of each kind are tried with every concept.
SENTENCES = {
    "denials": """
        Unlikely X. | X (negative). | X (-). | X: 0 | X: 0. | Absent: X. | Nothing suggests X. | X is not
        the case.""",
    "reports": "This report does not describe X. | The report says nothing about X.",
    "former": "The previous examination showed X; now normal. | Prior CT showed X, now normal.",
    "tautologies": "X can be neither confirmed nor excluded. | Either X or no X. | X may or may not be present.",
    "conditions": "If X were present it would be seen. | Should X be present, it would be seen. | X would be visible.",
    "relatives": "The father had X. | Mother: X. | X in the family.",
    "requests": "Please look for X. | Look for X. | Is there X? | We were asked to look for X.",
}
MORE = {
    "denials": """
        X unlikely. | X is unlikely. | X is improbable. | X appears unlikely. | X (no). | X (absent). | X =
        0. | X: false. | X: none. | X: excluded. | Negative: X. | None: X. | No: X. | Not present: X. | Not
        seen: X. | Excluded: X. | Ruled out: X. | Negative findings: X. | Pertinent negatives: X. | Nothing
        indicates X. | Nothing points to X. | Nothing speaks for X. | Nothing in favor of X. | Nothing like
        X. | Low suspicion for X. | Low probability of X. | X is not there. | X is nowhere seen. | X is
        missing. | This excludes X. | The scan rules out X. | X is not suspected. | X is not considered. | X
        is not likely. | X is out of the question. | X is not in evidence. | X is not shown. | X never seen.
        | X is false. | X is not true. | Never X. | Zero X. | 0 X. | It is not true that there is X. | It is
        false that there is X. | There isn't X. | There is not X. | Findings argue against X. | Evidence
        against X. | X was sought but not found. | Not a case of X. | Anything but X. | Far from X. | X has
        been disproved. | X is refuted. | X negative.""",
    "reports": """
        X is not mentioned. | X is not described. | X is not discussed. | This text does not mention X. | No
        mention of X. | No comment on X. | The report is silent on X. | Nothing is said about X. | X is not
        the subject of this report. | This report is not about X. | The word X is not used.""",
    "former": """
        The prior CT demonstrated X. | The earlier study revealed X. | The last examination showed X. | The
        old examination had X. | Prior examination: X. | Previous report: X. | The previous report described
        X. | In 2018 there was X. | X was present in 2019. | X had been present before. | Former X. | Years
        ago X. | Previously X, now normal. | Earlier X, now gone. | The comparison study showed X.""",
    "tautologies": """
        X is neither confirmed nor excluded. | X can neither be confirmed nor excluded. | X is neither
        present nor absent. | Neither confirmed nor excluded: X. | X or no X. | Either no X or X. | X or
        not. | There may or may not be X. | X is either present or absent. | X may be present or absent. |
        X: yes/no. | X: yes or no. | Whether X is present is unknown. | It is unclear whether X is present.
        | It is unknown if there is X. | X cannot be judged. | X could be there or not. | There is X or
        there is no X.""",
    "conditions": """
        If there were X, it would be visible. | If X is present, follow-up is advised. | Return if X
        develops. | Were X present, it would be visible. | Had there been X, it would have been described. |
        In case of X call us. | X would have been seen. | There would be X. | It would show X. | Unless X
        develops, no follow-up is needed. | Assuming X, treatment is advised. | Suppose X. | One would
        expect X. | Provided there is X. | X if present.""",
    "relatives": """
        The mother had X. | Family history of X. | Father with X. | The brother has X. | A relative had X. |
        The patient's father had X. | Positive family history for X. | X in his father. | Another patient
        had X.""",
    "requests": """
        Please exclude X. | Please check for X. | Check for X. | Search for X. | Please rule out X. | Kindly
        assess for X. | Are there signs of X? | Does the patient have X? | Question: X? | Clinical question:
        X. | Request: X. | Screening for X. | Referred for X. | Any X? | Tell us whether there is X. | Do
        you see X? | Risk of X. | To prevent X. | The question was X. | The term X.""",
}
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
@pytest.mark.parametrize("kind", SENTENCES)
def test_no_concept_is_stated(kind, lexicon):
    known = names(lexicon)
    assert len(known) > 0.3 * len(get_engine(lexicon).lexicon.concepts)
    reports = [filled(sentence, name) for sentence in sentences([SENTENCES[kind]]) for name in known]
    assert [r for r, mask in zip(reports, get_engine(lexicon).masks(reports), strict=True) if mask] == []


@pytest.mark.parametrize("kind", MORE)
def test_no_finding_is_stated(kind):
    for name in names("chest")[::12]:
        for sentence in sentences([SENTENCES[kind], MORE[kind]]):
            report = filled(sentence, name)
            assert abnormal_findings(report, extract_findings(report, open_findings=True)) == [], report


@pytest.mark.parametrize("name", ["pleural effusion", "consolidation", "cardiomegaly", "emphysema"])
def test_similar_words_state_a_finding(name):
    for sentence in sentences([STATED]):
        report = filled(sentence, name)
        assert abnormal_findings(report, extract_findings(report)), report


@pytest.mark.parametrize("schema", ["ct_rate", "chexbert"])
def test_no_label_is_set(schema):
    labeler = RuleLabeler(schema)
    reports = [
        filled(sentence, name) for sentence in sentences(SENTENCES.values()) for name in ("effusion", "consolidation")
    ]
    labels = labeler(reports)
    kept = [i for i, label in enumerate(labeler.labels) if label != "No Finding"]
    assert not labels[:, kept].any()


def test_no_question_finds_it():
    for name in ("pleural effusion", "consolidation", "emphysema"):
        assert build_items(f"There is {name}.")
        for sentence in sentences(SENTENCES.values()):
            assert build_items(filled(sentence, name)) == (), filled(sentence, name)
