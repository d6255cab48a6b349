"""CT-FineBench as a metric: scores, modes, tables, given questions, judges and their failures, copies."""

import asyncio
import json
import math
import pickle
from typing import Any

import pytest
import torch
from answering_judge import AnsweringJudge
from exam_judge import ExamJudge

from rrg_rewards.data import phantom_studies
from rrg_rewards.judges import JudgeFailure, RuleJudge, question_answering
from rrg_rewards.metrics import CTFineBench, FineBenchScores
from rrg_rewards.questions.schema import AttributeSpec, FindingSpec, QAItem, QuestionSchema
from rrg_rewards.utilities.processes import run_coroutine

LEFT = "Nodule of 8 mm in the left upper lobe."
RIGHT = "Nodule of 8 mm in the right upper lobe."
LARGER = "Nodule of 10 mm in the left upper lobe."
EFFUSION = "Small left pleural effusion."
NORMAL = "Normal chest CT."

PREDS = [LEFT, RIGHT, LARGER, NORMAL, LEFT, f"{LEFT} {EFFUSION}"]
TARGET = [LEFT, LEFT, LEFT, LEFT, NORMAL, LEFT]
# Correct; wrong side; 25 % too large; empty; no question; an invented effusion.
RECALL = [1, 2 / 3, 2.5 / 3, 0, math.nan, 1]
PRECISION = [1, 2 / 3, 2.5 / 3, math.nan, 0, 0.5]
F1 = [1, 2 / 3, 2.5 / 3, 0, 0, 2 / 3]


def values(scores: Any) -> list[float]:
    return [float(value) for value in scores.value]


def exam(*roles: str, **options: Any) -> dict[str, Any]:
    """Judges in the given roles, or in all."""
    judge = ExamJudge(**options)
    return dict.fromkeys(roles or ("builder", "answerer", "comparer"), judge)


@pytest.mark.parametrize(("mode", "expected"), [("recall", RECALL), ("precision", PRECISION), ("f1", F1)])
def test_ct_finebench_scores_by_mode(mode: Any, expected: list[float]) -> None:
    metric = CTFineBench(mode=mode)
    scores = metric.score(PREDS, TARGET)
    assert isinstance(scores, FineBenchScores)
    assert scores.value.dtype == torch.float64
    # The last candidate gives three questions on the nodule and three on the effusion.
    assert values(scores) == pytest.approx(expected, nan_ok=True)
    metric.update(PREDS[:2], TARGET[:2])
    metric.update(PREDS[2:], TARGET[2:])
    scored = [value for value in expected if value == value]
    assert metric.compute().item() == pytest.approx(sum(scored) / len(scored))
    assert metric.compute().dtype == torch.float64
    counts = {name: int(count) for name, count in metric.counts().items() if count}
    missing = len(expected) - len(scored)
    assert counts == {"scored": len(scored), **({"unscorable": missing, "without_items": missing} if missing else {})}
    assert scores.aggregate(*scores.sufficient_statistics).item() == pytest.approx(metric.compute().item())


@pytest.mark.parametrize("mode", ["recall", "precision"])
def test_ct_finebench_nothing_to_say_of_either_is_unscorable_without_f1(mode: Any) -> None:
    assert CTFineBench(mode=mode).score([NORMAL], [NORMAL]).value.isnan().all()


def test_ct_finebench_f1_scores_normal_references() -> None:
    metric = CTFineBench(mode="f1")
    preds = [NORMAL, "", LEFT, "Possible nodule in the left upper lobe.", NORMAL, None]
    scores = metric.score(preds, [NORMAL, NORMAL, NORMAL, NORMAL, LEFT, NORMAL])
    assert scores.value.tolist()[:5] == [1, 1, 0, 0, 0]
    assert scores.scored.tolist() == [True] * 5 + [False]
    metric.add_scores(scores)
    assert {name: int(count) for name, count in metric.counts().items()}["without_items"] == 0
    assert metric.compute().item() == pytest.approx(2 / 5)


def test_ct_finebench_a_report_scores_1_against_itself_in_f1() -> None:
    reports = [LEFT, NORMAL, "Possible nodule of 8 mm in the left upper lobe.", f"{EFFUSION} Possible nodule."]
    assert CTFineBench(mode="f1").score(reports, reports).value.tolist() == [1] * 4


def test_ct_finebench_a_hedge_is_a_statement_of_the_candidate() -> None:
    hedge = "Possible nodule."
    scores = CTFineBench(mode="precision").score([hedge] * 4, [LEFT, NORMAL, "No nodule.", hedge])
    assert scores.value.tolist() == [0.5, 0, 0, 1]


def test_ct_finebench_naming_everything_earns_little_by_overlap() -> None:
    everywhere = (
        "Nodules in the right upper lobe, right middle lobe, right lower lobe, left upper lobe, left lower lobe."
    )
    location = [
        CTFineBench(grading=grading).score([everywhere], [LEFT]).details["location"].item()
        for grading in ("levels", "overlap")
    ]
    assert location == [0.5, 0]


def test_ct_finebench_a_bound_answers_little_and_is_no_question_by_overlap() -> None:
    bound = "Nodule less than 100 mm."
    scores = CTFineBench(mode="f1").score([bound], ["Nodule of 5 mm."])
    # Existence is right. The size earns its width beside the truth, and the bound itself is not asked about.
    assert scores.details["recall"].item() == pytest.approx((1 + 0.01) / 2)
    assert scores.details["precision_items"].item() == 1
    # A bound of a reference is a question, unless it says nothing.
    asked = [
        CTFineBench(mode=mode).score([bound], [f"Nodule less than {size} mm."]).details[f"{prefix}items"].item()
        for mode, prefix in (("f1", "recall_"), ("recall", ""))
        for size in (5, 300)
    ]
    assert asked == [2, 1, 2, 2]


def test_ct_finebench_grading_follows_the_mode_and_is_in_the_signature() -> None:
    assert [CTFineBench(mode=mode).examiner.grading for mode in ("recall", "precision", "f1")] == [
        "levels",
        "overlap",
        "overlap",
    ]
    assert "|grading:overlap|" in CTFineBench(mode="f1").signature
    assert "grading" not in CTFineBench().signature
    assert "grading" not in CTFineBench(mode="f1", grading="levels").signature
    assert pickle.loads(pickle.dumps(CTFineBench(grading="overlap"))).examiner.grading == "overlap"
    with pytest.raises(ValueError, match="unknown grading 'jaccard'"):
        CTFineBench(grading="jaccard")  # type: ignore[arg-type]


def test_ct_finebench_over_specified_answers_get_what_the_setting_says() -> None:
    reference, more = "Nodule in the right lower lobe.", "Nodule in the superior segment of the right lower lobe."
    right, partial = CTFineBench(), CTFineBench(over_specified="partial")
    assert values(right.score([more, reference], [reference] * 2)) == [1, 1]
    assert values(partial.score([more, reference], [reference] * 2)) == [0.75, 1]
    assert "|over_specified:right" in right.signature
    assert "|over_specified:partial" in partial.signature
    assert pickle.loads(pickle.dumps(partial)).examiner.over_specified == "partial"
    prompts = [metric.examiner._grades_task.prompt_hash for metric in (right, partial)]
    assert prompts[0] != prompts[1]
    with pytest.raises(ValueError, match="unknown over_specified 'half'"):
        CTFineBench(over_specified="half")  # type: ignore[arg-type]


def test_ct_finebench_details_are_by_kind_of_question() -> None:
    scores = CTFineBench().score(PREDS, TARGET)
    rows = {name: [float(value) for value in column] for name, column in scores.details.items()}
    nan = math.nan
    assert rows == {
        "existence": pytest.approx([1, 1, 1, 0, nan, 1], nan_ok=True),
        "attributes": pytest.approx([1, 0.5, 0.75, 0, nan, 1], nan_ok=True),
        "numeric": pytest.approx([1, 1, 0.5, 0, nan, 1], nan_ok=True),
        "categorical": pytest.approx([nan] * 6, nan_ok=True),
        "location": pytest.approx([1, 0, 1, 0, nan, 1], nan_ok=True),
        "items": pytest.approx([3, 3, 3, 3, nan, 3], nan_ok=True),
        "answered": pytest.approx([3, 3, 3, 0, nan, 3], nan_ok=True),
        "not_verbatim": pytest.approx([0, 0, 0, 0, nan, 0], nan_ok=True),
    }
    both = CTFineBench(mode="f1").score(PREDS, TARGET)
    assert [float(value) for value in both.details["recall"]] == pytest.approx(RECALL, nan_ok=True)
    assert [float(value) for value in both.details["precision"]] == pytest.approx(PRECISION, nan_ok=True)
    assert torch.equal(both.details["recall_location"].nan_to_num(9), scores.details["location"].nan_to_num(9))


def test_ct_finebench_statistics_are_means_of_the_details() -> None:
    for mode in ("recall", "precision", "f1"):
        metric = CTFineBench(mode=mode)
        metric.update(PREDS, TARGET)
        scores = metric.score(PREDS, TARGET)
        expected = {name: column.nanmean().item() for name, column in scores.details.items()}
        found = {name: value.item() for name, value in metric.statistics().items()}
        assert found == pytest.approx(expected, nan_ok=True)


def test_ct_finebench_tables_pool_questions() -> None:
    metric = CTFineBench(mode="f1")
    metric.update(PREDS, TARGET)
    recall = metric.tables()
    assert recall["finding"] == [
        {"finding": "Lung nodule", "items": 15, "answered": 0.8, "score": pytest.approx((3 + 2 + 2.5 + 0 + 3) / 15)}
    ]
    assert {row["attribute"]: (row["items"], row["score"]) for row in recall["attribute"]} == {
        "existence": (5, 0.8),
        "location": (5, 0.6),
        "size": (5, 0.7),
    }
    assert {row["answer_type"]: row["score"] for row in recall["answer_type"]} == {
        "numeric": 0.7,
        "location": 0.6,
        "existence": 0.8,
    }
    precision = metric.tables("precision")
    assert {row["finding"]: row["items"] for row in precision["finding"]} == {"Pleural effusion": 3, "Lung nodule": 15}
    assert {row["finding"]: row["score"] for row in precision["finding"]}["Pleural effusion"] == 0
    pairs = [(row["finding"], row["attribute"]) for row in precision["finding_attribute"]]
    assert len(pairs) == len(set(pairs)) == 6
    assert metric.tables("recall") == recall
    with pytest.raises(ValueError, match="mode 'recall' grades recall, not 'precision'"):
        CTFineBench().tables("precision")


def test_ct_finebench_explanations_are_in_words() -> None:
    told = CTFineBench(mode="f1").score(PREDS, TARGET).explanations
    assert told["omitted"][3].startswith("Lung nodule, existence: yes; ")
    assert told["wrong"][1] == "Lung nodule, location: right upper lobe for left upper lobe"
    assert told["wrong"][2] == "Lung nodule, size: 10 mm for 8 mm"
    assert told["contradicted"][1] == "Lung nodule, location: left upper lobe for right upper lobe"
    assert told["invented"][5].startswith("Pleural effusion, existence: yes; ")
    assert told["failure"] == [""] * 6
    assert told["omitted"][4] == told["wrong"][0] == ""


def item(attribute: str = "size", answer: Any = "8 mm", kind: str = "numeric", finding: str = "Lung nodule") -> Any:
    return {
        "finding": finding,
        "attribute": attribute,
        "question": f"What about the {attribute}?",
        "answer": answer,
        "answer_type": kind,
    }


def test_ct_finebench_questions_of_a_column_take_the_place_of_built_ones() -> None:
    rows = [[item()], [item(), item("location", "left upper lobe", "location")], json.dumps([item()]), [], None]
    metric = CTFineBench()
    scores = metric.score([LARGER] * 5, [None] * 5, items=rows)
    assert values(scores) == pytest.approx([0.5, 0.75, 0.5, math.nan, math.nan], nan_ok=True)
    metric.update([LARGER] * 5, [EFFUSION] * 5, items=rows)
    assert metric.compute().item() == pytest.approx((0.5 + 0.75 + 0.5) / 3)
    assert (metric.counts()["unscorable"], metric.counts()["without_items"]) == (2, 1)
    given = QAItem("Lung nodule", "size", "How large?", "8 mm", "numeric")
    assert values(metric.score([LEFT, None], [None, None], items=[(given,), [given]]))[:1] == [1]
    # f1 also makes questions from the candidate, answered from the reference.
    both = CTFineBench(mode="f1").score([LARGER, LARGER], [LEFT, None], items=[[item()], [item()]])
    assert values(both) == pytest.approx([2 * 0.5 * (2.5 / 3) / (0.5 + 2.5 / 3), math.nan], nan_ok=True)


def test_ct_finebench_names_of_a_column_may_be_written_otherwise() -> None:
    scores = CTFineBench().score([LEFT], [None], items=[[item(finding="LUNG nodule", attribute="Size")]])
    (examination,) = scores.examinations
    assert examination is not None
    assert (examination.recall[0].item.finding, examination.recall[0].item.attribute) == ("Lung nodule", "size")


BROKEN = [
    (3, TypeError, r"items\[1\] must be a list of questions, JSON text of one, or None, got int"),
    (item(), TypeError, r"items\[1\] must be a list of questions, JSON text of one, or None, got dict"),
    ("[{", ValueError, r"items\[1\] is not JSON: .* at character 2"),
    ("3", TypeError, r"items\[1\] must be a list of questions"),
    ([3], TypeError, r"items\[1\]\[0\]: must be a question or a mapping with its fields, got int"),
    ([item(), item(answer=None)], ValueError, r"items\[1\]\[1\]: lacks answer; it has finding, attribute, question"),
    ([item(answer=" ")], ValueError, r"items\[1\]\[0\]: answer must be a text"),
    ([item(answer=8)], ValueError, r"items\[1\]\[0\]: answer must be a text, got 8"),
    ([{**item(), "unit": "mm"}], ValueError, r"items\[1\]\[0\]: unknown field 'unit'"),
    ([item(kind="number")], ValueError, r"items\[1\]\[0\]: unknown answer_type 'number'"),
    (
        [item(finding="Lung nodul")],
        ValueError,
        r"items\[1\]\[0\]: unknown finding 'Lung nodul'; did you mean 'Lung no",
    ),
    ([item("sise")], ValueError, r"items\[1\]\[0\]: unknown attribute of Lung nodule 'sise'; did you mean 'size'"),
    ([item(answer="12 parsecs")], ValueError, r"items\[1\]\[0\]: the answer of Lung nodule, size, cannot be compared"),
    (
        [item(answer="large")],
        ValueError,
        r"items\[1\]\[0\]: the answer of Lung nodule, size, cannot be compared as",
    ),
]


@pytest.mark.parametrize(("row", "kind", "message"), BROKEN)
def test_ct_finebench_broken_questions_are_named_by_row(row: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        CTFineBench().score([LEFT, LEFT], [LEFT, LEFT], items=[[item()], row])
    # Answers are report text.
    assert "parsec" not in str(caught.value)


def test_ct_finebench_other_bad_input() -> None:
    metric = CTFineBench()
    with pytest.raises(TypeError, match="items must be a column of 1 values, got str"):
        metric.score([LEFT], [LEFT], items="[]")
    with pytest.raises(TypeError, match="mode 'precision' makes its questions from the candidates"):
        CTFineBench(mode="precision").score([LEFT], [LEFT], items=[[item()]])
    with pytest.raises(ValueError, match="mode must be one of recall, precision, f1; got 'recal'"):
        CTFineBench(mode="recal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ct_rat"):
        CTFineBench("ct_rat")
    with pytest.raises(ValueError, match="answerer: the judge 'rules' evaluates CRIMSON only"):
        CTFineBench(answerer="rules")
    with pytest.raises(ValueError, match="builder: the judge 'rules' evaluates CRIMSON only"):
        CTFineBench(builder=RuleJudge())
    with pytest.raises(ValueError, match="unknown judge 'nobody'"):
        CTFineBench(comparer="nobody")


def test_ct_finebench_questions_of_a_reference_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = question_answering.build_items

    def spy(report: str, schema: Any, **options: Any) -> Any:
        built.append(report)
        return build(report, schema, **options)

    monkeypatch.setattr(question_answering, "build_items", spy)
    metric = CTFineBench()
    metric.score([LEFT, RIGHT, NORMAL, LARGER], [LEFT, LEFT, EFFUSION, LEFT])
    metric.update([RIGHT] * 8, [LEFT] * 4 + [EFFUSION] * 4)
    assert built == [LEFT, EFFUSION]
    small = CTFineBench()
    monkeypatch.setattr(question_answering, "_REMEMBERED", 2)
    built.clear()
    for report in (LEFT, RIGHT, LEFT, LARGER, LEFT, RIGHT):
        small.score([NORMAL], [report])
    # The least recently used entry is dropped.
    assert built == [LEFT, RIGHT, LARGER, RIGHT]
    assert len(small.examiner._built) == 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("roles", [("builder",), ("answerer",), ("comparer",), ()])
@pytest.mark.parametrize("mode", ["recall", "precision", "f1"])
def test_ct_finebench_judges_in_the_engines_place(waits: bool, roles: tuple[str, ...], mode: Any) -> None:
    metric = CTFineBench(mode=mode, **exam(*roles, waits=waits))
    assert metric.is_immediate is not waits
    expected = CTFineBench(mode=mode).score([*PREDS, None], [*TARGET, LEFT])
    for scores in (
        metric.score([*PREDS, None], [*TARGET, LEFT]),
        asyncio.run(metric.score_async([*PREDS, None], [*TARGET, LEFT])),
    ):
        assert repr(scores.value) == repr(expected.value)
        assert scores.examinations == expected.examinations  # type: ignore[attr-defined]


def test_ct_finebench_a_judge_is_asked_no_more_than_needed() -> None:
    judge = ExamJudge()
    metric = CTFineBench(builder=judge, answerer=judge, comparer=judge)
    metric.score([LEFT, NORMAL, LEFT], [LEFT, LEFT, NORMAL])
    (built, answered, graded) = judge.asked
    assert built == ("ct_finebench_items", [LEFT, NORMAL])
    # Without items, no judge is queried.
    assert [asked.report for asked in answered[1]] == [LEFT, NORMAL]
    # Missing answers and yes/no answers are graded without a judge.
    assert [[item.answer_type for item in asked.items] for asked in graded[1]] == [["location", "numeric"]]
    metric.score([RIGHT], [LEFT])
    assert [name for name, _ in judge.asked[3:]] == ["ct_finebench_answers", "ct_finebench_grades"]


@pytest.mark.parametrize("role", ["builder", "answerer"])
def test_ct_finebench_failures_have_no_score_and_are_counted(role: str) -> None:
    metric = CTFineBench(**exam(role, fail_on={"10 mm": "deadline", "effusion": "malformed"}))
    target = [LARGER, EFFUSION, LEFT, LEFT]
    with pytest.warns(UserWarning, match=r"failed on 2 of 4 report pairs \(deadline 1, malformed 1\)") as told:
        metric.update(target, target)
    assert len(told) == 1
    assert metric.compute() == 1
    counts = {name: int(count) for name, count in metric.counts().items() if count}
    assert counts == {"scored": 2, "unscorable": 2, "failed_deadline": 1, "failed_malformed": 1}
    with pytest.warns(UserWarning, match="the judge failed"):
        scores = metric.score(target, target)
    assert scores.examinations[:2] == (None, None)
    assert scores.results[0] == JudgeFailure("deadline", "told to")
    assert scores.details["items"].isnan().tolist() == [True, True, False, False]
    assert scores.failures["malformed"].tolist() == [False, True, False, False]
    assert scores.explanations["failure"][:2] == ["deadline: told to", "malformed: told to"]


def test_ct_finebench_a_builder_that_failed_is_asked_again() -> None:
    judge = ExamJudge(fail_on={"nodule": "deadline", "Nodule": "deadline"})
    metric = CTFineBench(builder=judge)
    with pytest.warns(UserWarning, match="the judge failed"):
        assert metric.score([LEFT], [LEFT]).value.isnan().all()
    judge.fail_on.clear()
    assert metric.score([LEFT], [LEFT]).value.tolist() == [1]


def test_ct_finebench_signatures_tell_settings_apart() -> None:
    metrics = [
        CTFineBench(),
        CTFineBench("merlin"),
        CTFineBench(mode="f1"),
        *(CTFineBench(**exam(role)) for role in ("builder", "answerer", "comparer")),
    ]
    assert len({metric.signature for metric in metrics}) == 6
    assert metrics[0].signature.startswith("ct_finebench|mode:recall|schema:ct_rate@")
    task = metrics[3].examiner._items_task
    assert f"|builder:{{exam|prompt:{task.prompt_hash}}}|answerer:engine@" in metrics[3].signature


@pytest.mark.parametrize("style", ["compact", "full"])
def test_ct_finebench_phantom_reports_are_right_about_themselves(style: str) -> None:
    reports = [study.impression_text for study in phantom_studies(60, seed=5, style=style)]
    scores = CTFineBench(mode="f1").score(reports, reports)
    assert set(scores.value[scores.scored].tolist()) == {1}
    assert scores.scored.sum() > 40


def test_ct_finebench_a_schema_of_ones_own_is_answered_by_itself(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\n"
        "attributes:\n"
        "  existence: {type: existence, question: 'Is there a {finding}?', explanation: Presence., examples: ['yes']}\n"
        "  width: {type: numeric, question: 'How wide is it?', explanation: Its width., "
        "examples: [1 mm, 2 mm, 3 mm, 4 mm, 5 mm]}\n"
        "findings:\n"
        "  Lung nodule: {ask: [width]}\n"
    )
    assert values(CTFineBench(path).score([LEFT], [LEFT])) == [1]


def test_ct_finebench_nan_for_all_pairs_is_a_warning_with_the_reason():
    metric = CTFineBench()
    metric.update(["Nodule.", "Nodule."], ["Normal.", "No effusion."])
    with pytest.warns(UserWarning, match="none of 2 report pairs could be scored: 2 have no question about a finding"):
        assert metric.compute().isnan()


FINDINGS = [finding.name for finding in CTFineBench().examiner.schema.findings]
BOTH = f"{LEFT} {EFFUSION}"


def labels_of(*positive: str) -> list[int]:
    return [int(name in positive) for name in FINDINGS]


def test_ct_finebench_labels_limit_the_questions_from_references() -> None:
    column = [labels_of("Lung nodule"), labels_of("Pleural effusion"), labels_of(), None]
    scores = CTFineBench().score([LEFT] * 4, [BOTH] * 4, labels=column)
    assert values(scores) == pytest.approx([1, 0, math.nan, math.nan], nan_ok=True)
    # A data loader makes a tensor of rows, and a list of mappings is as good.
    rows = torch.tensor(column[:3])
    assert values(CTFineBench().score([LEFT] * 3, [BOTH] * 3, labels=rows)) == pytest.approx(
        [1, 0, math.nan], nan_ok=True
    )
    named = [dict(zip(FINDINGS, labels_of("Lung nodule"), strict=True))]
    assert values(CTFineBench().score([LEFT], [BOTH], labels=named)) == [1]


def test_ct_finebench_labels_do_not_limit_the_questions_from_candidates() -> None:
    """An invented finding is one that the labels of the reference call negative."""
    column = [labels_of("Lung nodule")]
    assert values(CTFineBench(mode="f1").score([BOTH], [LEFT], labels=column)) == pytest.approx([2 / 3])
    assert values(CTFineBench(mode="f1").score([BOTH], [LEFT])) == pytest.approx([2 / 3])
    with pytest.raises(TypeError, match="takes no column labels"):
        CTFineBench(mode="precision").score([LEFT], [LEFT], labels=column)


def test_ct_finebench_labels_limit_given_items_and_those_of_a_judge() -> None:
    (items,) = run_coroutine(CTFineBench().examiner.build([BOTH]))
    column = [labels_of("Pleural effusion")]
    for metric, given in ((CTFineBench(), {"items": [items]}), (CTFineBench(**exam("builder")), {})):
        (examination,) = metric.score([BOTH], [BOTH], labels=column, **given).examinations
        assert examination is not None
        assert {one.item.finding for one in examination.recall} == {"Pleural effusion"}
    # The questions of a reference are cached without its labels.
    judged = CTFineBench(**exam("builder"))
    for labels, number in ((column, 3), ([labels_of("Lung nodule")], 3), ([labels_of()], 0)):
        (examination,) = judged.score([BOTH], [BOTH], labels=labels).examinations
        assert examination is not None
        assert len(examination.recall) == number


def test_ct_finebench_labels_that_do_not_fit_name_their_row() -> None:
    with pytest.raises(ValueError, match=r"labels\[1\] must have 18 values"):
        CTFineBench().score([LEFT] * 2, [LEFT] * 2, labels=[labels_of(), [1, 0]])


def test_ct_finebench_given_questions_need_a_schema_that_the_answerer_can_read_only() -> None:
    spec = AttributeSpec("mood", "categorical", "What mood has the guitar?", "Mood.", ("sunny",))
    schema = QuestionSchema("own", (FindingSpec("Air guitar", (spec,)),))
    item = QAItem("air_guitar", "Mood", "What mood?", "sunny", "categorical")
    with pytest.raises(ValueError, match="unknown label of lexicon chest_ct 'Air guitar'"):
        CTFineBench(schema)
    judge = AnsweringJudge(lambda asked: '{"answers": [{"question": "Q1", "answer": "sunny"}]}')
    metric = CTFineBench(schema, answerer=judge)
    assert metric.score(["A sunny guitar."], [None], items=[[item]]).value.tolist() == [1]
    with pytest.raises(ValueError, match="unknown label of lexicon chest_ct 'Air guitar'"):
        metric.score(["A sunny guitar."], ["A sunny guitar."])


@pytest.mark.parametrize(
    ("mode", "context", "needed"),
    [("recall", ["items"], False), ("recall", [], True), ("recall", ["labels"], True), ("f1", ["items"], True)],
)
def test_ct_finebench_needs_references_unless_its_questions_are_given(
    mode: Any, context: list[str], needed: bool
) -> None:
    assert CTFineBench(mode=mode).needs_references(context) is needed
