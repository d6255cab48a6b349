"""CRIMSON compared with the paper in exact arithmetic, annotations of radiologists and the published code."""

import copy
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.functional import (
    CrimsonEvaluation,
    CrimsonFinding,
    crimson_score,
    crimson_score_from_statistics,
    crimson_statistics,
)

Answer = dict[str, Any]

LEVELS = ("urgent", "actionable_not_urgent", "not_actionable_not_urgent", "benign_expected")
SEVERITIES = ("significant", "negligible")
TYPES = (
    *("location", "severity", "descriptor", "measurement"),
    *("certainty", "unspecific", "overinterpretation", "temporal"),
)

levels = st.sampled_from([*LEVELS, "very_bad", ""])


@st.composite
def findings(draw: st.DrawFn, letter: str) -> list[Answer]:
    chosen = draw(st.lists(levels, max_size=5))
    return [
        {"id": f"{letter}{index}", "finding": "text", "clinical_significance": level}
        for index, level in enumerate(chosen)
    ]


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """A consistent evaluation: each finding is matched at least once, or missing, or false."""
    reference, predicted = draw(findings("R")), draw(findings("P"))
    pairs = [{"ref_id": r["id"], "pred_id": p["id"]} for r in reference for p in predicted]
    matches = draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else []
    kinds = st.fixed_dictionaries(
        {
            "severity": st.sampled_from([*SEVERITIES, "huge"]),
            "error_types": st.lists(st.sampled_from(TYPES), unique=True, max_size=3),
        }
    )
    errors = [{**draw(st.sampled_from(matches)), **error} for error in draw(st.lists(kinds, max_size=5)) if matches]
    seen = {id_ for match in matches for id_ in match.values()}
    return {
        "reference_findings": reference,
        "predicted_findings": predicted,
        "matched_findings": matches,
        "errors": {
            "false_findings": [p["id"] for p in predicted if p["id"] not in seen],
            "missing_findings": [r["id"] for r in reference if r["id"] not in seen],
            "attribute_errors": errors,
        },
    }


def crimson_by_the_paper(answer: Answer) -> Fraction:
    """Equations 1 to 3 in exact arithmetic; labels that are not in the paper have the weight 1/4."""
    quarter = Fraction(1, 4)
    of_level = {"urgent": 4 * quarter, "actionable_not_urgent": 2 * quarter, "benign_expected": 0 * quarter}
    of_severity = {"significant": 2 * quarter, "negligible": 0 * quarter}

    def weight(kind: str, wanted: str) -> Fraction:
        (level,) = [f["clinical_significance"] for f in answer[f"{kind}_findings"] if f["id"] == wanted]
        return of_level.get(level, quarter)

    everything = sum((weight("reference", finding["id"]) for finding in answer["reference_findings"]), Fraction(0))
    false = sum((weight("predicted", wanted) for wanted in answer["errors"]["false_findings"]), Fraction(0))
    credit = Fraction(0)
    for wanted in {match["ref_id"] for match in answer["matched_findings"]}:
        penalty = sum(
            of_severity.get(error["severity"], quarter)
            for error in answer["errors"]["attribute_errors"]
            if error["ref_id"] == wanted
        )
        own = weight("reference", wanted)
        credit += own * own / (own + penalty) if own else 0
    if everything > 0:
        raw = (credit - false) / everything
    elif false > 0:
        raw = -false
    else:
        raw = Fraction(1)
    return raw if raw >= 0 else -(false - credit) / (1 + false - credit)


def score(answer: Answer) -> float:
    return crimson_score(answer).item()


def finding(letter: str, level: str, index: int = 0) -> Answer:
    return {"id": f"{letter}{index}", "finding": "text", "clinical_significance": level}


def matched(level: str, *severities: str) -> Answer:
    """One matched finding with attribute errors of these severities."""
    pair = {"ref_id": "R0", "pred_id": "P0"}
    errors = [{**pair, "severity": severity, "error_types": ["location"]} for severity in severities]
    return {
        "reference_findings": [finding("R", level)],
        "predicted_findings": [finding("P", level)],
        "matched_findings": [pair],
        "errors": {"attribute_errors": errors, "false_findings": [], "missing_findings": []},
    }


@given(st.lists(answers(), max_size=4))
def test_equals_the_paper(batch: list[Answer]) -> None:
    expected = [float(crimson_by_the_paper(answer)) for answer in batch]
    scores = crimson_score(batch)
    assert scores.dtype == torch.float64
    assert scores.tolist() == pytest.approx(expected, abs=1e-14)
    assert all(-1 < value <= 1 for value in scores.tolist())


@given(answers())
def test_json_and_objects_are_the_same(answer: Answer) -> None:
    evaluation = CrimsonEvaluation.from_dict(answer)
    assert CrimsonEvaluation.from_dict(evaluation.to_dict()) == evaluation
    assert CrimsonEvaluation.from_dict(json.loads(json.dumps(answer))) == evaluation
    assert score(answer) == crimson_score(evaluation).item() == crimson_score([evaluation, evaluation])[1].item()


@given(answers(), levels)
def test_a_false_finding_more_never_raises(answer: Answer, level: str) -> None:
    worse = copy.deepcopy(answer)
    worse["predicted_findings"].append(finding("P", level, index=99))
    worse["errors"]["false_findings"].append("P99")
    assert score(worse) <= score(answer)
    if level != "benign_expected":
        assert score(worse) < score(answer)


@given(answers(), st.sampled_from(SEVERITIES), st.sampled_from(TYPES), st.data())
def test_an_attribute_error_more_never_raises(answer: Answer, severity: str, kind: str, data: st.DataObject) -> None:
    if not answer["matched_findings"]:
        return
    worse = copy.deepcopy(answer)
    match = data.draw(st.sampled_from(answer["matched_findings"]))
    worse["errors"]["attribute_errors"].append({**match, "severity": severity, "error_types": [kind]})
    assert score(worse) <= score(answer)
    if severity == "negligible":
        assert score(worse) == score(answer)


@given(answers(), levels)
def test_a_finding_found_is_never_worse_than_missed(answer: Answer, level: str) -> None:
    missed = copy.deepcopy(answer)
    missed["reference_findings"].append(finding("R", level, index=99))
    found = copy.deepcopy(missed)
    missed["errors"]["missing_findings"].append("R99")
    found["predicted_findings"].append(finding("P", level, index=99))
    found["matched_findings"].append({"ref_id": "R99", "pred_id": "P99"})
    assert score(found) >= score(missed)


@given(findings("R"))
def test_a_normal_template_scores_nought_and_all_found_one(reference: list[Answer]) -> None:
    missing = [entry["id"] for entry in reference]
    weighs = any(entry["clinical_significance"] != "benign_expected" for entry in reference)
    template = {"reference_findings": reference, "errors": {"missing_findings": missing}}
    # Without a finding of positive weight, the template is a correct normal report.
    assert score(template) == (0 if weighs else 1)
    everything = {
        "reference_findings": reference,
        "predicted_findings": reference,
        "matched_findings": [{"ref_id": id_, "pred_id": id_} for id_ in missing],
    }
    assert score(everything) == 1


def test_a_correct_normal_report_scores_one_and_no_evaluation_has_no_score() -> None:
    assert score({}) == 1
    assert crimson_score(CrimsonEvaluation()).shape == ()
    assert crimson_score([]).shape == (0,)
    assert crimson_statistics([]).num_error_types.shape == (0, 8)


@pytest.mark.parametrize(
    ("level", "severities", "expected"),
    [
        ("urgent", (), 1),
        ("urgent", ("significant",), 1 / 1.5),
        ("urgent", ("significant", "significant"), 0.5),
        ("actionable_not_urgent", ("significant",), 0.5),
        ("actionable_not_urgent", ("negligible",), 1),
        ("not_actionable_not_urgent", ("significant",), 1 / 3),
        ("not_actionable_not_urgent", ("unheard of",), 0.5),
        # A finding of weight 0.
        ("benign_expected", ("significant",), 1),
    ],
)
def test_partial_credit(level: str, severities: tuple[str, ...], expected: float) -> None:
    assert score(matched(level, *severities)) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (("urgent",), -1 / 2),
        (("actionable_not_urgent",), -1 / 3),
        (("not_actionable_not_urgent",), -1 / 5),
        (("hitherto unknown",), -1 / 5),
        (("benign_expected",), 1),
        (("urgent", "urgent", "urgent"), -3 / 4),
    ],
)
def test_inventions_where_nothing_is_to_be_found(levels: tuple[str, ...], expected: float) -> None:
    invented = [finding("P", level, index) for index, level in enumerate(levels)]
    answer = {"predicted_findings": invented, "errors": {"false_findings": [entry["id"] for entry in invented]}}
    assert score(answer) == pytest.approx(expected, abs=1e-15)
    # The same if all findings are benign.
    assert score({**answer, "reference_findings": [finding("R", "benign_expected")]}) == score(answer)


def test_right_and_wrong_in_balance_is_nought() -> None:
    answer = matched("actionable_not_urgent")
    answer["predicted_findings"].append(finding("P", "actionable_not_urgent", index=1))
    answer["errors"]["false_findings"] = ["P1"]
    assert score(answer) == 0
    answer["predicted_findings"].append(finding("P", "not_actionable_not_urgent", index=2))
    answer["errors"]["false_findings"] = ["P1", "P2"]
    assert score(answer) == -0.25 / 1.25


def test_a_finding_matched_several_times_counts_once() -> None:
    once = matched("urgent")
    twice = copy.deepcopy(once)
    twice["predicted_findings"].append(finding("P", "urgent", index=1))
    twice["matched_findings"] += [{"ref_id": "R0", "pred_id": "P1"}, {"ref_id": "R0", "pred_id": "P0"}]
    assert score(twice) == score(once) == 1
    assert crimson_statistics([twice]).num_matched.tolist() == [1]


def test_statistics_by_hand() -> None:
    answer = {
        "reference_findings": [finding("R", level, index) for index, level in enumerate(LEVELS)],
        "predicted_findings": [finding("P", level, index) for index, level in enumerate(LEVELS)],
        "matched_findings": [{"ref_id": "R0", "pred_id": "P1"}, {"ref_id": "R3", "pred_id": "P1"}],
        "errors": {
            "false_findings": ["P0", "P2", "P3"],
            "missing_findings": ["R1", "R2"],
            "attribute_errors": [
                {"ref_id": "R0", "pred_id": "P1", "severity": "significant", "error_types": ["location", "temporal"]},
                {"ref_id": "R0", "pred_id": "P1", "severity": "negligible", "error_types": ["location"]},
                # An error of an unmatched finding is counted but reduces no credit.
                {"ref_id": "R1", "pred_id": "P0", "severity": "huge", "error_types": ["nonsense"]},
            ],
        },
    }
    statistics = crimson_statistics([answer])
    found = {name: value.tolist()[0] for name, value in statistics._asdict().items()}
    assert found == {
        "credit": 1 / 1.5,
        "reference_weight": 1.75,
        "false_weight": 1.25,
        "missing_weight": 0.75,
        "attribute_weight": 0.75,
        "num_reference": 4,
        "num_predicted": 4,
        "num_matched": 2,
        "num_false": 3,
        "num_missing": 2,
        "num_attribute": 3,
        "num_error_types": [2, 0, 0, 0, 0, 0, 0, 1],
    }
    assert all(value.dtype == torch.float64 for value in statistics)


def test_scores_of_any_shape_and_type() -> None:
    credit = torch.tensor([[0.5, 0.0], [0.0, float("nan")]], dtype=torch.float32)
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    false = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
    scores = crimson_score_from_statistics(credit, weight, false)
    assert scores.dtype == torch.float32
    assert scores.nan_to_num(9).tolist() == [[0.5, 1.0], [-0.75, 9.0]]


def errors(**lists: Any) -> Answer:
    return {"errors": lists}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference_findings": [finding("R", "urgent")] * 2}, "reference_findings"),
        ({"matched_findings": [{"ref_id": "R0", "pred_id": "P7"}]}, "matched_findings has the id 'P7'"),
        ({"matched_findings": [{"ref_id": "R7", "pred_id": "P0"}]}, "matched_findings has the id 'R7'"),
        (errors(false_findings=["R0"]), "false_findings has the id 'R0'.*known: P0"),
        (errors(missing_findings=["P0"]), "missing_findings has the id 'P0'"),
        (errors(attribute_errors=[{"ref_id": "R0", "pred_id": "R0"}]), "attribute_errors has the id 'R0'"),
        (errors(attribute_errors=[{"ref_id": "P0", "pred_id": "P0"}]), "attribute_errors has the id 'P0'"),
        ({"matched_findings": [{"ref_id": "R0"}]}, r"matched_findings\[0\] lacks 'pred_id'"),
        ({"predicted_findings": [{"finding": "x"}]}, r"predicted_findings\[0\] lacks 'id'"),
        ({"predicted_findings": ["mass"]}, r"predicted_findings\[0\] must"),
        ({"predicted_findings": [{"id": ["P0"]}]}, r"predicted_findings\[0\]\['id'\] must"),
        ({"errors": None}, "errors must"),
        (errors(false_findings="P0"), "false_findings must"),
        (errors(missing_findings=[{"id": "R0"}]), r"missing_findings\[0\] must"),
    ],
)
def test_what_is_no_evaluation_raises_with_its_row(changes: Answer, message: str) -> None:
    with pytest.raises(ValueError, match=rf"evaluations\[1\]: {message}"):
        crimson_score([{}, {**matched("urgent"), **changes}])


def test_something_else_raises() -> None:
    with pytest.raises(ValueError, match=r"evaluations\[0\]: .* got str"):
        crimson_score(["mass"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="checks"):
        crimson_score([], checks="lax")  # type: ignore[arg-type]


def annotated(case: Answer, radiologist: Answer, candidate: str) -> Answer:
    """Convert the annotations of a radiologist for a candidate to an evaluation.

    RadPref marks errors only: false candidate findings, candidate findings with wrong attributes, and missing reference
    findings. All other findings are correct, but their significance and their matches are unknown. They have an empty
    significance here, and therefore the weight 0.25 of an unknown label. They are matched in order, and the surplus
    findings of one side are matched with the last finding of the other side. An attribute error is omitted if no
    reference finding remains for it. Marks on findings that are not in the candidate's list are kept.
    """
    marks, missing = (radiologist[candidate][key] for key in ("finding_errors", "missing_findings"))
    count = max([len(case[f"{candidate}_findings"]), *(int(index) + 1 for index in marks)])
    false = {index for index, mark in marks.items() if mark["error_type"] == "false"}
    right = [index for index in map(str, range(count)) if index not in false]
    found = [index for index in map(str, range(len(case["ground_truth_findings"]))) if index not in missing]
    pairs = [
        {"ref_id": f"R{found[min(index, len(found) - 1)]}", "pred_id": f"P{right[min(index, len(right) - 1)]}"}
        for index in range(max(len(found), len(right)) if found and right else 0)
    ]
    return {
        "reference_findings": [
            finding("R", missing.get(str(index), {}).get("clinical_significance", ""), index)
            for index in range(len(case["ground_truth_findings"]))
        ],
        "predicted_findings": [
            finding("P", marks.get(str(index), {}).get("clinical_significance", ""), index) for index in range(count)
        ],
        "matched_findings": pairs,
        "errors": {
            "false_findings": [f"P{index}" for index in false],
            "missing_findings": [f"R{index}" for index in missing],
            "attribute_errors": [
                {**pair, "severity": severity, "error_types": [kind]}
                for pair in pairs
                for kind, severity in marks.get(pair["pred_id"][1:], {}).get("attributes", {}).items()
            ],
        },
    }


@pytest.fixture(scope="session")
def radpref(shared_data: Path) -> list[Answer]:
    cases: list[Answer] = json.loads((shared_data / "radpref" / "pairs.json").read_text())
    return cases


def annotations(cases: list[Answer]) -> Iterator[tuple[Answer, int]]:
    """Evaluations of all radiologists and candidates, with the radiologist's rating."""
    for case in cases:
        for radiologist in case["radiologists"]:
            for candidate in ("C1", "C2"):
                yield annotated(case, radiologist, candidate), radiologist[candidate]["rating"]


def test_equals_the_paper_on_radiologists_annotations(radpref: list[Answer]) -> None:
    batch = [answer for answer, _ in annotations(radpref)]
    assert len(batch) == len(radpref) * 3 * 2
    scores = crimson_score(batch).tolist()
    assert scores == pytest.approx([float(crimson_by_the_paper(answer)) for answer in batch], abs=1e-14)
    # Scores of all kinds: negative, zero, partial and perfect.
    assert min(scores) < -0.5
    assert max(scores) == 1
    assert len(set(scores)) > 30


def test_annotations_are_counted_as_they_were_made(radpref: list[Answer]) -> None:
    statistics = crimson_statistics([answer for answer, _ in annotations(radpref)])
    judged = [one[candidate] for case in radpref for one in case["radiologists"] for candidate in ("C1", "C2")]
    marks = [mark for one in judged for mark in one["finding_errors"].values()]
    assert statistics.num_false.sum() == sum(mark["error_type"] == "false" for mark in marks)
    assert statistics.num_missing.sum() == sum(len(one["missing_findings"]) for one in judged)


def test_radiologists_rate_what_they_marked(radpref: list[Answer]) -> None:
    """Scores correlate with the ratings of the annotators; a wrong sign in the formula would fail."""
    stats = pytest.importorskip("scipy.stats")
    rows = list(annotations(radpref))
    scores = crimson_score([answer for answer, _ in rows]).tolist()
    assert stats.kendalltau(scores, [rating for _, rating in rows]).statistic > 0.6


def published(answer: Answer) -> Answer:
    scorer = pytest.importorskip("CRIMSON", reason="the optional crimson-score is not installed").CRIMSONScore
    # Its constructor loads a language model.
    result: Answer = scorer._calculate_crimson(scorer.__new__(scorer), answer)
    return result


@given(answers())
def test_equals_the_published_code(answer: Answer) -> None:
    result = published(answer)
    # It rounds to four digits.
    assert score(answer) == pytest.approx(result["crimson_score"], abs=5.0001e-5)
    statistics = crimson_statistics([answer])
    counts, weighted = result["error_counts"], result["weighted_error_counts"]
    for name in ("false", "missing", "attribute"):
        plural = f"{name}_errors" if name == "attribute" else f"{name}_findings"
        assert getattr(statistics, f"num_{name}").item() == counts[plural]
        assert getattr(statistics, f"{name}_weight").item() == weighted[plural]
    assert statistics.num_error_types[0].tolist() == [counts[f"{kind}_errors"] for kind in TYPES]
    assert statistics.credit.item() == pytest.approx(result["metrics"]["correct"])


def test_equals_the_published_code_on_radiologists_annotations(radpref: list[Answer]) -> None:
    for answer, _ in annotations(radpref):
        assert score(answer) == pytest.approx(published(answer)["crimson_score"], abs=5.0001e-5)


def test_where_the_published_code_forgives_ids_that_no_finding_has() -> None:
    """The published code gives an unknown id the weight 0; strict checks raise an error."""
    answer = {**matched("urgent"), "errors": {"false_findings": ["P9"]}}
    assert published(answer)["crimson_score"] == 1
    assert crimson_score(answer, checks="published") == 1
    with pytest.raises(ValueError, match="has the id 'P9'"):
        crimson_score(answer)


@given(answers())
def test_published_checks_change_no_consistent_evaluation(answer: Answer) -> None:
    assert CrimsonEvaluation.from_dict(answer, checks="published") == CrimsonEvaluation.from_dict(answer)
    assert crimson_score(answer, checks="published") == score(answer)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # By hand from the published formula: 1 of 1 credited, less the false weight, divided by the reference's weight.
        ({"reference_findings": [finding("R", "urgent"), finding("R", "actionable_not_urgent")]}, 0.5 / 1.5),
        ({"reference_findings": [finding("R", "actionable_not_urgent"), finding("R", "urgent")]}, 1 / 1.5),
        ({"predicted_findings": [finding("P", "urgent")], "errors": {"false_findings": ["P0", "P0"]}}, -1 / 2),
        ({"errors": {"false_findings": "P0"}}, 1),
        ({"errors": {"false_findings": {"P0": None}}}, 0),
        ({"reference_findings": []}, 0),
        ({"reference_findings": [], "errors": {"false_findings": ["P0"]}}, -1 / 2),
        ({"matched_findings": [{"ref_id": "R0"}]}, 1),
        ({"matched_findings": [{"ref_id": 0, "pred_id": "P0"}]}, 0),
        ({"errors": {"missing_findings": ["R0", "R0", "R7"]}}, 1),
    ],
)
def test_published_checks_score_inconsistent_evaluations(changes: Answer, expected: float) -> None:
    answer = {**matched("urgent"), **changes}
    assert crimson_score(answer, checks="published").item() == pytest.approx(expected, abs=1e-15)
    evaluation = CrimsonEvaluation.from_dict(answer, checks="published")
    assert crimson_score(evaluation, checks="published") == crimson_score(answer, checks="published")
    assert CrimsonEvaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation


def test_published_checks_keep_different_ids_apart() -> None:
    ids = [1, "1", "1'", True, 1.0, None, "", "\ud800", 2.5]
    answer = {"predicted_findings": [{"id": id_} for id_ in ids], "errors": {"false_findings": ids}}
    found = CrimsonEvaluation.from_dict(answer, checks="published")
    names = [entry.id for entry in found.predicted_findings]
    assert names == list(found.false_findings) == ["1''", "1", "1'", "1''", "1''", "'", "", "\\ud800", "2.5"]
    assert [entry.clinical_significance for entry in found.predicted_findings] == [""] * len(ids)


def test_published_checks_count_as_the_published_code() -> None:
    pair = {"ref_id": "R0", "pred_id": ["P0", "P1"]}
    kinds = [["location", "other"], "dislocation, severity", {"temporal": 1}, [None, 3]]
    errors = [{**pair, "severity": None, "error_types": kind, "explanation": 7} for kind in kinds]
    answer = {**matched("urgent"), "errors": {"false_findings": ["P7"] * 3, "attribute_errors": errors}}
    found = crimson_statistics([answer], checks="published")
    assert (found.num_false.item(), found.false_weight.item()) == (3, 0)
    assert (found.num_attribute.item(), found.attribute_weight.item(), found.credit.item()) == (4, 1, 0.5)
    assert found.num_error_types[0].tolist() == [2, 1, 0, 0, 0, 0, 0, 1]
    (first, *_) = CrimsonEvaluation.from_dict(answer, checks="published").attribute_errors
    assert (first.pred_id, first.severity, first.error_types, first.explanation) == ("", "", ("location", "other"), "7")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"errors": None}, "errors must"),
        ({"errors": {"false_findings": None}}, "false_findings must"),
        ({"errors": {"missing_findings": [["R0"]]}}, r"missing_findings\[0\] must"),
        ({"matched_findings": [{"pred_id": "P0"}]}, r"matched_findings\[0\] lacks 'ref_id'"),
        ({"reference_findings": ["mass"]}, r"reference_findings\[0\] must"),
        ({"predicted_findings": [{"id": {}}]}, r"predicted_findings\[0\]\['id'\] must"),
        ({"errors": {"attribute_errors": [{"ref_id": "R0", "error_types": 1}]}}, "error_types must"),
    ],
)
def test_published_checks_raise_where_the_published_code_does(changes: Answer, message: str) -> None:
    answer = {**matched("urgent"), **changes}
    with pytest.raises(ValueError, match=rf"evaluations\[1\]: {message}"):
        crimson_score([{}, answer], checks="published")


def test_findings_are_plain_values() -> None:
    mass = CrimsonFinding("R1", "mass", "urgent")
    assert {CrimsonEvaluation((mass,)): 1}[CrimsonEvaluation((mass,))] == 1
