"""Files of evaluations, and the agreement of a judge with them."""

import json
from pathlib import Path

import pytest
from scipy.stats import kendalltau

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding, crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.evaluations import EvaluatedPair, judge_agreement, read_evaluations

REPORTS = ["Cardiomegaly.", "Large left effusion.", "Small right effusion. Cardiomegaly.", "Clear.", "Nodule of 8 mm."]
PAIRS = [ReportPair(one, other) for one in REPORTS for other in REPORTS]
TEACHER = [RuleJudge().evaluation(pair) for pair in PAIRS]
# Another judge: it reads the reports the other way round.
OTHER = [RuleJudge().evaluation(ReportPair(pair.candidate, pair.reference)) for pair in PAIRS]


def test_judge_agreement_over_the_valid_pairs() -> None:
    failures = {3: JudgeFailure("malformed", "a"), 8: JudgeFailure("deadline", "b"), 9: JudgeFailure("malformed", "c")}
    found = judge_agreement(TEACHER, [failures.get(row, one) for row, one in enumerate(OTHER)], num_resamples=50)
    kept = [row for row in range(len(PAIRS)) if row not in failures]
    assert (found["pairs"], found["valid"], found["failures"]) == (25, 22, {"malformed": 2, "deadline": 1})
    ours, theirs = (crimson_score([side[row] for row in kept]).numpy() for side in (OTHER, TEACHER))
    score = found["agreement"]["score"]
    assert score["tau"] == pytest.approx(kendalltau(ours, theirs).statistic)
    assert score["low"] <= score["tau"] <= score["high"]
    assert score["mae"] == pytest.approx(abs(ours - theirs).mean())
    missed = [[len(side[row].missing_findings) for row in kept] for side in (OTHER, TEACHER)]
    counted = found["agreement"]["missing_findings"]
    assert counted["equal"] == pytest.approx(sum(a == b for a, b in zip(*missed, strict=True)) / 22)
    assert found["agreement"]["errors"]["tau"] == pytest.approx(1)


def test_evaluated_pairs_keep_the_checks_that_their_evaluations_passed(tmp_path: Path) -> None:
    evaluation = CrimsonEvaluation(TEACHER[0].reference_findings, false_findings=("P9",))
    row = EvaluatedPair(PAIRS[0], evaluation, "a", "crimson-score@1", checks="published")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row.to_record()) + "\n", encoding="utf-8")
    assert read_evaluations(path) == [row]
    assert judge_agreement([evaluation], [evaluation])["agreement"]["false_findings"]["equal"] == 1
    for wrong, message in (("strict", "has the id 'P9'"), ("lax", "checks must be one of strict, published")):
        path.write_text(json.dumps({**row.to_record(), "checks": wrong}) + "\n", encoding="utf-8")
        with pytest.raises(TableError, match=message):
            read_evaluations(path)


def test_severity_is_that_of_errors_in_similar_words() -> None:
    def evaluation(*errors: tuple[str, str, str]) -> CrimsonEvaluation:
        made = [(kind, CrimsonFinding(f"{kind}{row}", text, level)) for row, (kind, text, level) in enumerate(errors)]
        predicted, reference = (tuple(one for side, one in made if side == kind) for kind in "PR")
        ids = (tuple(one.id for one in side) for side in (predicted, reference))
        return CrimsonEvaluation(reference, predicted, (), *ids)

    urgent, actionable, minor, benign = (
        "urgent",
        "actionable_not_urgent",
        "not_actionable_not_urgent",
        "benign_expected",
    )
    teacher = evaluation(
        ("P", "large left pneumothorax", urgent),
        ("P", "left rib fracture", actionable),
        ("P", "hiatal hernia", minor),
        ("R", "large left pneumothorax", urgent),
        ("R", "old granuloma", benign),
        ("R", "scar", "unclear"),
    )
    judge = evaluation(
        ("P", "left pneumothorax", actionable),
        ("P", "left rib fractures", actionable),
        ("P", "hernia of the diaphragm", urgent),
        ("R", "old granuloma", minor),
        ("R", "scar", minor),
        ("R", "granuloma of the left base", benign),
    )
    found = judge_agreement([teacher], [judge])["severity"]
    assert found["levels"] == [urgent, actionable, minor, benign]
    assert found["matrix"] == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert (found["matched"], found["equal"]) == (3, pytest.approx(1 / 3))
    assert found["equal_by_level"] == {urgent: 0, actionable: 1, minor: None, benign: 0}


def test_judge_agreement_is_none_where_undefined() -> None:
    nothing = judge_agreement(TEACHER[:2], [JudgeFailure("malformed", "a")] * 2)
    assert nothing["valid"] == 0
    assert set(nothing["agreement"]["score"].values()) == {None} == {nothing["severity"]["equal"]}
    constant = judge_agreement(TEACHER[:1] * 2, TEACHER[:1] * 2)["agreement"]["score"]
    assert (constant["tau"], constant["equal"]) == (None, 1.0)
    with pytest.raises(ValueError, match="got 2 and 1"):
        judge_agreement(TEACHER[:2], TEACHER[:1])


def _in_order(*kinds: tuple[str, bool]) -> CrimsonEvaluation:
    """Return an evaluation whose findings all match, with their levels, and some with a wrong attribute."""
    listed, found = (
        tuple(CrimsonFinding(f"{side}{i}", str(i), level) for i, (level, _) in enumerate(kinds)) for side in "RP"
    )
    pairs = tuple((f"R{i}", f"P{i}") for i in range(len(kinds)))
    errors = tuple(
        CrimsonAttributeError(*pair, "significant", ("location",))
        for pair, (_, wrong) in zip(pairs, kinds, strict=True)
        if wrong
    )
    return CrimsonEvaluation(listed, found, pairs, attribute_errors=errors)


def test_judge_agreement_takes_scores_that_differ_by_rounding_as_ties() -> None:
    wrong, right = ("urgent", True), ("actionable_not_urgent", False)
    first, last = _in_order(wrong, right, wrong), _in_order(wrong, wrong, right)
    assert crimson_score(first) != crimson_score(last)
    found = judge_agreement([first, last], [last, first])["agreement"]["score"]
    assert (found["tau"], found["mae"], found["equal"]) == (None, 0.0, 1.0)


def test_read_evaluations_returns_what_was_written(tmp_path: Path) -> None:
    pair = ReportPair("Large left effusion.", "Small left effusion.", (("age", "82"),))
    rows = [
        EvaluatedPair(pair, RuleJudge().evaluation(pair), "rules", "", "edited"),
        EvaluatedPair(PAIRS[0], TEACHER[0], "other", "own@1"),
    ]
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row.to_record()) for row in rows]
    path.write_text("\n".join(lines) + '\n{"reference": "cut', encoding="utf-8")
    assert read_evaluations(path) == rows
    assert read_evaluations(tmp_path / "nothing.jsonl") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"evaluation": {"matched_findings": [{"ref_id": "R1", "pred_id": "P1"}]}},
            r"data row 1 \(line 1\): .*has the id 'R1'",
        ),
        ({"evaluation": []}, "an evaluation must be a mapping"),
        ({"context": "82"}, "context must be a mapping, got str"),
        ({"candidate": 3}, "candidate must be a text, got int"),
        ({"judge": None}, "judge must be a text, got NoneType"),
        ({"context": {"age": [82]}}, "context: 'age' must be a text, got list"),
    ],
)
def test_read_evaluations_names_wrong_rows(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**EvaluatedPair(PAIRS[0], TEACHER[0], "rules").to_record(), **change}) + "\n")
    with pytest.raises(TableError, match=message):
        read_evaluations(path)


def test_read_evaluations_rejects_another_file(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"reference": "a", "candidate": "b"}\n')
    with pytest.raises(TableError, match="lacks context, evaluation, judge, prompt"):
        read_evaluations(tmp_path / "other.jsonl")
