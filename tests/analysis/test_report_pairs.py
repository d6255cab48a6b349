"""Report pairs of tables: references and predictions that templates join from several columns."""

import json

import pytest

from rrg_rewards.analysis import PairColumns, ScoreSettings, score_table
from rrg_rewards.analysis.report_pairs import PairReader, join_references
from rrg_rewards.data import Table, TableError
from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.metrics import ROUGE, ReportCRG
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.settings import SettingError

QUICK = ScoreSettings(bootstrap=0)

# The references that evaluation_script.md of ReXrank (split_json) makes of these sections, from a run of it.
REXRANK = {
    "Findings: Clear lungs. Impression: Normal.": ("Clear lungs.", "Normal."),
    "Findings: None Impression: Nodule.": (None, "Nodule."),
    "Findings: Effusion. Impression: None": ("Effusion.", float("nan")),
    "Findings:  Impression: None": ("", None),
}
SECTIONS = "Findings: {section_findings} Impression: {section_impression}"


def write_rexrank(path, **more):
    studies = {
        f"p{row}": {"section_findings": findings, "section_impression": impression, "model_prediction": f"Text {row}."}
        for row, (findings, impression) in enumerate(REXRANK.values())
    }
    path.write_text(json.dumps({name: {**study, **more} for name, study in studies.items()}))
    return path


def test_pair_reader_references_of_rexrank_are_those_of_the_official_script(tmp_path):
    columns = PairColumns(
        prediction_column="model_prediction", reference_column=SECTIONS, missing_section="None", id_column="study_id"
    )
    with BatchedTable(write_rexrank(tmp_path / "rexrank.json")) as batches:
        (batch,) = PairReader(columns, batches, {"rouge": ROUGE()})
    assert batch.references == list(REXRANK)
    assert batch.predictions == ["Text 0.", "Text 1.", "Text 2.", "Text 3."]


def test_pair_reader_missing_sections_are_left_out_with_their_labels(tmp_path):
    columns = PairColumns(prediction_column="model_prediction", reference_column=SECTIONS)
    with BatchedTable(write_rexrank(tmp_path / "rexrank.json")) as batches:
        (batch,) = PairReader(columns, batches, {"rouge": ROUGE()})
    assert batch.references == [
        "Findings: Clear lungs. Impression: Normal.",
        "Impression: Nodule.",
        "Findings: Effusion.",
        None,
    ]


def test_join_references_template_of_joined_references_keeps_its_columns(tmp_path):
    """Columns of both tables with the same name are told apart inside a template, too."""
    predictions = tmp_path / "predictions.csv"
    predictions.write_text("id,findings,impression\nb,Nodule.,Nodule.\na,Clear.,\n")
    truth = tmp_path / "truth.csv"
    truth.write_text("id,findings,impression\na.mha,Clear lungs.,Normal.\nb.mha,Nodule.,Mass.\n")
    template = "{findings} {impression}"
    columns = PairColumns(references=truth, prediction_column=template, reference_column=template, key="id")
    with BatchedTable(predictions) as batches:
        joined, tables = join_references(columns, batches)
        (batch,) = PairReader(joined, tables, {"rouge": ROUGE()})
    assert batch.predictions == ["Nodule. Nodule.", "Clear."]
    assert batch.references == ["Nodule. Mass.", "Clear lungs. Normal."]
    summary = score_table(predictions, ["rouge"], columns=columns, settings=QUICK)
    assert summary["metrics"]["rouge"]["scored"] == 2


def test_pair_reader_missing_section_needs_a_template():
    with pytest.raises(SettingError, match="missing_section: needs a template"):
        PairReader(PairColumns(missing_section="None"), [], {"rouge": ROUGE()})


def test_pair_reader_references_are_needed_for_levels_of_given_labels():
    labels = {label: [0] for label in CT_RATE.labels}
    table, columns = Table({"prediction": ["Normal."], **labels}), PairColumns(reference_labels=True)
    assert len(list(PairReader(columns, [table], {"crg": ReportCRG()}))) == 1
    with pytest.raises(TableError, match="unknown column 'reference'"):
        list(PairReader(columns, [table], {"crg": ReportCRG(levels=["abnormality", "side"])}))
