"""The page of own metrics: its adapters of other packages, installed with their entry points."""

import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrg_rewards import ReportCRG, make_metric, make_reward
from rrg_rewards.labelers import get_labeler
from rrg_rewards.utilities import plugins

PAGE = Path(__file__).resolve().parents[1] / "docs" / "custom_metrics.md"
# Writes what RadMatch writes: no file for a pair that it drops.
STAND_IN = """
import json
from . import constants

def run_all(reports_pred_dir, reports_gt_dir, output_dir, llm_extractor, llm_judge, fewshot):
    assert (llm_extractor, llm_judge, fewshot) == ("local:m", "local:m", None)
    results = output_dir / constants.RESULTS_DIR / constants.PER_REPORT_METRICS_DIR
    results.mkdir(parents=True)
    for path in reports_pred_dir.glob("*.txt"):
        ours, theirs = (set((folder / path.name).read_text().split()) for folder in (reports_pred_dir, reports_gt_dir))
        if ours != {"dropped"}:
            counts = {"COR": len(ours & theirs), "SPU": len(ours - theirs), "MIS": len(theirs - ours)}
            result = {"actionable_errors_total": counts["SPU"] + counts["MIS"], "muc_counts": counts}
            (results / f"{path.stem}.json").write_text(json.dumps(result))
"""


# What the module of the page calls of RadEval; an unreadable answer of GREEN has no score.
RADEVAL = """
import pandas

class RadCliQMetric:
    def compute(self, refs, hyps, per_sample):
        return {"radcliq_v1": [3.0 * (r != h) for r, h in zip(refs, hyps)]}

class GreenMetric:
    _scorer = type("Green", (), {})()
    def compute(self, refs, hyps, per_sample):
        rows = [[0] * 7 if h == "unreadable" else [len(h), 0, 1, 0, 0, 2, 3] for h in hyps]
        self._scorer.error_counts = pandas.DataFrame(rows, columns=[*"abcdef", "Matched Findings"])
        return {"green": [None if h == "unreadable" else 0.5 for h in hyps]}

def get_metric_class(name):
    return {"radcliq": RadCliQMetric, "green": GreenMetric}[name]

class F1CheXbert:
    CONDITION_NAMES = ["Cardiomegaly", "Edema"]
    NO_FINDING = "No Finding"
    def __init__(self, *, device="cuda"):
        pass
    def get_labels(self, reports, mode):
        assert mode == "rrg" and all(report.strip() for report in reports)
        rows = [[int(name.lower() in report) for name in ("Cardiomegaly", "Edema")] for report in reports]
        return [[*row, int(not any(row))] for row in rows]
"""
# What their modules call, as their code says: the reference comes first in chest2err, and second in CXRFEScore.
CHEST2ERR = """
import math

def chest2err_score(ref, cand):
    return math.exp(-len(set(ref.split()) - set(cand.split())) / 3)
"""
CXRFESCORE = """
import numpy

class CXRFEScore:
    def __init__(self, *, use_cache, num_workers):
        assert not use_cache
    def __call__(self, hyps, refs):
        found = numpy.array([len(set(h.split()) - set(r.split())) for h, r in zip(hyps, refs)], dtype=numpy.float32)
        return {"mean_similarity": found.mean(), "per_pair_similarity": found}
"""
RADMATCH_FILES = {
    "radmatch/__init__": STAND_IN,
    "radmatch/constants": 'RESULTS_DIR, PER_REPORT_METRICS_DIR = "results", "reports"\n',
}
RADEVAL_FILES = {
    **dict.fromkeys(("radeval/__init__", "radeval/metrics/__init__", "radeval/metrics/f1chexbert/__init__"), ""),
    "radeval/metrics/_registry": RADEVAL,
    "radeval/metrics/f1chexbert/f1chexbert": RADEVAL,
}


@pytest.fixture
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the module and the entry points of a section of the page, beside a stand-in of its package."""
    heading, module, files = request.param
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    code, points = re.findall(r"```(?:toml)?\n(.*?)```", section, re.DOTALL)[:2]
    info = tmp_path / "mine-1.0.dist-info"
    for name, text in {**files, module: code}.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points.replace('project.entry-points."', "").replace('"', ""))
    own = {module, *(name.partition("/")[0] for name in files)}
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._plugins.cache_clear()
    yield
    plugins._plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


def with_section(heading: str, module: str, files: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("installed", [(heading, module, files)], indirect=True)


@with_section("Another package's metric", "radmatch_metric", RADMATCH_FILES)
@pytest.mark.usefixtures("installed")
def test_adapter_of_the_page_is_a_metric_and_a_reward_by_its_name() -> None:
    metric = make_metric("radmatch_errors", judge="local:m")
    scores = metric.score(["effusion nodule", "dropped"], ["effusion mass edema", "mass"])
    assert scores.value.nan_to_num(-1).tolist() == [3, -1]
    assert [scores.details[name][0].item() for name in ("matched", "invented", "missed")] == [1, 1, 2]
    reward = make_reward("radmatch_errors", judge="local:m")
    assert reward(["effusion nodule", "dropped"], reference=["effusion", "mass"]) == [-1.0, None]


@with_section("RadEval", "radeval_metric", RADEVAL_FILES)
@pytest.mark.usefixtures("installed")
def test_radeval_of_the_page_has_metrics_error_counts_and_a_labeler() -> None:
    reward = make_reward("radeval", metric="radcliq", higher_is_better=False)
    assert reward(completions=["a", "b"], reference=["a", "a"]) == [0.0, -3.0]
    green = make_metric("radeval", metric="green")
    scores = green.score(["unreadable", "bb", None], ["a", "a", "a"])
    assert scores.value.nan_to_num(-1).tolist() == [-1, 0.5, -1]
    assert scores.details["false_finding"].nan_to_num(-1).tolist() == [-1, 2, -1]
    assert scores.details["matched_findings"][1].item() == 3
    labeler = pickle.loads(pickle.dumps(get_labeler("chexbert")))
    assert labeler(["cardiomegaly", " ", "normal"]).int().tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert ReportCRG("chexbert").labels == ("Cardiomegaly", "Edema")


@with_section("chest2err", "chest2err_metric", {"chest2err": CHEST2ERR})
@pytest.mark.usefixtures("installed")
def test_chest2err_of_the_page_counts_its_errors() -> None:
    scores = make_metric("chest2err").score(["effusion", "mass"], ["effusion nodule edema", "mass"])
    assert scores.value.tolist() == pytest.approx([math.exp(-2 / 3), 1])
    assert scores.details["errors"].tolist() == [2, 0]


@with_section("CXRFEScore", "cxrfescore_metric", {"cxrfescore": CXRFESCORE})
@pytest.mark.usefixtures("installed")
def test_cxrfescore_of_the_page_is_a_reward() -> None:
    reward = make_reward("cxrfescore")
    assert reward(["effusion nodule", "mass"], reference=["effusion", None]) == [1.0, None]
