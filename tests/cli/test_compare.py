"""``rrg-rewards compare``: tables, runs, groups and outputs against the metrics and the functions."""

import csv
import json

import pytest

from rrg_rewards.analysis import compare_systems
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.metrics import ROUGE, ReportCRG

REFERENCES = [
    "Cardiomegaly.",
    "Hiatal hernia. Emphysema.",
    "Normal.",
    "Pleural effusion. Cardiomegaly.",
    "Emphysema.",
] * 4
GOOD = ["Cardiomegaly.", "Emphysema.", "Normal.", "Cardiomegaly.", "Emphysema."] * 4
BAD = ["Normal."] * 20
STUDIES = [f"s{row}" for row in range(20)]
SEX = ["F", "M", "F", "", "M"] * 4
TWO = ("--prediction-column", "prediction", "--prediction-column", "reference")
FEW = ("--bootstrap", 30, "--permutations", 30)


@pytest.fixture
def system(write_csv):
    """Write the table of a system: name, predictions, order of the rows, and further columns."""

    def write(name, predictions, order=range(20), **columns):
        header = ["study", "sex", "prediction", "reference", *columns]
        rows = zip(STUDIES, SEX, predictions, REFERENCES, *columns.values(), strict=True)
        table = list(rows)
        return write_csv(f"{name}.csv", header, *(table[row] for row in order))

    return write


def result_of(run, *arguments):
    result = run("compare", *arguments, *FEW, "--json", "-", "--quiet")
    assert result.code == 0, result.err
    return json.loads(result.out)


def strip(found):
    added = ("version", "tables", "key", "texts", "constant_texts")
    return {key: value for key, value in found.items() if key not in added}


def test_tables_of_two_systems_give_what_the_function_gives(run, system):
    found = result_of(run, system("bad", BAD), system("good", GOOD), "--metrics", "crg,rouge", "--by", "sex")
    metrics = {"crg": ReportCRG(), "rouge": ROUGE()}
    by = {"sex": [sex or None for sex in SEX]}
    options = {"num_resamples": 30, "num_permutations": 30}
    expected = compare_systems({"bad": BAD, "good": GOOD}, REFERENCES, metrics, by=by, **options)
    assert strip(found) == json.loads(json.dumps(expected.to_dict()))
    assert [(group["group"], group["rows"]) for group in found["groups"]] == [(None, 20), ("F", 8), ("M", 8)]


def test_one_table_with_a_column_for_each_system_is_the_same(run, system, write_csv):
    rows = zip(SEX, BAD, GOOD, REFERENCES, strict=True)
    table = write_csv("both.csv", ["sex", "bad", "new", "reference"], *rows)
    columns = ("--prediction-column", "bad", "--prediction-column", "good=new")
    found = result_of(run, table, *columns, "--metrics", "crg")
    assert strip(found) == strip(result_of(run, system("bad", BAD), system("good", GOOD), "--metrics", "crg"))


def test_rows_are_matched_by_their_key(run, system):
    tables = system("bad", BAD), system("good", GOOD, order=[*range(12, 20), *range(12)])
    result = run("compare", *tables, "--metrics", "crg", *FEW)
    assert result.code == 1
    assert "good.csv: data row 1 (line 2), column 'reference': differs from" in result.err
    found = result_of(run, *tables, "--metrics", "rouge", "--key", "study")
    ordered = result_of(run, tables[0], system("good", GOOD), "--metrics", "rouge")
    assert strip(found) == strip(ordered)


def test_tables_of_a_given_name_are_runs(run, system):
    tables = [system("bad", BAD), f"new={system('one', GOOD)}", f"new={system('two', REFERENCES)}"]
    found = result_of(run, *tables, "--metrics", "rouge")
    options = {"num_resamples": 30, "num_permutations": 30}
    expected = compare_systems({"bad": BAD, "new": [GOOD, REFERENCES]}, REFERENCES, {"rouge": ROUGE()}, **options)
    assert strip(found) == json.loads(json.dumps(expected.to_dict()))
    assert found["systems"] == {"bad": 1, "new": 2}
    text = run("compare", *tables, "--metrics", "rouge", *FEW).out
    assert "new (2 runs)" in text


def test_columns_of_scores_are_compared_as_they_are(run, system, write_csv):
    scores = [[str(row % 7) for row in range(20)], [str(row % 5) for row in range(20)]]
    scores[1][3] = ""
    tables = [system(name, BAD, green=green) for name, green in zip("ab", scores, strict=True)]
    found = result_of(run, *tables, "--scores", "green", "--lower-is-better", "green")
    (one,) = found["groups"][0]["metrics"]
    rows = [row for row in range(20) if row != 3]
    means = [sum(row % number for row in rows) / 19 for number in (7, 5)]
    assert [value["value"] for value in one["systems"]] == pytest.approx(means)
    assert (one["rows"], one["left_out"], one["signature"], one["higher_is_better"]) == (19, 1, None, False)
    wins = sum(row % 5 < row % 7 for row in rows)
    assert one["differences"][0]["wins"] == wins
    both = write_csv("both.csv", ["study", "a_green", "b_green"], *zip(STUDIES, *scores, strict=True))
    columns = ("--prediction-column", "a", "--prediction-column", "b", "--scores", "{column}_green")
    same = result_of(run, both, *columns, "--lower-is-better", "green")
    assert same["groups"] == found["groups"]


def test_outputs(run, system, tmp_path):
    tables = system("bad", BAD), system("good_1", GOOD)
    files = {name: tmp_path / f"r.{name}" for name in ("markdown", "latex", "output", "json")}
    files["output"] = tmp_path / "r.csv"
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    result = run("compare", *tables, "--metrics", "crg,rouge", *options, *FEW)
    assert result.code == 0, result.err
    assert ReportCRG().signature in result.out.replace("\n", "")
    found = json.loads(files["json"].read_text())
    markdown = files["markdown"].read_text()
    assert f"| crg | bad | {found['groups'][0]['metrics'][0]['systems'][0]['value']:.3f} (" in markdown
    assert f"- `{ROUGE().signature}`" in markdown
    rows = [line.split("|")[1:-1] for line in markdown.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {8}
    latex = files["latex"].read_text()
    assert r"good\_1 & \textbf{" in latex
    assert latex.count(r"\\") == 3
    table = read_table(files["output"])
    assert [float(cell) for cell in table.columns["rouge of good_1"]] == ROUGE().score(GOOD, REFERENCES).value.tolist()
    assert table.columns["prediction of bad"] == BAD


def test_missing_predictions_are_left_out_or_scored(run, system):
    tables = system("bad", BAD), system("good", [*GOOD[:19], ""])
    result = run("compare", *tables, "--metrics", "rouge", *FEW)
    assert "1 of 20 predictions (prediction of good) are missing" in result.err
    assert "left out, because a score is missing: 1 for rouge" in result.out
    found = result_of(run, *tables, "--metrics", "rouge", "--missing-prediction", "score")
    assert found["groups"][0]["metrics"][0]["rows"] == 20


def test_references_in_a_table_of_their_own(run, system, write_csv, tmp_path):
    """Names of volumes match with and without their ending, and both sides may have a column of the same name."""
    order = [*range(10, 20), *range(10)]
    truth = write_csv(
        "truth.csv", ["VolumeName", "report"], *((f"{STUDIES[row]}.nii.gz", REFERENCES[row]) for row in order)
    )
    submissions = []
    for name, predictions in (("bad", BAD), ("good", GOOD)):
        entries = [{"input_image_name": s, "report": r} for s, r in zip(STUDIES, predictions, strict=True)]
        submissions.append(tmp_path / f"{name}.json")
        submissions[-1].write_text(json.dumps({"generated_reports": entries}))
    options = ["--references", truth, "--reference-column", "report", "--key", "input_image_name=VolumeName"]
    found = result_of(
        run, *submissions, "--prediction-column", "report", *options, "--metrics", "rouge", "--baseline", "bad"
    )
    metric = found["groups"][0]["metrics"][0]
    expected = [float(ROUGE().score(predictions, REFERENCES).value.mean()) for predictions in (BAD, GOOD)]
    assert [value["value"] for value in metric["systems"]] == pytest.approx(expected)
    both = write_csv("both.csv", ["name", "a", "b"], *zip(STUDIES, BAD, GOOD, strict=True))
    columns = ["--prediction-column", "bad=a", "--prediction-column", "good=b", *options[:-1], "name=VolumeName"]
    assert result_of(run, both, *columns, "--metrics", "rouge")["groups"] == found["groups"]
    both.write_text(both.read_text().replace("name,a,b", "name,a,report"))
    error = run("compare", both, *columns[:2], "--prediction-column", "report", *columns[4:], "--metrics", "rouge").err
    assert "both have a column 'report'; rename one of them" in " ".join(error.split())
    assert "argument --references: needs --key" in " ".join(
        run("compare", *submissions, *options[:2], "--metrics", "rouge").err.split()
    )


def test_other_studies_are_refused(run, system, write_csv):
    first = system("first", BAD)
    other = write_csv("other.csv", ["study", "prediction", "reference"], *[("s0", "Normal.", "Cardiomegaly.")] * 2)
    assert "has 2 rows, and" in run("compare", first, other, "--metrics", "rouge").err
    error = run("compare", first, other, "--metrics", "rouge", "--key", "study").err
    assert "other.csv: data row 2 (line 3), column 'study': 's0' is also in" in error
    short = system("short", BAD, order=range(1, 20))
    for tables in ((first, short), (short, first)):
        error = run("compare", *tables, "--metrics", "rouge", "--key", "study").err
        assert "short.csv: has no row with the study 's0' of" in error
    changed = system("changed", BAD).read_text().replace("s7,F,Normal.,Normal.", "s7,F,Normal.,Other.")
    (first.parent / "changed.csv").write_text(changed)
    error = run("compare", first, first.parent / "changed.csv", "--metrics", "rouge").err
    assert "changed.csv: data row 8 (line 9), column 'reference': differs from" in error
    bare = write_csv("bare.csv", ["study", "green"], *((study, "1") for study in STUDIES))
    assert "name a column of studies: --key" in run("compare", bare, f"b={bare}", "--scores", "green").err
    assert result_of(run, bare, f"b={bare}", "--scores", "green", "--key", "study")["systems"] == {"bare": 1, "b": 1}


def test_a_table_of_predictions_needs_no_references_if_it_has_a_key(run, system, write_csv):
    first = system("first", BAD)
    only = write_csv("only.csv", ["study", "prediction"], *zip(STUDIES, GOOD, strict=True))
    found = result_of(run, first, only, "--metrics", "crg", "--key", "study")
    whole = result_of(run, first, f"only={system('whole', GOOD)}", "--metrics", "crg")
    assert strip(found) == strip(whole)
    assert "unknown column 'reference'" in run("compare", first, only, "--metrics", "crg").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.csv", "b.csv"), "one of --metrics and --scores is needed"),
        (("a.csv", "--metrics", "crg"), "one table needs several columns in --prediction-column"),
        (
            ("a.csv", "b.csv", "--metrics", "crg", *["--prediction-column", "x", "--prediction-column", "y"]),
            "one table only",
        ),
        (("a.csv", "x/a.csv", "--metrics", "crg"), "two tables are named 'a'; name them"),
        (("a.csv", "b.csv", "--metrics", "crg", "--baseline", "c"), "argument --baseline: 'c' is not among a, b"),
        (("a.csv", "b.csv", "--metrics", "crg", "--latex", "-"), "must be a file of its own"),
        (("a.csv", "b.csv", "--scores", "len", "--lower-is-better", "x"), "argument --lower-is-better: 'x'"),
        (("a.csv", "--prediction-column", "a", "--prediction-column", "b", "--scores", "len"), "must contain {column}"),
        (("a.csv", "--prediction-column", "a", "--prediction-column", "a", "--metrics", "crg"), "named more than once"),
        (("a.csv", "b.csv", "--scores", "len", "--html", "p.html", "--with-text"), "--with-text: needs --metrics"),
    ],
)
def test_wrong_command_lines(run, system, tmp_path, monkeypatch, arguments, message):
    columns = {"len": ["1"] * 20, "rouge": ["1"] * 20}
    system("a", BAD, **columns)
    system("b", GOOD, **columns)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    result = run("compare", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_a_wrong_score_names_its_table_and_row(run, system):
    tables = system("a", BAD, green=["1"] * 20), system("b", BAD, green=["1"] * 19 + ["good"])
    error = run("compare", *tables, "--scores", "green").err
    assert "b.csv: data row 20 (line 21), column 'green': must be a finite number, got 'good'" in error


def test_wrong_columns_are_found_before_anything_is_scored(run, system, words):
    tables = system("a", BAD, crg=["1"] * 20), system("b", GOOD, crg=["1"] * 20)
    for option, value in (("by", "sex, site"), ("key", "nr"), ("scores", "green"), ("prediction-column", "text")):
        error = run("compare", *tables, "--metrics", "crg", f"--{option}", value).err
        assert f"a.csv: unknown column '{value.split()[-1]}'" in error
        assert "Known: crg, " in error
        assert error.endswith(f". --{option} names the column\n")
    assert "'crg' is also a metric" in run("compare", *tables, "--metrics", "crg", "--scores", "crg").err
    assert words.calls == []
    assert "needs several tables" in run("compare", tables[0], "--metrics", "crg", "--key", "study", *TWO).err


def test_no_rows(run, write_csv):
    path = write_csv("a.csv", ["prediction", "reference"])
    assert "a.csv: has no rows" in run("compare", path, f"b={path}", "--metrics", "rouge").err


def test_a_file_name_may_contain_an_equals_sign(run, system):
    table = system("lr=0.1", GOOD)
    with table.open(newline="") as file:
        assert len(list(csv.reader(file))) == 21
    found = result_of(run, system("bad", BAD), table, "--metrics", "rouge")
    assert found["systems"] == {"bad": 1, "lr=0.1": 1}


def test_predictions_are_never_read_from_the_table_of_references(run, write_csv):
    both = write_csv("both.csv", ["study", "a", "b"], *zip(STUDIES, BAD, GOOD, strict=True))
    truth = write_csv("truth.csv", ["study", "reference"], *zip(STUDIES, REFERENCES, strict=True))
    options = ["--references", truth, "--key", "study", "--metrics", "rouge"]
    columns = ["--prediction-column", "a", "--prediction-column"]
    for name in ("reference", "c"):
        assert f"both.csv: unknown column '{name}'" in run("compare", both, *columns, name, *options).err
    assert (
        "both.csv: unknown column 'reference'" in run("score", both, "--prediction-column", "reference", *options).err
    )


def test_names_of_scores(run, write_csv):
    columns = ["study", "a", "b", "a_len", "b_len", "len_a", "len_b"]
    table = write_csv("both.csv", columns, *((study, "x", "y", 1, 2, 3, 4) for study in STUDIES))
    arguments = [table, "--prediction-column", "a", "--prediction-column", "b", "--scores"]
    found = result_of(run, *arguments, "{column}_len,{column}_len", "--lower-is-better", " len")
    (metric,) = found["groups"][0]["metrics"]
    assert (metric["metric"], metric["higher_is_better"]) == ("len", False)
    error = run("compare", *arguments, "{column}_len,len_{column}").err
    assert "argument --scores: two columns have the name 'len'" in error
