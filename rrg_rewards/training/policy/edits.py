"""Completions that are edited towards the reference, in the place of others of their group (EditGRPO)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rrg_rewards.findings.editing.towards_reference import edit_towards_reference
from rrg_rewards.training.policy.generators import Completions
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.processes import gather_objects


@dataclass(frozen=True)
class EditSettings:
    """Which completions are edited.

    Args:
        share: Share of the completions of a group that edited ones replace, in (0, 0.5]; at least one per group.
        most: Greatest number of edits of a completion; ``None`` for all that are possible.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> EditSettings(share=0.25).num_replaced(8)
        2
    """

    share: float = 0.5
    most: int | None = 1

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise ValueError(f"the share of edited completions must be above 0 and at most 0.5, got {self.share}")
        if self.most is not None and self.most < 1:
            raise ValueError(f"the greatest number of edits must be at least 1 or None, got {self.most}")

    def num_replaced(self, group_size: int) -> int:
        """Return the number of completions of a group that are replaced."""
        return max(1, int(self.share * group_size))

    def __call__(self, completion: str, reference: str) -> str:
        """Return the edited completion."""
        return edit_towards_reference(completion, reference, self.most)[0]


class Edited(NamedTuple):
    """Completions of which some were replaced.

    Args:
        completions: All completions.
        sources: Row of the completion that was edited, for each edited one.
        targets: Row that the edited completion has.
        num_unfit: Number of edited completions that were left out, because they are too long or because their tokens
            do not decode to their text.
    """

    completions: Completions
    sources: list[int]
    targets: list[int]
    num_unfit: int


def check_edits(settings: EditSettings | None, generator: Any, baseline: str, algorithm: str) -> None:
    """Raise an error if completions cannot be edited with an algorithm and a generator."""
    if settings is None:
        return
    if baseline not in ("group", "leave_one_out"):
        raise ValueError(
            f"edits need groups of completions, which {algorithm} does not compare; use grpo, dr_grpo or rloo"
        )
    if not callable(getattr(generator, "encode", None)):
        raise TypeError(f"edits need a generator with the method encode; {type(generator).__name__} has none")


def references_of(batch: Any, column: str) -> Sequence[str | None]:
    """Return the references of a batch.

    Raises:
        ValueError: If the column is missing.
    """
    if column not in batch:
        raise ValueError(f"edits need references: {unknown_name_message('column', column, list(batch))}")
    references: Sequence[str | None] = batch[column]
    return references


def replace_by_edited(
    completions: Completions,
    texts: Sequence[str],
    references: Sequence[str | None],
    generator: Any,
    settings: EditSettings,
    group_size: int,
    seed: int,
) -> Edited:
    """Edit some completions of each group, and put the edited ones in the place of others.

    Half of a group at most is edited, and as many others are replaced, so that a group keeps each completion that was
    edited. A completion is not edited if it did not end, or if there is nothing to correct.

    Args:
        completions: ``N`` completions; those of a group are consecutive.
        texts: Their texts.
        references: Their references; those of ``None`` are not edited.
        generator: The generator, with ``encode``, ``decode`` and ``max_new_tokens``.
        settings: Which completions are edited.
        group_size: Number of completions of a group.
        seed: Seed of the choice of completions.
    """
    draws = torch.Generator().manual_seed(seed)
    finished = [True] * len(texts) if completions.finished is None else completions.finished.tolist()
    sources, targets, edited = [], [], []
    count = settings.num_replaced(group_size)
    for first in range(0, len(texts), group_size):
        order = (first + torch.randperm(group_size, generator=draws)).tolist()
        for source, target in zip(order[:count], order[count:], strict=False):
            reference = references[source]
            if reference is None or not finished[source]:
                continue
            text = settings(texts[source], reference)
            if text != texts[source]:
                sources.append(source)
                targets.append(target)
                edited.append(text)
    if not edited:
        return Edited(completions, [], [], 0)
    rows: list[list[int]] = generator.encode(edited)
    limit = generator.max_new_tokens
    decoded = generator.decode(_of_lists(rows, completions.tokens.device))
    fits = [len(row) <= limit and text == meant for row, text, meant in zip(rows, decoded, edited, strict=True)]
    kept = [number for number, fit in enumerate(fits) if fit]
    own_targets = [targets[number] for number in kept]
    replaced = _with_rows(completions, own_targets, [rows[number] for number in kept])
    return Edited(replaced, [sources[number] for number in kept], own_targets, len(edited) - len(kept))


def _of_lists(rows: Sequence[Sequence[int]], device: torch.device) -> Completions:
    parts = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(part) for part in parts], batch_first=True)
    return Completions(padded.to(device), mask.to(device))


def _with_rows(completions: Completions, targets: Sequence[int], rows: Sequence[Sequence[int]]) -> Completions:
    """Return the completions with other tokens in some rows. The sampler's log-probabilities of these are unknown."""
    if not targets:
        return completions
    new = _of_lists(rows, completions.tokens.device)
    width = max(completions.tokens.shape[1], new.tokens.shape[1])
    chosen = torch.tensor(targets, device=completions.tokens.device)

    def put(values: Tensor, into: Tensor, fill: float) -> Tensor:
        out = pad(into, (0, width - into.shape[1]), value=fill)
        out[chosen] = pad(values.to(into.dtype), (0, width - values.shape[1]), value=fill)
        return out

    log_probs = completions.log_probs
    if log_probs is not None:
        log_probs = put(torch.full(new.tokens.shape, torch.nan, device=chosen.device), log_probs, torch.nan)
    finished = completions.finished
    if finished is not None:
        finished = finished.index_fill(0, chosen, True)
    return replace(
        completions,
        tokens=put(new.tokens, completions.tokens, 0),
        mask=put(new.mask, completions.mask, 0),
        finished=finished,
        log_probs=log_probs,
    )


def edit_statistics(edited: Edited, total: Tensor) -> dict[str, float]:
    """Compute statistics of edited completions, which are equal in all processes. Every process must call it.

    Args:
        edited: The completions of this process.
        total: Their rewards, ``(N,)``; NaN for unscorable completions.

    Returns:
        ``edits/replaced`` and ``edits/unfit``, shares of all completions, and ``edits/reward_gain``, the mean reward of
        edited completions minus that of what was edited, if there are any.
    """
    rewards = total.tolist()
    gains = [rewards[target] - rewards[source] for source, target in zip(edited.sources, edited.targets, strict=True)]
    parts = gather_objects((len(edited.completions), len(edited.targets), edited.num_unfit, gains))
    count = sum(part[0] for part in parts)
    known = [gain for part in parts for gain in part[3] if not math.isnan(gain)]
    statistics = {
        "edits/replaced": sum(part[1] for part in parts) / count,
        "edits/unfit": sum(part[2] for part in parts) / count,
    }
    return statistics | ({"edits/reward_gain": sum(known) / len(known)} if known else {})
