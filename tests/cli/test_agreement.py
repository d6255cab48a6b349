"""``rrg-rewards agreement``."""

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from scipy import stats

from rrg_rewards.analysis import AgreementColumns
from rrg_rewards.data import ANNOTATED_SETS, Table, read_annotated_set, read_graded_reports, write_table
from rrg_rewards.metrics import ROUGE
from rrg_rewards.schemas import get_scoring_system
from tests.helpers.annotated_files import WRITERS

ROOT = Path(__file__).resolve().parents[2]
DATASETS = get_args(get_args(get_type_hints(AgreementColumns)["dataset"])[0])
HEADER = ["study", "hospital", "prediction", "reference", "rating", "errors", "rouge", "crepe"]
ROWS = [
    ("a", "x", "Small effusion.", "Pleural effusion.", "3", "1", "0.7", "1.2"),
    ("a", "x", "Emphysema.", "Pleural effusion.", "1", "2", "0.4", "2.5"),
    ("b", "y", "Cardiomegaly.", "Cardiomegaly. Emphysema.", "4", "1", "0.6", "1.0"),
    ("b", "y", "Emphysema.", "Cardiomegaly. Emphysema.", "1", "3", "0.0", "3.1"),
    ("c", "x", "Atelectasis.", "Atelectasis.", "5", "0", "1.0", "0.2"),
    ("c", "y", "Normal.", "Atelectasis.", "1", "1", "0.1", ""),
    ("d", "y", "Atelectasis.", "Atelectasis. Hiatal hernia.", "4", "1", "0.5", "0.9"),
    ("d", "x", "Hiatal hernia.", "Atelectasis. Hiatal hernia.", "", "1", "0.4", "1.1"),
]
FEW = ["--bootstrap", "20", "--permutations", "19"]
COLUMNS = ["--scores", "rouge,crepe", "--human", "rating,errors", "--lower-is-better", "crepe,errors"]
# Rows with both scores and a rating.
RATED = [0, 1, 2, 3, 4, 6]


@pytest.fixture
def rated(write_csv):
    return write_csv("rated.csv", HEADER, *ROWS)


def column(name, rows=RATED):
    return np.array([float(ROWS[row][HEADER.index(name)]) for row in rows])


def result_of(run, *arguments):
    done = run("agreement", *arguments, "--json", "-")
    assert done.code == 0, done.err
    return json.loads(done.out), done.err


def test_table_and_latex(run, rated, tmp_path):
    files = [tmp_path / name for name in ("values.csv", "table.tex")]
    outputs = ["--output", files[0], "--latex", files[1]]
    done = run("agreement", rated, *COLUMNS, *FEW, *outputs)
    assert done.code == 0, done.err
    assert "rating: 6 rows" in done.out
    rows = list(csv.DictReader(io.StringIO(files[0].read_text())))
    # Four statistics of two human columns, with two scores and a difference each.
    assert len(rows) == 4 * 2 * 3
    assert (rows[0]["human"], rows[0]["statistic"], rows[0]["score"], rows[0]["minus"]) == (
        "rating",
        "kendall",
        "rouge",
        "",
    )
    assert float(rows[0]["value"]) == pytest.approx(stats.kendalltau(column("rouge"), column("rating")).statistic)
    assert sum(row["minus"] == "crepe" for row in rows) == 8
    latex = files[1].read_text()
    assert r"\multicolumn{4}{c}{rating (N = 6)} & \multicolumn{4}{c}{errors (N = 7)} \\" in latex
    lines = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in lines} == {8}


def test_a_group_without_a_usable_row_has_no_values(run, write_csv):
    table = write_csv("g.csv", ["s", "h", "g"], ("1", "2", "a"), ("2", "3", "a"), ("", "3", "b"))
    found, _ = result_of(run, table, "--scores", "s", "--human", "h", "--group", "g", *FEW)
    entry = found["groups"]["b"]["human"]["h"]
    assert (entry["rows"], entry["without_score"]) == (0, 1)
    assert entry["agreement"]["kendall"]["s"]["value"] is None


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--human", "rating"], 2, "one of --scores and --metrics is needed"),
        (["--scores", "rogue", "--human", "rating"], 1, "unknown column 'rogue'; did you mean 'rouge'?"),
        (["--scores", "study", "--human", "rating"], 1, "data row 1 (line 2), column 'study': must be a finite number"),
        (["--scores", "rouge", "--human", "rating", "--lower-is-better", "x"], 2, "'x' is not among --scores"),
        (["--scores", "rouge", "--human", "rating", "--latex", "-"], 2, "argument --latex: must be a file of its own"),
        (["--scores", "rouge", "--human", "errors", "--unit", "rating"], 1, "column 'rating': is empty"),
        ([*COLUMNS, "--statistics", "binary"], 2, "with 0.5 as they are; leave out --lower-is-better"),
    ],
)
def test_wrong_input_is_named(run, rated, options, code, message):
    done = run("agreement", rated, *options)
    assert done.code == code
    assert message in " ".join(done.err.split())


def documented_commands():
    text = (ROOT / "docs" / "comparing_systems.md").read_text(encoding="utf-8").partition("## Annotated data sets")[2]
    block = re.search(r"```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [shlex.split(line)[1:] for line in block[1].splitlines()]


@pytest.fixture
def annotated_files(tmp_path, monkeypatch):
    """Small files of the data sets in the working folder, under the names that the documentation has."""
    for name, (write, file) in WRITERS.items():
        assert write(tmp_path / file).exists(), name
    monkeypatch.chdir(tmp_path)


def test_documented_commands_name_every_data_set():
    found = {command[command.index("--dataset") + 1] for command in documented_commands()}
    assert found == set(ANNOTATED_SETS) == set(DATASETS)


@pytest.mark.filterwarnings("default::rrg_rewards.data.AnnotationWarning")
# The small files have words of no report.
@pytest.mark.filterwarnings("ignore::rrg_rewards.metrics.UnreadWarning")
@pytest.mark.parametrize("command", documented_commands(), ids=" ".join)
def test_documented_commands_of_data_sets_run(run, annotated_files, command):
    found, messages = result_of(run, *command[1:], *FEW)
    name = command[command.index("--dataset") + 1]
    assert (found["dataset"], found["unit"]) == (name, "study")
    human = found["groups"]["all"]["human"]
    if "--human" not in command:
        assert [*human] == [ANNOTATED_SETS[name]["judgement"]]
    assert set(found["lower_is_better"]) == {column for column in human if column != "rating"}
    for entry in human.values():
        # The candidates of the small files have more errors the fewer words they share with the reference.
        assert entry["agreement"]["kendall"]["rouge"]["value"] > 0.4
        assert entry["units"] == 4
    assert f"{name}: {found['rows']} report pairs of 4 studies; judgement:" in messages
    assert ("counts are empty; they are read as no error" in messages) == ("rad-eval-x-1.0.0" in command)


def test_help_names_the_default_judgement_of_each_data_set(run):
    listed = run("agreement", "--help").out.partition("judgement without --human")[2].partition("Other judgements")[0]
    rows = {line.split()[0]: line for line in listed.splitlines() if line.startswith("  ") and line[2] != " "}
    for name, one in ANNOTATED_SETS.items():
        assert re.search(rf"\b{one['judgement']}\b", rows[name]), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pairs.json", "--metrics", "rouge"], "argument --human: "),
        (["pairs.json", "--dataset", "radpref"], "one of --scores and --metrics is needed"),
        (["pairs.json", "--rankings", "--dataset", "radpref"], "argument --rankings: "),
        (["pairs.json", "--rankings"], "argument --rankings: needs --metrics"),
        (
            ["pairs.json", "--rankings", "--metrics", "rouge", "--workers", "2"],
            "argument --rankings: counts cases only, and",
        ),
        (["pairs.json", "--rankings", "--metrics", "rouge"], "pairs.json: case 1: is no ranked case: KeyError: 'exp"),
        (
            ["pairs.json", "--dataset", "radpref", "--metrics", "rouge", "--candidates", "_1,_2"],
            "--candidates: no column of the data set has both _1 and _2",
        ),
        (["pairs.json", "--dataset", "radpref", "--metrics", "rouge", "--human", "ratings"], "did you mean 'rating'"),
        (["pairs.json", "--dataset", "refisco", "--metrics", "rouge"], "lacks impression_original, impression_edited"),
    ],
)
def test_data_set_errors_name_what_is_wrong(run, annotated_files, arguments, message):
    done = run("agreement", *arguments)
    assert done.code != 0
    assert message in done.err


def test_two_candidates_of_a_study_are_compared(run, annotated_files):
    path = Path("pairs.json")
    cases = json.loads(path.read_text())
    for number, case in enumerate(cases):
        case["C1_report"] += " Emphysema." * number
        for judged in case["radiologists"]:
            judged["C1"]["rating"] = 1 + 3 * number % 5
    path.write_text(json.dumps(cases))
    found, _ = result_of(run, path, "--dataset", "radpref", "--metrics", "rouge", "--candidates", "C1,C2", *FEW)
    records = read_annotated_set("radpref", path)
    scores = ROUGE().score([one.candidate for one in records], [one.reference for one in records]).value.numpy()
    rated = np.array([one.judgement("rating") for one in records])
    entry = found["groups"]["all"]["human"]["rating"]
    expected = stats.kendalltau(scores[::2] - scores[1::2], rated[::2] - rated[1::2]).statistic
    assert entry["agreement"]["kendall"]["rouge"]["value"] == pytest.approx(expected)
    assert (entry["rows"], "preference" in entry["agreement"]) == (len(cases), True)


def test_copies_of_the_reference_are_left_out(run, annotated_files):
    path = Path("pairs.json")
    cases = json.loads(path.read_text())
    cases[0]["C2_report"] = f" {cases[0]['ground_truth_report']}\n"
    path.write_text(json.dumps(cases))
    found, told = result_of(run, path, "--dataset", "radpref", "--metrics", "rouge", *FEW, "--drop-identical")
    copies = sum(one.reference.split() == one.candidate.split() for one in read_annotated_set("radpref", path))
    assert found["rows"] == 2 * len(cases) - copies
    assert f"{copies} pairs with the same words in both reports are left out" in told
    wrong = run("agreement", "pairs.csv", "--scores", "rouge", "--human", "rating", "--drop-identical")
    assert "argument --drop-identical: needs --dataset" in wrong.err


RANKED = [
    ("Omission", {"C1": "Edema. Left effusion.", "C2": "Edema."}, "C1 > C2"),
    ("Omission", {"C1": "Clear.", "C2": "Edema.", "C3": "Left effusion and edema."}, ["C3 > C2", "C2 > C1"]),
    ("Wording", {"C1": "Left effusion. Edema.", "C2": "Edema and left effusion."}, "C1 = C2"),
]


def test_rankings_that_hold_are_counted_by_category(run, tmp_path):
    cases = [
        {
            "id": f"case{number}",
            "category": category,
            "ground_truth": "Edema. Left effusion.",
            "candidates": {name: {"text": text, "context": {"age": "82"}} for name, text in texts.items()},
            "expected_ranking": ranking,
        }
        for number, (category, texts, ranking) in enumerate(RANKED)
    ]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases))
    command = ("agreement", path, "--rankings", "--metrics", "crimson,rouge", "--json", tmp_path / "found.json")
    done = run(*command, "--output", tmp_path / "found.csv")
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "found.json").read_text())["metrics"]
    assert found["crimson"]["categories"] == {"Omission": [2, 2], "Wording": [1, 1]}
    assert (found["rouge"]["passed"], found["rouge"]["failed"]) == (2, ["case2"])
    assert "Omission,rouge,2,2" in (tmp_path / "found.csv").read_text()
    wide = run(*command, "--overwrite", "--equal", "0.9")
    assert "3 of 3" not in wide.out
    for ranking in ("C1 >> C2", "C1 > C9"):
        path.write_text(json.dumps([{**cases[0], "expected_ranking": ranking}]))
        assert "case 1, expected_ranking: must be as 'C1 > C2'" in run(*command, "--overwrite").err


def test_graded_reports_agree_with_a_second_grader(run, tmp_path):
    system = get_scoring_system("radcliq")
    first, second = [(0, 0, 1), (0, 1, 0), (0, 0, 0), (1, 0, 1)], [(1, 0, 0), (1, 1, 0), (0, 0, 0), (2, 0, 1)]
    grades = {"judge": first, "second": second}
    columns = {}
    for grader, scores in grades.items():
        path = tmp_path / f"{grader}.jsonl"
        lines = (
            {
                "reference": "Edema.",
                "candidate": f"Candidate {row}.",
                "scores": dict(zip(system.names, [*one, 0, 0, 0], strict=True)),
            }
            for row, one in enumerate(scores)
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for place, name in enumerate(system.names):
            columns[f"{name}_{grader}"] = [report.scores[place] for report in read_graded_reports(path, system)]
    write_table(Table(columns), tmp_path / "graders.csv")
    compared = ("false_finding", 0.5), ("omitted_finding", 1), ("wrong_location", 0.75)
    for name, expected in compared:
        options = ["--scores", f"{name}_judge", "--human", f"{name}_second", "--statistics", "binary", *FEW]
        found, _ = result_of(run, tmp_path / "graders.csv", *options)
        agreement = found["groups"]["all"]["human"][f"{name}_second"]["agreement"]
        assert agreement["binary"][f"{name}_judge"]["value"] == expected
