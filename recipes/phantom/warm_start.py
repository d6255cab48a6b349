"""Make the phantom corpus's files and a small policy that imitates its impressions.

``python -m rrg_rewards.recipes.phantom.warm_start --output runs/phantom``

Written to the output folder: ``train.jsonl`` and ``heldout.jsonl`` (compact style; findings, impression, the true
labels and the impression ``abridged``); ``model/``, a language model with random weights; and ``policy/``, the model
after it was trained by the recipe ``phantom/impression_sft`` to write the abridged impression from the findings.

Abridged impressions leave statements out at random, as clinical impressions do, so the policy learns to leave findings
out. That is what reinforcement learning on CRG is to mend; the rewards see the true labels.
"""

import argparse
import os
import random
from collections.abc import Sequence
from pathlib import Path

from transformers import set_seed

from rrg_rewards.data import phantom_rows
from rrg_rewards.recipes import sft
from rrg_rewards.recipes._outputs import write_rows
from rrg_rewards.recipes._parse import command_line
from rrg_rewards.recipes.phantom.abridged import with_abridged
from rrg_rewards.recipes.phantom.policy import compact_policy, compact_tokenizer

__all__ = ["main", "warm_start", "write_corpus"]


def write_corpus(folder: Path, train_rows: int, heldout_rows: int, omission: float, seed: int) -> None:
    """Write ``train.jsonl`` and ``heldout.jsonl``, of two seeds.

    Args:
        folder: Folder to write to; made if it does not exist.
        train_rows: Studies to train on.
        heldout_rows: Studies to evaluate on.
        omission: Probability that ``abridged`` leaves a statement out.
        seed: Seed of the training studies; the held-out ones take the next.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for name, count, own_seed in (("train", train_rows, seed), ("heldout", heldout_rows, seed + 1)):
        rows = phantom_rows(count, seed=own_seed, style="compact")
        write_rows(folder / f"{name}.jsonl", with_abridged(rows, omission, rng))


def warm_start(folder: Path, steps: int, seed: int) -> None:
    """Train a small policy with random weights to imitate abridged impressions, and save it.

    Args:
        folder: Folder of the corpus; the untrained policy goes to ``model/`` in it, the trained one to ``policy/``.
        steps: Steps of 32 studies.
        seed: Seed of weights and order.
    """
    set_seed(seed)
    tokenizer = compact_tokenizer()
    compact_policy(tokenizer).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    options = {
        "config": "phantom/impression_sft",
        "model_name_or_path": folder / "model",
        "dataset": folder / "train.jsonl",
        "heldout_file": folder / "heldout.jsonl",
        "output_dir": folder / "policy",
        "max_steps": steps,
        "seed": seed,
    }
    sft.main(command_line(options))


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--train-rows", type=int, default=8000, help="studies to train on (default: 8000)")
    parser.add_argument("--heldout-rows", type=int, default=300, help="studies held out (default: 300)")
    parser.add_argument("--steps", type=int, default=600, help="steps of 32 studies (default: 600)")
    parser.add_argument(
        "--omission", type=float, default=0.4, help="probability that a statement is left out (default: 0.4)"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    folder, seed = arguments.output, arguments.seed
    write_corpus(folder, arguments.train_rows, arguments.heldout_rows, arguments.omission, seed)
    warm_start(folder, arguments.steps, seed)


if __name__ == "__main__":
    main()
