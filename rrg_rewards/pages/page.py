"""A static page: sections, a table of rows that is sorted and searched in the browser, and a view of each row."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from rrg_rewards.data.tables.writers import open_output
from rrg_rewards.utilities.markup import Markup, element, joined
from rrg_rewards.utilities.texts import encodable_text
from rrg_rewards.version import __version__

_SURROGATE = re.compile("[\ud800-\udfff]")
# Digits of a number in the data of a page.
_DIGITS = 6

MOST_ROWS = 10_000
"""Maximum number of rows of a page. A browser opens, searches and sorts so many without delay."""

Cell = float | int | str | None


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        name: Heading.
        cells: ``N`` numbers, texts or ``None``.
        group: Name under which the view of a row shows the cell; the metric, for example.
        in_table: Whether the table shows the column, and not only the view of a row.
    """

    name: str
    cells: Sequence[Cell]
    group: str = ""
    in_table: bool = True


@dataclass(frozen=True)
class Pane:
    """Texts that the view of a row shows side by side with those of the other panes; ``None`` if one is missing."""

    title: str
    texts: Sequence[str | None]


@dataclass(frozen=True)
class Rows:
    """The rows of a page.

    Args:
        noun: What a row is, such as ``"report"``.
        names: ``N`` names.
        columns: Columns of ``N`` cells.
        panes: Texts of the rows.
        findings: By metric, the findings of each row as :func:`rrg_rewards.pages.highlights` returns them.
        sides: Names of the reports that the findings are of.
    """

    noun: str
    names: Sequence[str]
    columns: Sequence[Column]
    panes: Sequence[Pane] = ()
    findings: Mapping[str, Sequence[Sequence[Sequence[Any]] | None]] = field(default_factory=dict)
    sides: Sequence[str] = ("Reference", "Candidate")

    def sampled(self, most: int = MOST_ROWS) -> "Rows":
        """Return every k-th row, so that there are at most ``most``; all rows if there are no more.

        Example:
            >>> rows = Rows("report", ["1", "2", "3"], [Column("crg", [0.1, 0.2, 0.3])])
            >>> rows.sampled(2).names
            ['1', '3']
        """
        step = row_step(len(self.names), most)
        if step == 1:
            return self
        return replace(
            self,
            names=self.names[::step],
            columns=[replace(column, cells=column.cells[::step]) for column in self.columns],
            panes=[replace(pane, texts=pane.texts[::step]) for pane in self.panes],
            findings={name: found[::step] for name, found in self.findings.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the data that the page's script reads."""
        return {
            "noun": self.noun,
            "names": list(self.names),
            "columns": [
                {
                    "name": column.name,
                    "group": column.group,
                    "shown": column.in_table,
                    "number": all(cell is None or isinstance(cell, int | float) for cell in column.cells),
                    "cells": [_cell(cell) for cell in column.cells],
                }
                for column in self.columns
            ],
            "panes": [{"title": pane.title, "texts": list(pane.texts)} for pane in self.panes],
            "sides": list(self.sides),
            "findings": {name: list(found) for name, found in self.findings.items()},
        }


@dataclass(frozen=True)
class Page:
    """A page.

    Args:
        title: Title.
        lead: The result in one sentence.
        sections: Content by heading.
        rows: Rows of the table, if there is one.
        facts: Facts on how the results were made, by name: table, version, signatures.
    """

    title: str
    lead: str
    sections: Mapping[str, Sequence[Markup]]
    rows: Rows | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def row_step(rows: int, most: int = MOST_ROWS) -> int:
    """Return the distance of rows of which at most ``most`` of ``rows`` are taken.

    Example:
        >>> row_step(10_000), row_step(10_001), row_step(0)
        (1, 2, 1)
    """
    return max(1, -(-rows // most))


def sample_note(rows: int, noun: str, most: int = MOST_ROWS) -> str:
    """Return what the lead of a page says if its table is a sample of the rows; empty if it has all of them.

    Example:
        >>> sample_note(25_000, "reports")
        ' The table shows 8334 of them, one in 3; the values and distributions are those of all 25000 reports.'
    """
    step = row_step(rows, most)
    if step == 1:
        return ""
    shown = -(-rows // step)
    return (
        f" The table shows {shown} of them, one in {step}; the values and distributions are those of all {rows} {noun}."
    )


def _cell(cell: Cell) -> Cell:
    """Return a cell for JSON: NaN is ``None``, and numbers have six digits."""
    if isinstance(cell, float):
        return float(f"{cell:.{_DIGITS}g}") if math.isfinite(cell) else None
    return cell


@cache
def _file(name: str) -> str:
    return files("rrg_rewards.pages").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    """Return the source of a Content Security Policy that allows exactly this inline content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """Return JSON that can stand in a ``script`` element: no text in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    # A generated report may contain half of a pair of surrogates, which UTF-8 cannot represent.
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def render_page(page: Page) -> str:
    """Return a page as HTML: one file that loads nothing, and runs no other script or style than its own.

    Example:
        >>> html = render_page(Page("Scores", "1 < 2", {"Summary": [element("p", "one")]}))
        >>> "1 &lt; 2" in html, "https:" in html
        (True, False)
    """
    style, script = _file("page.css"), _file("page.js")
    sections = [
        element("section", element("h2", heading), *parts, aria_label=heading)
        for heading, parts in page.sections.items()
    ]
    facts = [joined([element("dt", name), element("dd", text)]) for name, text in page.facts.items()]
    html = Template(_file("page.html")).substitute(
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=joined([page.title]),
        lead=joined([page.lead]),
        sections=joined(sections),
        facts=element("dl", *facts) if facts else "",
        version=__version__,
        data=_json(None if page.rows is None else page.rows.to_dict()),
        style=style,
        script=script,
    )
    return encodable_text(html)


def write_page(page: Page, path: str | Path, overwrite: bool = False) -> None:
    """Write a page to a file, completely or not at all.

    Args:
        page: The page.
        path: Path of the file.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the folder does not exist, or the file exists and ``overwrite`` is false.
    """
    content = render_page(page)
    with open_output(path, overwrite) as file:
        file.write(content.encode())
