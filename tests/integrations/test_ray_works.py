"""Scores, labels and answers by workers of a Ray cluster: those of one process."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.analysis.judge_settings import CountingSettings, GradingSettings
from rrg_rewards.analysis.settings import LabelSettings, PairColumns
from rrg_rewards.cli.engines import Engine
from rrg_rewards.cli.main import main
from rrg_rewards.data.tables.table import Table
from rrg_rewards.integrations.ray_tables import ROW, Notes
from rrg_rewards.integrations.ray_works import (
    CountingWork,
    EvaluationWork,
    GradingWork,
    JudgeWork,
    LabelWork,
    ScoreWork,
)
from rrg_rewards.judges import CascadeJudge, RuleJudge
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.evaluations import read_evaluations
from rrg_rewards.metrics import CRIMSON, ROUGE, ReportCRG
from rrg_rewards.utilities.settings import SettingError

pytest.importorskip("pyarrow")

# Of the cluster: one worker, and the tasks that read and write.
NUM_CPUS = 4
SENTENCES = ["Cardiomegaly.", "Hiatal hernia.", "No nodule.", "Small left pleural effusion.", "Normal lungs.", ""]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Write 300 pairs in a file, and in the three files of the folder ``pairs``."""
    rng = random.Random(3)
    rows = [["".join(rng.choices(SENTENCES, k=2)) for _ in range(2)] for _ in range(300)]
    (tmp_path / "pairs").mkdir()
    for name, part in {
        "pairs.csv": rows,
        **{f"pairs/{k}.csv": rows[100 * k : 100 * (k + 1)] for k in range(3)},
    }.items():
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([["prediction", "reference"], *part])
    return tmp_path


def run(pairs: Path, command: list[str], place: str) -> dict[str, Any]:
    """Run a command in this process or on Ray, and return its summary."""
    table = "pairs" if place.endswith("/") else "pairs.csv"
    engine = ["--engine", "ray", "--workers", "1"] if place.endswith("/") else []
    options = ["--json", str(pairs / "summary.json"), "--overwrite", "--quiet", "--output", f"{pairs}/{place}"]
    name, *rest = command
    task = [rest.pop(0)] if name == "judge" else []
    assert main([name, *task, str(pairs / table), *rest, *engine, *options]) == 0
    summary: dict[str, Any] = json.loads((pairs / "summary.json").read_text())
    return summary


@pytest.mark.ray
def test_workers_give_the_results_of_one_process(ray: Any, pairs: Path) -> None:
    import pyarrow.parquet as parquet

    score = [
        "score",
        "--metrics",
        "crg,rouge,crimson",
        "--set",
        "crg.prior=0.2",
        "--bootstrap",
        "50",
        "--prefix",
        "new_",
    ]
    score += ["--constant-text", "none"]
    here, there = run(pairs, score, "scores.parquet"), run(pairs, score, "scores/")
    assert there["metrics"] == here["metrics"]
    found = parquet.read_table(pairs / "scores" / "rows").sort_by(ROW)
    expected = parquet.read_table(pairs / "scores.parquet")
    assert found.select(expected.column_names).to_pydict() == expected.to_pydict()

    label = ["label", "--text-column", "reference"]
    here, there = run(pairs, label, "labels.parquet"), run(pairs, label, "labels/")
    assert {**there, "table": ""} == {**here, "table": ""}
    found = parquet.read_table(pairs / "labels" / "rows").sort_by(ROW)
    assert found.drop_columns([ROW]).to_pydict() == parquet.read_table(pairs / "labels.parquet").to_pydict()

    judge = ["judge", "label"]
    there = run(pairs, [*judge, "--candidate-column", "prediction"], "evaluations/")
    assert (there["rows"], there["done"], there["failures"]) == (300, 300, {})
    found_lines = [
        line for path in (pairs / "evaluations" / "rows").iterdir() for line in path.read_text().splitlines()
    ]
    (pairs / "found.jsonl").write_text("".join(f"{line}\n" for line in found_lines))
    run(pairs, [*judge, "--candidate-column", "prediction"], "evaluations.jsonl")
    evaluations = {one.pair: one for one in read_evaluations(pairs / "evaluations.jsonl")}
    assert {one.pair: one for one in read_evaluations(pairs / "found.jsonl")} == evaluations


class _Half(RuleJudge):
    """Fails on references with a nodule."""

    def evaluate_now(self, task: Any, items: Any) -> list[Any]:
        results: list[Any] = super().evaluate_now(task, items)
        return [
            JudgeFailure("malformed", "no JSON") if "nodule" in item.reference else result
            for item, result in zip(items, results, strict=True)
        ]


def test_judge_work_leaves_out_rows_without_an_answer_and_writes_equal_pairs_once() -> None:
    references = ["No nodule.", "Edema.", None, "Edema."]
    table = Table({"reference": references, "candidate": ["Clear."] * 4})
    columns = EvaluationWork(judge=_Half()).started()(table)
    assert columns["done"] == [False, True, True, True]
    assert [len(lines) for lines in columns["lines"].to_pylist()] == [0, 1, 0, 0]
    assert json.loads(columns["lines"].to_pylist()[1][0])["reference"] == "Edema."
    assert columns["failures"] == ({"malformed": 1}, {"malformed": "no JSON"})


@pytest.mark.parametrize("work", [EvaluationWork, CountingWork, GradingWork])
def test_judge_work_says_how_many_rows_it_leaves_out(work: type[JudgeWork]) -> None:
    reports = ["Edema.", None, " ", "Edema."]
    table = {"reference": reports, "candidate": reports, "prediction": reports, "report": reports}
    log = Notes()
    work(judge=RuleJudge()).check([Table(table), Table(table)], "pairs.csv", log)  # type: ignore[call-arg]
    assert log.warnings == ["4 of 8 rows of pairs.csv lack a report, and are left out"]


def test_label_work_keeps_the_reasons_of_failures_and_missing_reports() -> None:
    work = LabelWork(settings=LabelSettings(text_column="report", prefix="x_"))
    columns = work.started()(Table({"report": ["Hiatal hernia.", None, " "]}))
    assert columns["x_Hiatal hernia"].to_pylist() == [1, None, None]


def test_works_refuse_what_a_worker_cannot_do_alone() -> None:
    with pytest.raises(SettingError, match=r"scores of crg depend on all pairs.*set crg\.prior"):
        ScoreWork(metrics={"crg": ReportCRG()})
    with pytest.raises(SettingError, match="references"):
        ScoreWork(metrics={"rouge": ROUGE()}, columns=PairColumns(references="truth.csv", key="id"))
    with pytest.raises(ValueError, match="the budget of the judge of crimson"):
        ScoreWork(metrics={"crimson": CRIMSON(CascadeJudge("openai:m", budget_pairs=5))})
    with pytest.raises(SettingError, match="its budget is counted in one process"):
        EvaluationWork(judge=CascadeJudge("openai:m", budget_pairs=5))
    with pytest.raises(SettingError, match="scans are chosen among all rows"):
        LabelWork(settings=LabelSettings(text_column="report", key="VolumeName", one_per_scan=True))


def test_works_name_their_settings() -> None:
    judge = RuleJudge()
    identities = [
        CountingWork(judge=judge).identity(),
        GradingWork(judge=judge).identity(),
        EvaluationWork(judge=judge).identity(),
        LabelWork(settings=LabelSettings(text_column="report")).identity(),
        ScoreWork(metrics={"rouge": ROUGE()}).identity(),
    ]
    assert [one["work"] for one in identities] == ["count", "grade", "judge label", "label", "score"]
    other = GradingWork(judge=judge, settings=GradingSettings(per_tier=3)).identity()
    assert other != identities[1]
    assert CountingWork(judge=judge, settings=CountingSettings(source="x")).identity() != identities[0]


def test_commands_on_ray_need_a_folder(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    engine = Engine(engine="ray")
    assert [engine.writes_folder(output, "csv") for output in ("out", "out/", str(pairs))] == [False, True, True]
    assert [engine.writes_folder(output) for output in ("out", "out.csv", "-", None)] == [True, False, False, False]
    table = str(pairs / "pairs.csv")
    for command in (["label", table, "--text-column", "reference"], ["judge", "label", table]):
        assert main([*command, "--engine", "ray", "--output", str(pairs / "out.jsonl")]) == 2
        assert "must be a folder with --engine ray" in capsys.readouterr().err
    count = ["count", table, "--judge", "openai:model", "--engine", "ray", "--output", f"{pairs}/out/", "--dry-run"]
    assert main(count) == 2
    assert "--dry-run: does not apply to a folder" in capsys.readouterr().err
    score = ["score", table, "--metrics", "rouge", "--engine", "ray", "--output", f"{pairs}/out/"]
    assert main([*score, "--html", str(pairs / "page.html")]) == 2
    assert "--html" in capsys.readouterr().err
