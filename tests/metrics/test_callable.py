"""A function of predictions and references as a metric."""

import copy
import importlib
import linecache
import math
import pickle
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from functions import length_gap, older_than, word_overlap

from rrg_rewards.metrics import CallableMetric, make_metric
from rrg_rewards.metrics.registry import metric_maker
from rrg_rewards.rewards import MetricReward
from rrg_rewards.utilities.signature import describe_code

PAIRS = (["small effusion", "normal heart", None, "nodule"], ["small left effusion", "normal", "mass", " "])


def constant(value: Any) -> Any:
    return lambda predictions, references: value


def test_callable_metric_the_corpus_value_is_the_mean_over_scored_pairs() -> None:
    metric = CallableMetric(length_gap, higher_is_better=False)
    scores = metric.score(*PAIRS)
    assert scores.value.tolist()[:2] == [1.0, 1.0]
    assert scores.value.isnan().tolist() == [False, False, True, True]
    metric.add_scores(scores)
    assert float(metric.compute()) == 1.0
    assert int(metric.num_unscorable) == 2


def test_callable_metric_the_function_never_sees_an_unscorable_pair_or_an_empty_list() -> None:
    seen: list[Any] = []

    def note(predictions: list[str], references: list[str]) -> list[float]:
        seen.append((predictions, references))
        return [0.0] * len(predictions)

    metric = CallableMetric(note)
    metric.score(*PAIRS)
    assert seen == [(["small effusion", "normal heart"], ["small left effusion", "normal"])]
    assert len(metric.score([], [])) == 0
    assert metric.score([None], ["a"]).value.isnan().all()
    assert len(seen) == 1


@pytest.mark.parametrize(
    "scores",
    [[0.5, None], (0.5, math.nan), np.array([0.5, math.nan], np.float32), torch.tensor([0.5, math.nan])],
    ids=["list", "tuple", "array", "tensor"],
)
def test_callable_metric_scores_in_any_form(scores: Any) -> None:
    found = CallableMetric(constant(scores), name="any").score(["a", "b"], ["a", "b"])
    assert found.value.dtype == torch.float64
    assert found.value.nan_to_num(-1).tolist() == [0.5, -1.0]


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        ([0.5], ValueError, "any returned 1 scores for 2 report pairs"),
        (0.5, TypeError, "any returned float as scores; it must return one number for each pair"),
        ("ab", TypeError, "any returned str as scores"),
        (["0.5", 1.0], TypeError, r"any: scores\[0\] must be a number or None, got str"),
        ([0.5, math.inf], ValueError, r"value\[1\] of Scores is inf"),
        ({"f1": [1, 1], "recall": [1, 1]}, ValueError, "several scores; set value to one of f1, recall"),
        ({}, ValueError, "no score '', only an empty mapping"),
        (np.ones((2, 2)), TypeError, r"any: scores\[0\] must be a number or None, got list"),
    ],
)
def test_callable_metric_a_wrong_result_is_an_error(result: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CallableMetric(constant(result), name="any").score(["a", "b"], ["a", "b"])


def test_callable_metric_a_mapping_has_a_score_and_parts() -> None:
    metric = CallableMetric(word_overlap, value="f1", parts=["recall"])
    metric.update(["small effusion", "", "normal"], ["small left effusion", "normal", "normal"])
    assert float(metric.compute()) == pytest.approx((0.8 + 1.0) / 2)
    assert float(metric.statistics()["recall"]) == pytest.approx((2 / 3 + 1) / 2)
    with pytest.raises(ValueError, match="word_overlap returned no score 'precision', only f1, recall"):
        CallableMetric(word_overlap, value="precision").score(["a"], ["a"])
    with pytest.raises(ValueError, match="parts must not contain 'f1'"):
        CallableMetric(word_overlap, value="f1", parts=["f1"])
    with pytest.raises(TypeError, match=r"parts must be a list of names, got 'recall,f2'; pass \['recall', 'f2'\]"):
        CallableMetric(word_overlap, value="f1", parts="recall,f2")
    with pytest.raises(ValueError, match="length_gap returned list, not a mapping"):
        CallableMetric(length_gap, value="f1").score(["a"], ["a"])


def test_callable_metric_sub_scores_are_there_even_if_no_pair_is_scorable() -> None:
    metric = CallableMetric(word_overlap, value="f1", parts=["recall"])
    assert metric.score([None], ["a"]).details["recall"].isnan().all()


def test_callable_metric_the_sign_of_the_reward() -> None:
    assert MetricReward(CallableMetric(length_gap, higher_is_better=False))(["a b"], reference=["a"]) == [-1.0]
    assert MetricReward(CallableMetric(length_gap))(["a b", []], reference=["a", "a"]) == [1.0, None]
    with pytest.raises(ValueError, match="does not define whether higher is better"):
        MetricReward(CallableMetric(length_gap, higher_is_better=None))


def test_callable_metric_further_parameters_are_columns_or_options() -> None:
    metric = CallableMetric(older_than)
    assert metric.context == ("age", "limit")
    assert metric.score(["a", None, "c"], ["a", "b", "c"], age=torch.tensor([50, 60, 70])).value.tolist()[::2] == [0, 1]
    with pytest.raises(TypeError, match=r"older_than needs age: pass a column of this name \(context\), or a value"):
        metric.score(["a"], ["a"])
    with pytest.raises(TypeError, match="older_than takes no column sex; it accepts age, limit"):
        metric.score(["a"], ["a"], age=[1], sex=["f"])
    fixed = CallableMetric(older_than, options={"limit": 40})
    assert fixed.context == ("age",)
    assert fixed.score(["a"], ["a"], age=[50]).value.tolist() == [1.0]

    def any_column(
        predictions: Sequence[str], references: Sequence[str], **columns: Sequence[float]
    ) -> Sequence[float]:
        return columns["weight"]

    assert CallableMetric(any_column).score(["a"], ["a"], weight=[0.25]).value.tolist() == [0.25]


def test_callable_metric_what_is_no_function_is_an_error() -> None:
    async def later(predictions: list[str], references: list[str]) -> list[float]:
        return []

    with pytest.raises(TypeError, match="function is asynchronous"):
        CallableMetric(later)
    with pytest.raises(TypeError, match="function must be a function, or the path of one, got int"):
        CallableMetric(3)
    with pytest.raises(TypeError, match="function must take two lists, predictions and references: too many"):
        CallableMetric(lambda predictions: [1.0], name="one")
    with pytest.raises(ValueError, match="name must be set for a function without a name"):
        CallableMetric(constant([1.0]))
    with pytest.raises(ValueError, match="name must be set"):
        CallableMetric(partial(length_gap, scale=2))
    with pytest.raises(ImportError, match=r"function 'no_such:thing': cannot import 'no_such': ModuleNotFoundError"):
        CallableMetric("no_such:thing")


class Model(torch.nn.Module):
    """A torch module that is called with lists of texts, as those of RadEval."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, predictions: Sequence[str], references: Sequence[str]) -> torch.Tensor:
        return self.weight * torch.ones(len(predictions), dtype=torch.float16)


def test_callable_metric_a_torch_module_is_no_part_of_the_metric() -> None:
    metric = CallableMetric(Model(), name="model")
    assert metric.score(["a"], ["a"]).value.tolist() == [1.0]
    assert list(metric.parameters()) == []
    assert metric.state_dict() == {}
    assert copy.deepcopy(metric).function is metric.function


def test_callable_metric_the_signature_says_the_code_and_its_version() -> None:
    signature = CallableMetric(length_gap, options={"scale": 2.0}).signature
    assert signature.startswith("length_gap|function:functions:length_gap|source:")
    assert "|scale:2.0|" in signature
    assert describe_code(make_metric)["package"] == f"rrg-rewards=={version('rrg-rewards')}"
    assert describe_code(len)["source"] == "unknown"
    bound = describe_code(partial(length_gap, ["a"], scale=2))
    assert (bound["function"], bound["arguments"]) == ("functions:length_gap", "['a'],scale=2")
    named = describe_code(type("Scorer", (), {"signature": "weights:3", "__call__": lambda self: None})())
    assert named["signature"] == "{weights:3}"


def test_callable_metric_edited_code_has_another_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = []
    for number in (1, 2):
        (tmp_path / "edited_code.py").write_text(f"def made(predictions, references): return [{number}]")
        monkeypatch.delitem(sys.modules, "edited_code", raising=False)
        linecache.clearcache()
        importlib.invalidate_caches()
        sources.append(describe_code(importlib.import_module("edited_code").made)["source"])
    assert len({*sources} - {"unknown"}) == 2


def test_callable_metric_pickles_and_is_made_by_path() -> None:
    metric = make_metric("functions:word_overlap", value="f1", parts=["recall"], name="overlap")
    metric.update(["small effusion"], ["small left effusion"])
    restored = pickle.loads(pickle.dumps(metric))
    assert restored.compute() == metric.compute()
    assert restored.signature == metric.signature
    assert restored.name == "overlap"
    assert {"age", "limit", "higher_is_better"} <= {*metric_maker("functions:older_than").options}
    assert make_metric("functions:older_than", limit=3).options == {"limit": 3}
    with pytest.raises(ValueError, match="unknown functions:length_gap option 'scal'; did you mean 'scale'"):
        make_metric("functions:length_gap", scal=3)
    with pytest.raises(ValueError, match="metric 'math:pi' must be a ReportMetric class, or a function of predictions"):
        make_metric("math:pi")
