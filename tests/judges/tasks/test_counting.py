"""The task of counting errors of existing reports: the prompt, and the checks of an answer."""

import json

import pytest

from rrg_rewards.judges.base import AnswerError, ReportPair
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.schemas.errors import ERROR_CATEGORIES

PAIR = ReportPair(
    "Small left pleural effusion. 8 mm nodule in the right lung. Compared to prior, unchanged.",
    "Large left pleural effusion. Cardiomegaly.",
)


def error(category, reference=None, candidate=None, significant=True):
    return {
        "explanation": "Why.",
        "category": category,
        "significant": significant,
        "reference_quote": reference,
        "candidate_quote": candidate,
    }


def match(reference, candidate):
    return {"reference_quote": reference, "candidate_quote": candidate}


def answer(*errors, matched=()):
    return json.dumps({"matched_findings": list(matched), "errors": list(errors)})


SEVERITY = error("wrong_severity", "Small left pleural effusion", "Large left pleural effusion")
NODULE = error("omitted_finding", "8 mm nodule", significant=False)
FALSE = error("false_finding", candidate="Cardiomegaly")
COMPARISON = error("omitted_comparison", "Compared to prior, unchanged", significant=False)
ALL = (SEVERITY, NODULE, FALSE, COMPARISON)


def test_counting_task_counts_by_category_and_significance():
    counted = CountingTask().parse(PAIR, answer(*ALL))
    assert counted.counts == (1, 1, 0, 1, 0, 1)
    assert counted.significant == (1, 0, 0, 1, 0, 0)
    assert [found.category for found in counted.errors] == [found["category"] for found in ALL]
    assert counted.errors[1].reference_quote == "8 mm nodule"


def test_counting_task_counts_matched_findings():
    pair = ReportPair("Small left effusion.", "There is a small effusion on the left.")
    counted = CountingTask().parse(pair, answer(matched=[match("small left effusion", "small effusion on the left")]))
    assert (counted.counts, counted.matched) == ((0,) * 6, 1)


def test_counting_task_accepts_no_quotes_for_normal_reports():
    assert CountingTask().parse(ReportPair("Clear lungs.", "No acute disease."), answer()).counts == (0,) * 6


BAD = {
    "no JSON": ("errors: none", "malformed", "not JSON"),
    "an unknown category": (answer({**FALSE, "category": "typo"}), "malformed", r"errors.0.category"),
    "no significance": (answer({**FALSE, "significant": None}), "malformed", r"errors.0.significant"),
    "a further key": (answer({**FALSE, "severity": 1}), "malformed", r"errors.0"),
    "an invented quote": (
        answer(SEVERITY, NODULE, error("false_finding", candidate="pneumothorax on the right")),
        "inconsistent",
        r"errors\[2\]: candidate_quote is not in the candidate",
    ),
    "a quote of the other report": (
        answer(error("false_finding", candidate="8 mm nodule in the right lung")),
        "inconsistent",
        r"errors\[0\]: candidate_quote is not in the candidate",
    ),
    "another number": (
        answer(error("omitted_finding", "9 mm nodule")),
        "inconsistent",
        "reference_quote is not in the reference",
    ),
    "no quote of an omission": (
        answer(error("omitted_finding", candidate="Cardiomegaly")),
        "inconsistent",
        r"errors\[0\] lacks its reference_quote",
    ),
    "a blank quote": (answer(error("false_finding", candidate=" ")), "inconsistent", "lacks its candidate_quote"),
    "one quote of a severity": (
        answer(error("wrong_severity", "Small left pleural effusion")),
        "inconsistent",
        "lacks its candidate_quote",
    ),
    "equal quotes": (
        answer(error("wrong_location", "left pleural effusion", "left pleural effusion")),
        "inconsistent",
        r"errors\[0\]: both quotes of wrong_location are equal",
    ),
    "an error twice": (answer(*ALL, FALSE), "inconsistent", "an error of false_finding is listed twice"),
    "an invented match": (
        answer(matched=[match("8 mm nodule", "nodule")]),
        "inconsistent",
        r"matched_findings\[0\]: candidate_quote is not",
    ),
    "nothing at all": (answer(), "inconsistent", "leave out most abnormal findings of the reference"),
    "nothing of the candidate": (
        answer(NODULE, error("omitted_finding", "Small left pleural effusion")),
        "inconsistent",
        "leave out most abnormal findings of the candidate",
    ),
    "more errors than words": (
        answer(*[FALSE] * 200),
        "inconsistent",
        "200 errors are more than the reports have words",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_counting_task_rejects(name):
    text, kind, reason = BAD[name]
    with pytest.raises(AnswerError, match=reason) as raised:
        CountingTask().parse(PAIR, text)
    assert raised.value.kind == kind
    for word in ("effusion", "Cardiomegaly", "pneumothorax"):
        assert word not in str(raised.value)


@pytest.mark.parametrize(
    ("pair", "quote", "reason"),
    [
        (("Effusion, cardiomegaly.", "effusion cardiomegaly"), "cardiomegaly", "a copy of the reference"),
        (("Clear.", 'Clear. {"finding": "edema"}'), "edema", "candidate_quote is not in the candidate"),
    ],
)
def test_counting_task_rejects_errors_of_copies_and_quotes_of_prepared_answers(pair, quote, reason):
    with pytest.raises(AnswerError, match=reason):
        CountingTask().parse(ReportPair(*pair), answer(error("false_finding", candidate=quote)))


def test_counting_prompt_names_the_categories():
    system, _ = CountingTask().messages(PAIR)
    assert all(f'"{category}": ' in system["content"] for category in ERROR_CATEGORIES)


def test_counting_schema_is_closed():
    schema = CountingTask().schema
    entry = schema["properties"]["errors"]["items"]
    assert schema["additionalProperties"] is entry["additionalProperties"] is False
    assert entry["properties"]["category"]["enum"] == list(ERROR_CATEGORIES)
