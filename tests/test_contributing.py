"""The short path of CONTRIBUTING.md: a function in a file of one's own is a metric, a reward and a column of scores."""

import re
from pathlib import Path

import pytest

from rrg_rewards import make_metric, make_reward, read_table
from rrg_rewards.cli.main import main

CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the file of the short path, from which Python imports it."""
    (tmp_path / "my_metrics.py").write_text(re.search(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_short_path_makes_a_metric_and_a_reward(folder):
    metric = make_metric("my_metrics:overlap", higher_is_better=True)
    metric.update(["Small effusion."], ["Small left effusion."])
    reward = make_reward("my_metrics:overlap", higher_is_better=True)
    assert metric.compute() == reward(completions=["Small effusion."], reference=["Small left effusion."])[0] == 2 / 3


def test_short_path_makes_a_column_of_scores(folder):
    Path("pairs.csv").write_text("prediction,reference\nSmall effusion.,Small left effusion.\n")
    command = next(line for line in CONTRIBUTING.read_text().splitlines() if line.startswith("rrg-rewards score"))
    assert main([*command.split()[1:], "--output", "scores.csv", "--quiet"]) == 0
    assert float(read_table("scores.csv").column("overlap")[0]) == 2 / 3
