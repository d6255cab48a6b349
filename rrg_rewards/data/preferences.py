"""Preferences between completions of one prompt, made of their rewards."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrg_rewards.utilities.checks import check_same_length

__all__ = ["Preferences", "desirable", "preference_pairs"]


@dataclass(frozen=True)
class Preferences:
    """Which completions are preferred to which.

    Args:
        pairs: Rows of the chosen and the rejected completion, in the order of the prompts.
        prompts: Number of prompts.
        declined: Prompts without a pair, by why: ``single`` (fewer than two different completions with a reward) or
            ``tied`` (no two of them differ by the margin).
    """

    pairs: list[tuple[int, int]]
    prompts: int
    declined: Mapping[str, int]


def preference_pairs(
    groups: Sequence[Hashable],
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    *,
    margin: float = 0.0,
    per_prompt: int = 1,
) -> Preferences:
    """Pair completions of one prompt: the best with the worst, the second best with the second worst, and so on.

    A completion is in one pair at most, and a pair needs a reward that is higher, by at least the margin: ties are
    declined. Of completions that are the same text the first one counts.

    Args:
        groups: What the ``N`` completions are of: equal for those of one prompt.
        completions: ``N`` completions; ``None`` where one is missing.
        rewards: ``N`` rewards; ``None`` where a completion is unscorable, which is then in no pair.
        margin: Least difference of the rewards of a pair.
        per_prompt: Most pairs of one prompt.

    Raises:
        ValueError: If lengths differ, the margin is negative or ``per_prompt`` not positive.

    Example:
        >>> preference_pairs(["a", "a", "a", "b"], ["x", "y", "z", "x"], [0.1, 0.9, None, 0.5]).pairs
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
    """Rows of different completions with their rewards, best first; of equal rewards the earlier row."""
    first: dict[str, tuple[int, float]] = {}
    for row in rows:
        completion, reward = completions[row], rewards[row]
        if completion is not None and reward is not None:
            first.setdefault(completion, (row, reward))
    return sorted(first.values(), key=lambda entry: -entry[1])


def desirable(rewards: Sequence[float | None], threshold: float, margin: float = 0.0) -> list[bool | None]:
    """Whether completions are good enough on their own; ``None`` where that is not sure, or there is no reward.

    Args:
        rewards: ``N`` rewards.
        threshold: Reward that divides good from bad.
        margin: How far from it a reward must be on either side.

    Example:
        >>> desirable([0.9, 0.55, 0.1, None], threshold=0.5, margin=0.1)
        [True, None, False, None]
    """
    found: list[bool | None] = []
    for reward in rewards:
        sure = reward is not None and reward != threshold and abs(reward - threshold) >= margin
        found.append(reward > threshold if sure and reward is not None else None)
    return found
