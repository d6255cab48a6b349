"""Numbers as the pages show them."""

import math

__all__ = ["shown_interval", "shown_number", "shown_p"]


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


def shown_p(value: float | None) -> str:
    """Return a p-value.

    Example:
        >>> shown_p(0.00001), shown_p(0.03), shown_p(None)
        ('<0.0001', '0.0300', '-')
    """
    return "<0.0001" if value is not None and value < 0.0001 else shown_number(value)
