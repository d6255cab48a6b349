"""Examinations: single answers and grades that a judge gives wrongly, and prompts of the user."""

import asyncio
import json
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from answering_judge import AnsweringJudge

from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, JudgeWarning
from rrg_rewards.judges.question_answering import Examiner, GradedAnswer
from rrg_rewards.judges.tasks.finebench import AnswerPairs, Questions
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions.engine import build_items
from rrg_rewards.utilities.processes import run_coroutine

REFERENCE = "Spiculated nodule of 12 mm in the right upper lobe."
CANDIDATE = "Smooth nodule of 12 mm in the right upper lobe."
ITEMS = build_items(REFERENCE)
NAMES = [item.attribute for item in ITEMS]
GIVEN = {"existence": "nodule", "location": "right upper lobe", "size": "12 mm", "margin": "smooth"}
ALONE = "alone "


def form(name: str, key: str, values: Sequence[Any]) -> str:
    entries = [{name: f"{name[0].upper()}{n}", key: value} for n, value in enumerate(values, start=1)]
    return json.dumps({f"{key}s": entries})


def answering(changes: Mapping[str, Any]) -> AnsweringJudge:
    """A judge that answers from ``GIVEN``; ``changes`` are by attribute, or by "alone " and the attribute."""

    def answer(item: Questions) -> str:
        prefix = ALONE if len(item.items) == 1 else ""
        values = [changes.get(f"{prefix}{one.attribute}", GIVEN[one.attribute]) for one in item.items]
        if values == ["broken"]:
            return "no JSON"
        return json.dumps({"answers": [{"question": f"Q{n}", "answer": v} for n, v in enumerate(values, start=1)]})

    return AnsweringJudge(answer)


def grading(grade: Callable[[str, bool], Any]) -> AnsweringJudge:
    """A judge that grades by the attribute and whether it is asked for alone."""

    def answer(item: AnswerPairs) -> str:
        alone = len(item.items) == 1
        grades = [grade(one.attribute, alone) for one in item.items]
        return json.dumps({"grades": [{"pair": f"A{n}", "grade": v} for n, v in enumerate(grades, start=1)]})

    return AnsweringJudge(answer)


def examined(**roles: Any) -> Any:
    (found,) = asyncio.run(Examiner(**roles).examine([CANDIDATE], [ITEMS]))
    return found


def test_examiner_asks_an_answer_in_other_words_again_alone() -> None:
    judge = answering({"location": "left lower lobe", "margin": "polished"})
    found = examined(answerer=judge)
    assert [one.answer for one in found] == ["yes", "right upper lobe", "12 mm", "smooth"]
    assert [one.grade for one in found] == [1, 1, 1, 0]
    assert not any(one.not_verbatim for one in found)
    assert [[item.attribute for item in asked.items] for asked in judge.asked] == [NAMES, ["location"], ["margin"]]


@pytest.mark.parametrize("second", ["left lower lobe", "broken"])
def test_examiner_counts_an_answer_in_other_words_twice_as_none(second: str) -> None:
    judge = answering({"location": "left lower lobe", f"{ALONE}location": second})
    found = examined(answerer=judge)
    assert [one.answer for one in found] == ["yes", None, "12 mm", "smooth"]
    assert [one.grade for one in found] == [1, 0, 1, 0]
    assert [one.not_verbatim for one in found] == [False, True, False, False]
    # Once only.
    assert len(judge.asked) == 2


def test_examiner_does_not_repeat_a_request_of_one_question() -> None:
    judge = answering({f"{ALONE}size": "99 mm"})
    (found,) = asyncio.run(Examiner(answerer=judge).examine([CANDIDATE], [ITEMS[2:3]]))
    assert found == (GradedAnswer(ITEMS[2], None, 0, True),)
    assert len(judge.asked) == 1


def test_examiner_fails_if_the_second_request_is_not_answered() -> None:
    class Lost(AnsweringJudge):
        async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
            if len(items[0].items) == 1:
                return [JudgeFailure("connection", "the connection failed")] * len(items)
            return await super().evaluate(task, items)

    judge = Lost(answering({"size": "99 mm", "margin": "polished"}).answer)
    assert examined(answerer=judge) == JudgeFailure("connection", "the connection failed")


def test_examiner_asks_for_an_invalid_grade_again_alone() -> None:
    judge = grading(lambda name, alone: "right" if alone else {"size": "1.0", "margin": "wrong"}.get(name, "partial"))
    found = examined(comparer=judge)
    assert [one.grade for one in found] == [1, 0.5, 1, 0]
    assert [[item.attribute for item in asked.items] for asked in judge.asked] == [NAMES[1:], ["size"]]


def test_examiner_fails_if_a_grade_is_invalid_twice() -> None:
    judge = grading(lambda name, alone: "good" if name == "size" else "right")
    found = examined(comparer=judge)
    assert isinstance(found, JudgeFailure)
    assert (found.kind, "also when asked for alone" in found.reason) == ("inconsistent", True)
    assert len(judge.asked) == 2


def test_ct_finebench_counts_and_tells_answers_in_other_words() -> None:
    judge = answering({"location": "left lower lobe", f"{ALONE}location": "left lower lobe"})
    metric = CTFineBench(answerer=judge)
    for times in (1, 2):
        with pytest.warns(JudgeWarning, match="answered 1 questions on 1 of 1 report pairs in other words") as told:
            metric.update([CANDIDATE], [REFERENCE], items=[ITEMS])
        assert len(told) == 1
        assert int(metric.counts()["not_verbatim"]) == times
        assert int(metric.statistics()["not_verbatim"]) == 1
    both = CTFineBench(mode="f1", answerer=judge)
    # The judge answers the candidate's questions from the reference with "smooth", too.
    with pytest.warns(JudgeWarning, match="answered 3 questions on 1 of 1 report pairs in other words"):
        both.update([CANDIDATE], [REFERENCE], items=[ITEMS])
    assert [int(both.statistics()[f"{side}_not_verbatim"]) for side in ("recall", "precision")] == [1, 2]
    assert int(both.counts()["not_verbatim"]) == 3
    scores = CTFineBench(answerer=answering({})).score([CANDIDATE], [REFERENCE])
    assert scores.details["not_verbatim"].tolist() == [0]


def test_ct_finebench_score_is_the_mean_over_all_questions_by_brute_force() -> None:
    """Equation 2 and "Final Score" of Section 3.3: each question counts once, [NULL] is 0."""
    draws = random.Random(0)
    for _ in range(20):
        first = {name: draws.choice(["own", "other words", None]) for name in NAMES}
        second = {name: draws.choice(["own", "other words", None]) for name in NAMES}
        own = {"own": GIVEN, None: dict.fromkeys(NAMES), "other words": dict.fromkeys(NAMES, "liver cyst")}
        changes = {name: own[choice][name] for name, choice in first.items()}
        changes |= {f"{ALONE}{name}": own[choice][name] for name, choice in second.items()}
        grades = {name: draws.choice(["right", "partial", "wrong"]) for name in NAMES}
        expected = []
        for name in NAMES:
            final = second[name] if first[name] == "other words" else first[name]
            point = {"right": 1, "partial": 0.5, "wrong": 0}[grades[name]] if name != "existence" else 1
            expected.append(point if final == "own" else 0)
        comparer = grading(lambda name, alone, grades=grades: grades[name])  # type: ignore[misc]
        metric = CTFineBench(answerer=answering(changes), comparer=comparer)
        with torch.no_grad(), pytest.warns(JudgeWarning) if _refused(first, second) else _quiet():
            scores = metric.score([CANDIDATE], [REFERENCE], items=[ITEMS])
        assert float(scores.value) == sum(expected) / len(expected)
        assert int(scores.details["not_verbatim"]) == _refused(first, second)


def _refused(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    return sum(first[name] == second[name] == "other words" for name in NAMES)


def _quiet() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.fixture
def prompts(tmp_path: Path) -> dict[str, Path]:
    paths = {"answer_prompt": tmp_path / "answers.txt", "grade_prompt": tmp_path / "grades.txt"}
    paths["answer_prompt"].write_text("<report> <question> <explanation> <example> <attribute> <disease>")
    paths["grade_prompt"].write_text("Score with 0, 0.5 or 1.")
    return paths


def test_examiner_with_prompts_of_the_user_asks_as_published(prompts: dict[str, Path]) -> None:
    # Free text that is not in the words of the report, and a question without an answer.
    texts = {"existence": "Yes, a nodule.", "location": "RUL", "size": "no answer", "margin": "polished"}
    answerer = AnsweringJudge(lambda item: texts[item.items[0].attribute])
    scores = {"existence": "1", "location": "Score: 0.5", "margin": "0"}
    comparer = AnsweringJudge(lambda item: scores[item.items[0].attribute])
    found = examined(answerer=answerer, comparer=comparer, **prompts)
    assert [(one.answer, one.grade) for one in found] == [
        ("Yes, a nodule.", 1),
        ("RUL", 0.5),
        (None, 0),
        ("polished", 0),
    ]
    # One request for each question, and one grade for each answer, also on existence.
    assert [len(asked.items) for asked in answerer.asked] == [1] * 4
    assert [asked.items[0].attribute for asked in comparer.asked] == ["existence", "location", "margin"]


def test_examiner_with_prompts_of_the_user_fails_if_a_question_does(prompts: dict[str, Path]) -> None:
    answerer = AnsweringJudge(lambda item: "12 mm")
    comparer = AnsweringJudge(lambda item: "7" if item.items[0].attribute == "size" else "1")
    found = examined(answerer=answerer, comparer=comparer, **prompts)
    assert found == JudgeFailure("malformed", "the answer states no score of 0, 0.5 or 1, or several")


def test_ct_finebench_prompts_are_in_the_signature_and_in_pickles(prompts: dict[str, Path], tmp_path: Path) -> None:
    judge = _Named()
    metric = CTFineBench(answerer=judge, comparer=judge, **prompts)  # type: ignore[arg-type]
    own = CTFineBench(answerer=judge, comparer=judge)
    assert metric.signature != own.signature
    assert pickle.loads(pickle.dumps(metric)).signature == metric.signature
    prompts["grade_prompt"].write_text("Score with 0, 0.5 or 1, please.")
    assert CTFineBench(answerer=judge, comparer=judge, **prompts).signature != metric.signature  # type: ignore[arg-type]


class _Named(Judge):
    """A judge that is not asked."""

    @property
    def signature(self) -> str:
        return "named"

    def arguments(self) -> dict[str, Any]:
        return {}

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        raise AssertionError("is not asked")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("answer_prompt", None, "answer_prompt: needs a judge, which gets the prompt; set answerer"),
        ("grade_prompt", None, "grade_prompt: needs a judge, which gets the prompt; set comparer"),
        ("answer_prompt", "<report>", "answers.txt: the prompt lacks <question>"),
        ("grade_prompt", "<question>", "grades.txt: the prompt lacks <reference answer>"),
    ],
)
def test_ct_finebench_prompts_that_cannot_be_used(
    prompts: dict[str, Path], name: str, text: str | None, message: str
) -> None:
    roles = {} if text is None else {"answerer": _Named(), "comparer": _Named()}
    if text is not None:
        prompts[name].write_text(text)
    with pytest.raises(ValueError, match=message):
        CTFineBench(**{name: prompts[name]}, **roles)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="missing"):
        CTFineBench(answerer=_Named(), answer_prompt="missing.txt")


def test_examiner_makes_no_question_of_an_attribute_in_other_words() -> None:
    stated = [{"attribute": "size", "answer": "12 mm"}, {"attribute": "location", "answer": "RUL"}]
    nodule = {"finding": "Lung nodule", "quote": "nodule of 12 mm", "attributes": stated}
    judge = AnsweringJudge(lambda report: json.dumps({"findings": [nodule]}))
    examiner = Examiner(builder=judge)
    with pytest.warns(JudgeWarning, match="1 attributes of 1 of 1 reports have no question, because the judge stated"):
        (items,) = run_coroutine(examiner.build([REFERENCE]))
    assert [item.attribute for item in items] == ["existence", "size"]  # type: ignore[union-attr]
    # The questions are kept for the next candidates, without another warning.
    assert run_coroutine(examiner.build([REFERENCE])) == [items]
    assert len(judge.asked) == 1
