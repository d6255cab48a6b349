"""Checks of arguments that name the argument, the row and what to do."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["check_model_source", "check_reports", "check_same_length"]


def check_model_source(name: str | Path) -> None:
    """Raise if what names a model is a folder that is not there, or holds an adapter only.

    A name of the form ``owner/model`` may be one on the Hub, which is not asked here.

    Raises:
        FileNotFoundError: For a path that cannot be a name on the Hub, or lies in a folder that exists.
        ValueError: For a LoRA adapter, saying how to merge it.

    Example:
        >>> check_model_source("runs/mine/sft")
        Traceback (most recent call last):
        ...
        FileNotFoundError: runs/mine/sft: no such folder
    """
    path = Path(name)
    if (path / "adapter_config.json").is_file() and not (path / "config.json").is_file():
        raise ValueError(f"{name} is a LoRA adapter; merge it first: rrg-rewards convert lora {name} --output FOLDER")
    # On the Hub names have an owner and no more: a/b/c, ./a and /a are folders, and so is runs/a beside a folder runs.
    is_path = str(name).startswith((".", "/", "~")) or len(path.parts) > 2
    if not path.exists() and (is_path or (len(path.parts) == 2 and Path(path.parts[0]).is_dir())):
        raise FileNotFoundError(f"{name}: no such folder")


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
