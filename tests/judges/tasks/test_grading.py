"""The task of writing graded reports: the prompt, and the checks of an answer."""

import json
import re
from dataclasses import replace

import pytest
from grading_answers import asked_report, graded
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, quality_tiers, tier_name
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system

RADCLIQ = get_scoring_system("radcliq")
MARKS = ScoringSystem(
    "marks",
    (
        Criterion("findings", "How many of the findings are told, of ten?", "grade", weight=2, range=(0, 10)),
        Criterion("copied_side", "Is every side right?", "yes_no", weight=5),
        Criterion("errors_found", "Number of right negations.", "count", range=(0, 3)),
    ),
    base=1,
    direction="add",
)
REFERENCE = "Small left effusion. Heart size is normal."
ITEM = GradingItem(REFERENCE, (-2.0, 0.0))
OTHER = "Normal heart. Small right effusion."


def test_quality_tiers_of_the_shipped_systems_are_the_papers():
    assert quality_tiers(RADCLIQ) == ((-2, 0), (-4, -3), (-6, -5))
    assert quality_tiers(get_scoring_system("mrscore")) == ((70, 100), (40, 70), (0, 40))


def test_quality_tiers_of_other_systems_are_thirds():
    upper, lower = 1 + 28 * 2 / 3, 1 + 28 / 3
    assert sum(quality_tiers(MARKS), ()) == pytest.approx((upper, 29, lower, upper, 1, lower))
    with pytest.raises(ValueError, match=r"'radcliq' has no tiers, and totals in \[-inf, 0\] have no thirds"):
        quality_tiers(replace(RADCLIQ, tiers=None))


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ("low", "tiers must be a list of [least, greatest] totals"),
        ([0, 2], "tier 1 must be two numbers"),
        ([[0, -2]], "must be [least, greatest] total"),
        ([[1, 2]], "no report has a total in the tier [1, 2]"),
        ([[-1, 0], [-1, 0]], "a tier is repeated"),
    ],
)
def test_tiers_of_a_scoring_system_that_will_not_do(tiers, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(RADCLIQ, tiers=tiers)


@pytest.mark.parametrize(
    ("tier", "name"), [((-2.0, 0.0), "-2 to 0"), ((0.0, 0.0), "0"), ((200 / 3, 100.0), "66.6667 to 100")]
)
def test_tier_name(tier, name):
    assert tier_name(tier) == name


def test_grading_schema_is_closed_and_bounded():
    assert GradingTask(MARKS).schema == {
        "type": "object",
        "properties": {
            "report": {"type": "string"},
            "scores": {
                "type": "object",
                "properties": {
                    "findings": {"type": "number", "minimum": 0, "maximum": 10},
                    "copied_side": {"type": "integer", "enum": [0, 1]},
                    "errors_found": {"type": "integer", "minimum": 0, "maximum": 3},
                },
                "required": ["findings", "copied_side", "errors_found"],
                "additionalProperties": False,
            },
        },
        "required": ["report", "scores"],
        "additionalProperties": False,
    }


def test_grading_prompt_states_criteria_reference_and_tier():
    system, user = GradingTask("mrscore").messages(GradingItem(REFERENCE, (70.0, 100.0), 3))
    assert system["role"] == "system"
    for criterion in get_scoring_system("mrscore").criteria:
        assert criterion.description in system["content"]
        assert f"yes costs {criterion.weight:g} points" in system["content"]
    assert '"medical_terminology": 0}}' in system["content"]
    assert "The total is 100 less the points" in system["content"]
    assert asked_report([user]) == f"{REFERENCE} | 70 to 100 | 3"
    assert "the criteria cost it 0 to 30 points in all" in user["content"]


def test_grading_prompt_of_a_system_that_adds_points():
    system, user = GradingTask(MARKS).messages(GradingItem(REFERENCE, (21.0, 31.0)))
    assert "The total is 1 and the points" in system["content"]
    assert "(a number from 0 to 10; each earns 2 points)" in system["content"]
    assert "the criteria earn it 20 to 30 points in all" in user["content"]


def test_grading_prompt_orders_criteria_by_item():
    task = GradingTask(RADCLIQ)

    def order(draw):
        content = task.messages(replace(ITEM, draw=draw))[1]["content"]
        return content.partition("gives occasion: ")[2].partition(".")[0].split(", ")

    orders = [order(draw) for draw in range(1, 40)]
    assert order(1) == orders[0]
    assert all(sorted(found) == sorted(RADCLIQ.names) for found in orders)
    assert {found[0] for found in orders} == set(RADCLIQ.names)


def test_grading_prompt_hash_depends_on_prompt_and_criteria():
    described = replace(RADCLIQ.criteria[0], description="Another description.")
    other = replace(RADCLIQ, criteria=(described, *RADCLIQ.criteria[1:]))
    hashes = {GradingTask(system).prompt_hash for system in (RADCLIQ, other, MARKS)}
    assert len(hashes) == 3
    assert GradingTask("radcliq") == GradingTask(RADCLIQ)
    assert hash(GradingTask("radcliq")) == hash(GradingTask(RADCLIQ))
    assert GradingTask("radcliq").prompt_hash == GradingTask(RADCLIQ).prompt_hash


GOOD = {
    "in tier": (graded(RADCLIQ, OTHER, wrong_location=1), -1.0, True),
    "below the tier": (graded(RADCLIQ, OTHER, wrong_location=3), -3.0, False),
    "fenced": (f"```json\n{graded(RADCLIQ, OTHER)}\n```", 0.0, True),
    "whole as a float": (graded(RADCLIQ, OTHER, omitted_finding=2.0), -2.0, True),
}


@pytest.mark.parametrize("name", GOOD)
def test_grading_task_accepts(name):
    answer, total, in_tier = GOOD[name]
    written = GradingTask(RADCLIQ).parse(ITEM, answer)
    assert (written.total, written.in_tier) == (total, in_tier)
    assert len(written.scores) == 6
    assert written.text == OTHER


BAD = {
    "no JSON": ("Sure! Here is a report.", "malformed", "not JSON"),
    "a list": ("[]", "malformed", "the answer"),
    "no scores": ('{"report": "x"}', "malformed", "scores"),
    "a key too many": (
        json.dumps({"report": "x", "scores": {}, "secret": 1}),
        "malformed",
        "not permitted|Field required",
    ),
    "no report": (json.dumps({"report": None, "scores": {}}), "malformed", "^report: "),
    "scores as a list": (json.dumps({"report": "x", "scores": [0] * 6}), "malformed", "^scores: "),
    "a criterion missing": (json.dumps({"report": "x", "scores": {}}), "malformed", "^scores.false_finding: "),
    "another criterion": (graded(RADCLIQ, OTHER, secret=1), "malformed", r"^scores\.\?: "),
    "a text": (graded(RADCLIQ, OTHER, false_finding="1"), "malformed", "^scores.false_finding: "),
    "a truth value": (graded(RADCLIQ, OTHER, false_finding=True), "malformed", "^scores.false_finding: "),
    "null": (graded(RADCLIQ, OTHER, false_finding=None), "malformed", "^scores.false_finding: "),
    "a negative count": (graded(RADCLIQ, OTHER, false_finding=-1), "inconsistent", r"false_finding must lie in \[0"),
    "half an error": (graded(RADCLIQ, OTHER, false_finding=0.5), "inconsistent", "must be a whole number, got 0.5"),
    "more errors than words": (graded(RADCLIQ, OTHER, false_finding=13), "inconsistent", "more errors than there are"),
    "a huge number": (graded(RADCLIQ, OTHER, false_finding=10**400), "malformed", "^scores.false_finding: "),
    "infinity": ('{"report": "x", "scores": {"false_finding": 1e999}}', "malformed", "^scores"),
    "a blank report": (graded(RADCLIQ, " \n."), "inconsistent", "contains no words"),
    "a copy": (graded(RADCLIQ, REFERENCE), "inconsistent", "a copy of the reference"),
    "a copy with errors": (graded(RADCLIQ, REFERENCE, omitted_finding=1), "inconsistent", "a copy of the reference"),
    "a copy in capitals": (
        graded(RADCLIQ, "SMALL LEFT EFFUSION; heart size is normal", omitted_finding=1),
        "inconsistent",
        "a copy of the reference",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_grading_task_rejects(name):
    answer, kind, reason = BAD[name]
    with pytest.raises(AnswerError, match=reason) as caught:
        GradingTask(RADCLIQ).parse(ITEM, answer)
    assert caught.value.kind == kind
    assert "effusion" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_grading_task_accepts_a_copy_only_for_perfect_reports():
    perfect = replace(ITEM, tier=(0.0, 0.0))
    assert GradingTask(RADCLIQ).parse(perfect, graded(RADCLIQ, REFERENCE)).in_tier
    with pytest.raises(AnswerError, match="a copy of the reference"):
        GradingTask(RADCLIQ).parse(perfect, graded(RADCLIQ, REFERENCE, omitted_finding=1))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"findings": 10.5}, r"findings must lie in \[0, 10\], got 10.5"),
        ({"copied_side": 2}, r"copied_side must lie in \[0, 1\], got 2"),
        ({"copied_side": 0.5}, "copied_side must be a whole number"),
        ({"errors_found": 4}, r"errors_found must lie in \[0, 3\], got 4"),
    ],
)
def test_grading_task_checks_ranges_of_all_kinds(scores, message):
    with pytest.raises(AnswerError, match=message):
        GradingTask(MARKS).parse(GradingItem(REFERENCE, (0.0, 10.0)), graded(MARKS, OTHER, **scores))


def test_grading_task_accepts_fractions_of_grades():
    answer = graded(MARKS, OTHER, findings=2.5, copied_side=1)
    written = GradingTask(MARKS).parse(GradingItem(REFERENCE, (0.0, 10.0)), answer)
    assert (written.scores, written.total, written.in_tier) == ((2.5, 1.0, 0.0), 11.0, False)


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(str))
def test_grading_task_rejects_any_text(text):
    with pytest.raises(AnswerError):
        GradingTask(RADCLIQ).parse(ITEM, text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.text() | JSON, st.lists(st.integers(-3, 400) | JSON, min_size=6, max_size=6))
def test_grading_task_totals_accepted_scores(report, numbers):
    answer = json.dumps({"report": report, "scores": dict(zip(RADCLIQ.names, numbers, strict=True))})
    try:
        written = GradingTask(RADCLIQ).parse(ITEM, answer)
    except AnswerError:
        return
    assert written.total == -sum(numbers)
    assert written.text == report.strip() != ""
    assert written.in_tier == (sum(numbers) <= 2)


def test_grading_item_rejects_a_blank_reference():
    with pytest.raises(ValueError, match="reference must be a report"):
        GradingItem(" \n", (-2.0, 0.0))
