"""Files of question items, as the column of the metric reads them."""

from pathlib import Path

from rrg_rewards.data import ReportItems, check_question_items, read_table
from rrg_rewards.questions import get_question_schema


def read_items(path: str | Path, schema: str = "ct_rate") -> list[ReportItems]:
    """Return the items of each report of a file that ``write_question_items`` wrote."""
    table = read_table(path)
    items = check_question_items(table.column("items"), get_question_schema(schema))
    reports = table.optional_texts("report")
    return [
        ReportItems(name, row or (), report)
        for name, row, report in zip(table.column("report_id"), items, reports, strict=True)
    ]
