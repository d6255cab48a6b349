"""Question items by report: what is written is what the metric's column reads."""

import pytest

from rrg_rewards.data import ReportItems, TableError, write_question_items
from rrg_rewards.questions.schema import QAItem
from tests.helpers.question_items import read_items

SIZE = QAItem("Lung nodule", "size", "How large is the nodule?", "12 mm", "numeric", "Its diameter.", ("3 mm", "1 cm"))
THERE = QAItem("Lung nodule", "existence", "Is there a nodule?", "yes", "existence")
REPORTS = [ReportItems("a", (SIZE, THERE), "Nodule of 12 mm."), ReportItems("b", (), "Clear.")]


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_question_items_written_items_are_read_again(tmp_path, ending):
    path = tmp_path / f"items.{ending}"
    write_question_items(REPORTS, path)
    assert read_items(path) == REPORTS
    with pytest.raises(TableError, match="exists already"):
        write_question_items(REPORTS, path)
    write_question_items([ReportItems("a", (SIZE,))], path, overwrite=True)
    assert read_items(path) == [ReportItems("a", (SIZE,))]
