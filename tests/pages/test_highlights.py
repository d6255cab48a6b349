"""What became of each finding, and where the reports state it."""

import json

from rrg_rewards.functional.crimson import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.pages.highlights import highlights, locate


def _evaluation(spans=()):
    return CrimsonEvaluation(
        reference_findings=(
            CrimsonFinding("R1", "left effusion", "actionable_not_urgent", spans),
            CrimsonFinding("R2", "mass", "urgent"),
        ),
        predicted_findings=(
            CrimsonFinding("P1", "right effusion", "actionable_not_urgent"),
            CrimsonFinding("P2", "emphysema", "benign_expected"),
        ),
        matched_findings=(("R1", "P1"),),
        false_findings=("P2",),
        missing_findings=("R2",),
        attribute_errors=(CrimsonAttributeError("R1", "P1", "significant", ("location",), "right for left"),),
    )


def test_highlights_give_each_finding_its_status_and_place():
    reference, candidate = "Large left effusion. A mass.", "Right  effusion; emphysema."
    found = {one[1]: one for one in highlights(_evaluation(), reference, candidate)}
    assert {id_: one[2] for id_, one in found.items()} == {
        "R1": "misdescribed", "R2": "missed", "P1": "misdescribed", "P2": "invented",
    }  # fmt: skip
    texts = {id_: [(reference, candidate)[one[0]][start:end] for start, end in one[7]] for id_, one in found.items()}
    assert texts == {"R1": ["left effusion"], "R2": ["mass"], "P1": ["Right  effusion"], "P2": ["emphysema"]}
    assert found["R1"][6] == "location (significant): right for left"
    assert (found["R1"][4], found["P1"][4], found["P2"][4]) == ("P1", "R1", "")


def test_highlights_mark_unread_words_of_both_reports():
    reference, candidate = "Effusion. \U0001f600 Quorblid of the aorta.", "Effusion, vextramal."
    evaluation = RuleJudge().evaluation(ReportPair(reference, candidate))
    words = [one for one in highlights(evaluation, reference, candidate) if one[2] == "unread"]
    # In UTF-16 units, of which the emoji has two.
    assert [(one[0], one[1], one[5], one[7]) for one in words] == [
        (0, "U1", "Quorblid", [[13, 21]]),
        (1, "U2", "vextramal", [[10, 19]]),
    ]
    assert [one for one in highlights(evaluation, None, None) if one[2] == "unread"] == []
    unjudged = CrimsonEvaluation(coverage=evaluation.coverage)
    assert highlights(unjudged, reference, candidate) == words
    assert highlights(CrimsonEvaluation(), reference, candidate) == []


def test_highlights_use_the_places_that_the_judge_knows():
    found = highlights(_evaluation(spans=((0, 5), (8, 9))), "left effusion. left effusion", "")
    assert found[0][7] == [[0, 5], [8, 9]]


def test_highlights_count_places_in_the_units_of_scripts():
    report = "\U0001f600 left effusion"
    start, end = highlights(_evaluation(), report, "")[0][7][0]
    assert report.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == "left effusion"


def test_highlights_without_text_quote_nothing():
    found = highlights(_evaluation(), None, None)
    assert all(one[5] == "" and one[7] == [] for one in found)
    assert "right for left" not in json.dumps(found)
    assert [one[2] for one in found] == ["misdescribed", "missed", "misdescribed", "invented"]


def test_locate_finds_nothing_in_other_texts():
    assert locate("The heart is normal.", "pneumothorax") is None
    assert locate("", "pneumothorax") is None
    assert locate("The heart is normal.", "") is None
