"""Join CT-RATE's reports, labels and volume features into the tables that the CT-CHAT recipes read.

``python -m rrg_rewards.recipes.ct_chat.prepare --train-reports FILE --heldout-reports FILE --features FOLDER ...``

The output folder contains ``train.jsonl`` and ``heldout.jsonl``, with one row per scan. The columns are ``study_id``,
``findings``, ``impression``, ``report`` (findings and impression in CT-CHAT's format), one column per label, and
``image`` (path of the features). Rows without a match are dropped, and their number is logged. The features are outputs
of CT-CLIP's CT-ViT encoder, which the authors of CT-RATE publish. The script does not read volumes.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, write_table
from rrg_rewards.data.ct_rate import read_ct_rate
from rrg_rewards.schemas import CT_RATE

logger = logging.getLogger(__name__)


def prepare(reports: Path, labels: Path, features: Path, output: Path) -> int:
    """Join the tables of one split, write the result, and return the number of rows.

    Args:
        reports: Table of reports.
        labels: Table of labels.
        features: Folder of feature files.
        output: Table to write.

    Raises:
        ValueError: If no report matches labels and features.
    """
    table, counts = read_ct_rate(reports, labels, features, one_per_scan=True)
    logger.info("%s\n%s", reports, counts)
    kept = [row for row in range(len(table)) if table.column("findings")[row] or table.column("impression")[row]]
    if not kept:
        raise ValueError(f"{reports}: no report joins with labels and features\n{counts}")
    columns = {name: [table.column(name)[row] for row in kept] for name in table.names}
    by_label = zip(CT_RATE.labels, zip(*columns.pop("labels"), strict=True), strict=True)
    columns["image"] = [str(Path(path).resolve()) for path in columns["image"]]
    columns["report"] = list(map(_report, columns["findings"], columns["impression"]))
    write_table(Table({**columns, **dict(by_label)}), output, overwrite=True)
    return len(kept)


def _report(findings: str | None, impression: str | None) -> str:
    sections = (("Findings", findings), ("Impression", impression))
    return " ".join(f"{name}: {text.strip()}" for name, text in sections if text)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path: dict[str, Any] = {"type": Path, "required": True}
    for split, name in (("train", "training"), ("heldout", "held-out")):
        for kind in ("reports", "labels"):
            parser.add_argument(f"--{split}-{kind}", **path, metavar="FILE", help=f"table of the {name} {kind}")
    parser.add_argument("--features", **path, metavar="FOLDER", help="folder of feature files, searched at any depth")
    parser.add_argument("--output", **path, metavar="FOLDER", help="folder to write")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for split in ("train", "heldout"):
        reports, labels = (getattr(arguments, f"{split}_{kind}") for kind in ("reports", "labels"))
        rows = prepare(reports, labels, arguments.features, arguments.output / f"{split}.jsonl")
        logger.info("%d rows in %s", rows, arguments.output / f"{split}.jsonl")


if __name__ == "__main__":
    main()
