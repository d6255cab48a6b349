"""Labels of a table's reports, from Python."""

import pytest

from rrg_rewards.analysis import LabelSettings, label_table
from rrg_rewards.analysis.input_tables import TableSink
from rrg_rewards.analysis.labelling import TableLabelling
from rrg_rewards.data import Table
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.utilities.run_log import RunLog, RunWarning

REPORTS = ["Cardiomegaly. No emphysema.", None, "Emphysema with spiculated nodule.", " ", "Hiatal hernia."]


class Log(RunLog):
    """Keeps the warnings."""

    def __init__(self):
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def test_label_table_adds_a_column_for_each_label():
    labelled = label_table(Table({"report": REPORTS}), LabelSettings(text_column="report"), Log())
    labels = RuleLabeler("ct_rate").labels
    assert labelled.table.names == ("report", *labels)
    assert labelled.table.columns["Cardiomegaly"] == [1, None, 0, None, 0]
    assert labelled.table.columns["Hiatal hernia"] == [0, None, 0, None, 1]
    assert (labelled.labelled, labelled.failed, labelled.positives["Emphysema"]) == (3, {}, 1)
    told = labelled.to_dict()
    assert (told["table"], told["rows"], told["labelled"], told["unscorable"]) == ("table", 5, 3, 2)
    assert "failed" not in told


def test_label_table_warns_without_a_log():
    with pytest.warns(RunWarning, match="1 of 2 reports"):
        label_table(Table({"report": ["Normal.", None]}), LabelSettings(text_column="report"))


def test_label_table_is_the_labeler_in_batches_of_any_size():
    labeler, reports = RuleLabeler("ct_rate"), ["Cardiomegaly.", "Normal.", "Hiatal hernia.", "Emphysema.", "Edema."]
    for batch_size in (1, 2, 256):
        table = Table({"report": reports}, lines=range(2, 7))
        found = label_table(table, LabelSettings(text_column="report", batch_size=batch_size)).table
        assert [list(found.columns[label]) for label in labeler.labels] == labeler(reports).int().T.tolist()
        assert found.where(4) == table.where(4)


class _Input:
    """Batches of a table; counts those that were read."""

    def __init__(self, *batches):
        self.batches = batches
        self.read = 0

    def __iter__(self):
        first = 0
        self.read = 0
        for reports in self.batches:
            self.read += 1
            yield Table({"report": reports}, "reports.csv", first=first)
            first += len(reports)


def _labelling(given, **settings):
    labelling = TableLabelling(given, LabelSettings(text_column="report", **settings), "reports.csv", Log())
    labelling.check()
    return labelling


@pytest.mark.parametrize("workers", [1, 2])
def test_table_labelling_yields_rows_before_all_are_read(workers):
    given = _Input(*[["Cardiomegaly.", None]] * 100)
    tables = _labelling(given, batch_size=2, workers=workers).tables()
    assert next(tables).columns["Cardiomegaly"] == [1, None]
    assert given.read <= 2 * 8 * workers
    assert sum(len(table) for table in tables) == 198


def test_table_labelling_keeps_the_order_of_batches_without_reports():
    batches = ([None, " "], ["Cardiomegaly.", "Emphysema."], [""], [], ["Hiatal hernia."], [None])
    for batch_size in (1, 2, 3, 256):
        labelling = _labelling(_Input(*batches), batch_size=batch_size)
        tables = list(labelling.tables())
        assert [cell for table in tables for cell in table.columns["report"]] == [one for own in batches for one in own]
        assert [cell for table in tables for cell in table.columns["Emphysema"]] == [None, None, 0, 1, None, 0, None]
        assert (labelling.is_complete, labelling.summary().labelled, labelling.summary().rows) == (True, 3, 7)


def test_table_labelling_labels_all_reports_although_the_table_cannot_be_written(tmp_path):
    given = _Input(["Cardiomegaly."], ["Emphysema."])
    labelling = _labelling(given, batch_size=1)
    with pytest.raises(TableError, match="no/such"):
        labelling.run(TableSink("no/such/folder.csv"))
    assert labelling.is_complete
    assert labelling.summary().positives["Emphysema"] == 1
