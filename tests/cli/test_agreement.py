"""``rrg-rewards agreement``."""

import csv
import io
import json
import math
import re
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from scipy import stats

from rrg_rewards.analysis import AgreementColumns
from rrg_rewards.data import ANNOTATED_SETS, read_annotated_set
from rrg_rewards.functional import agreement_interval, perm_both_test, williams_test
from rrg_rewards.metrics import ROUGE, ReportCRG, score_references
from tests.helpers.annotated_files import WRITERS, write_radevalx_tables

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
SCIPY = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}


@pytest.fixture
def rated(write_csv):
    return write_csv("rated.csv", HEADER, *ROWS)


def column(name, rows=RATED):
    return np.array([float(ROWS[row][HEADER.index(name)]) for row in rows])


def tensors(*names):
    return [torch.from_numpy(column(name)) for name in names]


def result_of(run, *arguments):
    done = run("agreement", *arguments, "--json", "-")
    assert done.code == 0, done.err
    return json.loads(done.out), done.err


def test_values_are_those_of_scipy_on_rows_with_all_scores(run, rated):
    found, messages = result_of(run, rated, *COLUMNS, *FEW)
    assert (found["rows"], found["missing"]) == (8, {"rouge": 0, "crepe": 1, "rating": 1, "errors": 0})
    assert "of 8 rows, those without a score or judgement are left out for all scores" in messages
    entry = found["groups"]["all"]["human"]["rating"]
    counts = {name: entry[name] for name in ("rows", "units", "without_judgement", "without_score")}
    assert counts == {"rows": 6, "units": 6, "without_judgement": 1, "without_score": 1}
    for statistic, function in SCIPY.items():
        values = {name: one["value"] for name, one in entry["agreement"][statistic].items()}
        assert values["rouge"] == pytest.approx(function(column("rouge"), column("rating")).statistic)
        assert values["crepe"] == pytest.approx(function(-column("crepe"), column("rating")).statistic)
    errors = found["groups"]["all"]["human"]["errors"]
    assert errors["rows"] == 7
    rows = [*RATED, 7]
    expected = stats.kendalltau(column("crepe", rows), column("errors", rows)).statistic
    assert errors["agreement"]["kendall"]["crepe"]["value"] == pytest.approx(expected)


def test_intervals_and_tests_are_those_of_the_functions(run, rated):
    found, _ = result_of(run, rated, *COLUMNS, *FEW, "--unit", "study", "--seed", "3")
    entry = found["groups"]["all"]["human"]["rating"]
    assert (found["unit"], entry["units"]) == ("study", 4)
    rouge, crepe, rating = tensors("rouge", "crepe", "rating")
    units = torch.tensor([0, 0, 1, 1, 2, 3])
    one = entry["agreement"]["kendall"]["rouge"]
    ends = agreement_interval(rouge, rating, "kendall", units, num_resamples=20, seed=3)
    assert (one["low"], one["high"]) == pytest.approx(ends)
    by_statistic = {difference["statistic"]: difference for difference in entry["differences"]}
    assert [*by_statistic] == ["kendall", "spearman", "pearson", "accuracy"]
    pearson = by_statistic["pearson"]
    assert (pearson["first"], pearson["second"]) == ("rouge", "crepe")
    test = perm_both_test(rouge, -crepe, rating, "pearson", units, num_permutations=19, seed=3)
    assert (pearson["value"], pearson["p_value"]) == pytest.approx((test.value, test.p_value))
    r = np.corrcoef([rating, rouge, -crepe])
    assert pearson["williams_p_value"] == pytest.approx(williams_test(r[0, 1], r[0, 2], r[1, 2], 6).p_value)
    assert by_statistic["kendall"]["williams_p_value"] is None
    # Within a study the scores order all reports as the ratings do.
    assert entry["agreement"]["accuracy"]["rouge"]["value"] == 1


def test_the_column_of_references_has_any_name(run, rated, write_csv):
    renamed = write_csv("renamed.csv", [name.replace("reference", "report") for name in HEADER], *ROWS)
    options = ["--metrics", "rouge", "--human", "rating", *FEW]
    found, _ = result_of(run, renamed, *options, "--reference-column", "report")
    expected, _ = result_of(run, rated, *options)
    assert {**found, "table": None} == {**expected, "table": None}


def test_several_references(run, write_csv):
    header = [*HEADER, "second"]
    rows = [(*row, "Cardiomegaly.") for row in ROWS]
    table = write_csv("second.csv", header, *rows)
    both = ["--reference-column", "reference", "--reference-column", "second"]
    found, _ = result_of(run, table, "--metrics", "rouge", "--human", "rating", *both, *FEW)
    texts = [[row[HEADER.index("reference")], "Cardiomegaly."] for row in ROWS]
    predictions = [row[HEADER.index("prediction")] for row in ROWS]
    values = score_references(ROUGE(), predictions, texts).value
    kept = [row for row in range(8) if ROWS[row][HEADER.index("rating")]]
    expected = stats.kendalltau(values[kept], column("rating", kept)).statistic
    entry = found["groups"]["all"]["human"]["rating"]["agreement"]["kendall"]["rouge"]
    assert entry["value"] == pytest.approx(expected)
    assert found["signatures"]["rouge"].endswith("|references:published")
    result = run("agreement", table, "--metrics", "crg", "--human", "rating", *both)
    assert "crg is defined for one reference; --best-reference takes" in " ".join(result.err.split())


def test_metrics_are_computed_and_turned(run, rated):
    found, _ = result_of(run, rated, "--metrics", "crg,rouge", "--human", "rating", *FEW)
    rows = [row for row in range(8) if ROWS[row][4]]
    texts = [[ROWS[row][place] for row in range(8)] for place in (2, 3)]
    values = ReportCRG().score(*texts).value[rows]
    expected = stats.kendalltau(values, column("rating", rows)).statistic
    entry = found["groups"]["all"]["human"]["rating"]
    assert entry["agreement"]["kendall"]["crg"]["value"] == pytest.approx(expected)
    assert found["signatures"].keys() == {"crg", "rouge"}
    assert [entry["first"] + entry["second"] for entry in entry["differences"]] == ["crgrouge"] * 4


def test_candidates_are_compared_by_differences(run, write_csv):
    header = ["preference", "prediction_1", "prediction_2", "reference", "rouge_1", "rouge_2"]
    rows = [
        ("2", "Cardiomegaly.", "Normal.", "Cardiomegaly.", "0.9", "0.1"),
        ("-1", "Normal.", "Cardiomegaly.", "Cardiomegaly.", "0.2", "0.2"),
        ("0", "Normal.", "Cardiomegaly.", "Cardiomegaly.", "0.9", "0.1"),
        ("1", "Normal.", "Cardiomegaly.", "Cardiomegaly.", "0.2", "0.4"),
    ]
    table = write_csv("choices.csv", header, *rows)
    options = ["--scores", "rouge", "--metrics", "crg", "--candidates", "_1,_2", *FEW]
    found, _ = result_of(run, table, "--human", "preference", *options)
    entry = found["groups"]["all"]["human"]["preference"]
    assert [*entry["agreement"]] == ["kendall", "spearman", "pearson", "preference"]
    accuracies = {name: one["value"] for name, one in entry["agreement"]["preference"].items()}
    # Right, a tie, and wrong; right, right and wrong.
    assert accuracies == {"rouge": 0.5, "crg": pytest.approx(2 / 3)}


def test_binary_accuracy_of_yes_no_items(run, write_csv):
    rows = [("0.2", "0"), ("0.9", "1"), ("0.7", "0"), ("1.3", "1"), ("-0.1", "1")]
    table = write_csv("items.csv", ["grammar", "radiologist"], *rows)
    options = ["--scores", "grammar", "--human", "radiologist"]
    found, _ = result_of(run, table, *options, "--statistics", "kendall,binary", *FEW)
    agreement = found["groups"]["all"]["human"]["radiologist"]["agreement"]
    assert agreement["binary"]["grammar"]["value"] == pytest.approx(3 / 5)
    assert (
        "binary" not in result_of(run, table, *options, *FEW)[0]["groups"]["all"]["human"]["radiologist"]["agreement"]
    )


def test_groups_are_computed_apart(run, rated):
    found, _ = result_of(run, rated, *COLUMNS, *FEW, "--group", "hospital")
    assert {name: entry["rows"] for name, entry in found["groups"].items()} == {"all": 8, "x": 4, "y": 4}
    kendall = found["groups"]["x"]["human"]["rating"]["agreement"]["kendall"]
    assert found["groups"]["x"]["human"]["rating"]["rows"] == 3
    expected = stats.kendalltau(column("rouge", [0, 1, 4]), column("rating", [0, 1, 4])).statistic
    assert kendall["rouge"]["value"] == pytest.approx(expected)


def test_correlations_between_columns(run, rated):
    found, _ = result_of(run, rated, *COLUMNS, *FEW, "--statistics", "accuracy,spearman")
    heat = found["groups"]["all"]["correlations"]
    assert (heat["statistic"], heat["rows"]) == ("spearman", 6)
    assert heat["names"] == ["rouge", "crepe", "rating", "errors"]
    matrix = np.array([column("rouge"), -column("crepe"), column("rating"), -column("errors")])
    assert np.array(heat["values"]) == pytest.approx(stats.spearmanr(matrix, axis=1).statistic)


def test_table_latex_and_plot(run, rated, tmp_path):
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("values.csv", "table.tex", "heat.png")]
    outputs = ["--output", files[0], "--latex", files[1], "--png", files[2]]
    done = run("agreement", rated, *COLUMNS, *FEW, *outputs)
    assert done.code == 0, done.err
    assert "rating: 6 rows" in done.out
    assert "kendall between columns: 6 rows" in done.out
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
    assert files[2].read_bytes().startswith(b"\x89PNG")


def test_without_resamples_there_are_values_only(run, rated):
    found, _ = result_of(run, rated, *COLUMNS, "--bootstrap", "0", "--permutations", "0")
    one = found["groups"]["all"]["human"]["rating"]["agreement"]["kendall"]["rouge"]
    assert one["value"] is not None
    assert {one[key] for key in ("low", "high", "p_value", "chance_low", "chance_high")} == {None}


def test_undefined_values_are_missing(run, write_csv):
    table = write_csv("flat.csv", ["score", "rating"], ("1", "2"), ("1", "3"), ("1", "4"))
    found, _ = result_of(run, table, "--scores", "score", "--human", "rating", *FEW)
    values = {s: one["score"]["value"] for s, one in found["groups"]["all"]["human"]["rating"]["agreement"].items()}
    assert values == {"kendall": None, "spearman": None, "pearson": None, "accuracy": 0.5}


def test_a_single_unit_has_no_interval_and_a_warning(run, write_csv):
    table = write_csv("one.csv", ["s", "h", "study"], ("1", "2", "a"), ("2", "3", "a"), ("3", "1", "a"))
    options = ["--scores", "s", "--human", "h", "--statistics", "kendall", "--permutations", "0"]
    result = run("agreement", table, *options, "--unit", "study", "--bootstrap", "20")
    warning = "1 of 1 comparisons have no intervals, because they have only one value of 'study' (--unit)"
    assert " ".join(result.err.split()).count(warning) == 1
    for others in (["--bootstrap", "20"], ["--unit", "study", "--bootstrap", "0"]):
        assert "no intervals" not in run("agreement", table, *options, *others).err


def test_a_group_without_a_usable_row_has_no_values(run, write_csv):
    table = write_csv("g.csv", ["s", "h", "g"], ("1", "2", "a"), ("2", "3", "a"), ("", "3", "b"))
    found, _ = result_of(run, table, "--scores", "s", "--human", "h", "--group", "g", *FEW)
    entry = found["groups"]["b"]["human"]["h"]
    assert (entry["rows"], entry["without_score"]) == (0, 1)
    assert entry["agreement"]["kendall"]["s"]["value"] is None


def test_a_group_has_not_the_name_of_all_rows(run, write_csv):
    rows = [("1", "2", "all"), ("2", "3", "b"), ("3", "1", "b")]
    done = run(
        "agreement", write_csv("groups.csv", ["crg", "rating", "site"], *rows), "--scores", "crg", "--human", "rating",
        "--group", "site",
    )  # fmt: skip
    assert done.code == 2
    assert "argument --group: the column 'site' has the value 'all'" in " ".join(done.err.split())


def test_a_metric_without_a_direction_is_refused(run, rated):
    options = ["--set", "functions:length_gap.higher_is_better=null", "--human", "rating"]
    done = run("agreement", rated, "--metrics", "functions:length_gap", *options)
    assert done.code == 2
    assert "does not say whether higher scores are better" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--human", "rating"], 2, "one of --scores and --metrics is needed"),
        (["--scores", "rogue", "--human", "rating"], 1, "unknown column 'rogue'; did you mean 'rouge'?"),
        (["--scores", "study", "--human", "rating"], 1, "data row 1 (line 2), column 'study': must be a finite number"),
        (["--scores", "rouge", "--human", "rouge"], 2, "rouge: named more than once"),
        (["--scores", "rouge", "--human", "rating", "--lower-is-better", "x"], 2, "'x' is not among --scores"),
        (["--scores", "rouge", "--human", "rating", "--baseline", "x"], 2, "argument --baseline: 'x'"),
        (["--scores", "rouge", "--human", "rating", "--statistics", "kendal"], 2, "did you mean 'kendall'?"),
        (["--scores", "rouge", "--human", "rating", "--candidates", "_1"], 2, "must be two different texts"),
        (["--scores", "rouge", "--human", "rating", "--png", "-"], 2, "argument --png: must be a file of its own"),
        (["--scores", "rouge", "--human", "errors", "--unit", "rating"], 1, "column 'rating': is empty"),
        ([*COLUMNS, "--statistics", "binary"], 2, "with 0.5 as they are; leave out --lower-is-better"),
        (["--metrics", "crg", "--human", "errors", "--statistics", "binary"], 2, "as they are; leave out --metrics"),
    ],
)
def test_wrong_input_is_named(run, rated, options, code, message):
    done = run("agreement", rated, *options)
    assert done.code == code
    assert message in " ".join(done.err.split())


def test_a_baseline_limits_the_comparisons(run, write_csv):
    rows = [(str(i), str(i * i), str(-i), str(i % 3)) for i in range(6)]
    table = write_csv("three.csv", ["a", "b", "c", "h"], *rows)
    found, _ = result_of(run, table, "--scores", "a,b,c", "--human", "h", "--baseline", "b", *FEW)
    differences = found["groups"]["all"]["human"]["h"]["differences"]
    assert {(entry["first"], entry["second"]) for entry in differences} == {("a", "b"), ("c", "b")}
    assert not any(math.isnan(entry["value"]) for entry in differences)


def test_batches_change_nothing(run, rated):
    whole, _ = result_of(run, rated, *COLUMNS, *FEW, "--unit", "study", "--group", "hospital")
    parts, _ = result_of(run, rated, *COLUMNS, *FEW, "--unit", "study", "--group", "hospital", "--batch-size", "3")
    assert whole == parts


def documented_commands():
    text = (ROOT / "docs" / "agreement.md").read_text(encoding="utf-8").partition("## Annotated data sets")[2]
    block = re.search(r"```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [shlex.split(line)[1:] for line in block[1].splitlines()]


@pytest.fixture
def annotated_files(tmp_path, monkeypatch):
    """Small files of the data sets in the working folder, under the names that the documentation has."""
    for name, (write, file) in WRITERS.items():
        assert write(tmp_path / file).exists(), name
    write_radevalx_tables(tmp_path)
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
        assert [*human] == [ANNOTATED_SETS[name].judgement]
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
        assert re.search(rf"\b{one.judgement}\b", rows[name]), name


def test_data_set_intervals_are_those_of_studies(run, annotated_files):
    found, _ = result_of(run, "gold_pairs.parquet", "--dataset", "chest2error", "--metrics", "rouge", *FEW)
    records = read_annotated_set("chest2error", "gold_pairs.parquet")
    scores = ROUGE().score([one.candidate for one in records], [one.reference for one in records]).value
    errors = -torch.tensor([one.judgement("significant") for one in records], dtype=torch.float64)
    units = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    entry = found["groups"]["all"]["human"]["significant"]["agreement"]["kendall"]["rouge"]
    ends = agreement_interval(scores, errors, "kendall", units, num_resamples=20, seed=0)
    assert (entry["low"], entry["high"]) == pytest.approx(ends)
    assert entry["value"] == pytest.approx(stats.kendalltau(scores, errors).statistic)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pairs.json", "--metrics", "rouge"], "argument --human: "),
        (["pairs.json", "--dataset", "radpref"], "one of --scores and --metrics is needed"),
        (["pairs.json", "--dataset", "radpref", "--metrics", "rouge", "--counts", "x"], "radpref has no second file"),
        (["pairs.json", "--metrics", "rouge", "--human", "x", "--counts", "x"], "--counts: needs --dataset radevalx"),
        (
            ["pairs.json", "--dataset", "radpref", "--metrics", "rouge", "--candidates", "_1,_2"],
            "--candidates: a row of a data set has one candidate",
        ),
        (["pairs.json", "--dataset", "radpref", "--metrics", "rouge", "--human", "ratings"], "did you mean 'rating'"),
        (["pairs.json", "--dataset", "refisco", "--metrics", "rouge"], "lacks impression_original, impression_edited"),
    ],
)
def test_data_set_errors_name_what_is_wrong(run, annotated_files, arguments, message):
    done = run("agreement", *arguments)
    assert done.code != 0
    assert message in done.err
