"""Split CT-RATE reports with labels into findings and impression.

``python -m rrg_rewards.recipes.smollm2.ct_rate REPORTS.csv --output runs/ct_rate_impressions.csv``

In the report text of the CT-RATE label tables, the impression follows the findings as a list whose items begin with a
quotation mark or a bullet. Reports without these marks are dropped, and their number is logged. All other columns are
kept, including the 18 labels.
"""

import argparse
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from rrg_rewards.data import Table, read_table, write_table

logger = logging.getLogger(__name__)

_ITEM = re.compile(r'\s*["•·]\s*')


def split_report(report: str) -> tuple[str, str] | None:
    r"""Split a report into findings and impression, or return ``None`` if one of them is missing.

    The impression has one line per item.

    Example:
        >>> split_report('The heart is large. " Cardiomegaly " Hiatal hernia')
        ('The heart is large.', 'Cardiomegaly\nHiatal hernia')
        >>> split_report("The heart is large.") is None
        True
    """
    findings, *items = _ITEM.split(report.strip())
    impression = "\n".join(item for item in items if item)
    return (findings, impression) if findings and impression else None


def split_file(source: str | Path, output: str | Path, text_column: str = "report_text") -> tuple[int, int]:
    """Split all reports of a CSV file.

    Args:
        source: CSV file with a column of reports.
        output: CSV file to write, with the columns ``findings`` and ``impression`` instead of the reports.
        text_column: Column of reports.

    Returns:
        Number of reports written, and number of reports dropped.

    Raises:
        ValueError: If the column is missing.
    """
    table = read_table(source)
    split = {row: split_report(report or "") for row, report in enumerate(table.column(text_column))}
    sections = {row: section for row, section in split.items() if section is not None}
    columns = {name: [cells[row] for row in sections] for name, cells in table.columns.items() if name != text_column}
    columns["findings"] = [findings for findings, _ in sections.values()]
    columns["impression"] = [impression for _, impression in sections.values()]
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    write_table(Table(columns), output, overwrite=True)
    return len(sections), len(table) - len(sections)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="CSV file of reports with labels")
    parser.add_argument("--output", required=True, help="CSV file to write")
    parser.add_argument("--text-column", default="report_text", help="column of reports")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    written, dropped = split_file(arguments.source, arguments.output, arguments.text_column)
    logger.info("wrote %d reports to %s; left out %d without an impression", written, arguments.output, dropped)


if __name__ == "__main__":
    main()
