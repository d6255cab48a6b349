"""Comparison of tables from Python: the values of compare_systems, groups, runs, scores and other orders of rows."""

from pathlib import Path

import pytest

from rrg_rewards.analysis import CompareSettings, PairColumns, compare_tables
from rrg_rewards.analysis.tables import comparison_grids, comparison_latex, comparison_markdown
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.metrics import ROUGE, ReportCRG

REFERENCES = ["Enlarged heart.", "Hiatal hernia.", "Hiatal hernia. Emphysema.", "Normal."] * 3
OLD = ["Normal."] * 12
NEW = ["Cardiomegaly.", "Normal.", "Hiatal hernia.", "Normal."] * 3
SITES = ["a", "a", "b", "b"] * 3
FEW = {"bootstrap": 40, "permutations": 40}


@pytest.fixture
def write(tmp_path):
    def write_table(name, order=range(12), **columns):
        path = tmp_path / name
        lines = [",".join(["id", *columns])]
        lines += [",".join([str(row), *(str(cells[row]) for cells in columns.values())]) for row in order]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write_table


@pytest.fixture
def tables(write):
    return [
        write("old.csv", prediction=OLD, reference=REFERENCES, site=SITES),
        write("new.csv", prediction=NEW, reference=REFERENCES, site=SITES),
    ]


def metrics():
    return {"crg": ReportCRG(), "rouge": ROUGE()}


def test_compare_tables_takes_paths_and_names_of_metrics(tables):
    settings = CompareSettings(**FEW)
    compared = compare_tables([Path(table) for table in tables], ["crg", "rouge"], settings=settings)
    assert compared.result.to_dict() == compare_tables(tables, metrics(), settings=settings).result.to_dict()


def test_compare_tables_reads_no_name_from_a_path(tables):
    with pytest.raises(TableError, match=r"^a=none\.csv: no such file"):
        compare_tables([tables[0], Path("a=none.csv")], ["crg"])


def test_tables_of_a_comparison_name_systems_and_metrics(tables):
    result = compare_tables(tables, metrics(), settings=CompareSettings(by=["site"], **FEW)).result
    assert [grid.title for grid in comparison_grids(result)[:3]] == [
        "12 reports",
        "site a: 6 reports",
        "site b: 6 reports",
    ]
    assert "| crg | old |" in comparison_markdown(result)
    assert r"\toprule" in comparison_latex(result)


SECTIONS = "{findings} {impression}"


def test_compare_tables_joins_sections_of_references_and_predictions(write):
    """Templates give the comparison of tables that have the joined texts in one column."""
    findings, impression = ["Nodule.", ""] * 6, ["Mass.", "Normal."] * 6
    predicted, joined = ["Mass.", "Clear."] * 6, ["Nodule. Mass.", "Normal."] * 6
    sections = {"findings": findings, "impression": impression}
    paths = [
        write("a.csv", prediction=OLD, part=predicted, **sections),
        write("b.csv", prediction=NEW, part=predicted, **sections),
    ]
    columns, settings = PairColumns(reference_column=SECTIONS), CompareSettings(**FEW)
    found = compare_tables(
        paths, ["rouge"], prediction_columns=["{part} {prediction}"], columns=columns, settings=settings
    )
    whole = [
        write(name, prediction=[f"{part} {text}" for part, text in zip(predicted, old, strict=True)], reference=joined)
        for name, old in (("a.csv", OLD), ("b.csv", NEW))
    ]
    assert found.result.to_dict() == compare_tables(whole, ["rouge"], settings=settings).result.to_dict()


def test_compare_tables_template_with_a_table_of_references(write):
    table = write("p.csv", a=OLD, part=["Mass."] * 12, b=NEW)
    truth = write("t.csv", order=range(11, -1, -1), findings=REFERENCES, impression=["Normal."] * 12)
    columns = PairColumns(reference_column=SECTIONS, references=truth, key="id")
    settings = CompareSettings(**FEW)
    found = compare_tables(
        [table], ["rouge"], prediction_columns=["x={part} {a}", "b"], columns=columns, settings=settings
    )
    assert list(found.result.systems) == ["x", "b"]
    texts = dict(zip(found.studies.columns["id"], found.studies.texts("{part} {a}"), strict=True))
    assert texts["0"] == "Mass. Normal."


def test_compare_tables_other_sections_in_one_table_are_refused(write):
    other = ["Nodule."] * 11 + ["Mass."]
    paths = [
        write("a.csv", prediction=OLD, findings=["Nodule."] * 12, impression=OLD),
        write("b.csv", prediction=NEW, findings=other, impression=OLD),
    ]
    columns = PairColumns(reference_column=SECTIONS)
    with pytest.raises(TableError, match=r"data row 12 .*, column '\{findings\} \{impression\}': differs from"):
        compare_tables(paths, ["rouge"], columns=columns, settings=CompareSettings(**FEW))
