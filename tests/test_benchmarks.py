"""Benchmarks without their data: phantom reports, or one line that says what is missing."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from tiny_backbone import PROMPT, save_tiny_backbone
from tiny_records import tiny_records, write_records
from training_runs import write_recipe

from rrg_rewards.judges import ReportPair
from rrg_rewards.judges.base import in_request_order
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.recipes import recipe_path
from rrg_rewards.recipes._catalog import header_of
from rrg_rewards.training.metrics import cli
from tests.distributed.helpers import run_script

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def data(tmp_path):
    """The functions of a copy of the benchmarks, beside which no data lie."""
    (tmp_path / "project").mkdir()
    shutil.copytree(BENCHMARKS, tmp_path / "project" / "benchmarks")
    return runpy.run_path(str(tmp_path / "project" / "benchmarks" / "benchmark_data.py"))


def test_phantom_reports_replace_reports_that_are_not_there(data, tmp_path, capsys):
    arguments = Namespace(reports=None, output=tmp_path / "figures.json")
    reports = data["read_reports"](arguments, "reports", "report")
    assert len(set(reports)) > 100
    assert arguments.output == Path(os.devnull)
    assert "reports.csv: no such file; --reports FILE names a CSV file of reports. Phantom" in capsys.readouterr().out
    (tmp_path / "own.csv").write_text("report\nClear lungs.\n")
    arguments = Namespace(reports=tmp_path / "own.csv", output=tmp_path / "figures.json")
    assert data["read_reports"](arguments, "reports", "report") == ["Clear lungs."]
    assert arguments.output == tmp_path / "figures.json"


@pytest.mark.parametrize("quick", [True, False])
def test_write_results_keeps_the_file_of_results_from_quick_figures(data, tmp_path, quick):
    results = tmp_path / "project" / "benchmarks" / "results" / "new.json"
    data["write_results"]({"ratio": 2.0}, Namespace(output=None, quick=quick), "new")
    assert results.is_file() is not quick
    data["write_results"]({"ratio": 3.0}, Namespace(output=tmp_path / "own.json", quick=quick), "new")
    assert json.loads((tmp_path / "own.json").read_text()) == {"ratio": 3.0}
    # That of phantom reports.
    data["write_results"]({"ratio": 4.0}, Namespace(output=Path(os.devnull), quick=quick), "new")
    assert Path(os.devnull).is_char_device()


def test_model_name_says_nothing_of_the_machine(data, tmp_path, monkeypatch):
    name = data["model_name"]
    assert name("gihuncho/crepe-biomedbert") == "gihuncho/crepe-biomedbert"
    cached = tmp_path / "models--gihuncho--crepe-biomedbert" / "snapshots" / "0a1b"
    assert name(cached) == "gihuncho/crepe-biomedbert"
    (tmp_path / "runs" / "crepe").mkdir(parents=True)
    (tmp_path / "SmolLM2-tokenizer").symlink_to(tmp_path / "runs")
    assert name(tmp_path / "SmolLM2-tokenizer") == "SmolLM2-tokenizer"
    monkeypatch.chdir(tmp_path)
    assert name("runs/crepe") == "crepe"
    monkeypatch.chdir(tmp_path / "runs" / "crepe")
    assert name(".") == "crepe"


def test_annotated_pairs_that_are_not_there_are_named(data, tmp_path):
    with pytest.raises(SystemExit, match=r"pairs\.json: no such file; it holds annotated pairs\. See --help"):
        data["need"](tmp_path / "pairs.json", "annotated pairs")


def test_judge_cost_counts_shared_and_cacheable_tokens(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = runpy.run_path(str(BENCHMARKS / "judge_cost.py"))
    items = [ReportPair(reference, f"{candidate}.") for candidate in "cde" for reference in ("aaaa", "bbbb")]
    task = CountingTask()
    prompt = found["Prompt"]("counts", "pair", task, items, 100)
    row = found["count"](prompt, lambda messages: "".join(message["content"] for message in messages), 1)
    prompts = ["".join(message["content"] for message in task.messages(item)) for item in items]
    instructions, to_candidate = (len(os.path.commonprefix(shared)) for shared in (prompts, prompts[::2]))  # noqa: RUF071  # of texts
    assert row["requests"] == 6
    assert row["shared_by_all"] == instructions
    assert row["shared_by_reference"] == to_candidate
    # Six requests: the first finds nothing, one finds the instructions, and four find the reference as well.
    assert row["cacheable_tokens"] == pytest.approx((instructions + 4 * to_candidate) / 6, abs=0.06)
    assert row["most_answer_tokens_per_1000"] == 100_000
    prices = Namespace(price_input=2.0, price_cached=0.5, price_output=10.0)
    cost = found["money"](row, prices)
    assert cost["cost_prompts"] == pytest.approx(2 * row["prompt_tokens"] / 1000, abs=1e-3)
    assert cost["cost_prompts_cached"] < cost["cost_prompts"]
    assert cost["cost_most_answers"] == 1.0
    assert found["money"](row, Namespace(price_input=None)) == {}


def test_judge_server_starts_vllm_as_the_documentation_says(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    options = runpy.run_path(str(BENCHMARKS / "judge_server.py"))["OPTIONS"].split()
    page = (BENCHMARKS.parent / "docs" / "judges.md").read_text(encoding="utf-8")
    (command,) = (line for line in page.splitlines() if line.startswith("python -m vllm.entrypoints"))
    assert set(options) <= set(command.split())


def test_judge_server_sends_pairs_in_both_orders_after_a_new_line(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    sent = runpy.run_path(str(BENCHMARKS / "judge_server.py"))["Sent"]
    pairs = [ReportPair("a", "c"), ReportPair("b", "c"), ReportPair("a", "d")]
    grouped, shuffled = (sent(CountingTask(), "Run 1.", is_grouped) for is_grouped in (True, False))
    assert in_request_order(grouped, pairs) == [pairs[0], pairs[2], pairs[1]]
    assert in_request_order(shuffled, pairs) == pairs
    first, own = (task.messages(pairs[0]) for task in (grouped, CountingTask()))
    assert first == [{**own[0], "content": f"Run 1.\n{own[0]['content']}"}, own[1]]


@pytest.mark.parametrize("recipe", ["er2score/smollm2_ablations", "er2score/llama3_8b_radcliq"])
def test_each_ablation_of_er2score_is_an_option_of_its_recipes(recipe, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    variants = runpy.run_path(str(BENCHMARKS / "er2score_ablations.py"))["VARIANTS"]
    header = " ".join(header_of(recipe_path("er2score/smollm2_ablations")))
    for options in variants.values():
        config = cli.parse("er2score", ["--config", str(recipe_path(recipe)), *options], instantiate=False).config
        for key, value in zip(options[::2], options[1::2], strict=True):
            assert str(config[key.removeprefix("--")]).lower() == value
            # The recipe tells its user the options of the paper's tables.
            assert value in header or key == "--seed_everything"


@pytest.mark.slow
def test_the_ablations_of_er2score_run_and_are_compared(tmp_path):
    save_tiny_backbone(tmp_path / "backbone")
    write_records(tmp_path / "errors.jsonl", tiny_records(40, per_reference=3))
    model = {"backbone": "elsewhere", "prompt": PROMPT, "max_length": 64}
    config = write_recipe(tmp_path, model, {"trainer__max_epochs": 1})
    variants = "lam_1.0,lam_3.0,individual_only,mrscore"
    paths = {"config": config, "backbone": tmp_path / "backbone", "reports": tmp_path / "errors.jsonl"}
    outputs = {"folder": tmp_path / "runs", "output": tmp_path / "found.json", "radpref": tmp_path / "absent.json"}
    options = [part for name, value in {**paths, **outputs}.items() for part in (f"--{name}", str(value))]
    command = [BENCHMARKS / "er2score_ablations.py", *options, "--resamples", "20", "--variants"]
    run_script(*command, variants)
    found = json.loads((tmp_path / "found.json").read_text())["variants"]
    assert list(found) == variants.split(",")
    for name, row in found.items():
        report = json.loads((tmp_path / "runs" / name / "report.json").read_text())
        assert row["held_out"]["kendall"] == pytest.approx(report["test"]["kendall"])
        for criterion, values in report["test"]["criteria"].items():
            kept = row["held_out"]["criteria"][criterion]
            assert kept["accuracy"] == values["accuracy"]
            assert kept["binary"] is None or kept["binary_interval"][0] <= kept["binary"] <= kept["binary_interval"][1]
    change = found["lam_3.0"]["minus_published"]["kendall"]
    gap = found["lam_3.0"]["held_out"]["kendall"] - found["lam_1.0"]["held_out"]["kendall"]
    assert change["value"] == pytest.approx(gap)
    assert change["low"] <= change["value"] <= change["high"]
    assert "minus_published" not in found["mrscore"]
    run_script(*command, "lam_1.0", "--reuse")
    assert json.loads((tmp_path / "found.json").read_text())["variants"] == {"lam_1.0": found["lam_1.0"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["ct_finebench.py", "--repeats", "1"], 0),
        (["compare.py"], 1),
        (["crimson_agreement.py"], 1),
        (["crimson_ct_agreement.py"], 1),
        (["crimson_cascade.py"], 1),
        (["crimson_training.py"], 1),
        (["recommended_reward.py"], 1),
        (["er2score_agreement.py"], 1),
        (["metric_agreement.py"], 1),
        (["crepe_agreement.py", "model", "--encoder", "encoder"], 1),
        (["crepe_ablations.py", "--encoder", "encoder"], 1),
        (["judge_cost.py"], 1),
    ],
)
def test_a_benchmark_without_data_ends_without_a_traceback(data, tmp_path, command, code):
    folder = tmp_path / "project" / "benchmarks"
    before = {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.is_file()}
    if code:
        with pytest.raises(AssertionError, match=f"ended with exit code {code}") as ended:
            run_script(folder / command[0], *command[1:])
        output = str(ended.value)
    else:
        output = run_script(folder / command[0], *command[1:])
    assert "Traceback" not in output
    assert "no such file" in output
    assert before == {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.is_file()}


@pytest.mark.slow
def test_long_runs_hold_files_threads_memory_and_caches(tmp_path):
    command = [sys.executable, BENCHMARKS / "long_runs.py", "--only", "server", "rules_crimson", "callback"]
    output = tmp_path / "found.json"
    done = subprocess.run([*command, "--scale", "0.001", "--output", output], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(output.read_text())["figures"]
    assert list(figures) == ["server", "rules_crimson", "callback"]
    for name, found in figures.items():
        start, end = found["start"], found["end"]
        assert start["units"] < end["units"] >= found["units"]
        assert (end["files"], end["threads"]) <= (start["files"], start["threads"]), name
        assert found["growth"]["rss_mib"] <= 0.05, name
    grown = [cache for found in figures.values() for cache in found.get("caches", ())]
    assert grown
    assert all(now <= (1000 if most is None else most) for _, _, now, most in grown)
