"""Tables of phantom studies with abridged impressions, in which statements are omitted at random."""

import argparse
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rrg_rewards.recipes._outputs import write_rows


def abridge(impression: str, omission: float, rng: random.Random) -> str:
    """Omit each statement of an impression with probability ``omission``, but keep at least one.

    Args:
        impression: Statements that end in a full stop.
        omission: Probability, in [0, 1).
        rng: Random number generator.

    Example:
        >>> abridge("Cardiomegaly. Hiatal hernia.", 0.0, random.Random(0))
        'Cardiomegaly. Hiatal hernia.'
    """
    statements = [f"{statement.strip(' .')}." for statement in impression.split(". ")]
    kept = [statement for statement in statements if rng.random() >= omission]
    return " ".join(kept or [rng.choice(statements)])


def write_tables(
    folder: Path,
    num_rows: tuple[int, int],
    make_rows: Callable[[int, int], Iterable[Mapping[str, Any]]],
    omission: float,
    seed: int,
) -> None:
    """Write ``train.jsonl`` and ``heldout.jsonl``, with the additional column ``abridged``.

    Args:
        folder: Folder to write to; it is created if it does not exist.
        num_rows: Number of training and of held-out rows.
        make_rows: Function that makes rows with the column ``impression``, from their number and a seed.
        omission: Probability that a statement of the impression is left out of ``abridged``.
        seed: Seed of the training rows and of ``abridged``; ``seed + 1`` is the seed of the held-out rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for split, (name, count) in enumerate(zip(("train", "heldout"), num_rows, strict=True)):
        rows = make_rows(count, seed + split)
        abridged = [{**row, "abridged": abridge(row["impression"], omission, rng)} for row in rows]
        write_rows(folder / f"{name}.jsonl", abridged)


def corpus_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that both corpus scripts share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument("--train-rows", type=int, metavar="N", default=8000, help="studies to train on (default: 8000)")
    parser.add_argument("--heldout-rows", type=int, metavar="N", default=300, help="held-out studies (default: 300)")
    parser.add_argument(
        "--omission", type=float, default=0.4, help="probability that a statement is left out (default: 0.4)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    return parser
