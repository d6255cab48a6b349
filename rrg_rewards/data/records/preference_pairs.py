"""Preferences between the completions of a prompt, derived from their rewards."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrg_rewards.utilities.checks import check_same_length

__all__ = ["Preferences", "label_desirable", "pair_completions"]


@dataclass(frozen=True)
class Preferences:
    """Pairs of preferred and rejected completions.

    Args:
        pairs: Row of the chosen and row of the rejected completion of each pair, in the order of the prompts.
        prompts: Number of prompts.
        declined: Number of prompts without a pair, by reason: ``single`` (fewer than two different completions with a
            reward) or ``tied`` (no two of them differ by the margin).
    """

    pairs: list[tuple[int, int]]
    prompts: int
    declined: Mapping[str, int]


def pair_completions(
    groups: Sequence[Hashable],
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    *,
    margin: float = 0.0,
    per_prompt: int = 1,
) -> Preferences:
    """Pair the completions of each prompt: the best with the worst, the second best with the second worst, and so on.

    A completion is in at most one pair. The rewards of a pair are different, and their difference is at least the
    margin. Of completions with equal text only the first is used.

    Args:
        groups: ``N`` keys, equal for the completions of one prompt.
        completions: ``N`` completions; ``None`` for a missing one.
        rewards: ``N`` rewards; ``None`` for an unscorable completion, which is in no pair.
        margin: Minimum difference of the rewards of a pair.
        per_prompt: Maximum number of pairs per prompt.

    Raises:
        ValueError: If lengths differ, the margin is negative or ``per_prompt`` is not positive.

    Example:
        >>> pair_completions(["a", "a", "a", "b"], ["x", "y", "z", "x"], [0.1, 0.9, None, 0.5]).pairs
        [(1, 0)]
    """
    check_same_length("groups", groups, "completions", completions)
    check_same_length("groups", groups, "rewards", rewards)
    if not margin >= 0 or per_prompt < 1:
        raise ValueError(f"margin must be at least 0 and per_prompt positive, got {margin} and {per_prompt}")
    pairs: list[tuple[int, int]] = []
    declined = {"single": 0, "tied": 0}
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    for rows in members.values():
        ranked = _ranked(rows, completions, rewards)
        own: list[tuple[int, int]] = []
        for (best, high), (worst, low) in zip(ranked, reversed(ranked), strict=True):
            if len(own) == per_prompt or not (high > low and high - low >= margin):
                break
            own.append((best, worst))
        if not own:
            declined["single" if len(ranked) < 2 else "tied"] += 1
        pairs += own
    return Preferences(pairs, len(members), declined)


def _ranked(
    rows: Sequence[int], completions: Sequence[Any], rewards: Sequence[float | None]
) -> list[tuple[int, float]]:
    """Return the rows of different completions with their rewards, best first. Equal rewards keep their order."""
    first: dict[str, tuple[int, float]] = {}
    for row in rows:
        completion, reward = completions[row], rewards[row]
        if completion is not None and reward is not None:
            first.setdefault(completion, (row, reward))
    return sorted(first.values(), key=lambda entry: -entry[1])


def label_desirable(rewards: Sequence[float | None], threshold: float, margin: float = 0.0) -> list[bool | None]:
    """Label completions as desirable or not; ``None`` if the reward is missing or too close to the threshold.

    Args:
        rewards: ``N`` rewards.
        threshold: Completions with a higher reward are desirable, completions with a lower one are not.
        margin: Minimum distance of a reward from the threshold.

    Example:
        >>> label_desirable([0.9, 0.55, 0.1, None], threshold=0.5, margin=0.1)
        [True, None, False, None]
    """
    return [
        None if reward is None or reward == threshold or not abs(reward - threshold) >= margin else reward > threshold
        for reward in rewards
    ]
