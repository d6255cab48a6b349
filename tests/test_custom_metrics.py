"""The page of own metrics: its adapter of another package, installed with its entry point."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrg_rewards import make_metric, make_reward
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


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the module and the entry point of the page, beside a stand-in of RadMatch."""
    section = PAGE.read_text(encoding="utf-8").split("## Another package's metric")[1].split("\n## ")[0]
    code, points = re.findall(r"```(?:toml)?\n(.*?)```", section, re.DOTALL)
    (tmp_path / "radmatch_metric.py").write_text(code)
    package = tmp_path / "radmatch"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "constants.py").write_text('RESULTS_DIR, PER_REPORT_METRICS_DIR = "results", "reports"\n')
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points.replace('project.entry-points."', "").replace('"', ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._plugins.cache_clear()
    yield
    plugins._plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("radmatch", "radmatch_metric")]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_adapter_of_the_page_is_a_metric_and_a_reward_by_its_name() -> None:
    metric = make_metric("radmatch_errors", judge="local:m")
    scores = metric.score(["effusion nodule", "dropped"], ["effusion mass edema", "mass"])
    assert scores.value.nan_to_num(-1).tolist() == [3, -1]
    assert [scores.details[name][0].item() for name in ("matched", "invented", "missed")] == [1, 1, 2]
    reward = make_reward("radmatch_errors", judge="local:m")
    assert reward(["effusion nodule", "dropped"], reference=["effusion", "mass"]) == [-1.0, None]
