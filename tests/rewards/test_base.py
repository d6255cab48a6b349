"""The reward contract of TRL, checked without TRL: completions, rewards of metrics, asynchronous rewards."""

import asyncio
import copy
import inspect
import math
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from crimson_servers import crimson_server
from fault_server import completion
from scripted_judge import ScriptedJudge
from torch import Tensor
from words import WordLabeler

from rrg_rewards.judges import CascadeJudge, ReportPair
from rrg_rewards.judges import registry as judges
from rrg_rewards.judges.base import JudgeWarning
from rrg_rewards.metrics import CRIMSON, ReportCRG, ReportMetric, Scores
from rrg_rewards.metrics.base import UnreadColumnWarning
from rrg_rewards.rewards import AsyncMetricReward, MetricReward, Reward, make_reward
from rrg_rewards.rewards.completions import completion_text
from rrg_rewards.utilities.texts import PlaceholderWarning

LABELER = WordLabeler("edema effusion nodule")


class LengthGap(ReportMetric):
    """A metric with a context column, for which lower is better; it cannot score long reports."""

    name = "gap"
    higher_is_better = False
    gap: Tensor

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self.limit = limit
        self.add_state("gap", torch.tensor(0.0), dist_reduce_fx="sum")

    @property
    def signature(self) -> str:
        return "gap|version:0"

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:
        offset = context.get("offset", [0] * len(preds))
        pairs = zip(preds, target, offset, strict=True)
        value = torch.tensor([abs(len(p) - len(t)) + o for p, t, o in pairs], dtype=torch.float64)
        value[[len(p) > self.limit for p in preds]] = math.nan
        return Scores(value, {"half": value / 2})

    def _accumulate(self, scores: Scores) -> None:
        self.gap += scores.value.nansum()

    def compute(self) -> Tensor:
        return self.gap


class BrokenMetric(LengthGap):
    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:
        raise RuntimeError("a bug")


def assistant(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (assistant("said"), "said"),
        ([*assistant("first"), {"role": "tool", "content": "x"}, *assistant("last")], "last"),
        ([*assistant("said"), {"role": "user", "content": "why?"}], "said"),
        (assistant([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]), "ab"),  # type: ignore[arg-type]
        (assistant(None), ""),  # type: ignore[arg-type]
        ([], None),
        ([{"role": "user", "content": "hello"}], None),
    ],
)
def test_completion_text(completion: Any, text: str | None) -> None:
    assert completion_text(completion) == text


@pytest.mark.parametrize("completion", [3, None, ["a", "b"]])
def test_completion_of_another_type_raises(completion: Any) -> None:
    with pytest.raises(TypeError, match="must be a text or a list of messages"):
        completion_text(completion)


def test_metric_reward_rewards_equal_the_metrics_scores() -> None:
    metric = ReportCRG(LABELER, prior=0.3)
    preds = ["edema and a nodule", "effusion", ""]
    target = ["edema", "nodule", "normal"]
    expected = metric.score(preds, target).value.tolist()
    reward = MetricReward(metric)
    assert reward(completions=preds, reference=target) == expected
    assert reward(completions=[assistant(text) for text in preds], reference=target) == expected
    assert metric.update_count == 0


def test_metric_reward_sign_is_negative_where_lower_is_better() -> None:
    reward = MetricReward(LengthGap())
    assert reward.sign == -1
    assert reward(completions=["aa", "b"], reference=["a", "b"]) == [-1.0, -0.0]
    assert reward.signature == "gap|version:0|sign:-1"
    assert reward.__name__ == "gap"


def test_metric_reward_context_columns_by_name_and_by_mapping() -> None:
    columns = {"reference": ["a"], "offset": [2], "shift": [5]}
    assert MetricReward(LengthGap(), context_columns=["offset"])(completions=["a"], **columns) == [-2.0]
    reward = MetricReward(LengthGap(), context_columns={"offset": "shift"})
    assert reward(completions=["a"], **columns) == [-5.0]
    assert reward.columns == ("reference", "shift")
    with pytest.raises(TypeError, match="context_columns must be a list of names or a mapping, got 'offset'"):
        MetricReward(LengthGap(), context_columns="offset")


def test_metric_reward_unscorable_is_none_counted_and_kept_out_of_means() -> None:
    reward = MetricReward(LengthGap(limit=5))
    logged: dict[str, float] = {}
    completions = ["aaa", "too long", "a", []]
    references = ["a", "a", None, "a"]
    assert reward(completions, reference=references, log_metric=logged.__setitem__) == [-2.0, None, None, None]
    assert logged == {"gap/half": 1.0, "gap/unscorable": 0.75, "gap/extracted": 0.0, "gap/empty": 0.0}


def test_metric_reward_a_mean_over_no_rows_is_not_logged() -> None:
    """TRL would add NaN to the values of the other processes, and log ``None``."""
    reward = MetricReward(LengthGap())
    logged: dict[str, float] = {}
    assert reward(["a"], reference=[None], log_metric=logged.__setitem__) == [None]
    assert logged == {"gap/unscorable": 1.0, "gap/extracted": 0.0, "gap/empty": 0.0}


def test_metric_reward_a_bug_raises() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        MetricReward(BrokenMetric())(["a"], reference=["a"])


def test_metric_reward_missing_column_names_it_and_those_that_exist() -> None:
    reward = MetricReward(LengthGap(), reference_column="impression")
    with pytest.raises(ValueError, match=r"'gap' reads the column 'impression'.*it has findings, label\.") as error:
        reward(["a"], prompts=["p"], completion_ids=[[1]], trainer_state=None, findings=["f"], label=[1])
    assert "prompts" not in str(error.value)
    with pytest.raises(ValueError, match="no further column"):
        reward(["a"])


@pytest.mark.parametrize(
    ("completions", "reference", "argument"),
    [
        ({"a", "b"}, ["a", "b"], "completions must be a list .* got set"),
        (None, ["a"], "completions must be a list .* got NoneType"),
        (iter(["a"]), ["a"], "completions must be a list"),
        ({"a": 1}, ["a"], "completions must be a list .* got dict"),
        (["a"], {"a"}, "reference must be a list .* got set"),
        (["a"], None, "reference must be a list"),
        (["a"], "a", "reference must be a sequence"),
        (["a", "b"], ["a", 3], r"reference\[1\] must be a report text, got int"),
    ],
)
@pytest.mark.parametrize("make", [lambda: MetricReward(LengthGap()), lambda: make_reward("crg", prior=0.2)])
def test_metric_reward_names_the_argument_that_is_no_list(make, completions, reference, argument) -> None:
    with pytest.raises(TypeError, match=argument):
        make()(completions, reference=reference)


def test_metric_reward_lengths_that_differ_raise() -> None:
    with pytest.raises(ValueError, match="completions and reference must have the same length, got 1 and 2"):
        MetricReward(LengthGap())(["a"], reference=["a", "b"])


def test_metric_reward_signature_names_what_is_used_and_takes_the_rest() -> None:
    parameters = inspect.signature(MetricReward(LengthGap())).parameters
    assert list(parameters) == ["completions", "log_metric", "log_extra", "columns"]
    assert parameters["columns"].kind is inspect.Parameter.VAR_KEYWORD


def test_metric_reward_only_report_metrics_are_taken() -> None:
    with pytest.raises(TypeError, match="must be a report metric, got Linear"):
        MetricReward(torch.nn.Linear(1, 1))  # type: ignore[arg-type]


def test_metric_reward_a_metric_without_direction_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LengthGap, "higher_is_better", None)
    with pytest.raises(ValueError, match="whether higher is better"):
        MetricReward(LengthGap())


def test_metric_reward_pickles_are_small_and_equal_and_copies_share_the_backend() -> None:
    reward = MetricReward(ReportCRG(LABELER, prior=0.3), name="mine")
    data = pickle.dumps(reward)
    assert len(data) < 10_000
    again = pickle.loads(data)
    assert again.__name__ == "mine"
    assert again.signature == reward.signature
    columns = {"completions": ["edema"], "reference": ["edema nodule"]}
    assert again(**columns) == reward(**columns)
    assert copy.deepcopy(reward).metric.labeler is reward.metric.labeler


def test_metric_reward_explanations_are_logged_when_asked_for() -> None:
    table: dict[str, list[Any]] = {}
    metric = ReportCRG(LABELER, prior=0.3)
    MetricReward(metric)(["edema"], reference=["nodule"], log_extra=table.__setitem__)
    assert table == {}
    MetricReward(metric, log_explanations=True)(["edema"], reference=["nodule"], log_extra=table.__setitem__)
    assert table == {"crg/missed": ["nodule"], "crg/invented": ["edema"]}


@pytest.mark.parametrize("content", [["a"], [{"type": "text"}], [{"type": "text", "text": 3}]])
def test_completion_text_refuses_content_of_another_type(content: Any) -> None:
    with pytest.raises(TypeError, match="content of a message must be"):
        completion_text([{"role": "assistant", "content": content}])


def test_completion_text_errors_contain_no_report() -> None:
    with pytest.raises(TypeError, match=r"got list with str, str$"):
        completion_text([{"role": "assistant", "content": ["Small effusion.", {"type": "text", "text": "Edema."}]}])


def test_completion_texts_refuse_one_text() -> None:
    with pytest.raises(TypeError, match=r"got one string; pass \[completion\]"):
        MetricReward(ReportCRG(LABELER, prior=0.2))("edema", reference=["edema"])


class Given(Reward):
    """A reward whose scores are given."""

    columns = ()
    signature = "given"

    def __init__(self, values: list[float]) -> None:
        super().__init__("given")
        self.values = values

    def score(self, completions: Sequence[Any], **columns: Any) -> Scores:
        return Scores(torch.tensor(self.values))

    def _reward(self, value: float) -> float:
        return math.inf if value > 1 else value


def test_metric_reward_fewer_rewards_than_completions_raise() -> None:
    assert Given([0.5, math.nan])(["a", "b"]) == [0.5, None]
    with pytest.raises(ValueError, match="reward 'given' returned 1 rewards for 2 completions"):
        Given([0.5])(["a", "b"])


def test_metric_reward_infinite_rewards_raise() -> None:
    with pytest.raises(ValueError, match="reward 'given' is inf for completion 1; use None"):
        Given([0.5, 2.0])(["a", "b"])
    with pytest.raises(ValueError, match=r"value\[0\] of Scores is inf"):
        Given([math.inf, 2.0])(["a", "b"])


def test_metric_reward_a_metric_that_overrides_score_is_checked() -> None:
    class Short(LengthGap):
        def score(self, preds: Any, target: Any, **context: Any) -> Scores:
            return Scores(torch.zeros(1))

    with pytest.raises(ValueError, match="reward 'gap' returned 1 rewards for 2 completions"):
        MetricReward(Short())(["a", "b"], reference=["a", "b"])


COMPLETIONS = ["edema", [{"role": "assistant", "content": "nodule"}], "", "left effusion", []]
COLUMNS = {"reference": ["edema", "nodule, edema", "edema", "right effusion", "edema"], "years": [1, 2, None, 4, 5]}
EXPECTED = [1, 0.25 / 0.75, 0, 0.5, None]
DEADLINE: dict[str, Any] = {"nodule": "deadline"}


def judge(**options: Any) -> dict[str, Any]:
    return {"name": "scripted", **options}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judges._JUDGES, "scripted", "scripted_judge:ScriptedJudge")


def call(reward: MetricReward, **options: Any) -> list[float | None]:
    result: Any = reward(COMPLETIONS, **COLUMNS, **options)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def test_async_metric_reward_a_judge_that_never_waits_makes_a_plain_reward() -> None:
    reward = make_reward("crimson", judge="scripted")
    assert type(reward) is MetricReward
    assert call(reward) == EXPECTED


def test_async_metric_reward_a_judge_that_is_waited_for_makes_an_asynchronous_reward() -> None:
    reward = make_reward("crimson", judge=judge(waits=True), name="asked")
    assert type(reward) is AsyncMetricReward
    # TRL uses this check.
    assert inspect.iscoroutinefunction(reward.__call__)
    assert reward.__name__ == "asked"
    assert call(reward) == EXPECTED
    assert reward.score(COMPLETIONS, **COLUMNS).value.tolist()[:4] == EXPECTED[:4]


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("fail_on", [{}, DEADLINE, {"": "status"}])
def test_async_metric_reward_both_log_the_same_names_whatever_fails(waits: bool, fail_on: Any) -> None:
    logged: dict[str, float] = {}
    table: dict[str, list[str]] = {}
    options = {"log_explanations": True, "log_details": True}
    reward = make_reward("crimson", judge=judge(waits=waits, fail_on=fail_on), **options)
    values = call(reward, log_metric=logged.__setitem__, log_extra=table.__setitem__)
    count = {"nodule": 1, "": 4}.get(next(iter(fail_on), ""), 0) if fail_on else 0
    assert values.count(None) == 1 + count
    assert logged["crimson/failed"] == count / 5
    assert logged["crimson/unscorable"] == (1 + count) / 5
    assert logged["crimson/failed_deadline"] == (count / 5 if fail_on == DEADLINE else 0)
    means = {f"crimson/{name}" for name in CRIMSON(ScriptedJudge()).statistics()}
    assert logged.keys() == {
        *(means if count < 4 else ()),
        *(
            f"crimson/failed_{kind}"
            for kind in ("deadline", "connection", "status", "malformed", "inconsistent", "unread")
        ),
        *(f"crimson/{name}" for name in ("failed", "unscorable", "extracted", "empty")),
    }
    assert table.keys() == {f"crimson/{name}" for name in ("missed", "invented", "misdescribed", "failure")}
    assert all(len(texts) == 5 for texts in table.values())


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
@pytest.mark.parametrize("waits", [False, True])
def test_async_metric_reward_crimson_logs_the_few_numbers_that_a_user_reads(waits: bool) -> None:
    logged: dict[str, float] = {}
    call(make_reward("crimson", judge=judge(waits=waits, fail_on=DEADLINE)), log_metric=logged.__setitem__)
    main = ("credit", "reference_weight", "false_findings", "missing_findings", "attribute_errors")
    assert logged.keys() == {f"crimson/{name}" for name in (*main, "failed", "unscorable", "extracted", "empty")}
    assert logged["crimson/failed"] == 0.2


def test_async_metric_reward_logs_what_the_judge_has_used_since_the_batch_before() -> None:
    pair = ReportPair("Small left effusion.", "Clear lungs.")
    other = ReportPair("Small left effusion.", "Large right effusion.")
    with crimson_server([pair, other], lambda body, answer: (200, completion(answer))) as server:
        settings = {"name": "openai", "model": "m", "base_url": server.url, "price": (1.0, 4.0)}
        reward = make_reward("crimson", judge=settings)
        assert list(reward.judges()) == ["judge"]
        expected = {"calls": 1, "retries": 0, "prompt_tokens": 100, "completion_tokens": 10, "cost": 140e-6}
        for batch in ([pair], [other], [pair, other]):
            logged: dict[str, float] = {}
            texts, references = [one.candidate for one in batch], [one.reference for one in batch]
            asyncio.run(reward(texts, reference=references, log_metric=logged.__setitem__))
            found = {name.removeprefix("crimson/judge_"): value for name, value in logged.items() if "judge_" in name}
            assert found == {name: pytest.approx(len(batch) * value) for name, value in expected.items()}
        copied: dict[str, float] = {}
        again = pickle.loads(pickle.dumps(reward))
        asyncio.run(again(texts, reference=references, log_metric=copied.__setitem__))
        assert copied["crimson/judge_calls"] == 2
        composed = make_reward("composed", parts=[{"name": "crimson", "judge": settings}, {"name": "rouge"}])
        assert list(composed.judges()) == ["crimson"]


def test_metric_reward_logs_no_usage_of_rules() -> None:
    logged: dict[str, float] = {}
    make_reward("crimson")(["Clear."], reference=["Edema."], log_metric=logged.__setitem__)
    assert logged
    assert not any("judge" in name for name in logged)


def test_async_metric_reward_context_columns_reach_the_judge_and_the_signature() -> None:
    reward = make_reward("crimson", judge="scripted", context_columns={"age": "years"})
    assert reward.columns == ("reference", "years")
    assert call(reward) == EXPECTED
    contexts = [pair.context for pair in reward.metric.judge.asked[0]]
    assert contexts == [(("age", "1"),), (("age", "2"),), (), (("age", "4"),)]
    assert "|context:age|sign:+1" in reward.signature
    assert "context" not in make_reward("crimson", judge="scripted").signature
    with pytest.raises(ValueError, match="reads the column 'indication', which the data set lacks"):
        call(make_reward("crimson", judge="scripted", context_columns=["age", "indication"], name="x"), age=[1] * 5)


def test_async_metric_reward_a_bug_of_the_judge_raises() -> None:
    class Broken(ScriptedJudge):
        def answers(self, task: Any, items: Any) -> Any:
            raise RuntimeError("a bug")

    for waits in (False, True):
        with pytest.raises(RuntimeError, match="a bug"):
            call(make_reward("crimson", judge=Broken(waits)))


@pytest.mark.parametrize("waits", [False, True])
def test_async_metric_reward_pickles_are_small_and_equal(waits: bool) -> None:
    reward = make_reward("crimson", judge=judge(waits=waits), context_columns={"age": "years"})
    data = pickle.dumps(reward)
    assert len(data) < 10_000
    again = pickle.loads(data)
    assert (type(again), again.__name__, again.signature) == (type(reward), "crimson", reward.signature)
    assert call(again) == EXPECTED


def test_async_metric_reward_rewards_that_are_awaited_run_beside_each_other() -> None:
    """Each of two judges answers only after the other was called; sequential calls would never return."""
    asked: list[asyncio.Event] = []

    class Meeting(ScriptedJudge):
        async def evaluate(self, task: Any, items: Any) -> list[Any]:
            if not asked:
                asked.append(asyncio.Event())
                await asked[0].wait()
            else:
                asked[0].set()
            return self.answers(task, items)

    async def both() -> Any:
        rewards = [make_reward("crimson", judge=Meeting(waits=True)) for _ in range(2)]
        return await asyncio.wait_for(asyncio.gather(*(reward(COMPLETIONS, **COLUMNS) for reward in rewards)), 30)

    assert asyncio.run(both()) == [EXPECTED, EXPECTED]


def test_async_metric_reward_only_a_metric_with_a_judge_is_awaited() -> None:
    with pytest.raises(TypeError, match="metric must be a metric with a judge, got ReportCRG; use MetricReward"):
        AsyncMetricReward(ReportCRG(WordLabeler(), prior=0.2))  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"its scores are relative to the batch.* use make_reward\('crg'\), or set a num"
    ):
        MetricReward(ReportCRG(WordLabeler()))


def test_async_metric_reward_options_are_checked_without_making_a_judge() -> None:
    with pytest.raises(ValueError, match="option of reward 'crimson' 'juge'; did you mean 'judge'"):
        make_reward("crimson", juge="rules")
    with pytest.raises(ValueError, match="unknown judge 'nobody'"):
        make_reward("crimson", judge={"name": "nobody"})


def test_async_metric_reward_of_a_cascade_counts_who_judged() -> None:
    judge = CascadeJudge(ScriptedJudge(waits=True, fail_on={"Vextramal": "deadline"}))
    reward = make_reward("crimson", judge=judge, log_details=True)
    assert isinstance(reward, AsyncMetricReward)
    assert reward.has_independent_rows == ScriptedJudge.has_independent_rows
    completions = ["No effusion.", "Effusion.", "Vextramal."]
    references = ["Small effusion.", "Quorblid.", "Quorblid."]
    logged: dict[str, float] = {}
    unpickled = pickle.loads(pickle.dumps(reward))
    for one in (reward, unpickled):
        call = one(completions=completions, reference=references, log_metric=logged.__setitem__)
        with pytest.warns(JudgeWarning, match="deadline 1"):
            values = asyncio.run(call)
        assert values == [0.0, pytest.approx(-1 / 3), None]
    assert logged["crimson/failed_deadline"] == pytest.approx(1 / 3)
    assert logged["crimson/by_second_judge"] == pytest.approx(2 / 3)
    assert reward.signature == unpickled.signature


BY_RULES = ("crg", "crimson", "ct_finebench", "label_f1", "bleu", "rouge", "coco_rouge", "chrf")
MISSING_REPORTS = ["to_generate", "Not given.", "Report not available.", "___", "nan", "N/A", "[NULL]"]


@pytest.mark.parametrize("name", BY_RULES)
def test_a_reference_that_stands_for_a_missing_report_is_unscorable(name: str) -> None:
    """In a reward, and counted in the metric."""
    texts, references = ["Edema."] * 8, ["Edema.", *MISSING_REPORTS]
    reward = make_reward(name, **({"prior": 0.2} if name == "crg" else {}))
    logged: dict[str, float] = {}
    with pytest.warns(PlaceholderWarning, match=r"7 of 8 texts in target are words such as 'to_generate'") as told:
        rewards, again = (reward(texts, reference=references, log_metric=logged.__setitem__) for _ in range(2))
    assert again == rewards
    assert len([one for one in told if one.category is PlaceholderWarning]) == 1
    assert rewards[0] is not None
    assert rewards[1:] == [None] * 7
    assert logged[f"{name}/unscorable"] == 7 / 8
    metric = reward.metric  # type: ignore[attr-defined]
    metric.update(texts, references)
    assert metric.num_unscorable == 7
    assert metric.score(["Not given."], ["Edema."]).scored.all()


def test_a_reward_that_can_read_nothing_is_refused() -> None:
    for name in ("ct_finebench", "rouge"):
        with pytest.raises(ValueError, match=f"reward '{name}' could read nothing: set reference_column"):
            make_reward(name, reference_column=None)
    assert make_reward("ct_finebench", reference_column=None, items_column="items").columns == ("items",)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("crimson", {}),
        ("composed", {"parts": ["rouge", "crimson"]}),
        ("recommended", {"version": "0.1"}),
    ],
)
def test_context_that_is_not_read_is_told_once_with_the_option_that_reads_it(name: str, options: Any) -> None:
    reference = ["Aortic calcification.", "Edema."] * 4
    columns = {"reference": reference, "age": [25] * 8, "indication": ["Cough."] * 8, "site": ["A"] * 8}
    reward = make_reward(name, **options).fit(**columns)
    with pytest.warns(UnreadColumnWarning, match=r"'age' and 'indication'.*context_columns=\['age', 'indicat") as told:
        assert len({tuple(reward(["Edema."] * 8, **columns)) for _ in range(2)}) == 1
    assert len([one for one in told if one.category is UnreadColumnWarning]) == 1
    read = {"context_columns": ["age", "indication"]}
    if name == "composed":
        options, read = {"parts": ["rouge", {"name": "crimson", **read}]}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadColumnWarning)
        make_reward(name, **options, **read).fit(**columns)(["Edema."] * 8, **columns)
