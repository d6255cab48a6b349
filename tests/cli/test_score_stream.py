"""``rrg-rewards score`` reads and writes in batches: same results as in memory, and nothing written is lost."""

import csv
import json
import subprocess
import sys
import tracemalloc
from types import ModuleType

import pytest
import torch

from rrg_rewards.data.tables import readers
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.functional import bootstrap_interval
from rrg_rewards.metrics import registry
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.registry import make_metric
from rrg_rewards.metrics.scores import Scores

FINDINGS = ["Cardiomegaly.", "No emphysema.", "Atelectasis. Lung nodule.", "Normal.", "Pleural effusion, atelectasis."]
ROWS = [(FINDINGS[row * 7 % 5], FINDINGS[row * 3 % 4], row) for row in range(23)]
ROWS[5] = (None, "Emphysema.", 5)
ROWS[17] = ("Emphysema.", "  ", 17)


class Words(ReportMetric):
    """Number of words of the candidate; fails on the report ``crash``."""

    name = "words"
    context = ("age",)
    signature = "words"

    def _read_context(self, context):
        for row, age in enumerate(context.get("age", ())):
            if not str(age).isdecimal():
                raise ValueError(f"age[{row}] must be a number, got {age!r}")
        return context

    def _score(self, preds, target, **context):
        if "crash" in preds:
            raise RuntimeError("out of memory")
        return Scores(torch.tensor([float(len(pred.split())) for pred in preds], dtype=torch.float64))


@pytest.fixture
def count_words(monkeypatch):
    module = ModuleType("count_words")
    module.Words = Words
    monkeypatch.setitem(sys.modules, "count_words", module)
    monkeypatch.setitem(registry._METRICS, "words", "count_words:Words")


def columns(rows=ROWS):
    return dict(zip(("prediction", "reference", "age"), map(list, zip(*rows, strict=True)), strict=True))


@pytest.fixture
def table(tmp_path):
    def write(name, rows=ROWS):
        write_table(Table(columns(rows)), tmp_path / name)
        return tmp_path / name

    return write


def in_memory(metric):
    """Score all pairs in one call: the value, its interval, the means and the column."""
    scores = metric.score(*list(columns().values())[:2])
    value = float(scores.aggregate(*scores.sufficient_statistics))
    interval = bootstrap_interval(scores.aggregate, scores.sufficient_statistics, 300, seed=3)
    means = {name: float(values.double().nanmean()) for name, values in scores.details.items()}
    return value, list(interval), means, [None if score != score else score for score in scores.value.tolist()]


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv", "pairs.jsonl", "pairs.parquet"])
@pytest.mark.parametrize(("size", "average"), [(1, "micro"), (4, "macro"), (4, "micro"), (100, "macro")])
def test_batches_give_the_results_of_one_call(words, run, table, tmp_path, name, size, average):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    output = tmp_path / f"o{name[name.index('.') :]}"
    arguments = ("--metrics", "crg,bleu", "--batch-size", size, "--bootstrap", 300, "--seed", 3)
    files = ("--output", output, "--json", tmp_path / "s.json")
    result = run("score", table(name), *arguments, "--set", f"crg.average={average}", *files)
    assert result.code == 0, result.err
    summary = json.loads((tmp_path / "s.json").read_text())["metrics"]
    written = read_table(output)
    for metric in (make_metric("crg", average=average), make_metric("bleu")):
        value, interval, means, cells = in_memory(metric)
        entry = summary[metric.name]
        assert (entry["value"], entry["interval"]) == (value, interval)
        assert entry["means"] == pytest.approx(means, rel=1e-12)
        assert [None if cell is None else float(cell) for cell in written.columns[metric.name]] == cells
        assert (entry["scored"], entry["unscorable"]) == (21, 2)
    best, labels = make_metric("crg", average=average).score(*list(columns().values())[:2]).best_constant
    assert summary["crg"]["best_constant"] == {"value": best, "labels": list(labels)}
    assert written.columns["age"] == read_table(tmp_path / name).columns["age"]


@pytest.mark.parametrize(("form", "options"), [("csv", []), ("jsonl", ["--format", "jsonl"])])
def test_standard_input_to_standard_output(words, run, table, give_input, form, options):
    path = table(f"pairs.{form}")
    arguments = ("--metrics", "crg", "--output", "-", "--batch-size", 4, "--quiet", *options)
    expected = run("score", path, *arguments)
    give_input(path.read_bytes())
    result = run("score", "-", *arguments)
    assert (result.code, result.out) == (0, expected.out)
    lines = result.out.splitlines()
    rows = [json.loads(line) for line in lines] if form == "jsonl" else list(csv.DictReader(lines))
    assert [str(row["age"]) for row in rows] == [str(row) for row in range(23)]


def test_rows_are_written_while_others_are_scored(count_words, run, table, tmp_path, monkeypatch):
    seen = []

    class Watching(Words):
        def _score(self, preds, target, **context):
            seen.append(sum(file.stat().st_size for file in tmp_path.glob(".o.csv.*.tmp")))
            return super()._score(preds, target, **context)

    sys.modules["count_words"].Words = Watching
    assert (
        run("score", table("p.csv"), "--metrics", "words", "--batch-size", 4, "--output", tmp_path / "o.csv").code == 0
    )
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len(set(seen)) == 6


def test_columns_that_later_rows_add_are_in_all_rows(count_words, run, tmp_path):
    rows = [{"prediction": "a", "reference": "b"}] * 3 + [{"prediction": "a", "reference": "b", "age": 7, "id": 1.5}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("o.csv", "o.parquet"):
        pytest.importorskip("pyarrow")
        result = run(
            "score", tmp_path / "p.jsonl", "--metrics", "words", "--batch-size", 2, "--output", tmp_path / name
        )
        assert result.code == 0, result.err
        written = read_table(tmp_path / name)
        assert written.names == ("prediction", "reference", "age", "id", "words")
        assert [cell and float(cell) for cell in written.columns["id"]] == [None, None, None, 1.5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a,b\n", "data row 9 (line 10): has 2 cells where the header has 3 columns"),
        (b"caf\xe9,b,1\n", "line 10, byte"),
        (b'"open,b,1\n', "in the row that starts on line 10"),
        (b"a,b,x\n", "p.csv: data row 9 (line 10): age[0] must be a number, got 'x'"),
    ],
)
@pytest.mark.parametrize("source", ["file", "-"])
def test_a_bad_row_is_told_before_anything_is_scored(
    count_words, run, tmp_path, give_input, monkeypatch, line, message, source
):
    monkeypatch.setattr(Words, "_score", None)
    content = b"prediction,reference,age\n" + b"a,b,1\n" * 8 + line + b"a,b,1\n" * 8
    (tmp_path / "p.csv").write_bytes(content)
    give_input(content)
    path = tmp_path / "p.csv" if source == "file" else "-"
    context = ("--context", "age=age", "--batch-size", 4)
    result = run("score", path, "--metrics", "words", *context, "--output", tmp_path / "o.csv")
    assert result.code == 1
    assert message.replace("p.csv", "p.csv" if source == "file" else "standard input") in result.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.csv"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("metrics", ["words", "crg,words"])
def test_a_metric_that_fails_late_leaves_the_rows_before(words, count_words, run, table, tmp_path, ending, metrics):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = table("p.csv", [*ROWS, ("crash", "Normal.", 23)])
    output = tmp_path / f"o.{ending}"
    arguments = ("score", path, "--metrics", metrics, "--output", output, "--json", tmp_path / "s.json")
    result = run(*arguments, "--batch-size", 5)
    assert result.code == 1
    assert "out of memory" in result.err
    assert f"o.partial.{ending} contains the scores of the first 20 of 24 rows" in result.err
    assert not output.exists()
    assert not (tmp_path / "s.json").exists()
    kept = read_table(tmp_path / f"o.partial.{ending}")
    assert [int(cell) for cell in kept.columns["age"]] == list(range(20))
    counts = [None if row in (5, 17) else len(ROWS[row][0].split()) for row in range(20)]
    assert [cell and float(cell) for cell in kept.columns["words"]] == counts


def test_standard_output_keeps_the_rows_before_a_failure(count_words, run, table):
    path = table("p.csv", [*ROWS, ("crash", "Normal.", 23)])
    result = run("score", path, "--metrics", "words", "--output", "-", "--batch-size", 5)
    assert result.code == 1
    assert len(list(csv.DictReader(result.out.splitlines()))) == 20
    assert "standard output contains the scores of the first 20 of 24 rows" in result.err


def test_a_disk_that_fills_up_stops_the_table_and_not_the_scores(count_words, run, table, tmp_path, monkeypatch):
    from rrg_rewards.data.tables import writers

    write = writers._CsvEncoder._write

    def full_disk(self, table, is_first):
        if not is_first:
            raise OSError("No space left on device")
        write(self, table, is_first)

    monkeypatch.setattr(writers._CsvEncoder, "_write", full_disk)
    arguments = ("--metrics", "words", "--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", table("p.jsonl"), *arguments, "--batch-size", 5)
    assert result.code == 1
    assert "No space left on device" in result.err
    assert "o.partial.csv contains the scores of the first 5 of 23 rows" in result.err
    assert json.loads((tmp_path / "s.json").read_text())["metrics"]["words"]["scored"] == 21


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl", "p.parquet"])
@pytest.mark.parametrize(
    "command",
    [
        # A metric whose scores depend on all pairs, one whose scores depend on the corpus, and the commonest text.
        ("score", "--metrics", "crg,cider,words", "--output", "out.csv", "--bootstrap", "0"),
        ("label", "--text-column", "prediction", "--output", "out.csv"),
        ("findings", "--text-column", "prediction", "--output", "out.jsonl"),
        ("agreement", "--metrics", "crg,rouge", "--human", "age", "--bootstrap", "0", "--permutations", "0"),
    ],
    ids=lambda command: command[0],
)
def test_each_row_is_read_once(count_words, run, table, monkeypatch, tmp_path, name, command):
    parse, read = readers._parse, []
    monkeypatch.setattr(readers, "_parse", lambda *given: (read.append(len(one)) or one for one in parse(*given)))
    monkeypatch.chdir(tmp_path)
    result = run(command[0], table(name), *command[1:], *(() if command[0] == "agreement" else ("--batch-size", 5)))
    assert result.code == 0, result.err
    assert sum(read) == len(ROWS)


def long_rows(path, number):
    """Write report pairs of about 6 kB."""
    report = "Small-left-pleural-effusion-" * 100
    with path.open("w") as file:
        if path.suffix == ".csv":
            file.write("prediction,reference\n")
        for row in range(number):
            pair = (f"{row} {report}", f"{report} {row}")
            cells = dict(zip(("prediction", "reference"), pair, strict=True))
            file.write(json.dumps(cells) + "\n" if path.suffix == ".jsonl" else ",".join(pair) + "\n")
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_memory_does_not_grow_with_the_rows(count_words, run, tmp_path, ending):
    def peak(number):
        path = long_rows(tmp_path / f"{number}.{ending}", number)
        arguments = ("--metrics", "words", "--output", tmp_path / f"{number}_o.csv", "--batch-size", 50)
        tracemalloc.start()
        try:
            assert run("score", path, *arguments, "--bootstrap", 10).code == 0
            return tracemalloc.get_traced_memory()[1], path.stat().st_size
        finally:
            tracemalloc.stop()

    peak(100)  # imports
    (small, few), (large, many) = peak(200), peak(1500)
    assert many - few > 7e6
    assert large - small < (many - few) / 10


_MAIN = """
import resource, sys
from rrg_rewards.cli.main import main
from rrg_rewards.metrics import registry
registry._METRICS["words"] = "tests.cli.test_score_stream:Words"
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_process_does_not_grow_with_the_rows(tmp_path, ending):
    pytest.importorskip("pyarrow")

    def resident(number):
        path = long_rows(tmp_path / f"{number}.csv", number)
        if ending == "parquet":
            write_table(read_table(path), tmp_path / f"{number}.parquet")
            path = tmp_path / f"{number}.parquet"
        output = tmp_path / f"{number}_o.{ending}"
        arguments = ["score", str(path), "--metrics", "words", "--output", str(output), "--bootstrap", "10"]
        done = subprocess.run([sys.executable, "-c", _MAIN, *arguments], capture_output=True, text=True, check=True)
        assert len(read_table(output)) == number
        return int(done.stderr.split()[-1]) * 1024

    # A group of rows in Parquet has 32 MiB.
    grown = resident(12_000) - resident(6_000)
    assert grown < 36e6 / 2
