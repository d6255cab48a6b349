"""RadEval's metrics: a package with RadEval's interface, and RadEval itself where it is installed."""

import importlib
import pickle
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from rrg_rewards.integrations.radeval import CheXbertLabeler, RadEvalMetric, _is_higher_better
from rrg_rewards.metrics import ReportCRG, make_metric
from rrg_rewards.rewards import MetricReward, make_reward
from rrg_rewards.schemas.errors import ERROR_CATEGORIES

REGISTRY = """
METRIC_REGISTRY = {name: ("radeval.metrics.all", cls) for name, cls in {
    "radgraph": "RadGraphMetric", "radcliq": "RadCliQMetric", "green": "GreenMetric", "mammo_green": "MammoGreenMetric",
    "newer": "RadCliQMetric"}.items()}

def get_metric_class(name):
    if name not in METRIC_REGISTRY:
        raise ValueError(f"Unknown metric '{name}'. Available: {sorted(METRIC_REGISTRY)}")
    module, cls = METRIC_REGISTRY[name]
    from importlib import import_module
    return getattr(import_module(module), cls)
"""
METRICS = """
loaded = []

class MetricBase:
    is_api_based = False
    def compute(self, refs, hyps, per_sample=False, detailed=False, on_progress=None):
        assert per_sample and isinstance(refs, list) and isinstance(hyps, list) and refs
        loaded.append(self.name)
        return self.scores(refs, hyps)

class RadGraphMetric(MetricBase):
    name = "radgraph"
    def scores(self, refs, hyps):
        return {"radgraph_simple": [1.0] * len(refs), "radgraph_partial": [float(r == h) for r, h in zip(refs, hyps)]}

class RadCliQMetric(MetricBase):
    name = "radcliq"
    def __init__(self, scale=1.0):
        loaded.append("model")
        self.scale = scale
    def scores(self, refs, hyps):
        return {"radcliq_v1": [self.scale * (r != h) for r, h in zip(refs, hyps)]}

class Green:
    sub_categories = [
        "(a) False report of a finding in the candidate", "(b) Missing a finding present in the reference",
        "(c) Misidentification of a finding's anatomic location/position",
        "(d) Misassessment of the severity of a finding",
        "(e) Mentioning a comparison that isn't in the reference",
        "(f) Omitting a comparison detailing a change from a prior study"]
    def __call__(self, refs, hyps):
        import pandas
        rows = [[0] * 7 if h == "unreadable" else [len(h), 0, 1, 0, 0, 2, 3] for h in hyps]
        self.error_counts = pandas.DataFrame(rows, columns=[*self.sub_categories, "Matched Findings"])
        return [None if h == "unreadable" else 0.5 for h in hyps]

class GreenMetric(MetricBase):
    name = "green"
    def __init__(self):
        self._scorer = Green()
    def scores(self, refs, hyps):
        return {"green": self._scorer(refs, hyps)}

class MammoGreenMetric(MetricBase):
    name = "mammo_green"
    is_api_based = True
    def __init__(self, model_name="gpt-4o-mini", openai_api_key=None):
        self.model_name = model_name
    def scores(self, refs, hyps):
        return {"mammo_green": [1.0] * len(refs)}
"""
CHEXBERT = """
class F1CheXbert:
    CONDITION_NAMES = ["Cardiomegaly", "Edema"]
    NO_FINDING = "No Finding"
    def __init__(self, *, refs_filename=None, hyps_filename=None, device="cuda", batch_size=64):
        assert device == "cpu"
    def get_labels(self, reports, mode="rrg", on_batch_done=None):
        assert mode == "rrg" and all(report.strip() for report in reports)
        rows = [[int(name.lower() in report) for name in ("Cardiomegaly", "Edema")] for report in reports]
        return [[*row, int(not any(row))] for row in rows]
"""


@pytest.fixture
def radeval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a package with RadEval's interface on the import path."""
    before = {name for name in sys.modules if name.partition(".")[0] == "radeval"}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    files = {
        "__init__": "",
        "metrics/__init__": "",
        "metrics/_registry": REGISTRY,
        "metrics/all": METRICS,
        "metrics/f1chexbert/__init__": "",
        "metrics/f1chexbert/f1chexbert": CHEXBERT,
    }
    for name, text in files.items():
        path = tmp_path / "radeval" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "radeval"]:
        del sys.modules[name]


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_has_scores_parts_and_a_sign() -> None:
    metric = RadEvalMetric("radgraph", value="radgraph_partial", parts=["radgraph_simple"])
    metric.update(["a", "b", None], ["a", "c", "d"])
    assert (float(metric.compute()), float(metric.statistics()["radgraph_simple"])) == (0.5, 1.0)
    assert int(metric.num_unscorable) == 1
    with pytest.raises(ValueError, match="set value to one of radgraph_simple, radgraph_partial"):
        RadEvalMetric("radgraph").score(["a"], ["a"])
    reward = MetricReward(RadEvalMetric("radcliq", settings={"scale": 3.0}))
    assert reward(completions=["a", "b"], reference=["a", "a"]) == [0.0, -3.0]


COUNTS = (*ERROR_CATEGORIES, "matched_findings")


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_has_the_error_counts_of_green() -> None:
    metric = RadEvalMetric("green")
    scores = metric.score(["unreadable", "bb", None], ["a", "a", "a"])
    assert scores.value.nan_to_num(-1).tolist() == [-1, 0.5, -1]
    found = {name: one.nan_to_num(-1).tolist() for name, one in scores.details.items()}
    assert list(found) == list(COUNTS)
    assert found["false_finding"] == [-1, 2, -1]
    assert (found["wrong_location"], found["omitted_comparison"], found["matched_findings"][1]) == (
        [-1, 1, -1],
        [-1, 2, -1],
        3,
    )
    metric.update(["b", "bbb"], ["a", "a"])
    assert float(metric.statistics()["false_finding"]) == 2
    # A batch without scorable pairs, and a metric without the counts.
    assert metric.score([None], ["a"]).details["false_finding"].isnan().all()
    assert not RadEvalMetric("green", parts=()).score(["b"], ["a"]).details
    assert list(RadEvalMetric("green", parts=["wrong_severity"]).score(["b"], ["a"]).details) == ["wrong_severity"]


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_says_if_green_has_no_error_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    green = importlib.import_module("radeval.metrics.all").Green
    monkeypatch.setattr(green, "__call__", lambda self, refs, hyps: [0.5] * len(hyps))
    with pytest.raises(ValueError, match="returned no score 'false_finding', only green"):
        RadEvalMetric("green").score(["b"], ["a"])
    assert RadEvalMetric("green", parts=()).score(["b"], ["a"]).value.tolist() == [0.5]


GREEN_ANSWER = """[Explanation]:
Two findings are invented, one is on the other side.

[Clinically Significant Errors]:
(a) False report of a finding in the candidate: 2. Cardiomegaly; Edema.
(c) Misidentification of a finding's anatomic location/position: 1. Effusion.

[Clinically Insignificant Errors]:
(b) Missing a finding present in the reference: 3. Spur; clip; line.

[Matched Findings]:
1. Effusion.
"""


@pytest.mark.skipif(find_spec("radeval") is None, reason="RadEval is not installed (extra radeval)")
def test_radeval_metric_reads_the_table_of_radevals_own_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """RadEval's code from an answer of the model on; no weights are loaded."""
    green = importlib.import_module("radeval.metrics.green_score.green").GREEN
    adapter = importlib.import_module("radeval.metrics.green_score.adapter").GreenMetric

    def answer(self, refs, hyps, on_sample_done=None):
        self.dataset, self.completions = {"reference": refs, "prediction": hyps}, [GREEN_ANSWER] * len(refs)
        return self.process_results()

    monkeypatch.setattr(green, "__call__", answer)
    monkeypatch.setattr(adapter, "__init__", lambda self: setattr(self, "_scorer", green(cpu=True)))
    scores = RadEvalMetric("green").score(["Edema.", "Clear."], ["Normal.", "Normal."])
    assert scores.value.tolist() == [0.25, 0.25]
    assert [scores.details[name][0].item() for name in COUNTS] == [2, 0, 1, 0, 0, 0, 1]


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_loads_a_model_once_and_never_pickles_it() -> None:
    metric = RadEvalMetric("radcliq", settings={"scale": 2.0})
    loaded = importlib.import_module("radeval.metrics.all").loaded
    assert loaded == []
    for copy in (metric, metric.clone()):
        copy.score(["a"], ["b"])
    assert loaded == ["model", "radcliq", "radcliq"]
    assert len(pickle.dumps(metric)) < 10_000
    assert pickle.loads(pickle.dumps(metric)).score(["a"], ["b"]).value.tolist() == [2.0]


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_has_a_signature_and_errors() -> None:
    metric = RadEvalMetric("mammo_green", settings={"model_name": "my-model", "openai_api_key": "secret"})
    assert metric.signature.startswith("radeval_mammo_green|function:radeval.metrics.all:MammoGreenMetric|")
    assert "model_name:'my-model'" in metric.signature
    assert "secret" not in metric.signature + repr(metric)
    with pytest.raises(ValueError, match="RadEval's mammo_green sends reports to a service; name its model"):
        RadEvalMetric("mammo_green")
    with pytest.raises(ValueError, match="unknown metric of RadEval 'radgraf'; did you mean 'radgraph'"):
        RadEvalMetric("radgraf")
    with pytest.raises(ValueError, match="set higher_is_better for RadEval's newer"):
        RadEvalMetric("newer")
    assert RadEvalMetric("newer", higher_is_better=False).higher_is_better is False


@pytest.mark.usefixtures("radeval")
def test_radeval_metric_has_names_in_command_lines() -> None:
    path = "rrg_rewards.integrations.radeval:RadEvalMetric"
    assert make_metric(path, metric="radcliq").name == "radeval_radcliq"
    assert make_reward(path, metric="radcliq")(completions=["a"], reference=["b"]) == [-1.0]


@pytest.mark.usefixtures("radeval")
def test_chexbert_labeler_labels_reports() -> None:
    labeler = CheXbertLabeler(device="cpu")
    assert labeler.labels == ("Cardiomegaly", "Edema", "No Finding")
    assert labeler(["cardiomegaly", " ", "normal"]).int().tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert labeler([]).shape == (0, 3)
    assert pickle.loads(pickle.dumps(labeler))(["edema"]).tolist() == [[False, True, False]]
    assert ReportCRG(labeler).labels == ("Cardiomegaly", "Edema")
    assert "function:radeval.metrics.f1chexbert.f1chexbert:F1CheXbert" in labeler.signature


def test_radeval_metric_names_the_extra_if_radeval_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("radeval", "radeval.metrics", "radeval.metrics._registry"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "radeval", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[radeval\]"):
        RadEvalMetric("bleu")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("radeval") is None, reason="RadEval is not installed (extra radeval)")
def test_radeval_metric_has_the_scores_of_radeval_itself() -> None:
    predictions = ["Small left pleural effusion .", "The heart is normal in size ."]
    references = ["Small right pleural effusion .", "The heart is enlarged ."]
    registry = importlib.import_module("radeval.metrics._registry")
    for name, value in (("bleu", "bleu"), ("rouge", "rougeL")):
        expected = registry.get_metric_class(name)().compute(refs=references, hyps=predictions, per_sample=True)[value]
        metric = RadEvalMetric(name, value=value)
        assert metric.score(predictions, references).value.tolist() == pytest.approx(expected, abs=0)
        assert f"package:radeval=={version('radeval')}" in metric.signature
    # Every metric of the release has a sign.
    signs = {name: _is_higher_better(name) for name in registry.METRIC_REGISTRY}
    assert [name for name, higher in signs.items() if not higher] == ["radcliq"]
