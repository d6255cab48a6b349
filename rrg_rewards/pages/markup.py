"""HTML elements whose text is always escaped."""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Markup", "element", "joined", "table"]

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
