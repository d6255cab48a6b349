"""Generation with a causal language model whose prompts are in a cache."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.training.policy.generators import Completions

__all__ = ["sample_completions", "sample_tokens"]

# Rows that have ended are removed from the batch when they are at least this fraction of it.
_ENDED = 1 / 8


def sample_completions(
    model: Any,
    cache: Any,
    logits: Tensor,
    mask: Tensor,
    *,
    max_new_tokens: int,
    temperature: float,
    end_token_ids: Sequence[int],
    pad_token_id: int,
) -> Completions:
    """Generate one completion for each row, with the log-probabilities of its tokens.

    Args:
        model: A causal language model.
        cache: Keys and values of the prompts, one row per completion.
        logits: Logits ``(N, V)`` after the prompts.
        mask: ``(N, P)``, 0 at padding of the prompts.
        max_new_tokens: Maximum length of a completion.
        temperature: Sampling temperature; 0 for the most probable tokens.
        end_token_ids: Ids of the end-of-sequence tokens.
        pad_token_id: Id of the padding token.
    """
    count, device = len(mask), mask.device
    tokens = torch.full((count, max_new_tokens), pad_token_id, device=device)
    log_probs = torch.zeros(count, max_new_tokens, device=device)
    ends = torch.tensor(list(end_token_ids), device=device)
    rows, going = torch.arange(count, device=device), torch.ones(count, dtype=torch.bool, device=device)
    positions = mask.sum(1)
    for step in range(max_new_tokens):
        new, scores = sample_tokens(logits, temperature)
        tokens[rows[going], step], log_probs[rows[going], step] = new[going], scores[going]
        going &= ~torch.isin(new, ends)
        left = int(going.sum())
        if not left or step == max_new_tokens - 1:
            break
        if len(rows) - left >= _ENDED * len(rows):
            kept = going.nonzero().squeeze(1)
            cache.batch_select_indices(kept)
            rows, mask, positions, new, going = rows[kept], mask[kept], positions[kept], new[kept], going[kept]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        logits = model(
            input_ids=new.unsqueeze(1),
            attention_mask=mask,
            position_ids=positions.unsqueeze(1),
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        positions = positions + 1
    completions = Completions.until_end(tokens[:, : step + 1], end_token_ids)
    return Completions(completions.tokens, completions.mask, completions.finished, log_probs[:, : step + 1])


def sample_tokens(logits: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Sample one token for each row of logits ``(N, V)``; return ids and log-probabilities, both ``(N,)``.

    At temperature 0, the token is the most probable one, and its log-probability is 0.

    Example:
        >>> sample_tokens(torch.tensor([[0.0, -torch.inf], [-torch.inf, 3.0]]))
        (tensor([0, 1]), tensor([0., 0.]))
    """
    if not temperature:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros_like(tokens, dtype=torch.float32)
    probabilities = (logits.float() / temperature).softmax(-1)
    if logits.device.type == "cpu":
        # By inversion: torch.multinomial draws one random number per token of the vocabulary. In float64, because rare
        # tokens would be lost in sums of float32.
        sums = probabilities.cumsum(-1, dtype=torch.float64)
        drawn = torch.rand(len(sums), 1, dtype=torch.float64) * sums[:, -1:]
        tokens = torch.searchsorted(sums, drawn, right=True).clamp(max=logits.shape[1] - 1)
    else:
        tokens = torch.multinomial(probabilities, 1)
    return tokens.squeeze(1), probabilities.gather(1, tokens).log().squeeze(1)
