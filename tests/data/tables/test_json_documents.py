"""JSON documents of ReXrank and VLM3D: both layouts, round trips, and errors that name the key."""

import json

import pytest

from rrg_rewards.data.tables.json_documents import write_report_document
from rrg_rewards.data.tables.readers import BatchedTable, read_table
from rrg_rewards.data.tables.table import Table, TableError

TABLE = Table({"study": ["a", "b", "c"], "age": [4, None, 5], "prediction": ["Normal.", "", "Nodule."]}, source="table")


def write(tmp_path, document):
    path = tmp_path / "reports.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_json_document_list_of_objects_is_a_table(tmp_path):
    path = write(tmp_path, [{"id": 1, "report": "Normal."}, {"id": 2, "extra": [1]}])
    assert read_table(path).columns == {"id": [1, 2], "report": ["Normal.", None], "extra": [None, [1]]}
    with BatchedTable(path, rows=1) as batches:
        parts = list(batches)
    assert [part.columns["id"] for part in parts] == [[1], [2]]
    assert parts[1].where(0).endswith("data row 2")


def test_json_document_rexrank_round_trip(tmp_path):
    path = tmp_path / "rexrank.json"
    write_report_document(TABLE, path, "rexrank", study_column="study")
    assert json.loads(path.read_text())["a"] == {"age": 4, "model_prediction": "Normal."}
    columns = read_table(path).columns
    assert columns == {"study_id": ["a", "b", "c"], "age": [4, None, 5], "model_prediction": ["Normal.", "", "Nodule."]}


def test_json_document_vlm3d_round_trip(tmp_path):
    path = tmp_path / "vlm3d.json"
    write_report_document(TABLE, path, "vlm3d", study_column="study")
    assert json.loads(path.read_text())["version"] == {"major": 1, "minor": 0}
    columns = read_table(path).columns
    assert columns == {"input_image_name": ["a", "b", "c"], "report": ["Normal.", "", "Nodule."]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"name": "Reports", "reports": []},
            "has no key 'generated_reports', as VLM3D's layout has, and the value of 'name'",
        ),
        ({"generated_reports": {"a": 1}}, "'generated_reports' must be a list of objects, got dict"),
        ({"generated_reports": [{"report": "x"}]}, "entry 1: has no key 'input_image_name'; its keys are report"),
        ({"generated_reports": [{"input_image_name": "a", "text": "x"}]}, "entry 1: has no key 'report'"),
        ({"a": {"study_id": "b"}}, "the study 'a' has another study_id, 'b'"),
        (["Normal."], "data row 1: must be an object"),
        ("3", "must be a list of objects or an object, got int"),
        ("[]", "has no rows"),
        ('{"a": {}, "a": {}}', "the key 'a' stands more than once"),
        ("{", "not a JSON document"),
    ],
)
def test_json_document_other_layouts_name_what_is_wrong(tmp_path, document, message):
    with pytest.raises(TableError, match=message):
        read_table(write(tmp_path, document))


def test_json_document_missing_column_is_named_with_the_known_ones(tmp_path):
    path = write(tmp_path, {"a": {"report": "Normal.", "prediction": "Clear."}})
    with pytest.raises(TableError, match=r"unknown column 'model_prediction'.*Known: prediction, report, study_id"):
        read_table(path).texts("model_prediction")


def test_json_document_what_cannot_be_written(tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(ValueError, match="layout must be one of rexrank, vlm3d"):
        write_report_document(TABLE, path, "other", study_column="study")
    missing = Table({"study": ["a", "b"], "prediction": ["x", None]})
    with pytest.raises(TableError, match="data row 2, column 'prediction': is missing"):
        write_report_document(missing, path, "vlm3d", study_column="study")
    twice = Table({"study": ["a", "a"], "prediction": ["x", "y"]}, source="twice")
    with pytest.raises(TableError, match="twice: data row 2, column 'study': 'a' is also in"):
        write_report_document(twice, path, "vlm3d", study_column="study")
    assert not path.exists()


def test_json_document_another_column_of_predictions_is_not_overwritten(tmp_path):
    table = TABLE.with_columns({"model_prediction": ["other"] * 3})
    with pytest.raises(TableError, match="has a column 'model_prediction' besides the predictions, 'prediction'"):
        write_report_document(table, tmp_path / "out.json", "rexrank", study_column="study")
    write_report_document(table, tmp_path / "out.json", "vlm3d", study_column="study")
