"""Report metrics: default states and states of their own, context columns, modality, wrong input."""

import copy
import subprocess
import sys
import warnings

import pytest
import torch
from torch.utils.data import default_collate
from torchmetrics import MetricCollection
from words import WordLabeler

from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import CRIMSON, ROUGE, CTFineBench, ReportCRG, ReportMetric, Scores
from rrg_rewards.metrics.base import ModalityWarning, read_column
from rrg_rewards.rewards import make_reward
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


def test_report_metric_the_default_is_the_mean_over_scored_pairs():
    metric = SameLength()
    metric.update(["a", "bb", None, "c"], ["x", "y", "z", "z"])
    torch.testing.assert_close(metric.compute(), torch.tensor(2 / 3, dtype=torch.float64))
    assert (int(metric.num_scored), int(metric.num_unscorable)) == (3, 1)


def test_report_metric_a_missing_text_of_pandas_is_a_missing_report():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"pred": ["a", "bb", None], "ref": ["x", float("nan"), "z"]}, index=[7, 8, 9])
    for column in (table["ref"], table["ref"].astype("string"), table["ref"].astype(object)):
        metric = SameLength()
        metric.update(table["pred"], column)
        assert (int(metric.num_scored), int(metric.num_unscorable)) == (1, 2)


@pytest.mark.parametrize(
    ("reports", "kind"),
    [(iter(["a"]), "list_iterator"), ({"a"}, "set"), ({"a": 1}, "dict"), ({1: "a"}.values(), "dict_values")],
)
def test_report_metric_reports_without_an_order_are_refused(reports, kind):
    with pytest.raises(TypeError, match=f"target must be a list of reports, got {kind}; pass a list in the order"):
        SameLength().update(["a"], reports)
    with pytest.raises(TypeError, match=f"preds must be a list of reports, got {kind}"):
        SameLength().update(reports, ["a"])
    with pytest.raises(TypeError, match=f"reports must be a list of reports, got {kind}"):
        RuleLabeler("ct_rate")(reports)


def test_a_metric_with_its_own_states_has_no_default_ones():
    metric = Hits()
    metric.update(["a", "bb", "c"], ["x", "y", "z"])
    assert metric.compute() == 2
    assert not {"score_sum", "part_sums", "num_scored"} & metric.metric_state.keys()


REPORTS = ["a", "bb", "c"], ["x", "y", "z"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_report_metric_states_keep_their_type_in_a_module_that_is_converted(dtype):
    module = torch.nn.Module()
    module.metric = SameLength()
    module.to(dtype)
    for _ in range(1000):
        module.metric.update(*REPORTS)
    module.to(dtype)
    assert module.metric.compute() == 2 / 3
    assert module.metric.score_sum.dtype == torch.float64
    assert module.metric.never_shared.dtype == torch.float64


def test_report_metric_move_to_another_device_reaches_the_states():
    metric = SameLength().to("meta")
    assert metric.score_sum.is_meta
    assert metric.num_scored.is_meta
    assert metric.score_sum.dtype == torch.float64
    assert metric.device == torch.device("meta")


@pytest.mark.parametrize("cls", [SameLength, Hits])
def test_report_metric_update_after_a_reset_in_inference_mode(cls):
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


@pytest.mark.parametrize("number", [0, 1, 4])
def test_report_metric_another_number_of_scores_than_pairs_raises(number):
    class Other(SameLength):
        def _score(self, preds, target, **context):
            return Scores(torch.ones(number))

    with pytest.raises(ValueError, match=f"same_length returned {number} scores for 3 scorable report pairs"):
        Other().score(*REPORTS)


def test_a_metric_in_place_of_a_reward_says_how_to_make_one():
    metric = SameLength()
    assert not hasattr(metric, "config")
    with pytest.raises(AttributeError, match=r"make_reward\('same_length'\), or wrap it"):
        metric.config  # noqa: B018 (the reading raises)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        metric.nothing  # noqa: B018


BATCHES = [("Normal.", "Normal."), ("Large effusion. Nodule.", "Small effusion.")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ReportCRG("rules:ct_rate"), ReportCRG(WordLabeler("hernia cyst"))),
        (CTFineBench(mode="precision"), CTFineBench(mode="f1")),
        (CRIMSON(), CRIMSON(form="training")),
    ],
)
def test_report_metric_in_a_collection_is_not_merged_with_another_that_agrees_at_first(first, second) -> None:
    alone = [copy.deepcopy(one) for one in (first, second)]
    collection = MetricCollection({"first": first, "second": second})
    for pred, target in BATCHES:
        collection.update([pred], [target])
        for metric in alone:
            metric.update([pred], [target])
    found = collection.compute()
    expected = [metric.compute() for metric in alone]
    assert torch.equal(found["first"], expected[0])
    assert not torch.equal(*expected)
    collection.reset()
    assert not any(int(one.num_unscorable) for one in collection.values())


@pytest.mark.parametrize("make", [CRIMSON, CTFineBench, ReportCRG, ROUGE], ids=lambda make: make.__name__)
def test_report_metric_says_nothing_where_nothing_failed_and_names_what_is_wrong(make) -> None:
    metric = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(["Small effusion."], ["Large effusion."])
        metric.compute()
    states = copy.deepcopy(metric.metric_state)
    for preds, target, context, error, message in [
        ("Effusion.", ["Effusion."], {}, TypeError, "preds must be a sequence of reports, got one string"),
        (["Effusion."], [3], {}, TypeError, r"target\[0\] must be a report text, got int"),
        (["a", "b"], ["a"], {}, ValueError, "preds and target must have the same length, got 2 and 1"),
        (["a"], ["a"], {"weight": [3]}, TypeError, f"{metric.name} takes no column weight; it accepts "),
        *((["a"], ["a"], {name: []}, ValueError, f"preds and {name} must have") for name in metric.context),
        *((["a"], ["a"], {name: 3}, TypeError, f"{name} must be a column of 1 values") for name in metric.context),
    ]:
        for call in (metric.score, metric.update):
            with pytest.raises(error, match=message):
                call(preds, target, **context)
    torch.testing.assert_close(metric.metric_state, states, equal_nan=True)


@pytest.mark.slow
def test_report_metric_by_rules_needs_no_package_of_language_models() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pydantic', 'openai', 'CRIMSON']))\n"
        "from rrg_rewards.metrics import make_metric; from rrg_rewards.rewards import make_reward\n"
        "for name in ('crimson', 'ct_finebench'):\n"
        "    metric = make_metric(name); metric.update(['Left effusion.'], ['Left effusion.'])\n"
        "    assert metric.compute() == 1; assert metric.signature\n"
        "    assert make_reward(name)(['Left effusion.'], reference=['Left effusion.']) == [1.0]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_report_metric_representations_say_what_the_objects_are():
    metric = ReportCRG(prior=0.2)
    assert repr(metric) == "ReportCRG(labeler=RuleLabeler(schema='ct_rate'), prior=0.2)"
    task = "CrimsonTask(prompt='own', checks='strict')"
    assert repr(CRIMSON()) == f"CRIMSON(judge=RuleJudge(unread='unscorable'), task={task})"
    assert repr(SameLength()) == "SameLength()"
    scores = metric.score(["Cardiomegaly.", None], ["Cardiomegaly.", "Cardiomegaly."])
    assert repr(scores).startswith("<LabelScores of 2 report pairs, 1 scored, mean 0.2778; details: tp, fn, fp,")
    assert repr(Scores(torch.tensor([torch.nan]))) == "<Scores of 1 report pairs, 0 scored>"


def test_backend_representation_has_no_objects_and_needs_no_arguments():
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


def test_a_misspelled_argument_of_a_metric_names_the_nearest():
    with pytest.raises(ValueError, match="unknown argument of ReportCRG 'averag'; did you mean 'average'"):
        ReportCRG(averag="macro")
    with pytest.raises(ValueError, match="unknown argument of ReportCRG 'colour'"):
        ReportCRG(colour="red")


def test_an_argument_of_torchmetrics_that_a_subclass_declares_is_no_misspelled_one():
    class Local(ROUGE):
        def __init__(self, sync_on_compute=False, **kwargs):
            super().__init__(sync_on_compute=sync_on_compute, **kwargs)

    assert not Local().sync_on_compute


LABELS = [[1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]]
PREDS = ["Effusion.", "Nodule.", "Normal.", "Hernia."]
TARGET = ["Hernia."] * 4


def rows(labels):
    return [{"pred": PREDS[row], "target": TARGET[row], "labels": given} for row, given in enumerate(labels)]


@pytest.mark.parametrize("as_tensor", [False, True], ids=["lists of labels", "tensors of labels"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_read_column_of_collated_labels_gives_the_rows(as_tensor, size):
    labels = LABELS[:size]
    batch = default_collate(rows([torch.tensor(row) for row in labels] if as_tensor else labels))
    metric = ReportCRG(WordLabeler(), prior=0.3)
    found = metric.score(batch["pred"], batch["target"], target_labels=batch["labels"])
    expected = metric.score(PREDS[:size], TARGET[:size], target_labels=labels)
    assert found.value.tolist() == expected.value.tolist()
    assert found.target.tolist() == [[bool(label) for label in row] for row in labels]


@pytest.mark.parametrize("ages", [[66, 3], [66.0, 3.0], ["66", "3"]])
def test_read_column_of_collated_ages_gives_the_rows(ages):
    batch = default_collate([{"age": age, "text": "Effusion."} for age in ages])
    metric = CRIMSON()
    context = metric._choose(batch["text"], batch["text"], {"age": batch["age"]})[-1]
    assert context == {"age": ["66", "3"]}


def test_read_column_keeps_rows_given_as_tensors():
    assert read_column("labels", [torch.tensor(row) for row in LABELS], 4) == LABELS
    assert read_column("labels", torch.tensor(LABELS), 4) == LABELS
    assert read_column("labels", torch.tensor(LABELS).numpy(), 4) == LABELS
    assert read_column("age", [torch.tensor(3), torch.tensor(4)], 2) == [3, 4]


def test_read_column_refuses_tensors_that_may_be_rows_or_columns():
    square = [torch.tensor(row) for row in LABELS[:3]]
    with pytest.raises(ValueError, match=r"target_labels is a list of 3 tensors of 3 values, .*torch.stack"):
        ReportCRG(WordLabeler()).score(PREDS[:3], TARGET[:3], target_labels=square)
    symmetric = [torch.tensor(row) for row in ([1, 0], [0, 1])]
    assert read_column("labels", symmetric, 2) == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (torch.tensor(3), TypeError, "age must be a column of 2 values, got int"),
        ("66", TypeError, "age must be a column of 2 values, got str"),
        (torch.tensor([1, 2, 3]), ValueError, "preds and age must have the same length, got 2 and 3"),
        ([torch.tensor([1, 2, 3])], ValueError, "preds and age must have the same length, got 2 and 1"),
    ],
)
def test_read_column_refuses_what_is_no_column(column, error, message):
    with pytest.raises(error, match=message):
        read_column("age", column, 2)


XRAY = ["The cardiac silhouette is enlarged. No pneumothorax."] * 12
CT = ["Both main bronchi are open. Nodule in the right lung. No lymph node is seen."] * 12


@pytest.mark.parametrize(
    ("metric", "reports", "remedy"),
    [
        (ReportCRG("rules:ct_rate"), XRAY, "radiograph reports.*of CTs; use labeler='rules:chexbert'"),
        (ReportCRG("rules:chexbert"), CT, "CT reports.*of radiographs; use labeler='rules:ct_rate'"),
        (CTFineBench(), XRAY, "ct_finebench: the references read like radiograph reports"),
    ],
)
def test_report_metric_references_of_the_other_modality_are_told_once(metric, reports, remedy: str) -> None:
    # Batches of a training are small.
    metric.update(reports[:6], reports[:6])
    with pytest.warns(ModalityWarning, match=remedy):
        metric.update(reports[6:], reports[6:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(reports, reports)


@pytest.mark.parametrize(
    ("metric", "reports"),
    [
        (ReportCRG("rules:ct_rate"), CT),
        (ReportCRG("rules:chexbert"), XRAY),
        (CTFineBench(), CT),
        (CRIMSON(), XRAY),
        (CRIMSON(), CT),
    ],
)
def test_report_metric_nothing_is_said_of_the_right_modality(metric, reports) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.update(reports, reports)


def test_report_metric_takes_the_modality_of_a_lexicon_file_from_what_it_extends(tmp_path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("extends: chest_xray\nconcepts: {a: [b]}\nlabels: {A: [a]}\n")
    assert RuleLabeler(path).modality == "xray"
    path.write_text("concepts: {a: [b]}\nlabels: {A: [a]}\n")
    assert RuleLabeler(path).modality is None


def test_metric_reward_warns_of_the_other_modality_too() -> None:
    reward = make_reward("crg", prior=0.3)
    with pytest.warns(ModalityWarning, match="use labeler='rules:chexbert'"):
        reward(completions=XRAY, reference=XRAY)
