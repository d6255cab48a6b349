"""Write the tables of the phantom corpus and a small policy that imitates its impressions.

``python -m rrg_rewards.recipes.phantom.warm_start --output runs/phantom``

The output folder contains:

- ``train.jsonl`` and ``heldout.jsonl``: studies in the compact style, with findings, impression, abridged impression
  and true labels
- ``model/``: a language model with random weights
- ``policy/``: the same model after the recipe ``phantom/impression_sft`` trained it to write the abridged impression
  from the findings

Abridged impressions omit statements at random, because clinical impressions also omit findings. The policy therefore
learns to omit findings. Reinforcement learning on CRG corrects this, because CRG is computed from the true labels.

The script takes about two minutes on two free cores.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from transformers import set_seed

from rrg_rewards.data import phantom_rows
from rrg_rewards.recipes import sft
from rrg_rewards.recipes.phantom.corpus import corpus_parser, write_tables
from rrg_rewards.recipes.phantom.policy import compact_policy, compact_tokenizer


def warm_start(folder: Path, steps: int, seed: int) -> None:
    """Initialise a small policy at random, train it to imitate abridged impressions, and save it.

    Args:
        folder: Folder of the corpus. The untrained policy is written to ``model/`` and the trained one to ``policy/``.
        steps: Number of steps with 32 studies each.
        seed: Seed of the weights and of the order of rows.
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
    sft.main(options)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = corpus_parser(__doc__)
    parser.add_argument("--steps", type=int, default=600, help="number of steps with 32 studies each (default: 600)")
    args = parser.parse_args(argv)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    write_tables(
        args.output,
        (args.train_rows, args.heldout_rows),
        lambda count, seed: phantom_rows(count, seed=seed, style="compact"),
        args.omission,
        args.seed,
    )
    warm_start(args.output, args.steps, args.seed)


if __name__ == "__main__":
    main()
