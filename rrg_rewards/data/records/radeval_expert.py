"""Reader of RadEvalExpert: chest X-ray reports with error counts of radiologists in annotation texts."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrg_rewards.data.records.annotation_cells import AnnotationWarning, cell_text, check_names, sum_if_complete
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.findings.editing.injected_report import LETTERS

_SLOTS = (1, 2, 3)
_TEXTS = ("annotator", "type", "images_path")
_HEADER = re.compile(r"[^a-z0-9]*(?:clinically )?(significant|insignificant)(?: errors)?[^a-z0-9]*", re.IGNORECASE)
_COUNT = re.compile(r"\s*([1-7])[.)]\s+(.+?)\s*:\s*(\d+)\s*[.;]?\s*")
# The first words of the seven categories, without punctuation and in lower case.
_CATEGORIES = (
    "false prediction",
    "omission of finding",
    "incorrect location",
    "incorrect severity",
    "mention",
    "omission",
    "inarticulate report",
)

Counts = Mapping[bool, Sequence[float | None]]
"""The numbers of errors of the seven categories, of significant (True) and insignificant errors."""


def read_radeval_expert(path: str | Path) -> list[ErrorRecord]:
    r"""Read RadEvalExpert: chest X-ray references with three candidates each, and error counts of a radiologist.

    The data set is on Hugging Face (``IAMJB/RadEvalExpertDataset``, MIT), its only table
    ``reader_study_final_with_annotationsv3.csv``: 208 rows with the columns ``annotator``, ``type`` (``findings``,
    ``impression`` or a third section), ``ground_truth``, ``images_path``, ``prediction1`` to ``3`` and ``annotation1``
    to ``3``. The reader was tested on files in this layout, but not on the data.

    A cell ``annotationN`` is a text with two parts, "Significant" and "Insignificant", of seven numbered lines each,
    such as ``1. False prediction of finding: 2``. This form is that of a public program that reads the cells at
    revision ``b4bd9d6``, where the counts of two lines cannot be read. Categories 1 to 6 are those of ReXVal. The
    seventh, inarticulate reports (grammar and readability), belongs to none of them and is in ``ErrorRecord.other``.

    A count that cannot be read, or that a cell has twice, is ``None`` and never 0; the totals ``errors``,
    ``significant`` and ``insignificant`` that contain it are missing too. A warning says how many there are. An empty
    prediction is an empty report, unless its annotation is empty too, which leaves it out.

    Args:
        path: The table (CSV, JSON lines or Parquet).

    Returns:
        One record for each candidate, in order. ``study`` is ``images_path``. Attributes: ``annotator``, ``type`` and
        ``candidate``, the number of the candidate.

    Raises:
        TableError: If a column is missing, naming all missing columns, or a reference is missing.

    Example:
        >>> names = "False prediction of finding|Omission of finding|Incorrect location/position of finding"
        >>> names += "|Incorrect severity of finding|Mention of comparison that is not present in the reference"
        >>> names += "|Omission of a change from a previous study|Inarticulate report (grammar and readability)"
        >>> part = "\n".join(f"{n}. {name}: {int(n == 2)}" for n, name in enumerate(names.split("|"), start=1))
        >>> counts = parse_expert_annotation(f"**Significant:**\n{part}\n\nInsignificant:\n{part}")
        >>> counts[True]
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    table = read_table(path)
    slots = [f"{kind}{slot}" for kind in ("prediction", "annotation") for slot in _SLOTS]
    check_names(table.names, [*_TEXTS, "ground_truth", *slots], table.source)
    references = table.required_texts("ground_truth")
    columns = {name: [text or "" for text in table.texts(name)] for name in slots}
    records, unread, cells = [], 0, 0
    for row, reference in enumerate(references):
        texts = {name: cell_text(table, row, name) for name in _TEXTS}
        for slot in _SLOTS:
            candidate, annotation = (columns[f"{kind}{slot}"][row] for kind in ("prediction", "annotation"))
            if not candidate.strip() and not annotation.strip():
                continue
            counts = parse_expert_annotation(annotation)
            unread += sum(count is None for part in counts.values() for count in part)
            cells += sum(map(len, counts.values()))
            attributes = {"annotator": texts["annotator"], "type": texts["type"], "candidate": str(slot)}
            records.append(_record(reference, candidate, counts, texts["images_path"], attributes))
    if unread:
        warnings.warn(
            f"{path}: {unread} of {cells} counts cannot be read; they and the totals that contain them are missing",
            AnnotationWarning,
            stacklevel=2,
        )
    return records


def parse_expert_annotation(text: str) -> Counts:
    """Return the seven counts of significant and of insignificant errors in an annotation cell of RadEvalExpert.

    Args:
        text: The cell.

    Returns:
        Lists of seven numbers; ``None`` for a count that is missing, malformed or given twice.
    """
    counts: dict[bool, list[float | None]] = {True: [None] * len(_CATEGORIES), False: [None] * len(_CATEGORIES)}
    seen: set[tuple[bool, int]] = set()
    part: bool | None = None
    for line in text.splitlines():
        if header := _HEADER.fullmatch(line):
            part = header[1].lower() == "significant"
        elif part is not None and (found := _COUNT.fullmatch(line)):
            place = int(found[1]) - 1
            name = " ".join(re.sub(r"[^a-z ]", " ", found[2].lower()).split())
            if name.startswith(_CATEGORIES[place]):
                counts[part][place] = None if (part, place) in seen else float(found[3])
                seen.add((part, place))
    return counts


def _record(reference: str, candidate: str, counts: Counts, study: str, attributes: Mapping[str, str]) -> ErrorRecord:
    six = len(LETTERS)
    found = [sum_if_complete(pair) for pair in zip(counts[True], counts[False], strict=True)]
    weighty = [None if total is None else count for count, total in zip(counts[True], found, strict=True)]
    totals = {
        "errors": sum_if_complete(found),
        "significant": sum_if_complete(counts[True]),
        "insignificant": sum_if_complete(counts[False]),
    }
    return ErrorRecord(
        reference,
        candidate,
        tuple(found[:six]),
        "radevalexpert",
        significant=tuple(weighty[:six]),
        other=found[six],
        significant_other=weighty[six],
        study=study,
        attributes=attributes,
        ratings={name: total for name, total in totals.items() if total is None},
    )
