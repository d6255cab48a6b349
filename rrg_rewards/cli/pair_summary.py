"""Output of ``rrg-rewards pairs``: summary for JSON, table and warnings."""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.records.preference_pairs import Preferences
from rrg_rewards.version import __version__
from rrg_rewards.watch.instructions import find_instructions

if TYPE_CHECKING:
    from rrg_rewards.rewards.base import Reward

__all__ = ["pair_grid", "pair_summary", "warn_of_pairs"]

# Warn if chosen completions have more than this many times the words of rejected ones.
_LONG = 1.5


def pair_summary(
    args: argparse.Namespace,
    reward: "Reward",
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    preferences: Preferences,
    labels: Sequence[bool | None],
) -> dict[str, Any]:
    """Return counts of pairs and of prompts without a pair, and statistics of chosen and rejected completions.

    ``labels`` is ``True`` for each chosen and ``False`` for each rejected completion, and ``None`` for the others.
    """
    good = [completions[row] or "" for row, label in enumerate(labels) if label]
    bad = [completions[row] or "" for row, label in enumerate(labels) if label is False]
    differences = [(rewards[best] or 0.0) - (rewards[worst] or 0.0) for best, worst in preferences.pairs]
    return {
        "version": __version__,
        "table": args.table,
        "reward": reward.signature,
        "trainer": args.trainer,
        "rows": len(completions),
        "unscorable": sum(value is None for value in rewards),
        "prompts": preferences.prompts,
        "pairs": len(preferences.pairs),
        "prompts_without_pair": dict(preferences.declined),
        "chosen": len(good),
        "rejected": len(bad),
        "mean_difference": _mean(differences),
        "mean_words_chosen": _mean([len(text.split()) for text in good]),
        "mean_words_rejected": _mean([len(text.split()) for text in bad]),
        "chosen_with_instructions": sum(bool(find_instructions(text)) for text in good),
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def warn_of_pairs(summary: Mapping[str, Any], failed: Mapping[str, int], terminal: Terminal) -> None:
    """Warn about failures of a judge, instructions to a judge in chosen completions, and differences in length."""
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        terminal.warn(f"the judge failed on {sum(failed.values())} of {summary['rows']} completions ({kinds})")
    if summary["chosen_with_instructions"]:
        terminal.warn(
            f"{summary['chosen_with_instructions']} of {summary['chosen']} chosen completions seem to contain "
            "instructions to a judge; read them before training"
        )
    longer, shorter = summary["mean_words_chosen"], summary["mean_words_rejected"]
    if longer and shorter and longer > _LONG * shorter:
        terminal.warn(
            f"chosen completions are {longer / shorter:.1f} times as long as rejected ones ({longer:.0f} and "
            f"{shorter:.0f} words): a policy may learn only to write longer reports"
        )


def pair_grid(summary: Mapping[str, Any]) -> Grid:
    """Return a summary as a table of rich."""
    grid = Grid(
        title=f"{summary['rows']} completions of {summary['prompts']} prompts", title_justify="left", show_header=False
    )
    grid.add_column("")
    grid.add_column("", justify="right")
    without = summary["prompts_without_pair"]
    words = (summary["mean_words_chosen"], summary["mean_words_rejected"])
    shown = {
        "pairs": summary["pairs"],
        "chosen, rejected": f"{summary['chosen']}, {summary['rejected']}",
        "completions without a reward": summary["unscorable"],
        "prompts whose completions tie": without["tied"],
        "prompts without two different completions": without["single"],
        "difference of rewards, mean": _short(summary["mean_difference"]),
        "words chosen, rejected, mean": ", ".join(map(_short, words)),
    }
    for name, value in shown.items():
        grid.add_row(name, str(value))
    return grid


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
