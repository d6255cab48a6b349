"""Several lesions of one finding: the finding engine and judges follow one rule, which the docs state once."""

import json
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.judges.tasks.finebench import AnswersTask, ItemsTask, Questions
from rrg_rewards.questions import QAItem, compare_answers, get_question_schema
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.measurements import largest_measure
from rrg_rewards.questions.schema import SEVERAL_LESIONS

SCHEMA = get_question_schema("ct_rate")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "ct_finebench.md"

# The answers by the rule, and what an honest judge lists of each attribute in the report's words.
NODULES = "Spiculated nodule of 12 mm in the right upper lobe. Smooth nodule of 5 mm in the left lower lobe."
BY_RULE = {"location": "right upper lobe; left lower lobe", "size": "12 mm", "margin": "spiculated, smooth"}
LISTED = {"location": "right upper lobe; left lower lobe", "size": "5 mm; 12 mm", "margin": "spiculated; smooth"}
# Sizes and lobes of both nodules are exchanged.
SWAPPED = "Spiculated nodule of 5 mm in the right upper lobe. Smooth nodule of 12 mm in the left lower lobe."
ONE = "Spiculated nodule of 12 mm in the right upper lobe."
SMALLER = "Smooth nodule of 5 mm in the left lower lobe."


def by_engine(report: str) -> tuple[QAItem, ...]:
    return build_items(report)


def by_judge(report: str) -> tuple[QAItem, ...]:
    listed = [{"attribute": name, "answer": answer} for name, answer in LISTED.items()]
    answer = {"findings": [{"finding": "Lung nodule", "quote": "nodule", "attributes": listed}]}
    return ItemsTask(SCHEMA).parse(report, json.dumps(answer))


def engine_answers(report: str, items: tuple[QAItem, ...]) -> list[str | None]:
    return answer_items(report, items)


def judge_answers(report: str, items: tuple[QAItem, ...]) -> list[str | None]:
    """Answers of a judge that lists, in the report's words, all that the rule asks for, and each size."""
    listed = {item.attribute: item.answer for item in build_items(report)} | {"existence": "nodule"}
    if "size" in listed:
        sizes = [word for word in ("12 mm", "5 mm") if word in report]
        listed["size"] = " and ".join(sizes)
    answers = [{"question": f"Q{i}", "answer": listed.get(item.attribute)} for i, item in enumerate(items, start=1)]
    return list(AnswersTask().parse(Questions(report, items), json.dumps({"answers": answers})))


@pytest.mark.parametrize("build", [by_engine, by_judge])
def test_a_question_asks_of_all_lesions(build: Any) -> None:
    items = build(NODULES)
    assert [item.attribute for item in items] == ["existence", "location", "size", "margin"]
    for item in items[1:]:
        for pair in ((item.answer, BY_RULE[item.attribute]), (BY_RULE[item.attribute], item.answer)):
            assert compare_answers(*pair, item.answer_type, "overlap", "partial") == 1
    assert items[2].answer == "12 mm"


@pytest.mark.parametrize("answer", [engine_answers, judge_answers])
@pytest.mark.parametrize(
    ("candidate", "grades"),
    [
        (NODULES, [1, 1, 1, 1]),
        # The rule's limit: what belongs to which lesion is not asked.
        (SWAPPED, [1, 1, 1, 1]),
        (ONE, [1, 0.5, 1, 0.5]),
        (SMALLER, [1, 0.5, 0, 0.5]),
    ],
)
def test_candidates_are_graded_alike(answer: Any, candidate: str, grades: list[float]) -> None:
    items = build_items(NODULES)
    given = answer(candidate, items)
    assert [
        compare_answers(one, item.answer, item.answer_type) for one, item in zip(given, items, strict=True)
    ] == grades


def test_suspected_lesions_do_not_count_beside_a_present_one() -> None:
    report = "Nodule of 6 mm in the right middle lobe. Possible nodule of 30 mm in the left lower lobe."
    found = {item.attribute: item.answer for item in build_items(report)}
    assert found == {"existence": "yes", "location": "right middle lobe", "size": "6 mm"}


def test_one_text_states_the_rule() -> None:
    prompts = [ItemsTask(SCHEMA).messages(""), AnswersTask().messages(Questions("", ()))]
    assert all(SEVERAL_LESIONS in system["content"] for system, _ in prompts)
    assert " ".join(DOCS.read_text(encoding="utf-8").replace("> ", "").split()).count(SEVERAL_LESIONS) == 1


@pytest.mark.parametrize(
    ("answer", "largest"),
    [
        ("12 mm", "12 mm"),
        ("5 and 12 mm", "12 mm"),
        ("1.5 and 0.8 cm", "1.5 cm"),
        ("8 mm; 1.2 x 0.9 cm; 5 mm", "1.2 x 0.9 cm"),
        ("9 x 6 mm, 7 mm", "9 x 6 mm"),
        ("20 HU; -50 HU", "20 HU"),
        # Not comparable, or one measure.
        ("12 mm; 40 HU", "12 mm; 40 HU"),
        ("1,2 cm", "1,2 cm"),
        ("5 mm (image 45)", "5 mm (image 45)"),
    ],
)
def test_the_largest_of_several_measures(answer: str, largest: str) -> None:
    assert largest_measure(answer) == largest


def test_an_answer_with_an_unknown_unit_is_kept() -> None:
    items = tuple(item for item in build_items(NODULES) if item.attribute == "size")
    given = json.dumps({"answers": [{"question": "Q1", "answer": "3 parsecs and 12 mm"}]})
    report = "Nodules of 3 parsecs and 12 mm."
    assert AnswersTask().parse(Questions(report, items), given) == ("3 parsecs and 12 mm",)
