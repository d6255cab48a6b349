"""Values of texts that are the same for every study, beside those of systems."""

import json

import pytest

from rrg_rewards.analysis import (
    CompareSettings,
    PairColumns,
    ScoreSettings,
    compare_tables,
    score_grids,
    score_table,
    text_grids,
)
from rrg_rewards.analysis.constant_text import chosen_metrics
from rrg_rewards.analysis.distinct import NORMAL_REPORTS
from rrg_rewards.judges import OpenAIJudge
from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import BLEU, CRIMSON, ROUGE, CallableMetric, CIDEr, LabelF1, ReportCRG, ReXrankBLEU
from rrg_rewards.utilities.run_log import RunLog

REFERENCES = ["Cardiomegaly.", "Hiatal hernia.", "Both main bronchi are open.", "Emphysema. Cardiomegaly."] * 6
PREDICTIONS = ["Cardiomegaly.", "Cardiomegaly.", "Clear lungs.", "Enlarged heart."] * 6
COMMONEST = "Cardiomegaly."
METRICS = {"crg": ReportCRG, "label_f1": LabelF1, "bleu": BLEU, "rouge": ROUGE, "cider": CIDEr}


class Log(RunLog):
    """Keeps all messages."""

    def __init__(self):
        self.notes, self.warnings = [], []

    def note(self, text):
        self.notes.append(text)

    def warn(self, text):
        self.warnings.append(text)


def length(predictions, references):
    """Number of characters: a function of which nothing is known."""
    return [float(len(text)) for text in predictions]


def value_of(metric, text, target):
    """Return the value that the metric itself computes of a constant text."""
    metric.update([text] * len(target), target)
    return metric.compute().item()


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    rows = [f"{pair[0]},{pair[1]}" for pair in zip(PREDICTIONS, REFERENCES, strict=True)]
    path.write_text("\n".join(["prediction,reference", *rows]) + "\n")
    return path


@pytest.mark.parametrize("rows", [1, 5, 256])
def test_score_table_gives_the_values_of_constant_texts_in_any_batch(pairs, rows):
    metrics = {name: make() for name, make in METRICS.items()}
    summary = score_table(pairs, metrics, settings=ScoreSettings(bootstrap=0, batch_size=rows))
    for name, make in METRICS.items():
        found = summary["metrics"][name]["constant_texts"]
        assert list(found) == ["commonest_text"]
        expected = value_of(make(), COMMONEST, REFERENCES)
        assert found["commonest_text"] == {"value": pytest.approx(expected, abs=1e-12), "scored": 24}
    assert summary["texts"]["distinct"] == 3
    assert summary["texts"]["commonest_row"] == 1
    assert "Cardiomegaly" not in json.dumps(summary["texts"])


def test_score_table_scores_a_normal_report_of_the_modality(tmp_path):
    path = tmp_path / "pairs.csv"
    references = [f"Both main bronchi are open. Nodule of {size} mm." for size in range(12)]
    path.write_text("prediction,reference\n" + "".join(f"Mass {n}.,{one}\n" for n, one in enumerate(references)))
    found = score_table(path, ["rouge"], settings=ScoreSettings(bootstrap=0))["metrics"]["rouge"]["constant_texts"]
    # No text occurs twice, so that there is no commonest one.
    assert list(found) == ["normal_report"]
    assert found["normal_report"]["value"] == pytest.approx(value_of(ROUGE(), NORMAL_REPORTS["ct"], references))


def test_score_table_leaves_missing_predictions_out_of_constant_texts(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("prediction,reference\nNodule.,Nodule.\n,Nodule.\nNodule.,Mass.\n")
    entry = score_table(path, ["rouge"], settings=ScoreSettings(bootstrap=0), log=Log())["metrics"]["rouge"]
    assert entry["constant_texts"]["commonest_text"] == {"value": 0.5, "scored": 2}


def test_score_table_asks_costly_metrics_only_on_request(pairs):
    """The note says so, and no function is called for constant texts by default."""
    calls = []

    def counted(predictions, references):
        calls.append(len(predictions))
        return length(predictions, references)

    metrics = {"rouge": ROUGE(), "length": CallableMetric(counted, name="length")}
    log = Log()
    summary = score_table(pairs, metrics, settings=ScoreSettings(bootstrap=0), log=log)
    assert sum(calls) == 24
    assert "constant_texts" not in summary["metrics"]["length"]
    assert any(note.startswith("length: no value of a text that is the same") for note in log.notes)

    everything = score_table(pairs, metrics, settings=ScoreSettings(bootstrap=0, constant_text="all"), log=Log())
    assert sum(calls) == 3 * 24
    expected = {"value": float(len(COMMONEST)), "scored": 24}
    assert everything["metrics"]["length"]["constant_texts"] == {"commonest_text": expected}

    nothing = score_table(pairs, metrics, settings=ScoreSettings(bootstrap=0, constant_text="none"), log=log)
    assert not any("constant_texts" in entry for entry in nothing["metrics"].values())
    assert nothing["texts"] == summary["texts"]


def test_chosen_metrics_by_rules_are_those_without_a_model_or_language_model():
    metrics = {
        "crg": ReportCRG(),
        "crimson": CRIMSON(judge="rules"),
        "judged": CRIMSON(judge=OpenAIJudge("m")),
        "labels": ReportCRG(labeler=JudgeLabeler("ct_rate", OpenAIJudge("m"))),
        "length": CallableMetric(length),
    }
    assert list(chosen_metrics(metrics, "rules")) == ["crg", "crimson"]
    assert list(chosen_metrics(metrics, "all")) == list(metrics)
    assert not chosen_metrics(metrics, "none")


def test_compare_tables_gives_distinct_and_constant_texts_of_each_run(tmp_path):
    rows = zip(PREDICTIONS, [f"Mass {row}." for row in range(24)], REFERENCES, strict=True)
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,reference\n" + "".join(f"{','.join(row)}\n" for row in rows))
    metrics = {name: make() for name, make in METRICS.items()}
    settings = CompareSettings(bootstrap=0, permutations=0)
    found = compare_tables([path], metrics, prediction_columns=["a", "b"], settings=settings)
    assert {name: (one.distinct, one.commonest) for name, one in found.texts.items()} == {"a": (3, 12), "b": (24, 1)}
    assert list(found.constants) == ["commonest_text of a"]
    for name, make in METRICS.items():
        value = found.constants["commonest_text of a"][name]["value"]
        assert value == pytest.approx(value_of(make(), COMMONEST, REFERENCES), abs=1e-12)
    *lines, grid = text_grids(found.text_entries())
    assert lines[0].startswith("a: 3 distinct texts for 24 studies (12.5 %), the commonest 12 times (50.0 %)")
    assert grid.title == "the same text for every study"


def test_compare_tables_constant_texts_are_of_the_compared_studies(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,reference\nNodule.,Mass.,Nodule.\nNodule.,,Nodule.\nNodule.,Mass.,Mass.\n")
    settings = CompareSettings(bootstrap=0, permutations=0)
    found = compare_tables([path], ["rouge"], prediction_columns=["a", "b"], settings=settings, log=Log())
    # The second study has no report of b, so that no system is compared on it.
    assert found.constants["commonest_text of a"]["rouge"] == {"value": 0.5, "scored": 2}


def test_score_table_of_the_public_leaderboard_entry(shared_data):
    """25 texts for 590 studies score as one text does, and CRG says that they tell nothing."""
    log = Log()
    columns = PairColumns(prediction_column="moerad", reference_column="section_findings")
    metrics = {"crg": ReportCRG(labeler="rules:chexbert"), "rouge": ROUGE(), "bleu": ReXrankBLEU()}
    path = shared_data / "iu_xray_rexrank" / "systems.csv"
    summary = score_table(path, metrics, columns=columns, settings=ScoreSettings(bootstrap=0), log=log)
    crg, rouge, bleu = (summary["metrics"][name] for name in metrics)
    assert any(text.startswith("moerad has 25 distinct texts for 590 studies") for text in log.warnings)
    assert crg["value"] == pytest.approx(1 / 3, abs=1e-4)
    for text in ("commonest_text", "normal_report"):
        assert crg["constant_texts"][text]["value"] == pytest.approx(1 / 3, abs=1e-4)
        assert rouge["constant_texts"][text]["value"] >= rouge["value"]
    assert bleu["constant_texts"]["normal_report"]["value"] > bleu["value"]
    overview = score_grids(summary)[0]
    assert [column.header for column in overview.columns][3:5] == ["commonest text", "normal report"]
