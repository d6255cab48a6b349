"""Causal language models on rows that repeat their prompts: each prompt is computed once.

A rollout has several completions per prompt. The keys and values of a prompt do not depend on its completions, so they
are computed once and copied to the rows of its completions. Log-probabilities and gradients are those of the
computation on whole rows, up to rounding.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from rrg_rewards.training.policy.attention import continued_attention
from rrg_rewards.training.policy.generators import Batch, Completions, RepeatedRows

# Rows that have ended are removed from the batch when they are at least this fraction of it.
_ENDED = 1 / 8
# Least number of tokens for which keys and values get room at once.
_ROOM = 16
# Number of tokens after which sampling on a GPU reads which rows have ended, for which it waits. Until then, such rows
# are computed for nothing.
TOKENS_PER_READ = 16


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled.

    Args:
        max_new_tokens: Maximum length of a completion.
        temperature: Sampling temperature; 0 for the most probable tokens.
        end_token_ids: Ids of the end-of-sequence tokens.
        pad_token_id: Id of the padding token.
    """

    max_new_tokens: int
    temperature: float
    end_token_ids: Sequence[int]
    pad_token_id: int

    def completions(self, tokens: Tensor, log_probs: Tensor) -> Completions:
        """Return the completions of sampled tokens ``(N, T)``, some of which may follow the end of their completion."""
        completions = Completions.until_end(tokens, self.end_token_ids)
        padding = completions.mask == 0
        completions = replace(
            completions,
            tokens=completions.tokens.masked_fill(padding, self.pad_token_id),
            log_probs=log_probs.masked_fill(padding, 0.0),
        )
        # On a GPU, the last rows may have ended before it was read.
        return completions if tokens.device.type == "cpu" else completions.rows(torch.arange(len(tokens)))


def sample_completions(
    model: Any, prompts: "Prompts", cache: DynamicCache, logits: Tensor, sampling: Sampling
) -> Completions:
    """Generate one completion for each row, with the log-probabilities of its tokens.

    Args:
        model: A causal language model.
        prompts: The prompts of the rows.
        cache: Their keys and values, which are not changed.
        logits: Logits ``(N, V)`` after the prompts of the rows.
        sampling: How to sample.
    """
    mask, most = prompts.mask, sampling.max_new_tokens
    cache = prompts.extensible_copies(cache)
    (count, vocabulary), device = logits.shape, mask.device
    tokens = torch.full((count, most), sampling.pad_token_id, device=device)
    log_probs = torch.zeros(count, most, device=device)
    ends = torch.tensor(list(sampling.end_token_ids), device=device)
    rows, going = torch.arange(count, device=device), torch.ones(count, dtype=torch.bool, device=device)
    positions = mask.sum(1)
    every = 1 if device.type == "cpu" else TOKENS_PER_READ
    for step in range(most):
        draws = random_draws(count, vocabulary, device)[rows] if sampling.temperature else None
        new, scores = sample_tokens(logits, sampling.temperature, draws)
        # Rows that have ended and are still in the batch get tokens, too. They are removed below.
        tokens[rows, step], log_probs[rows, step] = new, scores
        going &= ~torch.isin(new, ends)
        if step == most - 1:
            break
        left = going.tolist() if (step + 1) % every == 0 else [True] * len(rows)
        if not any(left):
            break
        if left.count(False) >= _ENDED * len(rows):
            kept = torch.tensor([number for number, goes_on in enumerate(left) if goes_on], device=device)
            cache.batch_select_indices(kept)
            rows, mask, positions, new, going = rows[kept], mask[kept], positions[kept], new[kept], going[kept]
        if prompts.is_padded:
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        logits = model(
            input_ids=new.unsqueeze(1),
            attention_mask=mask if prompts.is_padded else None,
            position_ids=positions.unsqueeze(1),
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        positions = positions + 1
    return sampling.completions(tokens[:, : step + 1], log_probs[:, : step + 1])


def random_draws(count: int, vocabulary: int, device: torch.device) -> Tensor:
    """Return the random numbers of the next token of each completion, for :func:`sample_tokens`.

    On the CPU, they are one number from 0 to 1, ``(N,)``, otherwise one exponential number per token of the vocabulary,
    ``(N, V)``. Completions that have ended have some, too: samples depend neither on when they leave the batch nor on
    the sizes of buffers.
    """
    if device.type == "cpu":
        return torch.rand(count, dtype=torch.float64)
    return torch.empty(count, vocabulary, device=device).exponential_()


def sample_tokens(
    logits: Tensor, temperature: float | Tensor = 1.0, draws: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sample one token for each row of logits ``(N, V)``; return ids and log-probabilities, both ``(N,)``.

    At temperature 0, the token is the most probable one, and its log-probability is 0. A temperature in a tensor is
    positive. ``draws`` are random numbers of :func:`random_draws`.

    Example:
        >>> sample_tokens(torch.tensor([[0.0, -torch.inf], [-torch.inf, 3.0]]))
        (tensor([0, 1]), tensor([0., 0.]))
    """
    if not isinstance(temperature, Tensor) and not temperature:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros_like(tokens, dtype=torch.float32)
    probabilities = (logits.float() / temperature).softmax(-1)
    draws = random_draws(logits.shape[0], logits.shape[1], logits.device) if draws is None else draws
    if draws.ndim == 1:
        # By inversion: torch.multinomial draws one random number per token of the vocabulary. In float64, because rare
        # tokens would be lost in sums of float32.
        sums = probabilities.cumsum(-1, dtype=torch.float64)
        tokens = torch.searchsorted(sums, draws.unsqueeze(1) * sums[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
    else:
        # As torch.multinomial draws one token, which also checks the probabilities and thereby waits for the device.
        tokens = (probabilities / draws).argmax(-1, keepdim=True)
    return tokens.squeeze(1), probabilities.gather(1, tokens).log().squeeze(1)


# Number of tokens whose computation takes about as long as the overhead of a call of the model. With an H100, the host
# needs 40 to 111 ms for a call of CT-CHAT 8B, in which the GPU computes 1,000 to 2,800 tokens.
_TOKENS_PER_CALL = 64
_TOKENS_PER_CALL_ON_GPU = 2048
# Greatest number of tokens of a call on the CPU. The activations of more tokens do not fit in its cache.
_MOST_TOKENS_ON_CPU = 8192
_KEEPS_CACHE = "_can_checkpoint_with_cache"
_ARGUMENTS = ("position_ids", "logits_to_keep", "past_key_values")


def accepted_arguments(model: Any) -> frozenset[str]:
    """Return which optional arguments of causal language models the model accepts."""
    forward = getattr(model, "get_base_model", lambda: model)().forward
    taken = {*inspect.signature(forward).parameters}
    # transformers 5.24 renamed it, and takes the other name until 5.40.
    taken |= {"past_key_values"} if "cache" in taken else set()
    return frozenset(_ARGUMENTS) & taken


def new_cache(model: Any) -> DynamicCache | None:
    """Return an empty cache of keys and values, or ``None`` if rows of the model cannot share prompts.

    Layers with a state of another kind, such as sliding windows, cannot. Prompt tuning and reentrant gradient
    checkpointing exclude a cache.
    """
    if not {"position_ids", "past_key_values"} <= accepted_arguments(model):
        return None
    layers = _checkpointed_layers(model)
    functions = [getattr(layer, "_gradient_checkpointing_func", None) for layer in layers]
    if any(getattr(function, "keywords", {}).get("use_reentrant") is not False for function in functions):
        return None
    if not layers and model.training and getattr(model, "is_gradient_checkpointing", False):
        return None
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return None
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    if not all(type(layer) is DynamicLayer for layer in cache.layers):
        return None
    cache.layers = [_RecomputedLayer() for _ in cache.layers] if layers else cache.layers
    return cache


def _checkpointed_layers(model: Any) -> list[Any]:
    """Return the layers that are computed again in the backward pass and can have a cache (transformers 5.23)."""
    layers = model.modules() if model.training else ()
    return [own for own in layers if getattr(own, "gradient_checkpointing", False) and hasattr(own, _KEEPS_CACHE)]


@contextmanager
def checkpoints_with_cache(model: Any) -> Iterator[None]:
    """Let layers with gradient checkpointing keep a cache of :func:`new_cache`."""
    layers = _checkpointed_layers(model)
    for layer in layers:
        setattr(layer, _KEEPS_CACHE, True)
    try:
        yield
    finally:
        for layer in layers:
            delattr(layer, _KEEPS_CACHE)


class _RecomputedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is an optional dependency
    """Keys and values of prompts that stay as they are when a layer is computed again in the backward pass.

    ``rows`` are the prompts of rows that continue them.
    """

    keys: Any
    values: Any
    rows: Tensor | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of the prompts, or return those of rows with their prompts."""
        if self.rows is not None:
            pairs = ((self.keys, key_states), (self.values, value_states))
            keys, values = (torch.cat([kept.index_select(0, self.rows), new], dim=-2) for kept, new in pairs)
            return keys, values
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
        return key_states, value_states


def model_inputs(batch: Batch) -> dict[str, Tensor]:
    """Return the tensors of a batch, which are the model's inputs; other columns are lists.

    Raises:
        ValueError: If there are no tokens.
    """
    inputs = {name: column for name, column in batch.items() if isinstance(column, Tensor)}
    if "input_ids" not in inputs:
        raise ValueError(
            f"the batch lacks input_ids; give the loader the generator's collate; it has {', '.join(batch)}"
        )
    return inputs


class _ExtensibleLayer(DynamicLayer):  # type: ignore[misc]  # transformers is an optional dependency
    """Keys and values of a layer with room for further tokens.

    ``DynamicLayer`` copies all keys and values for each token. This layer copies them each time their number has grown
    by half, so that the time is linear. Gradients cannot be computed, because tokens are written in place.

    Args:
        keys: ``(N, heads, T, width)``.
        values: ``(N, heads, T, width)``.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values
        # Tensors whose first tokens are the keys and values.
        self._rooms = [keys, values]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens, and return all."""
        start = self.keys.shape[-2]
        end = start + key_states.shape[-2]
        if end > self._rooms[0].shape[-2]:
            shape = (*self.keys.shape[:-2], end + max(_ROOM, start // 2))
            self._rooms = [own.new_empty(*shape, own.shape[-1]) for own in (self.keys, self.values)]
            for room, own in zip(self._rooms, (self.keys, self.values), strict=True):
                room[..., :start, :] = own
        for room, new in zip(self._rooms, (key_states, value_states), strict=True):
            room[..., start:end, :] = new
        self.keys, self.values = (room[..., :end, :] for room in self._rooms)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        length = self.keys.shape[-2]
        self._rooms = [room.index_select(0, indices) for room in self._rooms]
        self.keys, self.values = (room[..., :length, :] for room in self._rooms)


class Prompts:
    """The prompts of the rows of a batch, each once.

    Args:
        batch: A batch with the model's inputs: ``input_ids`` and ``attention_mask`` ``(N, P)``, and other tensors
            ``(N, ...)``.

    Attributes:
        inputs: The inputs of the ``U`` prompts.
        index: Number of the prompt of each row, ``(N,)``.
        mask: Attention mask of each row, without the first tokens that are padding in all rows.
        is_padded: Whether this mask has padding.

    Example:
        >>> ids = torch.tensor([[5, 6], [5, 7]])
        >>> rows = RepeatedRows({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.tensor([1, 1, 0]))
        >>> prompts = Prompts(rows)
        >>> prompts.inputs["input_ids"].tolist(), prompts.index.tolist()
        ([[5, 7], [5, 6]], [0, 0, 1])
    """

    def __init__(self, batch: Batch) -> None:
        prompts, index = batch.distinct() if isinstance(batch, RepeatedRows) else (batch, None)
        inputs = model_inputs(prompts)
        mask = inputs["attention_mask"]
        index = torch.arange(len(mask)) if index is None else index
        self.index = index.to(mask.device)
        # Read at once, because reading waits for the device.
        start, shortest = torch.stack([mask.any(0).long().argmax(), mask.bool().sum(1).min()]).tolist()
        self.inputs = {**inputs, **{name: inputs[name][:, start:] for name in ("input_ids", "attention_mask")}}
        self.mask = self.inputs["attention_mask"][self.index]
        self.is_padded = shortest < self.mask.shape[1]

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    def read(self, model: Any, cache: DynamicCache) -> Tensor:
        """Fill an empty cache with the ``U`` prompts, and return the logits ``(U, V)`` after them."""
        keep = {"logits_to_keep": 1} if "logits_to_keep" in accepted_arguments(model) else {}
        positions = (self.inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        output = model(**self.inputs, position_ids=positions, past_key_values=cache, use_cache=True, **keep)
        logits: Tensor = output.logits[:, -1]
        return logits

    def extensible_copies(self, cache: DynamicCache) -> DynamicCache:
        """Return a cache for all rows of the batch to which tokens are appended, without gradient."""
        copied = self.copies(cache, torch.arange(len(self.index), device=self.index.device))
        copied.layers = [_ExtensibleLayer(layer.keys, layer.values) for layer in copied.layers]
        return copied

    def copies(self, cache: DynamicCache, rows: Tensor) -> DynamicCache:
        """Return a cache for some rows of the batch, from the cache that :meth:`read` has filled."""
        copied = copy.copy(cache)
        copied.layers = [copy.copy(layer) for layer in cache.layers]
        for layer in copied.layers:
            if isinstance(layer, _RecomputedLayer):
                layer.rows = self.index[rows]
                continue
            # The backward pass of index_select is faster than that of indexing.
            layer.keys = layer.keys.index_select(0, self.index[rows])
            layer.values = layer.values.index_select(0, self.index[rows])
        return copied

    def continue_with(self, model: Any, cache: DynamicCache, rows: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logits ``(n, T, V)`` after each token of some rows, which follow the cached prompts.

        Args:
            model: The model.
            cache: The cache that :meth:`read` has filled. It is not changed.
            rows: Numbers of the rows, ``(n,)``.
            tokens: Token ids ``(n, T)``.
            mask: ``(n, T)``, 0 at padding on the right.
        """
        seen = torch.cat([self.mask[rows], mask], dim=1)
        # Layers that are computed again must use the same attention.
        is_recomputed = isinstance(cache.layers[0], _RecomputedLayer)
        with nullcontext() if is_recomputed else continued_attention(model):
            logits: Tensor = model(
                input_ids=tokens,
                attention_mask=seen,
                position_ids=(seen.cumsum(1) - 1)[:, -tokens.shape[1] :],
                past_key_values=self.copies(cache, rows),
                use_cache=True,
            ).logits
        return logits


def parts_of_similar_length(lengths: Tensor, is_cpu: bool = True) -> list[Tensor]:
    """Divide rows into parts whose rows have similar lengths, such that parts have little padding.

    Of all divisions of the sorted rows, it is that with the fewest tokens with padding, plus a number of tokens that
    take as long as a call of the model for each part. On the CPU, a part has a limited number of tokens, unless it has
    one row.

    Args:
        lengths: Lengths of the rows, ``(N,)``, on the CPU.
        is_cpu: Whether the rows are computed on the CPU.

    Example:
        >>> [part.tolist() for part in parts_of_similar_length(torch.tensor([500, 20, 480, 30]))]
        [[1, 3], [2, 0]]
    """
    order, call = lengths.argsort(), _TOKENS_PER_CALL if is_cpu else _TOKENS_PER_CALL_ON_GPU
    # For each number of shortest rows: the least cost, and the row at which the last part begins.
    rows, costs, starts = np.arange(len(order)), np.zeros(len(order) + 1), [0]
    for end, longest in enumerate(lengths[order].tolist(), 1):
        most = max(1, _MOST_TOKENS_ON_CPU // max(longest, 1)) if is_cpu else end
        # With more rows, the last part begins at the same row or later.
        first = max(starts[-1], end - most)
        found = costs[first:end] + (end - rows[first:end]) * longest + call
        starts.append(first + int(found.argmin()))
        costs[end] = found.min()
    ends = [len(order)]
    while ends[0]:
        ends.insert(0, starts[ends[0]])
    return [order[start:end] for start, end in pairwise(ends)]
