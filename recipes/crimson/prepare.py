"""Write the reports on which a small judge is trained: impressions of phantom studies, without a download.

``python -m rrg_rewards.recipes.crimson.prepare --output runs/crimson``

The script writes ``train_reports.jsonl`` and ``heldout_reports.jsonl`` with the column ``report``. No text is in both.
``rrg-rewards judge candidates`` makes candidates for these reports, or for those of any other table.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from rrg_rewards.data import phantom_rows
from rrg_rewards.recipes._outputs import write_rows

# Studies to generate at once; most impressions are too long.
_STUDIES = 500


def short_impressions(max_words: int, seed: int) -> Iterator[str]:
    """Yield the different impressions of phantom studies that state a finding and have at most ``max_words`` words.

    The impressions end when a block of studies contains no new one.

    Example:
        >>> next(short_impressions(6, seed=0))
        'Cardiomegaly. Coronary artery calcification.'
    """
    seen: set[str] = set()
    for block in count():
        before = len(seen)
        # The same seed with more studies would repeat the first ones, so each block has its own.
        for row in phantom_rows(_STUDIES, seed=1000 * seed + block, style="compact"):
            report = row["impression"]
            if any(row["labels"]) and len(report.split()) <= max_words and report not in seen:
                seen.add(report)
                yield report
        if len(seen) == before:
            return


def prepare(folder: str | Path, train_rows: int = 1200, heldout_rows: int = 60, max_words: int = 12) -> None:
    """Write both tables.

    Args:
        folder: Folder to write to; it is created if it does not exist.
        train_rows: Number of reports to train on.
        heldout_rows: Number of held-out reports.
        max_words: Maximum number of words of a report.

    Raises:
        ValueError: If there are not enough different reports of this length.
    """
    reports = list(islice(short_impressions(max_words, 0), train_rows + heldout_rows))
    if len(reports) < train_rows + heldout_rows:
        raise ValueError(f"there are {len(reports)} different reports of at most {max_words} words; raise max_words")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, part in (("heldout", reports[:heldout_rows]), ("train", reports[heldout_rows:])):
        write_rows(Path(folder) / f"{name}_reports.jsonl", [{"report": report} for report in part])


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument("--train-rows", type=int, default=1200, metavar="N", help="reports to train on (default: 1200)")
    parser.add_argument("--heldout-rows", type=int, default=60, metavar="N", help="held-out reports (default: 60)")
    parser.add_argument("--max-words", type=int, default=12, metavar="N", help="words of a report (default: 12)")
    arguments = parser.parse_args(argv)
    prepare(arguments.output, arguments.train_rows, arguments.heldout_rows, arguments.max_words)


if __name__ == "__main__":
    main()
