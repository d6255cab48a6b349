"""The default states of a report metric, and a metric with states of its own."""

import sys

import pytest
import torch
from torchmetrics import MetricCollection

from rrg_rewards.metrics import CRIMSON, ReportCRG, ReportMetric, Scores
from rrg_rewards.utilities.backend import Backend


class SameLength(ReportMetric):
    name = "same_length"
    signature = "same_length"

    def _score(self, preds, target, **context):
        value = torch.tensor([float(len(a) == len(b)) for a, b in zip(preds, target, strict=True)], dtype=torch.float64)
        return Scores(value, {})


class Hits(SameLength):
    def __init__(self):
        super().__init__(parts=None)
        self.add_state("hits", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")

    def _accumulate(self, scores):
        super()._accumulate(scores)
        self.hits += scores.value[scores.scored].sum()

    def compute(self):
        return self.hits


def test_the_default_is_the_mean_over_scored_pairs():
    metric = SameLength()
    metric.update(["a", "bb", None, "c"], ["x", "y", "z", "z"])
    torch.testing.assert_close(metric.compute(), torch.tensor(2 / 3, dtype=torch.float64))
    assert (int(metric.num_scored), int(metric.num_unscorable)) == (3, 1)


def test_a_metric_with_its_own_states_has_no_default_ones():
    metric = Hits()
    metric.update(["a", "bb", "c"], ["x", "y", "z"])
    assert metric.compute() == 2
    assert not {"score_sum", "part_sums", "num_scored"} & metric.metric_state.keys()


REPORTS = ["a", "bb", "c"], ["x", "y", "z"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_states_keep_their_type_in_a_module_that_is_converted(dtype):
    module = torch.nn.Module()
    module.metric = SameLength()
    module.to(dtype)
    for _ in range(1000):
        module.metric.update(*REPORTS)
    module.to(dtype)
    assert module.metric.compute() == 2 / 3
    assert module.metric.score_sum.dtype == torch.float64
    assert module.metric.never_shared.dtype == torch.float64


def test_move_to_another_device_reaches_the_states():
    metric = SameLength().to("meta")
    assert metric.score_sum.is_meta
    assert metric.num_scored.is_meta
    assert metric.score_sum.dtype == torch.float64
    assert metric.device == torch.device("meta")


@pytest.mark.parametrize("cls", [SameLength, Hits])
def test_update_after_a_reset_in_inference_mode(cls):
    metric = cls()
    with torch.inference_mode():
        metric.update(*REPORTS)
        metric.reset()
    metric.update(*REPORTS)
    assert metric.compute() == (2 if cls is Hits else 2 / 3)


class WithNote(SameLength):
    context = ("note",)

    def _score(self, preds, target, **context):
        assert list(context) == ["note"]
        return super()._score(preds, target)


class WithoutContext(SameLength):
    context = ()


def test_each_metric_of_a_collection_gets_its_own_columns():
    collection = MetricCollection({"with": WithNote(), "without": WithoutContext(), "any": SameLength()})
    collection.update(*REPORTS, note=["1", "2", "3"])
    assert collection.compute() == dict.fromkeys(("with", "without", "any"), 2 / 3)
    collection(*REPORTS, note=["1", "2", "3"])
    assert int(collection["without"].num_scored) == 6


def test_an_unknown_column_of_one_metric_raises():
    with pytest.raises(TypeError, match="takes no column note; it accepts no column"):
        WithoutContext().update(*REPORTS, note=["1", "2", "3"])


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.tensor([1.0, torch.inf]), ValueError, r"value\[1\] of Scores is inf; use NaN for a pair that has no"),
        (torch.tensor([-torch.inf, 0.0]), ValueError, r"value\[0\] of Scores is -inf"),
        (torch.tensor([1, 0]), TypeError, "value of Scores must be a float tensor, got torch.int64"),
        ([1.0, 0.0], TypeError, "value of Scores must be a float tensor, got list"),
        (torch.tensor(1.0), ValueError, r"value of Scores must have shape \(N,\), got \(\)"),
        (torch.ones(2, 1), ValueError, r"value of Scores must have shape \(N,\), got \(2, 1\)"),
    ],
)
def test_scores_that_are_no_scores_raise(values, error, message):
    with pytest.raises(error, match=message):
        Scores(values)


def test_sub_scores_that_are_no_scores_raise():
    value = torch.tensor([0.5, torch.nan])
    with pytest.raises(ValueError, match=r"details\['part'\] of Scores must have shape \(2,\), got \(1,\)"):
        Scores(value, {"part": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"details\['part'\]\[0\] of Scores is inf"):
        Scores(value, {"part": torch.tensor([torch.inf, 0.0])})


@pytest.mark.parametrize("number", [0, 1, 4])
def test_another_number_of_scores_than_pairs_raises(number):
    class Other(SameLength):
        def _score(self, preds, target, **context):
            return Scores(torch.ones(number))

    with pytest.raises(ValueError, match=f"same_length returned {number} scores for 3 scorable report pairs"):
        Other().score(*REPORTS)


def test_a_metric_in_place_of_a_reward_says_how_to_make_one():
    metric = SameLength()
    assert not hasattr(metric, "config")
    with pytest.raises(AttributeError, match=r"is a metric, not a reward model.*rewards.MetricReward\(metric\)"):
        metric.config  # noqa: B018 (the reading raises)
    with pytest.raises(AttributeError, match=r"rewards.AsyncMetricReward\(metric\), or use make_reward\('crimson'\)"):
        CRIMSON().config  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        metric.nothing  # noqa: B018


def test_representations_say_what_the_objects_are():
    metric = ReportCRG(prior=0.2)
    assert repr(metric) == "ReportCRG(labeler=RuleLabeler(schema='ct_rate'), prior=0.2)"
    assert repr(CRIMSON()) == "CRIMSON(judge=RuleJudge(), task=CrimsonTask(prompt='own'))"
    assert repr(SameLength()) == "SameLength()"
    scores = metric.score(["Cardiomegaly.", None], ["Cardiomegaly.", "Cardiomegaly."])
    assert repr(scores).startswith("<LabelScores of 2 report pairs, 1 scored, mean 0.2778; details: tp, fn, fp,")
    assert repr(Scores(torch.tensor([torch.nan]))) == "<Scores of 1 report pairs, 0 scored>"


def test_representation_of_a_backend_has_no_objects_and_needs_no_arguments():
    class Tagged(Backend):
        def __init__(self, name, size=3, settings=None):
            self.given = {"name": name, "size": size, "settings": settings}

        def arguments(self):
            return self.given

    class Without(Backend):
        def __init__(self, name):
            self.name = name

    assert repr(Tagged("a")) == "Tagged(name='a')"
    assert repr(Tagged("a", 4, {"key": "secret"})) == "Tagged(name='a', size=4)"
    assert repr(Without("a")) == "Without(...)"


def test_scores_as_a_data_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    scores = ReportCRG(prior=0.2).score(["Cardiomegaly.", None], ["Cardiomegaly. Hiatal hernia.", "Nodule."])
    frame = scores.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["score", *scores.details, "missed", "invented"]
    assert frame["missed"].tolist() == ["Hiatal hernia", ""]
    assert frame["score"].isna().tolist() == [False, True]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="python -m pip install pandas"):
        scores.to_frame()


def test_a_misspelled_argument_of_a_metric_names_the_nearest():
    with pytest.raises(ValueError, match="unknown argument 'averag'; did you mean 'average'"):
        ReportCRG(averag="macro")
    with pytest.raises(ValueError, match="Unexpected keyword arguments"):
        ReportCRG(colour="red")
