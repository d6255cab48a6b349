"""RadEvalX, on small files in the layout of the release and in that of public scripts."""

import pytest

from rrg_rewards.data import AnnotationWarning, TableError, read_radevalx, read_table
from tests.helpers.annotated_files import write_csv, write_radevalx, write_radevalx_tables

pytestmark = pytest.mark.filterwarnings("ignore::rrg_rewards.data.AnnotationWarning")
SIGNIFICANT = "RadEval_clinically_significant_errors.csv"


def edited(path, row, name, cell):
    """Rewrite a table with another cell."""
    table = read_table(path)
    columns = {key: list(cells) for key, cells in table.columns.items()}
    columns[name][row] = cell
    return write_csv(path, list(columns), *zip(*columns.values(), strict=True))


class TestReadRelease:
    def test_read_radevalx_joins_both_files(self, tmp_path):
        first, second, *_ = read_radevalx(write_radevalx(tmp_path / "x"))
        assert (first.reference, first.candidate) == ("Small pleural effusion.", "Pleural effusion.")
        assert (second.study, second.source) == ("CXR1", "radevalx")
        assert second.counts == (0.0, 2.0, 0.0, 0.0, 0.0, 0.0)
        # One insignificant error of uncertainty, which belongs to no category.
        assert (second.other, second.significant_other, second.total) == (1.0, 0.0, 3.0)
        assert [second.judgement(name) for name in ("errors", "significant", "insignificant")] == [3.0, 2.0, 1.0]

    def test_read_radevalx_can_count_one_significance(self, tmp_path):
        folder = write_radevalx(tmp_path / "x")
        assert [record.total for record in read_radevalx(folder, significant=True)] == [1.0, 2.0, 3.0, 0.0]
        assert [record.total for record in read_radevalx(folder, significant=False)] == [1.0] * 4

    def test_read_radevalx_warns_of_empty_counts_and_can_leave_them_unknown(self, tmp_path):
        folder = write_radevalx(tmp_path / "x")
        with pytest.warns(AnnotationWarning, match=r"44 of 64 counts are empty; they are read as no error"):
            read_radevalx(folder)
        with pytest.warns(AnnotationWarning, match="unknown, and so are the totals that contain them"):
            first = read_radevalx(folder, blank="missing")[0]
        assert first.counts == (None,) * 6
        assert first.other == 1.0
        assert [first.judgement(name) == first.judgement(name) for name in ("errors", "significant")] == [False, False]
        with pytest.raises(ValueError, match="blank must be one of zero, missing, got 'none'"):
            read_radevalx(folder, blank="none")

    @pytest.mark.parametrize(
        ("row", "name", "cell", "message"),
        [
            (1, "2", "-1", r"data row 2 \(line 3\), column '2': must be a number from 0 on, got '-1'"),
            (1, "report_id", "CXR9", "has no report 'CXR1', which .* has"),
            (0, "ground_truth", "Other.", "the reports of 'CXR0' differ"),
            (0, "report_id", "CXR1", "'CXR1' is also in"),
        ],
    )
    def test_read_radevalx_names_a_bad_row(self, tmp_path, row, name, cell, message):
        folder = write_radevalx(tmp_path / "x")
        edited(folder / SIGNIFICANT, row, name, cell)
        with pytest.raises(TableError, match=message):
            read_radevalx(folder)

    def test_read_radevalx_names_a_missing_file_and_columns(self, tmp_path):
        folder = write_radevalx(tmp_path / "x")
        write_csv(folder / SIGNIFICANT, ["report_id", "ground_truth", "1"], ("a", "b", 1))
        with pytest.raises(
            TableError, match=r"errors\.csv: lacks M2Tr-Generation, 2, 3, 4, 5, 6, 7, 8; it has report_id"
        ):
            read_radevalx(folder)
        (folder / SIGNIFICANT).unlink()
        with pytest.raises(TableError, match=f"{SIGNIFICANT}: no such file"):
            read_radevalx(folder)
        with pytest.raises(TableError, match=r"must be the folder of the release, or .* --counts FILE"):
            read_radevalx(write_radevalx_tables(tmp_path)[0])


class TestReadTwoTables:
    def test_read_radevalx_reads_words(self, tmp_path):
        records = read_radevalx(*write_radevalx_tables(tmp_path))
        assert [record.judgement("significant") for record in records] == [1.0, 2.0, 3.0, 0.0]
        assert records[2].counts == (0.0, 3.0, 0.0, 0.0, 0.0, 0.0)

    @pytest.mark.parametrize(
        ("row", "name", "cell", "message"),
        [
            (
                1,
                "error_type",
                "both",
                r"data row 2 \(line 3\), column 'error_type': must be significant or insignificant",
            ),
            (1, "error_type", "significant", "repeats the significant errors of report '0'"),
            (1, "report_id", "7", "has no report '7'"),
            (
                1,
                "report_id",
                "1",
                "repeats the insignificant errors of report '1'|no insignificant errors of report '0'",
            ),
        ],
    )
    def test_read_radevalx_names_a_bad_row(self, tmp_path, row, name, cell, message):
        reports, errors = write_radevalx_tables(tmp_path)
        with pytest.raises(TableError, match=message):
            read_radevalx(reports, edited(errors, row, name, cell))
