"""``rrg-rewards label``."""

import csv
import json
import stat
import sys

import pytest

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.schemas import CHEXBERT, CT_RATE

REPORTS = {"id": ["1", "2", "3"], "report": ['Cardiomegaly,\n"mild".', None, "No emphysema."], "site": ["a", None, "c"]}


def test_output_keeps_input_columns_and_adds_one_column_a_label(words, run, tmp_path):
    write_table(Table(REPORTS), tmp_path / "in.csv")
    result = run("label", tmp_path / "in.csv", "--text-column", "report", "--output", tmp_path / "out.csv")
    assert (result.code, result.out) == (0, "")
    assert "1 of 3 reports are missing or blank" in result.err
    table = read_table(tmp_path / "out.csv")
    assert table.names == ("id", "report", "site", *CT_RATE.labels)
    assert {name: table.columns[name] for name in REPORTS} == REPORTS
    assert table.columns["Cardiomegaly"] == ["1", None, "0"]
    assert all(table.columns[label] == ["0", None, "0"] for label in CT_RATE.labels if label != "Cardiomegaly")


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".xlsx"])
def test_every_format_goes_in_and_out(words, run, tmp_path, ending):
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    write_table(Table({"report": ["Edema.", "Normal."]}), tmp_path / f"in{ending}")
    arguments = ("--text-column", "report", "--schema", "chexbert", "--quiet")
    for out in (".csv", ".jsonl", ".parquet", ".xlsx"):
        result = run("label", tmp_path / f"in{ending}", *arguments, "--output", tmp_path / f"out{ending}{out}")
        assert (result.code, result.out, result.err) == (0, "", "")
        table = read_table(tmp_path / f"out{ending}{out}")
        assert table.labels(CHEXBERT.labels) == [tuple(int(label == "Edema") for label in CHEXBERT.labels), (0,) * 14]


def test_blank_text_in_jsonl_is_missing_too(words, run, tmp_path, give_input):
    give_input(b'{"report": ""}\n{"report": " \\n"}\n{"report": null}\n{"report": "Emphysema"}\n')
    result = run("label", "-", "--text-column", "report", "--format", "jsonl", "--json", tmp_path / "s.json")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["Emphysema"] for row in rows] == [None, None, None, 1]
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["rows"], summary["labelled"], summary["unscorable"]) == (4, 1, 3)
    assert summary["positives"] == {label: int(label == "Emphysema") for label in CT_RATE.labels}
    assert summary["labeler"] == "words|schema:ct_rate"


def test_an_input_column_named_as_a_label_is_replaced_with_a_warning(words, run, write_csv, tmp_path):
    path = write_csv("in.csv", ["Cardiomegaly", "report"], ["7", "Cardiomegaly."])
    result = run("label", path, "--text-column", "report", "--output", tmp_path / "out.csv")
    assert "replaces 1 input column(s) of the same name: Cardiomegaly; --prefix keeps both" in result.err
    assert read_table(tmp_path / "out.csv").columns["Cardiomegaly"] == ["1"]
    result = run("label", path, "--text-column", "report", "--output", tmp_path / "both.csv", "--prefix", "pred_")
    assert "warning" not in result.err
    table = read_table(tmp_path / "both.csv")
    assert (table.columns["Cardiomegaly"], table.columns["pred_Cardiomegaly"]) == (["7"], ["1"])


def test_reports_are_labelled_in_batches(words, run, write_csv):
    path = write_csv("in.csv", ["report", "id"], *([text, 0] for text in ["a", "b", "", "c", "d", "e"]))
    result = run("label", path, "--text-column", "report", "--batch-size", 2)
    assert words.calls == [2, 1, 2]
    assert len(list(csv.DictReader(result.out.splitlines()))) == 6


def test_a_table_without_rows_gives_one_without_rows(words, run, write_csv):
    result = run("label", write_csv("in.csv", ["report"]), "--text-column", "report")
    assert (result.code, result.out) == (0, ",".join(["report", *CT_RATE.labels]) + "\n")


def test_a_report_of_a_megabyte(words, run, write_csv):
    path = write_csv("in.csv", ["report"], ["Normal chest. " * 80_000 + "Emphysema."])
    result = run("label", path, "--text-column", "report", "--quiet")
    assert result.code == 0
    assert result.out.endswith("Emphysema.,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--text-column", "raport"], 1, "in.csv: unknown column 'raport'; did you mean 'report'? Known: id, report"),
        (["--text-column", "report", "--output", "{}/no/out.csv"], 1, "no/out.csv: the folder"),
        (["--text-column", "report", "--output", "{}/in.csv"], 1, "in.csv: exists already; pass --overwrite"),
        (["--text-column", "report", "--output", "{}/out.xls"], 1, "the ending '.xls' does not tell"),
        (["--text-column", "report", "--json", "{}/no/s.json"], 1, "no/s.json: the folder"),
        (["--text-column", "report", "--json", "-"], 2, "--output and --json must differ"),
        (["--text-column", "report", "--labeler", "ruls"], 2, "argument --labeler: unknown labeler 'ruls'"),
        (["--text-column", "report", "--labeler", "radbert"], 2, "needs an argument"),
        (["--text-column", "report", "--schema", "merlin"], 2, "label schema 'merlin' has no rules"),
        (
            ["--text-column", "report", "--schema", "ct_rate", "--labeler", "rules:chexbert"],
            2,
            "argument --schema: the labeler rules:chexbert does not have the labels",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_before_any_work(words, run, write_csv, tmp_path, arguments, code, message):
    path = write_csv("in.csv", ["id", "report"], ["1", "Normal."])
    before = path.read_bytes()
    result = run("label", path, *(argument.replace("{}", str(tmp_path)) for argument in arguments))
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err
    assert words.calls == []
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=repr)
def test_a_failure_midway_keeps_the_rows_before(words, run, write_csv, tmp_path, monkeypatch, error):
    path = write_csv("in.csv", ["report"], ["a"], ["b"])
    (tmp_path / "out.csv").write_text("old")

    def fail_second(self, reports):
        if words.calls:
            raise error
        return label(self, reports)

    label = words.__call__
    monkeypatch.setattr(words, "__call__", fail_second)
    files = ("--output", tmp_path / "out.csv", "--json", tmp_path / "s.json", "--overwrite")
    result = run("label", path, "--text-column", "report", "--batch-size", 1, *files)
    assert result.code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert words.calls == [1]
    assert (tmp_path / "out.csv").read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.csv", "out.csv", "out.partial.csv"]
    assert read_table(tmp_path / "out.partial.csv").columns["report"] == ["a"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_outputs_of_a_private_table_are_private(words, run, write_csv, tmp_path):
    path = write_csv("in.csv", ["report"], ["Emphysema."])
    path.chmod(0o600)
    made = [tmp_path / name for name in ("out.csv", "out.json")]
    assert run("label", path, "--text-column", "report", "--output", made[0], "--json", made[1]).code == 0
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o600, 0o600]


def test_the_file_of_a_killed_process_is_named_once(words, run, write_csv, tmp_path):
    pytest.importorskip("fcntl")
    path = write_csv("in.csv", ["report"], ["Emphysema."])
    left = tmp_path / f".out.csv.{'0' * 32}.tmp"
    left.touch()
    files = ("--output", tmp_path / "out.csv", "--json", tmp_path / "out.json")
    result = run("label", path, "--text-column", "report", *files)
    assert (result.code, result.err.count(str(left))) == (0, 1)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("label", ["--text-column", "report"]),
        ("score", ["--metrics", "bleu", "--prediction-column", "report", "--reference-column", "report"]),
    ],
)
def test_spreadsheet_safe_is_for_csv(words, run, write_csv, tmp_path, command, options):
    path = write_csv("in.csv", ["report"], ["=1+1"])
    arguments = (command, path, *options, "--spreadsheet-safe", "--output")
    assert run(*arguments, tmp_path / "out.csv").code == 0
    assert read_table(tmp_path / "out.csv").columns["report"] == ["'=1+1"]
    result = run(*arguments, tmp_path / "out.jsonl")
    assert result.code == 2
    assert "argument --spreadsheet-safe: needs an --output of CSV" in result.err


def test_a_table_may_replace_itself(words, run, write_csv):
    path = write_csv("in.csv", ["report"], ["Emphysema."])
    assert run("label", path, "--text-column", "report", "--output", path, "--overwrite").code == 0
    assert read_table(path).columns["Emphysema"] == ["1"]


def test_hand_labelled_reports(run, shared_data, tmp_path):
    source = shared_data / "ct_rate_labels" / "reports.csv"
    arguments = ("--text-column", "report_text", "--schema", "ct_rate", "--output", tmp_path / "labels.csv")
    result = run("label", source, *arguments)
    assert result.code == 0, result.err
    by_hand, by_rules = read_table(source), read_table(tmp_path / "labels.csv")
    assert by_rules.names == by_hand.names
    assert by_rules.columns["report_text"] == by_hand.columns["report_text"]
    pairs = zip(by_hand.labels(CT_RATE.labels), by_rules.labels(CT_RATE.labels), strict=True)
    cells = [hand == rules for row in pairs for hand, rules in zip(*row, strict=True)]
    assert sum(cells) / len(cells) > 0.9


def test_words_for_a_missing_report_are_labelled_with_a_warning(words, run, write_csv):
    path = write_csv("reports.csv", ["report"], ["nan"], ["Cardiomegaly."])
    for _ in range(2):
        result = run("label", path, "--text-column", "report")
        assert result.code == 0
        assert result.err.count("warning: 1 of 2 texts in column 'report' of") == 1
        assert "PlaceholderWarning" not in result.err
    assert run("label", path, "--text-column", "report", "--quiet").err == ""
