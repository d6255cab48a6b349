"""Printed tables of rich."""

from collections.abc import Collection, Iterable, Sequence

from rich.table import Table as Grid


def printed_table(
    title: str | None,
    headings: Sequence[str],
    sections: Iterable[Sequence[Sequence[str]]],
    *,
    texts: int = 1,
    whole: Collection[int] = (),
    caption: str | None = None,
) -> Grid:
    """Return a table of rich.

    Args:
        title: Text above the table.
        headings: Names of the columns.
        sections: Cells of the rows of each section; there is a line between two sections.
        texts: Number of the first columns, which contain texts. The others contain numbers.
        whole: Indices of the columns whose cells are not wrapped.
        caption: Text below the table.
    """
    grid = Grid(title=title, title_justify="left", caption=caption)
    for place, heading in enumerate(headings):
        grid.add_column(heading, justify="left" if place < texts else "right", no_wrap=place in whole)
    for rows in sections:
        for place, row in enumerate(rows):
            grid.add_row(*row, end_section=place == len(rows) - 1)
    return grid
