"""Attention of rows that continue their prompts, on the CPU: the results of SDPA up to rounding, with less work.

PyTorch's attention on the CPU computes each head of each row in a call of its own, which takes longer than the
computation if there is one query, as in generation. With a mask, it also computes what the mask hides.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

_NAME = "rrg_rewards_continued_sdpa"
# Queries that are computed at once. Keys after the last of them are left out.
_BLOCK = 128
# Arguments of SDPA in transformers for which there is no shorter computation.
_OTHER = ("position_bias", "cache", "softcap")


@contextmanager
def continued_attention(model: Any) -> Iterator[None]:
    """Compute the attention of a model with this module if the model is on the CPU and uses SDPA."""
    config = model.config.get_text_config(decoder=True)
    if config._attn_implementation != "sdpa" or next(model.parameters()).device.type != "cpu":
        yield
        return
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """Return the output of attention, ``(N, T, heads, width)``, with the arguments of transformers."""
    if not any(named.get(name) is not None for name in _OTHER):
        if _is_one_query(query, attention_mask) and not dropout:
            return _attend_once(query, key, value, attention_mask, scaling), None
        if attention_mask is not None and _is_shared_and_causal(query, key, attention_mask):
            count, seen = query.shape[2], key.shape[2]
            blocks = []
            for start in range(0, count, _BLOCK):
                end = min(start + _BLOCK, count)
                kept = seen - count + end
                mask = attention_mask[..., start:end, :kept]
                rows = query[:, :, start:end], key[:, :, :kept], value[:, :, :kept]
                blocks.append(sdpa_attention_forward(module, *rows, mask, dropout, scaling, **named)[0])
            return torch.cat(blocks, dim=1), None
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **named)
    return output, None


def _is_one_query(query: Tensor, mask: Tensor | None) -> bool:
    is_same_in_heads = mask is None or mask.shape[1] == 1
    return query.shape[2] == 1 and is_same_in_heads and query.dtype == torch.float32 and not torch.is_grad_enabled()


def _attend_once(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Return the attention of one query per row, ``(N, 1, heads, width)``. Query heads may share keys and values."""
    count, heads, _, width = query.shape
    grouped = query.reshape(count, key.shape[1], -1, width) * (width**-0.5 if scaling is None else scaling)
    scores = grouped @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return (scores.softmax(-1) @ value).reshape(count, 1, heads, -1)


def _is_shared_and_causal(query: Tensor, key: Tensor, mask: Tensor) -> bool:
    """Whether a mask of all rows hides the keys after each query, which is the last key or one before it."""
    if query.shape[2] <= _BLOCK or mask.shape[:2] != (1, 1) or mask.dtype != torch.bool:
        return False
    return not mask[0, 0].triu(key.shape[2] - query.shape[2] + 1).any()


def _mask(**named: Any) -> Tensor | None:
    """Return the mask of SDPA with the arguments of transformers; of one row if all rows have the same.

    Rows have the same mask if they have no padding before the queries. Padding after the tokens of a row needs no mask
    because of the causal order. A mask of one row takes ``N`` times less memory.
    """
    seen, padding = named.get("q_offset"), named.get("attention_mask")
    continues = isinstance(seen, int) and seen > 0 and named.get("q_length", 1) > 1
    is_causal = named.get("mask_function") is causal_mask_function
    if continues and is_causal and padding is not None and padding.ndim == 2 and bool(padding[:, :seen].all()):
        named = {**named, "batch_size": 1, "attention_mask": None, "allow_is_causal_skip": False}
    mask: Tensor | None = sdpa_mask(**named)
    return mask


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, _mask)
