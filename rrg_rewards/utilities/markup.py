"""HTML elements whose text is always escaped, and numbers as the pages show them."""

import math
from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset(("circle", "line", "path", "rect", "polyline"))


class Markup(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element; children are escaped unless they are :class:`Markup`.

    Args:
        name: Name of the element.
        children: Texts and elements inside it.
        attributes: Attributes; ``None`` leaves one out. A final underscore is dropped and others become hyphens, so
            that ``class_`` and ``aria_label`` can be written.

    Example:
        >>> element("p", "1 < 2, ", element("b", "true"), class_="note")
        '<p class="note">1 &lt; 2, <b>true</b></p>'
    """
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Return the children one after the other, escaped unless they are :class:`Markup`."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, numbers: bool = True) -> Markup:
    """Return a table whose first column names the rows, in a box that scrolls on narrow screens.

    Args:
        heads: Headings of the columns.
        rows: Cells of each row.
        caption: What the table contains.
        numbers: Whether the other columns are numbers, which are aligned on the right.
    """
    kind = "number" if numbers else None
    first_head, *rest_heads = heads
    cells = (element("th", text, scope="col", class_=kind) for text in rest_heads)
    head = element("tr", element("th", first_head, scope="col"), *cells)
    body = (
        element("tr", element("th", first, scope="row"), *(element("td", cell, class_=kind) for cell in rest))
        for first, *rest in rows
    )
    inner = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def shown_number(value: float | None, digits: int = 4) -> str:
    """Return a number with a fixed number of digits, an integer without; a dash for ``None`` and NaN.

    Example:
        >>> shown_number(0.5), shown_number(3), shown_number(None)
        ('0.5000', '3', '-')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def shown_interval(low: float | None, high: float | None) -> str:
    """Return an interval; a dash if there is none.

    Example:
        >>> shown_interval(0.25, 0.5), shown_interval(None, None)
        ('0.2500 to 0.5000', '-')
    """
    ends = shown_number(low), shown_number(high)
    return "-" if "-" in ends else " to ".join(ends)


def shown_p(value: float | None, permutations: int) -> str:
    """Return a p-value of permutations, which is at least 1 divided by their number and one.

    Example:
        >>> shown_p(0.00001, 10**6), shown_p(0.03, 999), shown_p(0.001, 999), shown_p(None, 999)
        ('<0.0001', '0.0300', '≤0.001', '-')
    """
    least = 1 / (permutations + 1)
    if value is not None and value <= 1.0001 * least:
        return f"≤{least:.1g}"
    return "<0.0001" if value is not None and value < 0.0001 else shown_number(value)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of Markdown.

    Example:
        >>> print(markdown_table(("a", "b"), [("1", None)]))
        | a | b |
        |---|---|
        | 1 |  |
    """
    cells = [
        ["" if cell is None else str(cell).replace("|", r"\|").replace("\n", "<br>") for cell in row] for row in rows
    ]
    head, *body = (f"| {' | '.join(row)} |" for row in [headings, *cells])
    return "\n".join([head, "|" + "---|" * len(headings), *body])
