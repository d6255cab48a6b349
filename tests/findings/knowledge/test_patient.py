"""Ages and clinical contexts of patients."""

import pytest

from rrg_rewards.findings.knowledge.patient import Patient, parse_age


@pytest.mark.parametrize(
    ("age", "years"),
    [
        ("066Y", 66),
        ("002D", 2 / 365.25),
        ("030M", 2.5),
        (82, 82),
        (82.5, 82.5),
        ("82 years", 82),
        ("6 weeks", 6 / 52.18),
        ("6/52", 6 / 52.18),
        ("5/12", 5 / 12),
        ("3 days old", 3 / 365.25),
        ("12 hours", 12 / 8766),
        ("27/40", 0),
        ("28+3 weeks gestation", 0),
        ("newborn", 0),
    ],
)
def test_parse_age(age, years):
    assert parse_age(age) == pytest.approx(years)


@pytest.mark.parametrize("age", [None, "", "adult", "999", "nan", float("nan"), "DOB 12.03.2019"])
def test_parse_age_of_what_cannot_be_read(age):
    assert parse_age(age) is None


@pytest.mark.parametrize(
    ("indication", "contexts"),
    [
        ("Fall and cough", {"trauma"}),
        ("No fall or collision. Chest pain.", set()),
        ("Stable chest pain. Tetralogy of Fallot.", set()),
        ("Stab wound", {"trauma"}),
        ("Status post lobectomy, back pain", {"surgery", "lung_resection", "spine"}),
        ("Day 2 after laparotomy, afebrile", {"surgery"}),
        ("Hysterectomy 1998, rigid abdomen", {"surgery", "old_surgery", "acute_abdomen"}),
        ("Sudden severe epigastric pain", {"acute_abdomen", "acute_pain"}),
        ("NG tube position please", {"device_check"}),
        ("AML, neutrophils 0.1, fever", {"cancer", "immunosuppression", "infection"}),
        ("No known cancer", set()),
    ],
)
def test_patient_contexts_of_indications(indication, contexts):
    assert Patient.from_context({"indication": indication}).contexts == contexts


@pytest.mark.parametrize(
    ("indication", "age"),
    [
        ("72-year-old man with cough", 72),
        ("45F, chest pain", 45),
        ("6 week old with stridor", 6 / 52.18),
        ("27/40 prem, grunting", 0),
        ("Preterm, day 2 of life", 0),
        ("Pregnant, 28/40, dyspnea", None),
        ("Fever for 3 days", None),
        ("CABG 10 years ago", None),
    ],
)
def test_patient_age_of_indications(indication, age):
    assert Patient.from_context({"indication": indication}).age == (None if age is None else pytest.approx(age))
    assert Patient.from_context({"age": 30, "indication": indication}).age == 30


@pytest.mark.parametrize(
    ("indication", "known"),
    [
        ("Known emphysema, cough", "Known emphysema, cough"),
        ("Longstanding left pleural effusion. Fever.", "Longstanding left pleural effusion."),
        ("Known aneurysm, growth?", ""),
        ("Emphysema?", ""),
        ("Pneumonia", ""),
    ],
)
def test_patient_known_findings_of_indications(indication, known):
    assert Patient.from_context({"indication": indication}).known == known
