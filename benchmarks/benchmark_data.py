"""The data of benchmarks: reports, or phantom reports in their place, and annotated pairs; the files of results."""

import argparse
import csv
import os
from pathlib import Path
from typing import Any

from rrg_rewards.data import phantom_studies, write_json

__all__ = ["RESULTS", "SHARED", "model_name", "need", "phantom_reports", "read_reports", "write_results"]

RESULTS = Path(__file__).resolve().parent / "results"
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
REPORTS = SHARED / "ct_rate_labels" / "reports.csv"


def read_reports(arguments: argparse.Namespace, option: str, column: str) -> list[str]:
    """Read the reports of a CSV file.

    Without the option, the file is CT-RATE's in the shared folder. If it does not exist, the reports are those of
    phantom studies. Their figures are printed and not written, because they differ from those of real reports.

    Args:
        arguments: The benchmark's arguments with ``output``.
        option: Name of the argument with the path, or ``None`` in it.
        column: Column of the reports.
    """
    path: Path | None = getattr(arguments, option)
    if path is None and not REPORTS.is_file():
        return phantom_reports(arguments, f"{REPORTS}: no such file; --{option} FILE names a CSV file of reports")
    path = path or REPORTS
    need(path, f"reports in the column {column}")
    with path.open(newline="", encoding="utf-8") as file:
        return [row[column] for row in csv.DictReader(file)]


def phantom_reports(arguments: argparse.Namespace, reason: str, number: int = 200) -> list[str]:
    """Return reports of phantom studies, say why, and let the benchmark write nothing."""
    print(f"{reason}. Phantom reports are used instead; their figures are printed and not written.")
    arguments.output = Path(os.devnull)
    return [study.report for study in phantom_studies(number, seed=0, style="full")]


def need(path: Path, what: str) -> None:
    """End the benchmark with one line if a file is missing.

    Args:
        path: The file.
        what: Its content and its source.
    """
    if not path.is_file():
        raise SystemExit(f"{path}: no such file; it holds {what}. See --help for the option that names it.")


def model_name(model: str | Path) -> str:
    """Return the name of a model for results, which says nothing of the machine: a Hub id, or the name of a folder.

    Example:
        >>> model_name("gihuncho/crepe-biomedbert"), model_name("/home/me/models/crepe/")
        ('gihuncho/crepe-biomedbert', 'crepe')
        >>> model_name("/cache/hub/models--gihuncho--crepe-biomedbert/snapshots/0a1b")
        'gihuncho/crepe-biomedbert'
    """
    parts = Path(Path.cwd(), model).parts
    for part in parts:
        # Folders of the Hub's cache.
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    text = str(model)
    is_hub_id = text.count("/") == 1 and text[0] not in "./~" and not Path(text).exists()
    return text if is_hub_id else parts[-1]


def write_results(result: Any, arguments: argparse.Namespace, name: str) -> None:
    """Write the figures of a benchmark to ``--output``.

    Without that option they are written to ``benchmarks/results``, or nowhere with ``--quick``, whose figures are only
    approximate.

    Args:
        result: The figures and what they were measured with.
        arguments: The benchmark's arguments with ``output`` and ``quick``.
        name: Name of the file in ``benchmarks/results``, without the ending.
    """
    path: Path | None = arguments.output
    if path == Path(os.devnull) or (path is None and arguments.quick):
        return
    path = path or RESULTS / f"{name}.json"
    write_json(result, path, overwrite=True)
    print(f"written to {path}")
