"""Scores of tables from Python: values of the metrics, outputs, and what is kept of a run that fails."""

import math
import weakref

import pytest

from rrg_rewards.analysis import MetricChoice, PairColumns, ScoreSettings, make_metrics, score_table
from rrg_rewards.data import Table, TableError, read_table
from rrg_rewards.metrics import BLEU, CRIMSON, ROUGE, ReportCRG
from rrg_rewards.utilities.run_log import RunLog, RunWarning
from rrg_rewards.utilities.settings import SettingError

PREDICTIONS = ["Cardiomegaly.", "Normal.", "Hiatal hernia.", "Small effusion."]
REFERENCES = ["Enlarged heart.", "Hiatal hernia.", "Hiatal hernia. Emphysema.", "Normal."]
QUICK = ScoreSettings(bootstrap=0)


class Log(RunLog):
    """Keeps all messages."""

    def __init__(self):
        self.notes, self.warnings, self.finished = [], [], 0

    def note(self, text):
        self.notes.append(text)

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    rows = [f"{row},{pair[0]},{pair[1]}" for row, pair in enumerate(zip(PREDICTIONS, REFERENCES, strict=True))]
    path.write_text("\n".join(["id,prediction,report", *rows]) + "\n")
    return path


def test_score_table_gives_the_corpus_values_of_the_metrics(pairs):
    metrics = {"crg": ReportCRG(), "rouge": ROUGE(), "bleu": BLEU()}
    summary = score_table(pairs, metrics, columns=PairColumns(reference_column="report"), settings=QUICK)
    for name, metric in metrics.items():
        metric.update(PREDICTIONS, REFERENCES)
        assert math.isclose(summary["metrics"][name]["value"], metric.compute().item(), abs_tol=1e-12)
        assert summary["metrics"][name]["signature"] == metric.signature
    assert (summary["rows"], summary["reference_column"]) == (4, "report")


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_score_table_writes_the_input_and_the_scores(pairs, tmp_path, name):
    log = Log()
    columns = PairColumns(reference_column="report")
    score_table(pairs, ["crg"], columns=columns, settings=QUICK, output=tmp_path / name, log=log)
    table = read_table(tmp_path / name)
    expected = ReportCRG().score(PREDICTIONS, REFERENCES)
    assert table.names[:4] == ("id", "prediction", "report", "crg")
    assert [float(cell) for cell in table.column("crg")] == pytest.approx(expected.value.tolist(), abs=1e-12)
    assert "is written after the last row" in log.notes[0]


def test_score_table_tells_why_nothing_was_scored_also_if_a_metric_depends_on_all_rows(pairs, tmp_path):
    metrics = {"crg": ReportCRG(), "crimson": CRIMSON(form="training", chance="dataset")}
    columns = PairColumns(reference_column="report")
    with pytest.raises(TableError, match="chance='dataset'"):
        score_table(pairs, metrics, columns=columns, settings=QUICK, output=tmp_path / "out.csv")


def test_score_table_of_no_rows_has_no_values(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("prediction,reference\n")
    with pytest.warns(RunWarning, match="has a header and no rows"):
        summary = score_table(path, ["crg", "rouge"])
    assert summary["rows"] == 0
    assert {name: entry["value"] for name, entry in summary["metrics"].items()} == {"crg": None, "rouge": None}


def test_score_table_needs_a_metric(pairs):
    with pytest.raises(SettingError) as caught:
        score_table(pairs, [])
    assert caught.value.setting == "metrics"


@pytest.mark.parametrize("options", [{}, {"crg.prior": 0.2}])
def test_score_table_holds_few_batches_of_the_table_in_memory(tmp_path, monkeypatch, options):
    made, held = [], []
    check = Table.__post_init__

    def counted(self):
        check(self)
        made.append(weakref.ref(self))
        held.append(sum(one() is not None for one in made))

    path = tmp_path / "pairs.csv"
    path.write_text("prediction,reference\n" + "Normal.,Hiatal hernia.\n" * 60)
    metrics = make_metrics(MetricChoice(metrics=["crg", "bleu"], set=options))
    monkeypatch.setattr(Table, "__post_init__", counted)
    settings = ScoreSettings(bootstrap=0, batch_size=2)
    score_table(path, metrics, settings=settings, output=tmp_path / "scores.csv")
    # Of 30 batches: the one that is read, the one that is scored, and the one that is written.
    assert len(made) >= 60
    assert max(held) <= 6
    assert len(read_table(tmp_path / "scores.csv")) == 60
