"""RadMatch's pipeline with a scripted language model, where it is installed."""

import json
import pickle
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest

from rrg_rewards.integrations.radmatch import RadMatchMetric
from rrg_rewards.rewards import MetricReward

needs_radmatch = pytest.mark.skipif(find_spec("radmatch") is None, reason="RadMatch is not installed (extra radmatch)")


class Client:
    """Extracts each sentence as an urgent finding, matches equal texts, and finds no error of attributes."""

    def __init__(self, model: str, reasoning: str = "none") -> None:
        self.model, self.reasoning = model, reasoning

    def complete(self, messages: Any, response_format: Any = None, **_: Any) -> str:
        given = messages[-1]["content"]
        if "findings_output" in json.dumps(response_format):
            if "unreadable" in given:
                return "no JSON"
            status = {"clinical_status": "abnormal", "clinical_significance": "urgent", "comparison": None}
            texts = [text.strip() for text in given.rstrip(". ").split(".")]
            return json.dumps({"findings": [{"text": text, **status, "measurements": []} for text in texts]})
        if "errors_per_match" in json.dumps(response_format):
            return json.dumps({"errors_per_match": [[]]})
        return json.dumps(self.matched(given))

    def matched(self, given: str) -> dict[str, Any]:
        sides = [json.loads(part) for part in lists_of(given)]
        pred, gt = sides if "pred" in sides[0][0]["finding_id"] else sides[::-1]
        pairs = [(a["finding_id"], b["finding_id"]) for a in pred for b in gt if a["text"] == b["text"]]
        return {
            "matches": [{"pred_id": a, "gt_id": b, "reasoning": "same"} for a, b in pairs],
            "unmatched_pred": [a["finding_id"] for a in pred if a["finding_id"] not in {a for a, _ in pairs}],
            "unmatched_gt": [b["finding_id"] for b in gt if b["finding_id"] not in {b for _, b in pairs}],
        }


def lists_of(text: str) -> list[str]:
    """Return the JSON lists in a text."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := text.find("[", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            at += 1
            continue
        if value and isinstance(value[0], dict):
            found.append(text[at:end])
        at = end
    return found


@needs_radmatch
def test_radmatch_metric_has_the_errors_of_radmatchs_own_pipeline() -> None:
    metric = RadMatchMetric("scripted", client_factory=Client, workers=2)
    reports = (
        ["Effusion. Nodule.", "unreadable", "", "Effusion."],
        ["Effusion. Mass. Edema.", "Mass.", "Mass.", "Effusion."],
    )
    scores = metric.score(*reports)
    assert scores.value.nan_to_num(-1).tolist() == [3, -1, -1, 0]
    assert [scores.details[name][0].item() for name in ("matched_correct", "invented", "missed")] == [1, 1, 2]
    metric.update(*reports)
    assert (float(metric.compute()), int(metric.num_unscorable)) == (1.5, 2)
    assert MetricReward(metric)(["Effusion. Nodule."], reference=["Effusion."]) == [-1.0]
    assert f"package:radmatch=={version('radmatch')}" in metric.signature
    assert pickle.loads(pickle.dumps(metric)).scorer.arguments() == metric.scorer.arguments()


def test_radmatch_metric_names_the_extra_if_radmatch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "radmatch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[radmatch\]"):
        RadMatchMetric("local:some-model")
