"""Make the phantom corpus's files and a small policy that imitates its impressions.

``python -m rrg_rewards.recipes.phantom.warm_start --output runs/phantom``

Written to the output folder: ``train.jsonl`` and ``heldout.jsonl`` (compact style; findings, impression and the true
labels), and ``policy/``, a language model with random weights trained to write the impression from the findings.

The impressions it imitates leave statements out at random, as clinical impressions do, so it learns to leave findings
out. That is what reinforcement learning on CRG is to mend; the rewards see the true labels.
"""

import argparse
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import set_seed
from trl import SFTConfig, SFTTrainer

from rrg_rewards.data import phantom_rows
from rrg_rewards.recipes._outputs import write_rows
from rrg_rewards.recipes._progress import show_progress
from rrg_rewards.recipes.phantom.policy import compact_policy, compact_tokenizer

__all__ = ["PROMPT", "abridge", "main", "warm_start", "write_corpus"]

PROMPT = "Findings: {input} Impression:"


def write_corpus(folder: Path, train_rows: int, heldout_rows: int, seed: int) -> list[dict[str, Any]]:
    """Write ``train.jsonl`` and ``heldout.jsonl``, of two seeds.

    Args:
        folder: Folder to write to; made if it does not exist.
        train_rows: Studies to train on.
        heldout_rows: Studies to evaluate on.
        seed: Seed of the training studies; the held-out ones take the next.

    Returns:
        The training rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train = phantom_rows(train_rows, seed=seed, style="compact")
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "heldout.jsonl", phantom_rows(heldout_rows, seed=seed + 1, style="compact"))
    return train


def abridge(impression: str, omission: float, rng: random.Random) -> str:
    """Leave each statement of an impression out with probability ``omission``, but not all.

    Args:
        impression: Statements that end in a full stop.
        omission: Probability, in [0, 1).
        rng: Where chance comes from.

    Example:
        >>> abridge("Cardiomegaly. Hiatal hernia.", 0.0, random.Random(0))
        'Cardiomegaly. Hiatal hernia.'
    """
    statements = [f"{statement.strip(' .')}." for statement in impression.split(". ")]
    kept = [statement for statement in statements if rng.random() >= omission]
    return " ".join(kept or [rng.choice(statements)])


def warm_start(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    steps: int = 600,
    omission: float = 0.4,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Train a small policy to imitate abridged impressions, and save it.

    Args:
        folder: Run folder; the policy goes to ``policy/`` in it.
        rows: Training rows.
        steps: Steps of 32 studies.
        omission: Probability of leaving a statement out.
        seed: Seed of weights, omissions and order.
        progress: Takes steps done and steps to do, in place of the trainer's own output.

    Returns:
        The policy's folder.
    """
    set_seed(seed)
    rng = random.Random(seed)
    tokenizer = compact_tokenizer()
    examples = [
        {"prompt": PROMPT.format(input=row["findings"]), "completion": f" {abridge(row['impression'], omission, rng)}"}
        for row in rows
    ]
    arguments = SFTConfig(
        output_dir=str(folder / "policy"),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=steps // 20,
        completion_only_loss=True,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        seed=seed,
        logging_steps=max(steps // 20, 1),
        save_strategy="no",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=compact_policy(tokenizer),
        args=arguments,
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
    )
    if progress is not None:
        show_progress(trainer, progress)
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(folder / "policy")
    return folder / "policy"


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
    rows = write_corpus(arguments.output, arguments.train_rows, arguments.heldout_rows, arguments.seed)
    warm_start(arguments.output, rows, arguments.steps, arguments.omission, arguments.seed)


if __name__ == "__main__":
    main()
