"""Checks of arguments that name the argument, the row and what to do."""

from collections.abc import Sequence

__all__ = ["check_reports", "check_same_length"]


def check_same_length(first_name: str, first: Sequence[object], second_name: str, second: Sequence[object]) -> None:
    """Raise if two arguments that go together differ in length.

    Raises:
        ValueError: Naming both arguments and both lengths.

    Example:
        >>> check_same_length("preds", ["a"], "target", ["a", "b"])
        Traceback (most recent call last):
        ...
        ValueError: preds and target must have the same length, got 1 and 2
    """
    if len(first) != len(second):
        raise ValueError(
            f"{first_name} and {second_name} must have the same length, got {len(first)} and {len(second)}"
        )


def check_reports(name: str, reports: Sequence[str | None], allow_none: bool = False) -> None:
    """Raise unless ``reports`` is a sequence of report texts.

    Args:
        name: The argument's name, for the message.
        reports: What was given.
        allow_none: Whether a missing report may be given as ``None``.

    Raises:
        TypeError: For a lone string, or for a row that is no string, by its index.

    Example:
        >>> check_reports("preds", ["No effusion.", 3])
        Traceback (most recent call last):
        ...
        TypeError: preds[1] must be a report text, got int
    """
    if isinstance(reports, str):
        raise TypeError(f"{name} must be a sequence of reports, got one string; pass [{name}]")
    for row, report in enumerate(reports):
        if isinstance(report, str) or (allow_none and report is None):
            continue
        raise TypeError(f"{name}[{row}] must be a report text, got {type(report).__name__}")
