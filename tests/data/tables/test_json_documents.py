"""JSON documents of ReXrank and VLM3D: their layouts, round trips, and errors that name the key."""

import json
from pathlib import Path

import pytest

from rrg_rewards.data.tables.json_documents import read_report_lists, write_report_document
from rrg_rewards.data.tables.readers import BatchedTable, read_table
from rrg_rewards.data.tables.table import Table, TableError

TABLE = Table({"study": ["a", "b", "c"], "age": [4, None, 5], "prediction": ["Normal.", "", "Nodule."]}, source="table")


def job(*names, **keys):
    reports = [{"input_image_name": name, "report": f"Report of {name}."} for name in names]
    return {**keys, "outputs": [{"value": {"generated_reports": reports}}]}


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


def test_json_document_jobs_of_grand_challenge_are_one_table(tmp_path):
    path = write(tmp_path, [job("s1.mha", pk="a"), job("s2.mha", "s3.mha", pk="b")])
    assert read_table(path).columns == {
        "pk": ["a", "b", "b"],
        "input_image_name": ["s1.mha", "s2.mha", "s3.mha"],
        "report": ["Report of s1.mha.", "Report of s2.mha.", "Report of s3.mha."],
    }
    tables = read_report_lists(path)
    assert [len(table) for table in tables] == [1, 2]
    assert tables[1].where(1).endswith("reports.json: job 2, output 1: data row 2")


def test_json_document_predictions_are_what_the_evaluation_of_vlm3d_reads(tmp_path):
    """The layout as nlg_metrics.py and infer.py of VLM3D read it: the first output of the first job, and names without
    what follows the last dot. The official functions were run on such a file and gave these names and texts.
    """
    names = ["valid/valid_1_a_1.nii.gz", "1.2.840.5.6_B_Toraks.mha", "s3"]
    table = Table({"volume": names, "findings": ["Clear.", "Emphysema.", ""], "impression": ["Normal.", None, "Mass."]})
    path = tmp_path / "predictions.json"
    template = "Findings: {findings} Impression: {impression}"
    write_report_document(table, path, "vlm3d-predictions", study_column="volume", prediction_column=template)
    value = json.loads(path.read_text())[0]["outputs"][0]["value"]
    assert (value["name"], value["type"], value["version"]) == ("Generated reports", "Report generation", "1.0")
    read = {entry["input_image_name"].rsplit(".", 1)[0]: entry["report"] for entry in value["generated_reports"]}
    assert read == {
        "valid_1_a_1": "Findings: Clear. Impression: Normal.",
        "1.2.840.5.6_B_Toraks": "Findings: Emphysema.",
        "s3": "Impression: Mass.",
    }
    assert [Path(entry["input_image_name"]).stem for entry in value["generated_reports"]] == list(read)
    assert read_table(path).columns["report"] == list(read.values())


def test_json_document_same_volume_twice_is_not_written(tmp_path):
    table = Table({"study": ["a/s1.mha", "b/s1.nii.gz"], "prediction": ["x", "y"]}, source="twice")
    with pytest.raises(TableError, match="twice: data row 2, column 'study': 's1' is also in"):
        write_report_document(table, tmp_path / "out.json", "vlm3d", study_column="study")


@pytest.mark.parametrize("document", [{"a": {"report": "x"}}, [{"report": "x"}], 3])
def test_read_report_lists_refuses_other_layouts(tmp_path, document):
    with pytest.raises(TableError, match="is no document of VLM3D"):
        read_report_lists(write(tmp_path, document))


def test_read_report_lists_reads_the_published_example(shared_data):
    (table,) = read_report_lists(shared_data / "formats" / "vlm3d_ground_truth.json")
    assert table.columns["input_image_name"] == ["d1aed068-b235-4b39-a17b-8feb82047d4f"]
    assert table.columns["report"][0].startswith("Findings: Trachea and both main bronchi are open.")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([{"id": 1}, {"id": 2, "labels": {"a": 1}}], "data row 2: the value of 'labels' is an object"),
        ([{"id": 1}, {"value": {"generated_reports": []}}], "data row 2: the value of 'value' is an object"),
        ([job("x"), {"pk": "b"}], "job 2: 'outputs' must be a list of outputs, got None"),
        ([{"outputs": []}], r"job 1: 'outputs' must be a list of outputs, got \[\]"),
        ([{"outputs": [{"value": [1]}]}], r"job 1, output 1: 'value' must be an object with .*, got \[1\]"),
        ([job("x"), "y"], "job 2: must be an object"),
        ([{"outputs": [{"value": {"reports": []}}]}], "job 1, output 1: 'generated_reports' must be a list"),
        ([{"outputs": [{"value": {"generated_reports": [{"report": ""}]}}]}], "output 1: generated_reports, entry 1"),
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
    with pytest.raises(ValueError, match="layout must be one of rexrank, vlm3d, vlm3d-predictions"):
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
