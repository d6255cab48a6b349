"""Both versions of reports by a judge: requests, accepted answers, and what is left out."""

import asyncio

from writing_judge import WritingJudge

from rrg_rewards.judges.tasks.rewriting import rewrite_reports
from rrg_rewards.questions.engine import build_items

NODULE = "Spiculated nodule of 12 mm in the right upper lobe. Small left pleural effusion. No pneumothorax."
NORMAL = "Normal chest CT. Heart size is normal."


def test_versions_and_the_account_of_answers() -> None:
    reports = [NODULE, NORMAL, f"{NODULE} Refuse."]
    written = asyncio.run(rewrite_reports(WritingJudge("Refuse"), reports))
    paraphrased, adversarial = written.versions["paraphrased"], written.versions["adversarial"]
    assert paraphrased[0] is not None
    assert paraphrased[0].candidate != NODULE
    assert adversarial[0] is not None
    assert adversarial[0].reference == NODULE
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


def test_replacements_that_overlap_are_not_combined() -> None:
    report = "Nodule of 12 mm in the right upper lobe, and consolidation in the right upper lobe."
    written = asyncio.run(rewrite_reports(WritingJudge(), [report]))
    (adversarial,) = written.versions["adversarial"]
    assert adversarial is not None
    # "Right" occurs twice, so that no replacement of it names one attribute.
    assert adversarial.counts == {"size": 1}
