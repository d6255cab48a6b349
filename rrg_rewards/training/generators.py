"""What reinforcement learning asks of a report generator: to sample, to score what was sampled, to decode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from rrg_rewards.functional import token_entropies, token_log_probs

__all__ = ["Batch", "Completions", "ReportGenerator", "TokenScores", "num_rows", "repeat_rows", "take_rows"]

Batch = Mapping[str, Any]
"""Columns of ``N`` rows by name: tensors ``(N, ...)`` and lists of ``N`` values."""


@dataclass(frozen=True)
class Completions:
    """Token sequences that a generator wrote, padded on the right.

    Args:
        tokens: Token ids ``(N, T)``; what stands at padding is never read.
        mask: ``(N, T)``, 1 at a completion's tokens, its end-of-sequence token among them, and 0 behind them.
        finished: ``(N,)``, whether a completion came to its end before it was cut off; ``None`` where not known.
    """

    tokens: Tensor
    mask: Tensor
    finished: Tensor | None = None

    @classmethod
    def until_end(cls, tokens: Tensor, end_token_ids: int | Iterable[int]) -> "Completions":
        """Completions that end with their first end-of-sequence token.

        Args:
            tokens: Token ids ``(N, T)`` as a decoder wrote them, without prompt or start token.
            end_token_ids: Ids of end-of-sequence tokens.

        Example:
            >>> import torch
            >>> Completions.until_end(torch.tensor([[5, 2, 2], [5, 6, 7]]), 2).mask
            tensor([[1, 1, 0],
                    [1, 1, 1]])
        """
        ends = [end_token_ids] if isinstance(end_token_ids, int) else list(end_token_ids)
        is_end = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
        # Ends before a token, its own not counted.
        before = is_end.cumsum(1) - is_end.long()
        return cls(tokens, (before == 0).long(), is_end.any(1))

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each completion, ``(N,)``."""
        return self.mask.sum(1)

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, rows: Tensor) -> "Completions":
        """Some of the completions, without columns that hold nothing but padding."""
        mask = self.mask[rows]
        width = max(int(mask.sum(1).max()), 1) if len(rows) else 0
        finished = None if self.finished is None else self.finished[rows]
        return Completions(self.tokens[rows][:, :width], mask[:, :width], finished)

    def token_lists(self) -> list[list[int]]:
        """Token ids of each completion without padding."""
        return [row[:length] for row, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]


@dataclass(frozen=True)
class TokenScores:
    """What a policy says of given completions.

    Args:
        log_probs: Log-probabilities ``(N, T)`` of the tokens, at the temperature of sampling.
        entropies: Entropies ``(N, T)`` of the distributions that they were drawn from, without gradient; ``None``
            where they are not known, or not asked for: they are logged, and only where a gradient is taken.
        hidden: States ``(N, T, H)`` that each token was predicted from, for a value head; ``None`` where there are
            none.
    """

    log_probs: Tensor
    entropies: Tensor | None = None
    hidden: Tensor | None = None

    @classmethod
    def from_logits(
        cls, logits: Tensor, completions: Completions, temperature: float = 1.0, hidden: Tensor | None = None
    ) -> "TokenScores":
        """Scores from the logits that each token of the completions was drawn from.

        Args:
            logits: ``(N, T, V)``.
            completions: ``N`` completions of ``T`` tokens.
            temperature: That of sampling.
            hidden: ``(N, T, H)``.
        """
        entropies = None
        if torch.is_grad_enabled():
            with torch.no_grad():
                # Row by row: a float32 copy of all logits would be the largest tensor of the step.
                entropies = torch.stack([token_entropies(row, temperature) for row in logits.detach()])
        return cls(token_log_probs(logits, completions.tokens, temperature), entropies, hidden)


@runtime_checkable
class ReportGenerator(Protocol):
    """A report generator as :class:`rrg_rewards.training.PolicyModule` trains it: an ``nn.Module`` with three methods.

    A batch is what the data loader gives: a dict of columns, tensors ``(N, ...)`` and lists, all of ``N`` rows. The
    trainer repeats and selects rows of it, so nothing in it may belong to the batch as a whole.

    ``max_new_tokens``, the greatest length of a completion, is read as an attribute for Dr. GRPO, ``hidden_size``, the
    width of :attr:`TokenScores.hidden`, for PPO.
    """

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Write one completion for each row, drawn from the policy at its temperature or, if asked, greedily.

        Nothing but the temperature may bend the distribution (no top-k, no repetition penalty): the log-probabilities
        would be those of another policy. Called without gradient.
        """
        ...

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Log-probabilities of given completions, one for each row, under the policy as it stands."""
        ...

    def decode(self, completions: Completions) -> Sequence[str]:
        """Texts of completions, without special tokens."""
        ...


def num_rows(batch: Batch) -> int:
    """Number of rows of a batch.

    Raises:
        TypeError: If the batch is no dict, or a column neither tensor nor list.
        ValueError: If it has no column, or columns differ in length.

    Example:
        >>> num_rows({"image": torch.zeros(2, 3), "report": ["a", "b"]})
        2
    """
    if not isinstance(batch, Mapping):
        raise TypeError(f"a batch must be a dict of columns, got {type(batch).__name__}")
    sizes = {}
    for name, column in batch.items():
        if not isinstance(column, Tensor | list | tuple) or (isinstance(column, Tensor) and not column.ndim):
            raise TypeError(
                f"batch[{name!r}] must be a tensor (N, ...) or a list of N values, got {type(column).__name__}"
            )
        sizes[name] = len(column)
    if not sizes or len(set(sizes.values())) > 1:
        raise ValueError(f"the columns of a batch must have the same number of rows, got {sizes or 'no column'}")
    return next(iter(sizes.values()))


def take_rows(batch: Batch, rows: Tensor) -> dict[str, Any]:
    """Some rows of a batch.

    Example:
        >>> take_rows({"report": ["a", "b", "c"]}, torch.tensor([2, 0]))
        {'report': ['c', 'a']}
    """
    indices = rows.tolist()
    return {
        name: column[rows.to(column.device)] if isinstance(column, Tensor) else [column[row] for row in indices]
        for name, column in batch.items()
    }


def repeat_rows(batch: Batch, times: int) -> dict[str, Any]:
    """Each row of a batch several times, one after the other.

    Example:
        >>> repeat_rows({"report": ["a", "b"]}, 2)
        {'report': ['a', 'a', 'b', 'b']}
    """
    return take_rows(batch, torch.arange(num_rows(batch)).repeat_interleave(times))
