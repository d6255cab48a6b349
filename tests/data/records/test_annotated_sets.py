"""The data sets of annotated report pairs by name, and their tables of judgements."""

import pytest

from rrg_rewards.data import ANNOTATED_SETS, ErrorRecord, judgement_table, read_annotated_set
from tests.helpers.annotated_files import ERRORS, WRITERS, write_radevalx_tables

pytestmark = pytest.mark.filterwarnings("ignore::rrg_rewards.data.AnnotationWarning")


@pytest.mark.parametrize("name", ANNOTATED_SETS)
def test_read_annotated_set_reads_each_set_by_name(name, tmp_path):
    write, file = WRITERS[name]
    records = read_annotated_set(name, write(tmp_path / file))
    table = judgement_table(records, file)
    judgement = ANNOTATED_SETS[name].judgement
    values = table.column(judgement)
    assert len(values) == len(records) >= 4
    assert len(set(values)) > 1, f"the default judgement {judgement} of {name} does not vary"
    assert len(set(table.column("study"))) == 4
    if name in ("rexval", "radevalx", "refisco", "rate_eval"):
        assert values == ERRORS


def test_read_annotated_set_passes_a_second_file_and_options(tmp_path):
    reports, counts = write_radevalx_tables(tmp_path)
    assert len(read_annotated_set("radevalx", reports, counts)) == 4
    write, file = WRITERS["rexval"]
    assert read_annotated_set("rexval", write(tmp_path / file), rater=1)[2].total == 3.0
    with pytest.raises(ValueError, match="chest2error has no second file with counts; it is read from: gold_pairs"):
        read_annotated_set("chest2error", "gold_pairs.parquet", counts)
    with pytest.raises(ValueError, match="unknown data set 'radeval'; did you mean 'radevalx'"):
        read_annotated_set("radeval", "folder")


def test_judgement_table_has_the_columns_that_records_have():
    records = [
        ErrorRecord("a", "b", (1, 0, 0, 0, 0, 0), significant=(1, 0, 0, 0, 0, 0), ratings={"x": None, "y": 2}),
        ErrorRecord(
            "c", "d", (None,) * 6, study="s", attributes={"reference": "hidden", "style": "S"}, ratings={"x": None}
        ),
    ]
    assert dict(judgement_table(records).columns) == {
        "prediction": ["b", "d"],
        "reference": ["a", "c"],
        "study": ["a", "s"],
        "errors": [1.0, None],
        "significant": [1.0, None],
        "insignificant": [0.0, None],
        "y": [2.0, None],
        "style": [None, "S"],
    }
