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
    ],
)
def test_parse_age(age, years):
    assert parse_age(age) == pytest.approx(years)


@pytest.mark.parametrize("age", [None, "", "adult", "999", "nan", float("nan")])
def test_parse_age_of_what_cannot_be_read(age):
    assert parse_age(age) is None


@pytest.mark.parametrize(
    ("indication", "contexts"),
    [
        ("Fall and cough", {"trauma"}),
        ("No fall or collision. Chest pain.", set()),
        ("Stable chest pain. Tetralogy of Fallot.", set()),
        ("Stab wound", {"trauma"}),
        ("Status post lobectomy, back pain", {"surgery", "spine"}),
    ],
)
def test_patient_contexts_of_indications(indication, contexts):
    assert Patient.from_context({"indication": indication}).contexts == contexts
