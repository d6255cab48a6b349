"""Texts of numbers and cells in printed tables and LaTeX."""

from collections.abc import Sequence

__all__ = ["latex_row", "latex_text", "number_text", "p_text"]


def number_text(value: float | None) -> str:
    """Return a number with three decimals, ``-`` for ``None``.

    Example:
        >>> number_text(0.12345), number_text(None)
        ('0.123', '-')
    """
    return "-" if value is None else f"{value:.3f}"


def p_text(value: float | None) -> str:
    """Return a p-value with four decimals, ``-`` for ``None``.

    Example:
        >>> p_text(0.0123), p_text(0.00001), p_text(None)
        ('0.0123', '<0.0001', '-')
    """
    if value is None:
        return "-"
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def latex_row(cells: Sequence[str]) -> str:
    r"""Return a row of a LaTeX table.

    Example:
        >>> print(latex_row(["crg", "0.4"]))
        crg & 0.4 \\
    """
    return " & ".join(cells) + r" \\"


def latex_text(text: str) -> str:
    r"""Escape the special characters of LaTeX.

    Example:
        >>> print(latex_text("crg_1"))
        crg\_1
    """
    special: dict[str, str | int | None] = {mark: f"\\{mark}" for mark in "&%$#_{}"}
    special |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    return text.translate(str.maketrans(special))
