"""Paraphrases and wrong details by a judge: what is accepted."""

import asyncio
import json

import pytest
from judge_answers import block
from writing_judge import WritingJudge

from rrg_rewards.findings.editing.rewrite_rules import Rewording
from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.rewriting import (
    ParaphraseTask,
    WrongDetail,
    WrongDetailTask,
    lost_in_paraphrase,
    rewrite_reports,
)
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import build_items

SCHEMA = get_question_schema("ct_rate")
REPORT = "Spiculated nodule of 12 mm in the right upper lobe. Small left pleural effusion. No emphysema."
GOOD = "A small pleural effusion is seen on the left. The right upper lobe has a spiculated nodule of 1.2 cm. "
GOOD += "No emphysema."
ITEMS = {(item.finding, item.attribute): item for item in build_items(REPORT)}


def paraphrased(text: str) -> str:
    return ParaphraseTask().parse(REPORT, json.dumps({"report": text}))


def test_paraphrase_task_accepts_a_paraphrase_that_keeps_the_findings() -> None:
    assert lost_in_paraphrase(REPORT, GOOD, SCHEMA) is None
    assert paraphrased(f" {GOOD} ") == GOOD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (REPORT.upper(), "is a copy of the report"),
        (GOOD.replace("A small pleural effusion is seen on the left. ", ""), "does not keep the findings"),
        (GOOD.replace("No emphysema", "Emphysema"), "does not keep the findings"),
        (f"{GOOD} Hiatal hernia.", "does not keep the findings"),
        (GOOD.replace("1.2 cm", "1.3 cm"), "does not keep the numbers"),
        (GOOD.replace(" of 1.2 cm", ""), "does not keep the numbers"),
        (f"{GOOD} Seen on image 45.", "does not keep the numbers"),
        (GOOD.replace("right upper", "left upper"), "does not keep the sides"),
        ("", "does not keep the findings"),
    ],
)
def test_paraphrase_task_rejects_a_paraphrase_that_loses_something(text: str, message: str) -> None:
    with pytest.raises(AnswerError, match=message) as caught:
        paraphrased(text)
    assert caught.value.kind == "inconsistent"


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        ("Bilateral effusion.", "Effusion on the right and on the left.", True),
        ("Bilateral effusion.", "Effusion on the right.", False),
        ("Nodule of 3 x 5 mm.", "Nodule of 0.3 x 0.5 cm.", True),
        ("Two nodules.", "Nodule.", True),
    ],
)
def test_lost_in_paraphrase(one: str, other: str, kept: bool) -> None:
    assert (lost_in_paraphrase(one, other, SCHEMA) is None) == kept


def replaced(finding: str, attribute: str, before: str, after: str) -> Rewording:
    item = ITEMS[finding, attribute]
    others = tuple(
        one for one in ITEMS.values() if one.finding == finding and one != item and one.attribute != "existence"
    )
    answer = json.dumps({"before": before, "after": after})
    return WrongDetailTask().parse(WrongDetail(REPORT, item, others), answer)


@pytest.mark.parametrize(
    ("finding", "attribute", "before", "after"),
    [
        ("Lung nodule", "size", "12 mm", "2.1 mm"),
        ("Lung nodule", "location", "right upper lobe", "left lower lobe"),
        ("Lung nodule", "margin", "Spiculated", "Smooth"),
        ("Lung nodule", "size", "nodule of 12 mm in", "nodule of 24 mm in"),
        ("Pleural effusion", "location", "left", "right"),
        ("Pleural effusion", "severity", "Small", "Large"),
    ],
)
def test_wrong_detail_task_accepts_one_wrong_attribute(finding: str, attribute: str, before: str, after: str) -> None:
    assert replaced(finding, attribute, before, after) == Rewording(attribute, before, after)


@pytest.mark.parametrize(
    ("finding", "attribute", "before", "after", "message"),
    [
        ("Lung nodule", "size", "13 mm", "24 mm", "occur 0 times, not once"),
        ("Lung nodule", "size", "l", "24 mm", "times, not once"),
        ("Lung nodule", "size", " ", "24 mm", "occur 0 times, not once"),
        ("Lung nodule", "size", "Spiculated", "Smooth", "do not state the attribute"),
        ("Lung nodule", "size", "12 mm", "1.3 cm", "no wrong answer on the attribute"),
        ("Lung nodule", "location", "right upper lobe", "upper lobe", "say nothing that the old ones do not say"),
        ("Lung nodule", "location", "right upper lobe", "right upper lobe", "say nothing that the old ones do not say"),
        ("Lung nodule", "size", "12 mm", "", "say nothing that the old ones do not say"),
        (
            "Lung nodule",
            "size",
            "12 mm in the right upper lobe",
            "24 mm in the left upper lobe",
            "change another attribute, location",
        ),
        ("Lung nodule", "margin", "Spiculated nodule", "No irregular mass", "change"),
    ],
)
def test_wrong_detail_task_rejects(finding: str, attribute: str, before: str, after: str, message: str) -> None:
    with pytest.raises(AnswerError, match=message) as caught:
        replaced(finding, attribute, before, after)
    assert caught.value.kind == "inconsistent"


def test_rewriting_prompts() -> None:
    _, wrong = WrongDetailTask().messages(WrongDetail(REPORT, ITEMS["Lung nodule", "size"]))
    assert block(wrong["content"], "detail").splitlines()[::3] == ['finding: "Lung nodule"', 'value: "12 mm"']
    assert ParaphraseTask().prompt_hash != WrongDetailTask().prompt_hash


TWO_FINDINGS = "Spiculated nodule of 12 mm in the right upper lobe. Small left pleural effusion. No pneumothorax."
NORMAL = "Normal chest CT. Heart size is normal."


def test_rewrite_reports_returns_versions_and_an_account() -> None:
    reports = [TWO_FINDINGS, NORMAL, f"{TWO_FINDINGS} Refuse."]
    written = asyncio.run(rewrite_reports(WritingJudge("Refuse"), reports))
    paraphrased, adversarial = written.versions["paraphrased"], written.versions["adversarial"]
    assert paraphrased[0] is not None
    assert paraphrased[0].candidate != TWO_FINDINGS
    assert adversarial[0] is not None
    assert adversarial[0].reference == TWO_FINDINGS
    wrong = "smooth nodule of 36 mm in the left upper lobe. large left pleural effusion. No pneumothorax."
    # "Spiculated" and "Small" do not occur in lower case, and "left" states the side of the effusion as it is.
    assert adversarial[0].candidate == wrong.replace("smooth", "Spiculated").replace("large left", "Small right")
    assert adversarial[0].counts == {"size": 1, "location": 2}
    # Nothing can be wrong in a normal report, and nonsense is no version.
    assert adversarial[1:] == [None, None]
    assert paraphrased[2] is None
    asked = sum(item.attribute != "existence" for report in reports for item in build_items(report))
    account = written.answers["adversarial"]
    assert (account["asked"], account["accepted"]) == (asked, 3)
    assert sum(account["failures"].values()) == asked - 3
    assert written.answers["paraphrased"]["asked"] == 3


def test_rewrite_reports_does_not_combine_overlapping_replacements() -> None:
    report = "Nodule of 12 mm in the right upper lobe, and consolidation in the right upper lobe."
    written = asyncio.run(rewrite_reports(WritingJudge(), [report]))
    (adversarial,) = written.versions["adversarial"]
    assert adversarial is not None
    # "Right" occurs twice, so that no replacement of it names one attribute.
    assert adversarial.counts == {"size": 1}
