"""Make the phantom corpus with volumes, and an untrained mini CT-CHAT to read them.

``python -m rrg_rewards.recipes.ct_chat.phantom --output runs/mini_ct_chat``

Written to the output folder: ``volumes/``, the features of each study as CT-CHAT's encoder would leave them;
``train.jsonl`` and ``heldout.jsonl`` (compact style; impression, true labels, the path of the volume); and ``model/``,
a CT-CHAT of under half a million parameters with random weights.

The column ``abridged`` is the impression with statements left out at random, as clinical impressions leave out what
another reader would have mentioned. A warm start imitates it, and so learns to leave findings out; that is what
reinforcement learning on CRG is to mend.
"""

import argparse
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import set_seed

from rrg_rewards.data import phantom_studies
from rrg_rewards.data.phantom_volumes import phantom_volume_rows, write_phantom_volumes
from rrg_rewards.recipes._outputs import write_rows
from rrg_rewards.recipes.ct_chat.mini import mini_ct_chat, mini_processor
from rrg_rewards.recipes.phantom.abridged import with_abridged

__all__ = ["main", "write_corpus", "write_model"]

logger = logging.getLogger(__name__)

CHANNELS = 32


def write_corpus(
    folder: Path,
    train_rows: int,
    heldout_rows: int,
    omission: float = 0.4,
    grid: int = 4,
    noise: float = 0.5,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write volumes and tables, of two seeds.

    Args:
        folder: Folder to write to; made if it does not exist.
        train_rows: Studies to train on.
        heldout_rows: Studies to evaluate on.
        omission: Probability that ``abridged`` leaves a statement out.
        grid: Cells of a volume along each axis.
        noise: Noise of the volumes.
        seed: Seed of the training studies; the held-out ones take the next.
        progress: Takes how many volumes were written since the last call, and how many more there are to write.
    """
    rng = random.Random(seed)
    if progress is not None:
        progress(0, train_rows + heldout_rows)
    for name, count, own_seed in (("train", train_rows, seed), ("heldout", heldout_rows, seed + 1)):
        studies = phantom_studies(count, seed=own_seed, style="compact")
        write_phantom_volumes(
            studies,
            folder / "volumes",
            grid=(grid,) * 3,
            channels=CHANNELS,
            noise=noise,
            progress=None if progress is None else lambda _: progress(1, 0),
        )
        rows = phantom_volume_rows(studies, "volumes")
        write_rows(folder / f"{name}.jsonl", with_abridged(rows, omission, rng))


def write_model(folder: Path, seed: int = 0) -> Path:
    """Write an untrained mini CT-CHAT with its processor to ``model/`` in the folder.

    Args:
        folder: Folder to write to.
        seed: Seed of the weights.

    Returns:
        The model's folder.
    """
    set_seed(seed)
    processor = mini_processor(feature_size=CHANNELS)
    mini_ct_chat(processor).save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    return folder / "model"


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--train-rows", type=int, default=8000, help="studies to train on (default: 8000)")
    parser.add_argument("--heldout-rows", type=int, default=300, help="studies held out (default: 300)")
    parser.add_argument(
        "--omission", type=float, default=0.4, help="probability that a statement is left out (default: 0.4)"
    )
    parser.add_argument("--grid", type=int, default=4, help="cells of a volume along each axis (default: 4)")
    parser.add_argument("--noise", type=float, default=0.5, help="noise of the volumes (default: 0.5)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = vars(parser.parse_args(argv))
    folder = arguments.pop("output")
    if (folder / "train.jsonl").exists():
        parser.error(f"{folder} holds a corpus already; choose another --output")
    write_corpus(folder, **arguments)
    write_model(folder, arguments["seed"])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info(
        "%d studies to train on and %d held out, with volumes, and an untrained model in %s",
        arguments["train_rows"],
        arguments["heldout_rows"],
        folder,
    )


if __name__ == "__main__":
    main()
