"""Prompts with common prefixes: each prefix runs once, and its keys and values are cached for several suffixes."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.utilities.imports import require

__all__ = ["CachedPrefixes", "PrefixSharing", "mask_positions"]


@dataclass(frozen=True)
class CachedPrefixes:
    """Prefixes that the backbone has read.

    Args:
        cache: Keys and values of each layer, as transformers stores them.
        mask: ``(B, P)``, 0 at padding.
    """

    cache: Any
    mask: Tensor

    def select(self, owner: Tensor) -> Any:
        """Return a copy of the cache with the prefix ``owner[i]`` in row ``i``; this cache stays unchanged."""
        cache = copy.copy(self.cache)
        cache.layers = [_copied(layer) for layer in self.cache.layers]
        cache.reorder_cache(owner)
        return cache


class PrefixSharing:
    """Methods of a decoder model for prompts with common prefixes.

    The model's ``forward`` accepts ``past_key_values``, and its decoder is the attribute ``backbone``.
    """

    backbone: Any
    config: Any
    __call__: Callable[..., Any]
    _takes_positions: bool

    def forward_shared(
        self, prefix_ids: Tensor, prefix_mask: Tensor, suffix_ids: Tensor, suffix_mask: Tensor, owner: Tensor
    ) -> Any:
        """Compute the rewards of prompts with common prefixes, running each prefix once.

        Equal to :meth:`forward` for whole prompts up to rounding; gradients flow through the prefixes. With gradient
        checkpointing, prompts run whole, because recomputed layers cannot fill a cache.

        Args:
            prefix_ids: ``(B, P)`` token ids, padded on the left.
            prefix_mask: ``(B, P)``, 0 at padding.
            suffix_ids: ``(N, T)`` token ids, padded on the right, at least one per row.
            suffix_mask: ``(N, T)``, 0 at padding.
            owner: ``(N,)``, int64, index of the prefix of each suffix.

        Returns:
            Rewards of the ``N`` prompts.

        Raises:
            ValueError: If prefixes are padded on the right.
        """
        if _uses_checkpointing(self.backbone):
            _check_left_padding(prefix_mask)
            ids = torch.cat([prefix_ids[owner], suffix_ids], dim=1)
            return self(ids, torch.cat([prefix_mask[owner], suffix_mask], dim=1))
        return self.continue_prefixes(self.read_prefixes(prefix_ids, prefix_mask), suffix_ids, suffix_mask, owner)

    def read_prefixes(self, prefix_ids: Tensor, prefix_mask: Tensor) -> CachedPrefixes:
        """Run prefixes ``(B, P)``, padded on the left: the first half of :meth:`forward_shared`."""
        _check_left_padding(prefix_mask)
        cache = require("transformers", extra="models").DynamicCache(config=self.config.backbone_config)
        positions = {"position_ids": mask_positions(prefix_mask)} if self._takes_positions else {}
        self.backbone(
            input_ids=prefix_ids, attention_mask=prefix_mask, past_key_values=cache, use_cache=True, **positions
        )
        return CachedPrefixes(cache, prefix_mask)

    def continue_prefixes(
        self, prefixes: CachedPrefixes, suffix_ids: Tensor, suffix_mask: Tensor, owner: Tensor
    ) -> Any:
        """Run suffixes after their prefixes: the second half of :meth:`forward_shared`, which may be repeated."""
        mask = torch.cat([prefixes.mask[owner], suffix_mask], dim=1)
        return self(suffix_ids, mask, past_key_values=prefixes.select(owner))


def _copied(layer: Any) -> Any:
    """Return a copy of a cache layer that can be extended without changing the original."""
    copied = copy.copy(layer)
    # Layers replace their tensors and never modify them in place. Layers of linear attention keep tensors in dicts.
    vars(copied).update({name: dict(value) for name, value in vars(layer).items() if isinstance(value, dict)})
    return copied


def mask_positions(mask: Tensor) -> Tensor:
    """Return the position of each token, counted from the first unmasked one: ``(N, T)``."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def _check_left_padding(prefix_mask: Tensor) -> None:
    # Padding between prefix and suffix would use up the window of sliding attention.
    if not bool(prefix_mask[:, -1].all()):
        raise ValueError("prefix_mask must be 0 on the left only: pad prefixes on the left and suffixes on the right")


def _uses_checkpointing(module: nn.Module) -> bool:
    """Whether gradient checkpointing recomputes layers of the module in the backward pass."""
    return any(part.training and getattr(part, "gradient_checkpointing", False) for part in module.modules())
