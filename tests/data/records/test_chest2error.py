"""chest2error-bench, on small files in its layout."""

import json

import pytest

from rrg_rewards.data import AnnotationWarning, Table, TableError, read_chest2error, write_table
from tests.helpers.annotated_files import chest2error_row, write_chest2error

ROW = chest2error_row("valid_1_a_1.npz", "GT-U", "No nodule.", "Nodule.", 1, 2)


@pytest.fixture
def write(tmp_path):
    def writer(*rows):
        write_table(Table.from_records(rows), tmp_path / "gold_pairs.jsonl", overwrite=True)
        return tmp_path / "gold_pairs.jsonl"

    return writer


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_read_chest2error_reads_counts_totals_and_errors(tmp_path, ending):
    records = read_chest2error(write_chest2error(tmp_path / f"gold_pairs.{ending}"))
    assert len(records) == 8
    second = records[2]
    assert (second.study, second.attributes) == ("valid_1_a_1.npz", {"reference_style": "GT-U", "variant_id": "V1"})
    assert second.counts == (0.0, 2.0, 0.0, 1.0, 0.0, 0.0)
    assert second.significant == (0.0, 2.0, 0.0, 0.0, 0.0, 0.0)
    names = ("errors", "significant", "insignificant", "weighted_error")
    assert [second.judgement(name) for name in names] == [3.0, 2.0, 1.0, 2.25]
    assert second.edits[2] == {"category": 4, "criticality": "Minor", "section": "Pleura"}
    assert (second.total, second.total_significant) == (3.0, 2.0)


def test_read_chest2error_counts_pairs_whose_list_has_other_errors(write):
    merged = {**ROW, "rad_errors": json.dumps([{"category": "5", "criticality": "critical", "section": "Pleura"}])}
    with pytest.warns(AnnotationWarning, match="the list rad_errors of 1 of 2 pairs does not have the counts"):
        first, second = read_chest2error(write(ROW, merged))
    assert first.significant is not None
    assert (second.significant, second.judgement("significant"), second.counts[1]) == (None, 1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rad_errors": "none"}, "column 'rad_errors': is no JSON list of errors"),
        ({"rad_errors": "{}"}, r"column 'rad_errors': must be a list of objects, got \{\}"),
        ({"rad_errors": '[{"category": 7, "criticality": "Minor"}]'}, "category must be 1 to 6, got 7"),
        ({"rad_errors": '[{"category": 1}]'}, "criticality must be Critical or Minor, got None"),
        ({"rad_critical_count": "few"}, "column 'rad_critical_count': must be a number from 0 on, got 'few'"),
        ({"candidate_report": None}, "column 'candidate_report': is missing"),
    ],
)
def test_read_chest2error_names_a_bad_row(write, change, message):
    with pytest.raises(TableError, match=rf"gold_pairs\.jsonl: data row 2 \(line 2\), {message}|data row 2.*{message}"):
        read_chest2error(write(ROW, {**ROW, **change}))


def test_read_chest2error_names_all_missing_columns(write):
    lacking = {name: cell for name, cell in ROW.items() if name not in ("anchor_id", "rad_weighted_error")}
    with pytest.raises(TableError, match=r"gold_pairs\.jsonl: lacks anchor_id, rad_weighted_error; it has"):
        read_chest2error(write(lacking))
