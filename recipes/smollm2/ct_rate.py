"""Split CT-RATE reports with labels into findings and impression.

``python -m rrg_rewards.recipes.smollm2.ct_rate REPORTS.csv --output runs/ct_rate_impressions.csv``

In the report text of the CT-RATE label tables the impression follows the findings as a list whose items begin with a
quotation mark or a bullet. Reports without such a mark have no impression that could be told from the findings; they
are left out and counted. All other columns are kept, the 18 labels among them.
"""

import argparse
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from rrg_rewards.data import Table, read_table, write_table

__all__ = ["main", "split_file", "split_report"]

logger = logging.getLogger(__name__)

_ITEM = re.compile(r'\s*["•·]\s*')


def split_report(report: str) -> tuple[str, str] | None:
    r"""Split a report into findings and impression, one item of the impression a line.

    Returns:
        Findings and impression; ``None`` where either is missing.

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
        output: CSV file to write: columns ``findings`` and ``impression`` in place of the reports.
        text_column: Column of reports.

    Returns:
        How many reports were written, and how many were left out.

    Raises:
        ValueError: If the column is missing.
    """
    table = read_table(source)
    parts = [split_report(report or "") for report in table.column(text_column)]
    rows = [row for row, part in enumerate(parts) if part is not None]
    kept = {name: [cells[row] for row in rows] for name, cells in table.columns.items() if name != text_column}
    sections = [part for part in parts if part is not None]
    split = {"findings": [part[0] for part in sections], "impression": [part[1] for part in sections]}
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    write_table(Table({**kept, **split}), output, overwrite=True)
    return len(rows), len(parts) - len(rows)


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
