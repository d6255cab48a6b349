"""The estimated cost of labels: the requests that the labeler would send, without sending them."""

import json
from itertools import pairwise
from typing import Any

import pytest
from fault_server import FaultServer, completion, raw, reply_bytes
from label_judge import LabelJudge, rule_answer

from rrg_rewards.analysis.answers import shared_length
from rrg_rewards.analysis.label_estimate import estimate_labels
from rrg_rewards.judges import OpenAIJudge
from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import ReportCRG
from rrg_rewards.schemas import CT_RATE

BATCHES = [
    ["Hiatal hernia.", "", "Hiatal hernia.", "Normal."],
    ["Normal.", "Emphysema.", " \n"],
    ["Cardiomegaly.", "Hiatal hernia."],
]


@pytest.mark.parametrize("remembered", [0, 1, 2, 1024])
def test_estimate_labels_counts_the_requests_of_the_labeler(remembered: int) -> None:
    judge = LabelJudge()
    labeler = JudgeLabeler("ct_rate", judge, remembered=remembered)
    expected = estimate_labels(labeler, BATCHES)
    assert judge.asked == []
    for batch in BATCHES:
        labeler.label(batch)
    asked = [report for reports in judge.asked for report in reports]
    assert expected.requests == len(asked)
    if remembered == 1024:
        assert asked == ["Hiatal hernia.", "Normal.", "Emphysema.", "Cardiomegaly."]


def test_estimate_labels_has_the_tokens_and_costs_of_the_prompts_and_their_shared_beginning() -> None:
    price = {"price": (1.0, 4.0), "price_cached": 0.1, "max_tokens": 500, "requests_per_minute": 2}
    labeler = JudgeLabeler("ct_rate", OpenAIJudge("m", **price))
    reports = ["Hiatal hernia.", "Normal.", "Emphysema."]
    found = estimate_labels(labeler, [reports])
    prompts = ["".join(one["content"] for one in labeler.task.messages(report)) for report in reports]
    assert found.prompt_tokens == pytest.approx(sum(map(len, prompts)) / 4, rel=0.02)
    shared = sum(shared_length(*pair) for pair in pairwise(prompts))
    assert found.cacheable_tokens == pytest.approx(shared / 4, abs=2)
    # The instructions with the labels, in all requests but the first.
    assert shared >= 2 * len(labeler.task.messages("")[0]["content"])
    tokens, answers, cached = found.prompt_tokens, found.completion_tokens, found.cacheable_tokens
    assert found.cost == pytest.approx((tokens + 4 * answers) / 1e6)
    assert found.cached_cost == pytest.approx((tokens - 0.9 * cached + 4 * answers) / 1e6)
    assert (found.most_completion_tokens, found.minutes) == (1500, 1.5)


def test_estimate_labels_expects_answers_about_as_long_as_those_of_the_rules() -> None:
    report = "Hiatal hernia. Cardiomegaly. No emphysema. Nodule of 8 mm. Right pleural effusion with atelectasis."
    found = estimate_labels(JudgeLabeler("ct_rate", LabelJudge()), [[report]])
    answer = json.dumps({"labels": rule_answer(report, CT_RATE.labels)})
    assert len(answer) / 4 < found.completion_tokens < 1.6 * len(answer) / 4


@pytest.mark.filterwarnings("ignore::rrg_rewards.metrics.LabelerWarning")
@pytest.mark.parametrize("context", [{}, {"target_labels": [[0] * 18, None, [1] * 18]}])
def test_estimate_labels_of_a_metric_counts_its_requests(context: dict[str, Any]) -> None:
    async def behave(request: Any, writer: Any) -> None:
        answer = json.dumps({"labels": rule_answer(request.item, CT_RATE.labels)})
        await raw(reply_bytes(completion(answer)))(request, writer)

    def item_of(messages: Any) -> Any:
        return json.loads(messages[-1]["content"].partition("<report>\n")[2].partition("\n")[0])

    preds, target = ["Hiatal hernia.", "Normal.", None], ["Emphysema.", None, "Normal."]
    with FaultServer(otherwise=behave, item_of=item_of) as server:
        metric = ReportCRG(JudgeLabeler("ct_rate", OpenAIJudge("m", base_url=server.url)))
        found = estimate_labels(metric.labeler, [metric.queries(preds, target, **context)])
        assert not server.requests
        metric.score(preds, target, **context)
        assert len(server.requests) == found.requests == (1 if context else 2)
