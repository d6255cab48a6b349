"""``rrg-rewards score``."""

import csv
import json
import sys
from types import ModuleType

import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_score, recall_score

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.metrics import registry
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.registry import make_metric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.schemas import CT_RATE

PAIRS = [
    ("Cardiomegaly. Emphysema.", "Cardiomegaly. Hiatal hernia."),
    ("No emphysema.", "Normal chest CT."),
    ("Atelectasis. Lung nodule.", "Normal chest CT."),
    ("Normal.", "Pleural effusion. Atelectasis."),
    ("Pleural effusion, atelectasis.", "Pleural effusion. Atelectasis. Cardiomegaly."),
]


class LengthRatio(ReportMetric):
    """Words predicted per reference word, scaled: a metric without labels."""

    context = ("age",)

    def __init__(self, scale: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale

    signature = "length"

    def _score(self, preds, target, **context):
        ages = torch.tensor([float(age) for age in context.get("age", [1.0] * len(preds))])
        ratios = [self.scale * len(p.split()) / len(t.split()) for p, t in zip(preds, target, strict=True)]
        return Scores(torch.tensor(ratios) * ages)

    def _accumulate(self, scores):
        raise AssertionError("the command needs no state")

    def compute(self):
        raise AssertionError("the command needs no state")


@pytest.fixture
def length(monkeypatch):
    """Register a second metric with other options and columns."""
    module = ModuleType("length_ratio")
    module.LengthRatio = LengthRatio
    monkeypatch.setitem(sys.modules, "length_ratio", module)
    monkeypatch.setitem(registry._METRICS, "length", "length_ratio:LengthRatio")


@pytest.fixture
def pairs(write_csv):
    return write_csv("pairs.csv", ["prediction", "reference", "age"], *([*pair, 50] for pair in PAIRS))


def matrices(words):
    labeler = words("ct_rate")
    return labeler([pred for pred, _ in PAIRS]), labeler([target for _, target in PAIRS])


def test_corpus_values_agree_with_scikit_learn_and_with_the_metric(words, run, pairs, tmp_path):
    result = run("score", pairs, "--metrics", "crg", "--json", tmp_path / "s.json")
    assert result.code == 0, result.err
    summary = json.loads((tmp_path / "s.json").read_text())
    entry = summary["metrics"]["crg"]
    preds, target = (matrix.flatten().numpy() for matrix in matrices(words))
    tn, fp, fn, tp = confusion_matrix(target, preds).ravel().tolist()
    assert entry["counts"] == {"tp": tp, "fn": fn, "fp": fp, "tn": tn}
    youden = tp / (tp + fn) - fp / (fp + tn)
    by_label = [matrix.numpy() for matrix in reversed(matrices(words))]
    assert entry["value"] == pytest.approx(1 / (3 - 2 * youden))
    assert entry["statistics"] == pytest.approx(
        {
            "precision": precision_score(target, preds),
            "recall": recall_score(target, preds),
            "f1": f1_score(target, preds),
            "accuracy": accuracy_score(target, preds),
            "youden_j": youden,
            "macro_precision": precision_score(*by_label, average="macro", zero_division=0),
            "macro_recall": recall_score(*by_label, average="macro", zero_division=0),
            "macro_f1": f1_score(*by_label, average="macro", zero_division=0),
            "macro_accuracy": accuracy_score(target, preds),
        }
    )
    metric = make_metric("crg")
    metric.update(*zip(*PAIRS, strict=True))
    assert entry["value"] == float(metric.compute())
    assert entry["signature"] == metric.signature
    low, high = entry["interval"]
    assert low <= entry["value"] <= high
    assert (summary["rows"], entry["scored"], entry["unscorable"]) == (5, 5, 0)


def test_statistics_of_macro_crg_are_those_of_its_average(run, pairs, tmp_path):
    options = ("--set", "crg.average=macro", "--set", "crg.min_prevalence=0.3")
    result = run("score", pairs, "--metrics", "crg", *options, "--json", tmp_path / "s.json")
    assert result.code == 0, result.err
    entry = json.loads((tmp_path / "s.json").read_text())["metrics"]["crg"]
    assert entry["value"] == pytest.approx(1 / (3 - 2 * entry["statistics"]["youden_j"]))
    metric = make_metric("crg", average="macro", min_prevalence=0.3)
    metric.update(*zip(*PAIRS, strict=True))
    statistics = metric.statistics()
    assert entry["statistics"] == pytest.approx({name: float(statistics[name]) for name in entry["statistics"]})
    assert [row["weight"] for row in entry["labels"]] == pytest.approx(metric.label_statistics()["weight"].tolist())


def test_per_report_columns_explain_the_score(words, run, pairs, tmp_path):
    assert run("score", pairs, "--metrics", "crg", "--output", tmp_path / "scores.csv").code == 0
    table = read_table(tmp_path / "scores.csv")
    assert table.names[:4] == ("prediction", "reference", "age", "crg")
    assert table.columns["crg_missed"] == [
        "Hiatal hernia",
        None,
        None,
        "Atelectasis, Pleural effusion",
        "Cardiomegaly",
    ]
    assert table.columns["crg_invented"] == ["Emphysema", None, "Atelectasis, Lung nodule", None, None]
    assert table.columns["crg_precision"] == ["0.5", None, "0.0", None, "1.0"]
    metric = make_metric("crg")
    assert [float(cell) for cell in table.columns["crg"]] == metric.score(*zip(*PAIRS, strict=True)).value.tolist()


def test_batches_do_not_change_scores(words, run, pairs):
    arguments = ("score", pairs, "--metrics", "crg", "--output", "-", "--quiet")
    outputs = {run(*arguments, "--batch-size", size).out for size in (1, 2, 100)}
    assert len(outputs) == 1
    assert max(words.calls[:10]) == 1


def test_a_seed_fixes_the_interval(words, run, pairs):
    def interval(*options):
        out = run("score", pairs, "--metrics", "crg", "--json", "-", "--quiet", *options).out
        return json.loads(out)["metrics"]["crg"]["interval"]

    assert interval() == interval("--seed", 0) != interval("--seed", 1)
    assert interval("--bootstrap", 0) == [None, None]
    assert "- to -" not in run("score", pairs, "--metrics", "bleu", "--bootstrap", 0).out


def test_unscorable_pairs_are_empty_counted_and_left_out(words, run, write_csv, tmp_path):
    rows = [*PAIRS, ("", "Emphysema."), ("Emphysema.", ""), ("Emphysema.", "  ")]
    path = write_csv("pairs.csv", ["prediction", "reference"], *rows)
    files = ("--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", path, "--metrics", "crg", *files)
    assert "1 of 8 predictions (prediction) are missing and left out of the corpus value" in result.err
    assert "counts as an empty report" not in result.err
    table = read_table(tmp_path / "o.csv")
    new = [name for name in table.names if name.startswith("crg")]
    assert all(table.columns[name][5:] == [None] * 3 for name in new)
    entry = json.loads((tmp_path / "s.json").read_text())["metrics"]["crg"]
    assert (entry["scored"], entry["unscorable"]) == (5, 3)
    metric = make_metric("crg")
    metric.update(*zip(*PAIRS, strict=True))
    assert entry["value"] == float(metric.compute())


def test_a_missing_prediction_may_count_as_a_report_that_says_nothing(words, run, write_csv):
    path = write_csv("pairs.csv", ["prediction", "reference"], ["", "Emphysema."], ["Normal.", "Normal."])
    arguments = ("score", path, "--metrics", "crg", "--json", "-", "--quiet", "--missing-prediction", "score")
    entry = json.loads(run(*arguments).out)["metrics"]["crg"]
    assert entry["scored"] == 2
    assert entry["counts"] == {"tp": 0, "fn": 1, "fp": 0, "tn": 35}


@pytest.mark.parametrize(
    ("number", "warning"),
    [(1, "1 prediction is blank and counts as an empty report"), (2, "2 predictions are blank and count as empty")],
)
def test_blank_predictions_are_counted(words, run, write_csv, number, warning):
    path = write_csv("pairs.csv", ["prediction", "reference"], *[[" ", "Emphysema."]] * number, ["Normal.", "Normal."])
    result = run("score", path, "--metrics", "crg", "--batch-size", "1")
    assert result.code == 0
    assert result.err.count(warning) == 1


def test_empty_text_in_jsonl_is_a_prediction(words, run, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"prediction": "", "reference": "Emphysema."}\n')
    result = run("score", tmp_path / "pairs.jsonl", "--metrics", "crg", "--json", "-", "--quiet")
    assert json.loads(result.out)["metrics"]["crg"]["scored"] == 1


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "pairs.csv has no rows"),
        ([("", "Emphysema.")], "1 prediction in column 'prediction' is missing or blank"),
        ([("Normal.", ""), ("Normal.", " ")], "2 references in column 'reference' are missing or blank"),
        ([("Normal.", "Normal.")], None),
    ],
)
def test_what_is_undefined_is_null(words, run, write_csv, rows, reason, tmp_path):
    path = write_csv("pairs.csv", ["prediction", "reference"], *rows)
    result = run("score", path, "--metrics", "crg", "--json", tmp_path / "s.json", "--output", "-")
    assert result.code == (reason is not None), result.err
    assert reason is None or ("no report pair has a score: " in result.err and f"{reason}\n" in result.err)
    assert ("crg by label" in result.err) == (reason is None)
    entry = json.loads((tmp_path / "s.json").read_text())["metrics"]["crg"]
    assert (entry["value"], entry["interval"]) == (None, [None, None])
    assert len(list(csv.DictReader(result.out.splitlines()))) == len(rows)


@pytest.mark.parametrize("prefix", ["", "GT_"])
def test_reference_labels_take_the_place_of_the_reference_text(words, run, write_csv, tmp_path, prefix):
    header = ["prediction", *(prefix + label for label in CT_RATE.labels)]
    rows = [[pred, *row] for (pred, _), row in zip(PAIRS, matrices(words)[1].int().tolist(), strict=True)]
    path = write_csv("labelled.csv", header, *rows, ["Normal.", *[""] * 18])
    option = ["--reference-label-prefix", prefix] if prefix else ["--reference-labels"]
    summary = json.loads(run("score", path, "--metrics", "crg", "--json", "-", "--quiet", *option).out)
    assert summary["reference_column"] is None
    entry = summary["metrics"]["crg"]
    metric = make_metric("crg")
    metric.update(*zip(*PAIRS, strict=True))
    assert (entry["value"], entry["scored"], entry["unscorable"]) == (float(metric.compute()), 5, 1)
    assert "|reference:given|prediction:{words|schema:ct_rate}|" in entry["signature"]
    warned = run("score", path, "--metrics", "crg", "--json", "-", "--batch-size", "2", *option).err
    assert warned.count("the labels of references are given, and those of predictions made by words|schema") == 1
    told = ["--labeler", "rules:ct_rate", "--set", "crg.reference_labeler=words|schema:ct_rate"]
    assert "labels of references are given" not in run("score", path, "--metrics", "crg", *option, *told).err
    result = run("score", path, "--metrics", "crg", "--reference-label-prefix", "no_")
    assert result.code == 1
    assert "unknown column 'no_Medical material'" in result.err


def test_several_metrics_with_options_and_columns_of_their_own(words, length, run, pairs, tmp_path):
    options = ("--set", "length.scale=2", "--set", "crg.prior=0.5", "--context", "age=age")
    files = ("--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", pairs, "--metrics", "crg, length", *options, *files)
    assert result.code == 0, result.err
    table = read_table(tmp_path / "o.csv")
    assert [float(cell) for cell in table.columns["length"]] == pytest.approx([200 / 3, 200 / 3, 100, 100 / 3, 75])
    metrics = json.loads((tmp_path / "s.json").read_text())["metrics"]
    assert list(metrics) == ["crg", "length"]
    assert metrics["length"]["value"] == pytest.approx(205 / 3)
    assert "prior:0.5" in metrics["crg"]["signature"]
    assert "labels" not in metrics["length"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--metrics", "crgg"], 2, "argument --metrics: unknown metric 'crgg'; did you mean 'crg'?"),
        (["--metrics", "recommended"], 2, "recommended is a reward, not a metric; the commands attack and fit take it"),
        (["--metrics", "mine"], 2, "; one of your own is named by its path module:function"),
        (["--metrics", "crg,"], 2, "argument --metrics: unknown metric ''"),
        (["--metrics", "crg,crg"], 2, "argument --metrics: crg is named more than once"),
        (["--metrics", "crg", "--labeler", "rulez:ct_rate"], 2, "unknown labeler 'rulez'; did you mean 'rules'?"),
        (["--metrics", "length", "--labeler", "rules:ct_rate"], 2, "no metric among length takes one"),
        (["--metrics", "crepe"], 2, "argument --metrics: crepe needs --set crepe.model=FOLDER"),
        (["--metrics", "crg", "--set", "crg.pior=1"], 2, "unknown crg option 'pior'; did you mean 'prior'?"),
        (["--metrics", "crg", "--set", "crg.prior=7"], 2, "prior must lie in (0, 1), got 7"),
        (["--metrics", "crg", "--set", "prior=0.1"], 2, "got prior=0.1; write crg.prior=0.1"),
        (["--metrics", "crg", "--set", "priro=0.1"], 2, "must be METRIC.OPTION=VALUE, got priro=0.1\n"),
        (["--metrics", "crg", "--set", "length.scale=1"], 2, "'length' is not among --metrics crg"),
        (["--metrics", "crg", "--set", "crg.prior=["], 2, "cannot read the value of 'crg.prior=['"),
        (["--metrics", "crg", "--context", "age=age"], 2, "no metric among crg takes 'age'; they take: target_labels"),
        (["--metrics", "crg", "--context", "age"], 2, "must be NAME=COLUMN, got 'age'"),
        (["--metrics", "length", "--reference-labels"], 2, "no metric among length uses reference labels"),
        (["--metrics", "crg", "--prediction-column", "pred"], 1, "unknown column 'pred'"),
        (["--metrics", "crg", "--reference-column", "refrence"], 1, "did you mean 'reference'?"),
        (["--metrics", "length", "--context", "age=years"], 1, "--context names the column"),
        (["--metrics", "crg", "--output", "{}/no/o.csv"], 1, "the folder"),
        (["--metrics", "crg", "--output", "{}/pairs.csv"], 1, "exists already; pass --overwrite"),
        (["--metrics", "crg", "--output", "{}/o.csv", "--json", "{}/o.csv"], 2, "must differ"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_before_any_work(words, length, run, pairs, tmp_path, options, code, message):
    result = run("score", pairs, *(option.replace("{}", str(tmp_path)) for option in options))
    assert result.code == code
    assert message in result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert words.calls == []
    assert list(tmp_path.iterdir()) == [pairs]


def test_the_table_leaves_standard_output_to_data(words, run, pairs):
    result = run("score", pairs, "--metrics", "crg")
    assert "5 report pairs" in result.out
    assert "Coronary artery wall calcification" in result.out
    result = run("score", pairs, "--metrics", "crg", "--output", "-")
    assert len(list(csv.DictReader(result.out.splitlines()))) == 5
    assert "5 report pairs" in result.err


def test_the_summary_survives_a_table_that_cannot_be_written(words, run, tmp_path, monkeypatch):
    rows = [{"prediction": "Cardiomegaly \ud800.", "reference": "Cardiomegaly.", "id": "x\0"}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("score", tmp_path / "pairs.jsonl", "--metrics", "crg", "--output", tmp_path / "o.csv")
    assert run(*arguments).code == 0
    assert next(iter(csv.DictReader((tmp_path / "o.csv").open(encoding="utf-8"))))["id"] == "x\ufffd"

    def full_disk(*arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr("rrg_rewards.data.tables.writers._CsvEncoder._write", full_disk)
    result = run(*arguments, "--overwrite", "--json", tmp_path / "s.json")
    assert result.code == 1
    assert "No space left on device" in result.err
    assert "1 report pairs" in result.out
    assert json.loads((tmp_path / "s.json").read_text())["rows"] == 1


def test_a_folder_is_no_table(run, tmp_path):
    result = run("score", tmp_path, "--metrics", "crg")
    assert result.code == 1
    assert "is a folder; give a table (.csv" in result.err


def test_a_metric_without_its_model_tells_the_option(run, pairs):
    result = run("score", pairs, "--metrics", "bertscore")
    assert result.code == 2
    assert "bertscore needs --set bertscore.model=FOLDER" in result.err
    result = run("score", pairs, "--metrics", "bertscore", "--set", "bertscore.model=no/such/folder")
    assert "no/such/folder: no such folder" in result.err


@pytest.mark.parametrize("metrics", ["crg", "crg,rouge"])
def test_each_metric_is_looked_up_once(run, pairs, monkeypatch, metrics):
    found, maker_of = [], registry.maker_of
    monkeypatch.setattr(registry, "maker_of", lambda one: found.append(one) or maker_of(one))
    assert run("score", pairs, "--metrics", metrics, "--bootstrap", 0).code == 0
    assert len(found) == len(metrics.split(","))


def test_metrics_are_listed_with_what_they_need(run):
    result = run("score", "--list")
    assert result.code == 0
    assert "bertscore\n  needs    --set bertscore.model=...\n" in result.out
    assert (
        "crg\n  needs    nothing\n  labeler  rules:ct_rate (default)\n  context  target_labels\n"
        "  options  labeler, prior, average, min_prevalence, levels, level_schema, reference_labeler\n" in result.out
    )


def test_an_option_that_is_given_twice_is_refused(words, run, pairs):
    twice = ("--prediction-column", "prediction", "--prediction-column", "age")
    result = run("score", pairs, "--metrics", "crg", *twice)
    assert result.code == 2
    assert "argument --prediction-column: is given more than once" in result.err
    assert run("score", pairs, "--metrics", "crg", "--set", "crg.prior=0.2", "--set", "crg.prior=0.3").code == 0


def test_texts_that_stand_for_nothing_are_scored_with_a_warning(words, run, write_csv):
    path = write_csv(
        "p.csv", ["prediction", "reference"], ["NaN", "Cardiomegaly."], ["none", "Cardiomegaly."], PAIRS[0]
    )
    result = run("score", path, "--metrics", "crg")
    assert "2 of 3 texts in column 'prediction' are words such as 'NaN'" in " ".join(result.err.split())
    assert result.err.count("are words such as") == 1


def test_references_that_stand_for_nothing_are_unscorable_with_a_warning(words, run, write_csv, tmp_path):
    path = write_csv("p.csv", ["prediction", "reference"], ["Edema.", "Not given."], ["Edema.", "___"], PAIRS[0])
    summary = tmp_path / "summary.json"
    result = run("score", path, "--metrics", "crimson", "--json", str(summary))
    assert "2 of 3 texts in column 'reference' are words such as 'Not given.'" in " ".join(result.err.split())
    assert result.err.count("are words such as") == 1
    assert '"unscorable": 2' in summary.read_text()


def test_context_that_is_not_read_is_told(words, run, write_csv):
    rows = [[*PAIRS[0], "", " "]] * 300 + [[*PAIRS[0], "66", "nan"]]
    path = write_csv("p.csv", ["prediction", "reference", "age", "indication"], *rows)
    told = "crimson does not read the column 'age', as --context age=age would"
    found = " ".join(run("score", path, "--metrics", "crg,crimson").err.split())
    assert (found.count(told), found.count("does not read")) == (1, 1)
    assert "does not read" not in run("score", path, "--metrics", "crimson", "--context", "age=age").err


@pytest.mark.parametrize(("name", "mark"), [("pairs.csv", ";"), ("pairs.tsv", "\t")])
def test_other_delimiters(words, run, tmp_path, name, mark):
    path = tmp_path / name
    path.write_text("".join(mark.join(row) + "\n" for row in [("prediction", "reference"), *PAIRS[:2]]))
    result = run("score", path, "--metrics", "crg", "--output", "-")
    assert len(list(csv.DictReader(result.out.splitlines()))) == 2


def test_a_score_column_that_exists_is_replaced_with_a_warning(words, run, write_csv):
    path = write_csv("pairs.csv", ["crg", "prediction", "reference"], ["old", *PAIRS[0]])
    result = run("score", path, "--metrics", "crg", "--output", "-")
    assert "replaces 1 input column(s) of the same name: crg" in result.err
    assert result.out.startswith("crg,prediction,reference,crg_tp")
    result = run("score", path, "--metrics", "crg", "--output", "-", "--prefix", "new_", "--quiet")
    assert result.out.startswith("crg,prediction,reference,new_crg,new_crg_tp")


def test_reports_with_labels_by_a_model(run, shared_data, tmp_path):
    columns = ("--prediction-column", "Pred_whole_report", "--reference-label-prefix", "GT_")
    pairs = shared_data / "reg2rg_ctrg" / "pairs.csv"
    files = ("--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", pairs, "--metrics", "crg", *columns, *files)
    assert result.code == 0, result.err
    entry = json.loads((tmp_path / "s.json").read_text())["metrics"]["crg"]
    assert entry["scored"] == len(read_table(pairs))
    assert 1 / 3 < entry["interval"][0] <= entry["value"] <= entry["interval"][1] < 0.5


@pytest.mark.parametrize("metric", ["bertscore", "crepe", "er2score"])
def test_a_model_without_an_owner_is_a_missing_folder(run, pairs, metric, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the Hub was asked"))
    result = run("score", pairs, "--metrics", metric, "--set", f"{metric}.model=my_model", "--bootstrap", "0")
    assert result.code != 0
    assert "'my_model': no such folder; a model on the Hub is named with its owner, as in owner/model" in result.err


def test_x_ray_reports_with_labels_of_ct_get_one_warning(run, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("prediction,reference\n" + "Normal.,The cardiac silhouette is enlarged.\n" * 300)
    result = run("score", path, "--metrics", "crg", "--bootstrap", "0", "--batch-size", "64")
    assert result.code == 0
    assert result.err.count("read like radiograph reports") == 1
    assert "warning: crg: the references read like radiograph reports" in result.err
    assert ".py:" not in result.err
    quiet = run("score", path, "--metrics", "crg", "--labeler", "rules:chexbert", "--bootstrap", "0")
    assert "read like" not in quiet.err


def test_metrics_of_the_working_folder(run, write_csv, tmp_path, monkeypatch):
    (tmp_path / "own_scores.py").write_text(
        "from rrg_rewards.metrics import BLEU\n"
        "class Unigrams(BLEU):\n"
        "    name = 'unigrams'\n"
        "def gap(predictions, references, scale=1):\n"
        "    return [scale * abs(len(p) - len(r)) for p, r in zip(predictions, references)]\n"
        "def age(predictions, references, age):\n"
        "    return [float(value) for value in age]\n"
    )
    table = write_csv("pairs.csv", ["prediction", "reference", "years"], ["a b", "a", "3"], ["", "a", "4"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    output, summary = tmp_path / "scores.csv", tmp_path / "summary.json"
    result = run(
        *("score", table, "--metrics", "own_scores:gap,own_scores:Unigrams,own_scores:age", "--context", "age=years"),
        *("--set", "own_scores:gap.higher_is_better=false", "--set", "own_scores:gap.scale=2", "--bootstrap", "0"),
        *("--set", "own_scores:Unigrams.n_gram=1", "--set", "own_scores:age.higher_is_better=null"),
        *("--output", output, "--json", summary),
    )
    assert result.code == 0, result.err
    metrics = json.loads(summary.read_text())["metrics"]
    assert {name: entry["value"] for name, entry in metrics.items()} == {"gap": 4.0, "unigrams": 0.5, "age": 3.0}
    assert [entry["higher_is_better"] for entry in metrics.values()] == [False, True, None]
    assert "function:own_scores:gap|source:" in metrics["gap"]["signature"]
    with output.open() as file:
        assert [row["gap"] for row in csv.DictReader(file)] == ["4.0", ""]
    result = run("score", table, "--metrics", "own_scores:gap,own_scores:gap2", "--set", "own_scores:gap2.name=gap")
    assert result.code == 2
    assert "unknown metric in own_scores 'gap2'; did you mean 'gap'" in result.err
    result = run("score", table, "--metrics", "bleu,own_scores:gap", "--set", "own_scores:gap.name=bleu")
    assert result.code == 2
    assert "two metrics have the name 'bleu'" in result.err
    assert "cannot import 'no_such_module'" in run("score", table, "--metrics", "no_such_module:f").err


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_references_in_a_table_of_their_own(run, write_csv, tmp_path, ending):
    """A batch is joined by the names of studies; the score is that of one table."""
    names = [f"valid_{number}_a_1" for number in range(5)]
    predictions, references = zip(*PAIRS, strict=True)
    truth = write_csv(
        "truth.csv", ["VolumeName", "report"], *zip([f"{n}.nii.gz" for n in names], references, strict=True)
    )
    if ending == "csv":
        table = write_csv("p.csv", ["image", "report"], *reversed([*zip(names, predictions, strict=True)]))
    else:
        table = tmp_path / "p.json"
        entries = [{"image": n, "report": p} for n, p in zip(names, predictions, strict=True)]
        table.write_text(json.dumps(entries[::-1]))
    options = ["--prediction-column", "report", "--references", truth, "--reference-column", "report"]
    arguments = ["score", table, "--metrics", "rouge", *options, "--json", "-", "--quiet", "--batch-size", 2]
    result = run(*arguments, "--key", "image=VolumeName")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    expected = make_metric("rouge").score(predictions, references).value
    assert found["metrics"]["rouge"]["value"] == pytest.approx(float(expected.mean()))
    assert found["reference_column"] == "reference report"
    assert "needs --key" in " ".join(run(*arguments).err.split())
    truth.write_text(truth.read_text().replace("valid_3_a_1", "valid_9_a_1"))
    error = run(*arguments, "--key", "image=VolumeName").err
    assert "column 'image': " in error
    assert "truth.csv has no study 'valid_3_a_1'" in error


def test_a_study_without_a_row_is_an_error(run, write_csv):
    truth = write_csv("truth.csv", ["name", "reference"], ("a", "Normal."), ("b", "Normal."))
    table = write_csv("p.csv", ["name", "prediction"], ("a", "Normal."))
    error = run("score", table, "--metrics", "rouge", "--references", truth, "--key", "name").err
    assert "p.csv: has no row with the study 'b' of" in error
    table = write_csv("p.csv", ["name", "prediction"], ("a", "Normal."), ("b", "Normal."), ("a", "Normal."))
    error = run("score", table, "--metrics", "rouge", "--references", truth, "--key", "name", "--batch-size", 1).err
    assert "p.csv: data row 3 (line 4), column 'name': 'a' is also in" in error
    assert (
        "unknown column 'report'"
        in run(
            "score", table, "--metrics", "rouge", "--references", truth, "--key", "name", "--reference-column", "report"
        ).err
    )


def test_levels(run, write_csv, tmp_path):
    pairs = [["Nodule in the right lung.", "Nodule in the left lung."], ["Normal.", "Right pleural effusion."]]
    path = write_csv("pairs.csv", ["prediction", "reference"], *pairs)
    levels = ("--set", "crg.levels=[abnormality, side]")
    result = run(
        "score", path, "--metrics", "crg", *levels, "--json", tmp_path / "s.json", "--output", tmp_path / "o.csv"
    )
    assert result.code == 0, result.err
    metric = make_metric("crg", levels=["abnormality", "side"])
    metric.update(*zip(*pairs, strict=True))
    entry = json.loads((tmp_path / "s.json").read_text())["metrics"]["crg"]
    assert entry["value"] == float(metric.compute())
    assert list(entry["levels"].values()) == metric.level_scores().tolist()
    assert "crg by level: abnormality" in " ".join(result.out.split())
    contributions = metric.score(*zip(*pairs, strict=True))
    with (tmp_path / "o.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["crg_side"]) for row in rows] == pytest.approx(contributions.details["side"].tolist())
    assert rows[1]["crg_missed"] == "Pleural effusion, Pleural effusion: right"
