"""RadGenome-Chest CT: the sentences of CT-RATE's reports by region, joined to one report for each volume."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.ct_rate import CtRateName, keep_first_of_scans, parse_ct_rate_name, read_no_chest
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError

_VOLUME, _REGION, _SENTENCE = "Volumename", "Anatomy", "Sentence"


@dataclass(frozen=True)
class RadGenomeCounts:
    """Numbers of rows and volumes that :func:`read_radgenome` read or left out.

    Args:
        rows: Rows of the table.
        volumes: Volumes in the table.
        joined: Number of rows of the result.
        without_chest: Volumes left out because they do not show the chest.
        other_reconstructions: Volumes left out because the result has another reconstruction of the scan.
        blank_sentences: Rows without a sentence.
        repeated_sentences: Rows whose sentence is already in the report of the volume.
    """

    rows: int
    volumes: int
    joined: int
    without_chest: int = 0
    other_reconstructions: int = 0
    blank_sentences: int = 0
    repeated_sentences: int = 0


def read_radgenome(
    path: str | Path, no_chest: str | Path | Sequence[str | Path] = (), one_per_scan: bool = False
) -> tuple[Table, RadGenomeCounts]:
    r"""Read RadGenome-Chest CT: one report for each volume of CT-RATE, from its sentences by region.

    The data set is on Hugging Face (``RadGenome/RadGenome-ChestCT``, CC BY-NC-SA 4.0). Its files
    ``train_region_report.csv`` and ``validation_region_report.csv`` have a row for each sentence and region, with the
    columns ``Volumename`` (so spelled), ``Anatomy`` and ``Sentence``, as public loaders read them. The reader was
    tested on files in this layout, but not on the data.

    A sentence that a volume has for several regions is once in its report, at its first place. Sentences keep the order
    of the file; the rows of a volume need not follow each other.

    Args:
        path: The table.
        no_chest: Lists of volumes that do not show the chest, as in :func:`rrg_rewards.data.read_ct_rate`.
        one_per_scan: Whether to keep only one volume of each scan, that with the lowest number.

    Returns:
        The table and its counts, in the order of the volumes' first rows. Columns: ``study_id`` (name of the volume
        without its ending), ``scan`` and ``patient``; ``findings``, the sentences joined by spaces, ``None`` if there
        is none; ``regions``, a list of objects with ``anatomy`` (``None`` if the cell is empty) and ``sentence``, one
        for each row with a sentence.

    Raises:
        TableError: If the file cannot be read, lacks a column, or has a row without a volume of CT-RATE.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> rows = ["lung,Small nodule.", "pleura,No effusion.", "right lung,Small nodule."]
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "validation_region_report.csv"
        ...     lines = ["Volumename,Anatomy,Sentence", *(f"valid_1_a_1.nii.gz,{row}" for row in rows)]
        ...     _ = path.write_text("\n".join(lines))
        ...     table, counts = read_radgenome(path)
        >>> table.column("study_id"), table.column("findings"), counts.repeated_sentences
        (['valid_1_a_1'], ['Small nodule. No effusion.'], 1)
    """
    table = read_table(path)
    regions = _regions(table)
    excluded = read_no_chest(no_chest)
    chest = [name for name in regions if name.volume not in excluded]
    kept = keep_first_of_scans(chest) if one_per_scan else chest
    reports = {name: list(dict.fromkeys(sentence for _, sentence in regions[name])) for name in kept}
    columns: dict[str, list[Any]] = {
        "study_id": [name.volume for name in kept],
        "scan": [name.scan for name in kept],
        "patient": [name.patient for name in kept],
        "findings": [" ".join(reports[name]) or None for name in kept],
        "regions": [
            [{"anatomy": anatomy, "sentence": sentence} for anatomy, sentence in regions[name]] for name in kept
        ],
    }
    counts = RadGenomeCounts(
        rows=len(table),
        volumes=len(regions),
        joined=len(kept),
        without_chest=len(regions) - len(chest),
        other_reconstructions=len(chest) - len(kept),
        blank_sentences=len(table) - sum(map(len, regions.values())),
        repeated_sentences=sum(len(regions[name]) - len(reports[name]) for name in kept),
    )
    return Table(columns, str(path)), counts


def _regions(table: Table) -> dict[CtRateName, list[tuple[str | None, str]]]:
    """Return the regions and sentences of each volume."""
    found: dict[CtRateName, list[tuple[str | None, str]]] = {}
    columns = table.column(_VOLUME), table.texts(_REGION), table.texts(_SENTENCE)
    for row, (volume, anatomy, sentence) in enumerate(zip(*columns, strict=True)):
        try:
            name = parse_ct_rate_name("" if volume is None else str(volume))
        except ValueError as error:
            raise TableError(f"{table.where(row)}, column {_VOLUME!r}: {error}") from None
        regions = found.setdefault(name, [])
        if sentence is not None and sentence.strip():
            regions.append((anatomy, " ".join(sentence.split())))
    return found
