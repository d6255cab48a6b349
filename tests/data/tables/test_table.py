"""Tables in memory."""

import warnings

import pytest

from rrg_rewards.data.tables.studies import rows_by_study, study_name
from rrg_rewards.data.tables.table import Table, TableError, check_header, table_format
from rrg_rewards.utilities.texts import PlaceholderWarning


def test_table_missing_column_names_the_nearest_and_all_that_exist():
    table = Table({"id": ["1"], "report_text": ["Normal."]}, source="reports.csv")
    with pytest.raises(
        TableError, match=r"reports.csv: unknown column 'report_txt'.*'report_text'\? Known: id, report"
    ):
        table.column("report_txt")


def test_table_columns_of_unequal_length_are_refused_with_their_lengths():
    with pytest.raises(TableError, match=r"same length, got \{'a': 2, 'b': 1\}"):
        Table({"a": [1, 2], "b": [1]})


@pytest.mark.parametrize("cell", [3, 1.5, True, ["Normal."], {"text": "Normal."}])
def test_table_report_that_is_no_text_is_named_by_row_and_column(cell):
    table = Table({"report": ["Normal.", cell]}, source="reports.jsonl", lines=(1, 4))
    with pytest.raises(
        TableError, match=r"reports.jsonl: data row 2 \(line 4\), column 'report': must be a report text"
    ):
        table.texts("report")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1", "0"), (1, 0)),
        ((" 1.0", "0.0 "), (1, 0)),
        ((1, 0), (1, 0)),
        ((1.0, False), (1, 0)),
        (("True", "false"), (1, 0)),
        ((None, None), None),
        ((float("nan"), None), None),
    ],
)
def test_table_labels_are_read_in_every_usual_spelling(cells, expected):
    assert Table({"a": [cells[0]], "b": [cells[1]]}).labels(["a", "b"]) == [expected]


@pytest.mark.parametrize("cell", [None, "", "-1", "2", 0.5, "yes", [1]])
def test_table_cell_that_is_no_label_is_named_by_row_and_column(cell):
    table = Table({"Edema": ["1"], "Fracture": [cell]}, source="labels.csv")
    with pytest.raises(TableError, match=r"labels.csv: data row 1, column 'Fracture': must be a label of 0 or 1, got"):
        table.labels(["Edema", "Fracture"])


def test_table_added_column_that_exists_is_replaced_where_it_stands():
    table = Table({"a": [1], "b": [2]}, types={"a": "int8", "b": "int8"}).with_columns({"a": ["x"], "c": ["y"]})
    assert list(table.columns.items()) == [("a", ["x"]), ("b", [2]), ("c", ["y"])]
    assert table.types == {"b": "int8"}


@pytest.mark.parametrize("path", ["reports.ods", "reports", "reports.csv.gz", ".csv"])
def test_table_ending_that_tells_no_format_lists_those_that_do(path):
    with pytest.raises(TableError, match=r"does not tell the table's format; use one of \.csv, \.tsv, \.jsonl"):
        table_format(path)


def test_table_ending_wins_over_the_fallback():
    assert table_format("a.parquet", fallback="csv") == "parquet"
    assert table_format("-", fallback="jsonl") == "jsonl"


def test_table_words_for_a_missing_report_are_texts_with_a_warning():
    table = Table({"report": ["NaN", " none ", None, "<NA>", "N/A", "null", "None known.", ""]}, source="reports.csv")
    with pytest.warns(
        PlaceholderWarning, match=r"5 of 8 texts in column 'report' of reports.csv are words such as 'NaN'"
    ):
        assert table.texts("report") == list(table.columns["report"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Table({"report": ["No effusion.", None]}).texts("report")


SECTIONS = Table(
    {"findings": ["Clear.", None], "impression": ["Normal.", "Nodule."], "{findings}": ["a", "b"]}, "r.csv"
)


def test_table_texts_of_several_columns_are_joined():
    template = "Findings: {findings} Impression: {impression}"
    assert SECTIONS.texts(template) == ["Findings: Clear. Impression: Normal.", "Impression: Nodule."]
    assert SECTIONS.texts(template, "None")[1] == "Findings: None Impression: Nodule."
    assert SECTIONS.text_columns(template) == ("findings", "impression")
    assert SECTIONS.has_texts(template)
    assert not SECTIONS.has_texts("{findings} {other}")


def test_table_column_whose_name_has_braces_is_preferred_to_a_template():
    assert SECTIONS.texts("{findings}") == ["a", "b"]
    assert SECTIONS.renamed_texts("{findings}", "x {}".format) == "x {findings}"
    assert SECTIONS.renamed_texts("{findings}.", "x {}".format) == "{x findings}."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{finding} {impression}", r"r.csv: unknown column 'finding'; did you mean 'findings'\?"),
        ("{findings", r"r.csv: no column has the name '\{findings', and as a template of columns it has a brace"),
        ("report", "r.csv: unknown column 'report'"),
    ],
)
def test_table_texts_of_unknown_columns_or_a_malformed_template_are_refused(name, message):
    with pytest.raises(TableError, match=message):
        SECTIONS.texts(name)
    assert not SECTIONS.has_texts(name)


def test_table_required_texts_of_a_template_without_any_section_name_the_row():
    table = Table({"a": ["x", None], "b": ["y", ""]}, "r.csv")
    with pytest.raises(TableError, match=r"r.csv: data row 2, column '\{a\} \{b\}': is missing"):
        table.required_texts("{a} {b}")
    assert table.required_texts("{a} {b}", "None") == ["x y", "None "]


@pytest.mark.parametrize(
    ("name", "study"),
    [
        ("s1.mha", "s1"),
        ("valid/a/s1.NII.GZ", "s1"),
        ("C:\\scans\\s1.nrrd", "s1"),
        ("s1.npz", "s1"),
        (" s1.nii ", "s1"),
        ("s1.gz", "s1"),
        ("1.2.840.113704.6_B_Toraks.mha", "1.2.840.113704.6_B_Toraks"),
        ("1.2.840", "1.2.840"),
        ("p10/s50051329", "p10/s50051329"),
        (".mha", ".mha"),
        ("s1.nii.mha", "s1.nii"),
    ],
)
def test_study_name_is_that_of_an_image_file_without_folder_and_ending(name, study):
    assert study_name(name) == study


def test_rows_by_study_names_both_rows_of_a_study():
    table = Table({"name": ["a/s1.mha", "s1.nii.gz"]}, "r.csv")
    with pytest.raises(TableError, match=r"r.csv: data row 2, column 'name': 's1' is also in r.csv: data row 1"):
        rows_by_study(table, "name")


def test_check_header_reads_the_names_once():
    class Names(list[str]):
        def count(self, name):
            raise AssertionError("a header of a million names would never end")

    check_header(Names(["a", "b"]), "in.csv")
    with pytest.raises(TableError, match=r"in.csv: the header holds 'a', 'c' more than once"):
        check_header(Names("acbca"), "in.csv")
