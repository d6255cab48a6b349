"""Check arguments, and raise errors that name the argument, the row and the remedy."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


def check_model_source(name: str | Path, setting: str) -> None:
    """Check that the source of a model is not a missing folder or a folder that contains only an adapter.

    A name of the form ``owner/model`` may be a model on the Hub; the Hub is not queried. A name without an owner is a
    folder, or one of the Hub's oldest models if it is in the Hub's cache on this machine.

    Args:
        name: The folder or Hub id.
        setting: Name of the argument, for messages.

    Raises:
        FileNotFoundError: If the path is missing and it cannot be a Hub id, or its parent folder exists.
        ValueError: For a LoRA adapter. The message gives the command that merges it.

    Example:
        >>> check_model_source("runs/mine/sft", "model")
        Traceback (most recent call last):
        ...
        FileNotFoundError: model: runs/mine/sft: no such folder
        >>> check_model_source("mine", "model")
        Traceback (most recent call last):
        ...
        FileNotFoundError: model: 'mine': no such folder; a model on the Hub is named with its owner, as in owner/model
    """
    path = Path(name)
    if (path / "adapter_config.json").is_file() and not (path / "config.json").is_file():
        raise ValueError(f"{setting}: {name} is a LoRA adapter; merge it first: rrg-rewards convert lora {name}")
    # A Hub id has at most two parts. Thus a/b/c, ./a and /a are paths; runs/a is a path if the folder runs exists.
    is_path = str(name).startswith((".", "/", "~")) or len(path.parts) > 2
    if path.exists():
        return
    if is_path or (len(path.parts) == 2 and Path(path.parts[0]).is_dir()):
        raise FileNotFoundError(f"{setting}: {name}: no such folder{_similar(path)}")
    if len(path.parts) < 2 and not _is_cached(str(name)):
        raise FileNotFoundError(
            f"{setting}: {str(name)!r}: no such folder{_similar(path)}; a model on the Hub is named with its owner, as "
            "in owner/model"
        )


def _is_cached(name: str) -> bool:
    """Whether the Hub's cache on this machine contains the configuration of a model."""
    try:
        hub = import_module("huggingface_hub")
        return isinstance(hub.try_to_load_from_cache(name, "config.json"), str)
    except (ModuleNotFoundError, ValueError):
        # A ValueError: the name can be no Hub id.
        return False


def _similar(path: Path) -> str:
    """Return a suggestion of an existing entry with a similar name, or an empty text."""
    if path.expanduser().exists():
        return f"; ~ is not expanded here, write {path.expanduser()}"
    folder = path.expanduser().parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""


def is_finite(value: Any) -> bool:
    """Whether a value is a finite int or float; a bool is none.

    Example:
        >>> is_finite(1.5), is_finite(float("nan")), is_finite(True), is_finite("1")
        (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_same_length(first_name: str, first: Sequence[object], second_name: str, second: Sequence[object]) -> None:
    """Check that two arguments have the same length.

    Raises:
        ValueError: If the lengths differ. The message names both arguments and both lengths.

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
    """Check that ``reports`` is a sequence of report texts.

    Args:
        name: Name of the argument, for the message.
        reports: The argument.
        allow_none: Whether ``None`` is allowed for a missing report.

    Raises:
        TypeError: If ``reports`` is a single string or one of its rows is not a string. The message names the row.

    Example:
        >>> check_reports("preds", ["No effusion.", 3])
        Traceback (most recent call last):
        ...
        TypeError: preds[1] must be a report text, got int
    """
    check_list(name, reports)
    for row, report in enumerate(reports):
        if isinstance(report, str) or (allow_none and report is None):
            continue
        raise TypeError(f"{name}[{row}] must be a report text, got {type(report).__name__}")


def read_reports(name: str, reports: Sequence[Any]) -> list[str | None]:
    """Return report texts as a list; ``None`` for a missing report, which pandas writes as NaN or NA.

    Args:
        name: Name of the argument, for messages.
        reports: The argument: a list, an array, or a column of a table.

    Raises:
        TypeError: If ``reports`` is no list of texts: a single string, a table, a set or dict, whose order is not that
            of reports, or an iterator; or one of its rows is no text. The message names the row.

    Example:
        >>> read_reports("target", ["No effusion.", float("nan")])
        ['No effusion.', None]
        >>> read_reports("target", {"No effusion."})
        Traceback (most recent call last):
        ...
        TypeError: target must be a list of reports, got set; pass a list in the order of the reports
    """
    check_list(name, reports)
    found = [None if _is_missing(report) else report for report in reports]
    check_reports(name, found, allow_none=True)
    return found


def check_list(name: str, reports: Any) -> None:
    """Raise a TypeError unless an argument is a list, or an array or a column, whose order is that of the reports."""
    if isinstance(reports, str):
        raise TypeError(f"{name} must be a sequence of reports, got one string; pass [{name}]")
    is_sequence = hasattr(reports, "__len__") and hasattr(reports, "__getitem__") and not isinstance(reports, Mapping)
    # A table of pandas yields the names of its columns.
    if not is_sequence or getattr(reports, "ndim", 1) != 1:
        raise TypeError(
            f"{name} must be a list of reports, got {type(reports).__name__}; pass a list in the order of the reports"
        )


def _is_missing(report: Any) -> bool:
    # NA of pandas equals nothing, and has no truth value.
    return (isinstance(report, float) and math.isnan(report)) or type(report).__name__ == "NAType"
