"""CT-FineBench as a reward: questions from a column or the reference, sync and async calls, logged numbers."""

import asyncio
import inspect
import pickle
from typing import Any

import pytest
from exam_judge import ExamJudge

from rrg_rewards.judges import question_answering
from rrg_rewards.judges import registry as judges
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.rewards import AsyncMetricReward, MetricReward, make_reward

LEFT = "Nodule of 8 mm in the left upper lobe."
RIGHT = "Nodule of 8 mm in the right upper lobe."
LARGER = "Nodule of 10 mm in the left upper lobe."
NORMAL = "Normal chest CT."

COMPLETIONS: list[Any] = [LEFT, [{"role": "assistant", "content": RIGHT}], NORMAL, LARGER, LEFT, []]
REFERENCE = [LEFT, LEFT, LEFT, LEFT, NORMAL, LEFT]
EXPECTED = [1, pytest.approx(2 / 3), 0, pytest.approx(2.5 / 3), None, None]


@pytest.fixture(autouse=True)
def exam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "exam", "exam_judge:ExamJudge")


def item(answer: str = "8 mm") -> dict[str, Any]:
    return {
        "finding": "Lung nodule",
        "attribute": "size",
        "question": "What is the size of the nodule?",
        "answer": answer,
        "answer_type": "numeric",
    }


def call(reward: MetricReward, **columns: Any) -> Any:
    result: Any = reward(COMPLETIONS, **columns)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def test_ct_finebench_reward_a_reward_of_what_is_said_of_findings() -> None:
    reward = make_reward("ct_finebench", mode="recall")
    assert type(reward) is MetricReward
    assert reward.__name__ == "ct_finebench"
    assert call(reward, reference=REFERENCE) == EXPECTED
    assert reward.signature.endswith("|sign:+1")


def test_ct_finebench_reward_the_default_penalises_inventions() -> None:
    reward = make_reward("ct_finebench")
    assert "|mode:f1|" in reward.signature
    # Three questions about the effusion: existence, place and degree. None has an answer in the reference.
    invented = f"{LEFT} Large right pleural effusion."
    values = reward([LEFT, invented, LEFT, NORMAL, NORMAL], reference=[LEFT, LEFT, NORMAL, NORMAL, LEFT])
    assert values == pytest.approx([1, 2 * 0.5 / 1.5, 0, 1, 0])
    assert make_reward("ct_finebench", mode="recall")([invented], reference=[LEFT]) == [1]
    assert "|mode:recall|" in MetricReward(CTFineBench()).signature


def test_ct_finebench_reward_a_judge_that_is_waited_for_makes_an_asynchronous_reward() -> None:
    reward = make_reward("ct_finebench", mode="recall", answerer="exam", builder={"name": "exam"}, comparer="exam")
    assert type(reward) is AsyncMetricReward
    assert call(reward, reference=REFERENCE) == EXPECTED
    immediate = make_reward("ct_finebench", answerer={"name": "exam", "waits": False})
    assert type(immediate) is MetricReward


@pytest.mark.parametrize("options", [{}, {"answerer": "exam"}])
def test_ct_finebench_reward_questions_of_a_column(options: Any) -> None:
    reward = make_reward("ct_finebench", reference_column=None, items_column="questions", **options)
    assert reward.columns == ("questions",)
    rows = [[item()], [item("16 mm")], [item()], [item()], [], [item()]]
    assert call(reward, questions=rows) == [1, 0, 0, 0.5, None, None]
    assert "|context:items|" in reward.signature
    with pytest.raises(ValueError, match="reads the column 'questions', which the data set lacks; it has reference"):
        call(reward, reference=REFERENCE)
    with pytest.raises(ValueError, match=r"items\[1\]\[0\]: lacks answer"):
        call(reward, questions=[[item()], [{**item(), "answer": None}], None, None, None, None])
    with pytest.raises(TypeError, match=r"items\[2\] must be a list of questions"):
        call(reward, questions=[[item()], None, 7, None, None, None])


def test_ct_finebench_reward_without_a_column_the_reference_is_asked_about() -> None:
    assert make_reward("ct_finebench", items_column=None).columns == ("reference",)
    with pytest.raises(ValueError, match="unknown option of reward 'ct_finebench' 'item_column'; did you mean 'items"):
        make_reward("ct_finebench", item_column="questions")


def test_ct_finebench_reward_context_columns_of_both_kinds_go_together() -> None:
    reward = make_reward("crimson", context_columns=["sex"], age_column="years", indication_column=None)
    assert reward.columns == ("reference", "sex", "years")
    assert reward.context_columns == {"sex": "sex", "age": "years"}


def test_ct_finebench_reward_a_group_shares_the_questions_of_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = question_answering.build_items

    def spy(report: str, schema: Any, **options: Any) -> Any:
        built.append(report)
        return build(report, schema, **options)

    monkeypatch.setattr(question_answering, "build_items", spy)
    reward = make_reward("ct_finebench", mode="recall")
    for _ in range(3):
        reward([LEFT, RIGHT, LARGER, NORMAL] * 2, reference=[LEFT] * 4 + [RIGHT] * 4)
    assert built == [LEFT, RIGHT]


@pytest.mark.filterwarnings("ignore:ct_finebench. the judge failed")
@pytest.mark.parametrize("mode", ["recall", "precision", "f1"])
@pytest.mark.parametrize("options", [{}, {"answerer": {"name": "exam", "fail_on": {"": "status"}}}])
def test_ct_finebench_reward_all_that_has_a_value_is_logged_with_log_details(mode: str, options: Any) -> None:
    logged: dict[str, float] = {}
    table: dict[str, list[str]] = {}
    reward = make_reward("ct_finebench", mode=mode, log_explanations=True, log_details=True, **options)
    call(reward, reference=REFERENCE, log_metric=logged.__setitem__, log_extra=table.__setitem__)
    details = reward.score(COMPLETIONS, reference=REFERENCE).details
    assert details.keys() == CTFineBench(mode=mode).statistics().keys()  # type: ignore[arg-type]
    assert logged.keys() == {
        *(f"ct_finebench/{name}" for name, values in details.items() if not values.isnan().all()),
        *(
            f"ct_finebench/failed_{kind}"
            for kind in ("deadline", "connection", "status", "malformed", "inconsistent", "unread")
        ),
        *(f"ct_finebench/{name}" for name in ("failed", "unscorable", "extracted", "empty")),
    }
    assert (logged["ct_finebench/failed"] > 0) is bool(options)
    assert table.keys() == {
        f"ct_finebench/{name}" for name in ("omitted", "wrong", "invented", "contradicted", "failure")
    }


def test_ct_finebench_reward_the_logged_parts_are_the_metrics() -> None:
    logged: dict[str, float] = {}
    call(make_reward("ct_finebench", mode="recall"), reference=REFERENCE, log_metric=logged.__setitem__)
    assert logged["ct_finebench/attributes"] == pytest.approx((1 + 0.5 + 0 + 0.75) / 4)
    assert logged["ct_finebench/numeric"] == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert logged["ct_finebench/location"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert logged["ct_finebench/unscorable"] == pytest.approx(2 / 6)


def test_ct_finebench_reward_pickles_are_small_and_equal() -> None:
    for options in ({}, {"answerer": ExamJudge()}):
        reward = make_reward("ct_finebench", mode="f1", **options)
        call(reward, reference=REFERENCE)
        data = pickle.dumps(reward)
        assert len(data) < 30_000
        again = pickle.loads(data)
        assert (type(again), again.signature) == (type(reward), reward.signature)
        assert call(again, reference=REFERENCE) == call(reward, reference=REFERENCE)
