"""The page of a run joins the files of its folder."""

import json
import shutil
from pathlib import Path

import pytest

from rrg_rewards.attack import attack_reward
from rrg_rewards.cli.main import main
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.pages import render_page, run_page

# A run of the recipe smollm2/impression_grpo_crg.
REAL = Path(__file__).parents[2] / "benchmarks/results/smollm2_impression_grpo_crg"


def words_reward(completions, reference, **_):
    return [float(len(text.split())) for text in completions]


@pytest.fixture(scope="module")
def attack():
    references = {"reference": [f"Nodule of {size} mm in the right upper lobe." for size in range(20)]}
    return attack_reward(words_reward, references, families=["normal", "reports"], budget=2000)


@pytest.fixture
def folder(tmp_path, attack, watch_history):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("history.json", "evaluation.json"):
        shutil.copy(REAL / name, run)
    write_json(watch_history, run / "reward_watch.json")
    write_json(attack.to_dict(), run / "attack.json")
    write_json({"config": {"reference_column": "impression"}, "versions": {"trl": "1"}}, run / "run.json")
    for stage in ("before", "after"):
        rows = [{"impression": f"reference {row}", "report": f"{stage} <b> {row}"} for row in range(3)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (run / f"heldout_{stage}.jsonl").write_text(lines)
    return run


def test_run_page_joins_curves_evaluation_watch_and_attack(folder, attack):
    page = run_page(folder)
    assert list(page.sections) == [
        "Held-out evaluation", "Learning curves", "Reward watch", "Attack: baselines", "Attack: gains",
    ]  # fmt: skip
    change = json.loads((REAL / "evaluation.json").read_text())["change"]["crg"]["crg"]["estimate"]
    assert f"crg changed by {change:.4f}" in page.lead
    assert attack.verdict in page.lead
    assert "longer" in "".join(page.sections["Reward watch"])
    history = json.loads((REAL / "history.json").read_text())
    points = sum("rewards/crg/mean" in entry for entry in history)
    (plots,) = page.sections["Learning curves"]
    curve = next(part for part in plots.split("<figure>") if "reward crg, mean" in part)
    assert curve.split('points="')[1].split('"')[0].count(",") == points


def test_run_page_contains_reports_only_if_asked(folder):
    html = render_page(run_page(folder))
    assert "before" in html
    assert "<b>" not in html
    assert "reference 1" not in html
    assert "upper lobe" not in html
    rows = run_page(folder, with_text=True).rows
    assert [pane.title for pane in rows.panes] == ["Reference", "Before", "After"]
    assert rows.panes[0].texts == ["reference 0", "reference 1", "reference 2"]
    assert rows.panes[2].texts[2] == "after <b> 2"


def test_run_page_keeps_the_names_of_rewards_in_its_lead(folder):
    evaluation = {"change": {"MyReward": {"score": {"estimate": 0.5, "low": 0.4, "high": 0.6}}}}
    write_json(evaluation, folder / "evaluation.json", overwrite=True)
    (folder / "history.json").unlink()
    assert run_page(folder).lead.startswith("MyReward changed by 0.5000 (0.4000 to 0.6000); alarms")


def test_run_page_leaves_out_missing_files(folder, tmp_path):
    for name in ("attack.json", "reward_watch.json", "evaluation.json"):
        (folder / name).unlink()
    assert list(run_page(folder).sections) == ["Learning curves"]
    with pytest.raises(TableError, match="none of the files of a run"):
        run_page(tmp_path)


def test_run_page_is_written_again_by_the_command(folder, capsys):
    for options in ([], ["--with-text"]):
        assert main(["recipes", "page", str(folder), *options]) == 0
        assert ("after <b> 2" in (folder / "run.html").read_text().replace("\\u003c", "<")) == bool(options)
    assert main(["recipes", "page", str(folder / "no")]) == 1
    assert "none of the files of a run" in capsys.readouterr().err
    (folder / "attack.json").write_text("{")
    assert main(["recipes", "page", str(folder)]) == 1
    assert "attack.json: not a JSON document" in capsys.readouterr().err
