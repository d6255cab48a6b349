"""Interface of report generators for reinforcement learning."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from rrg_rewards.functional import token_entropies, token_log_probs

# Greatest number of logits that are computed at once: 128 MiB in float32.
_TILE = 2**25

Batch = Mapping[str, Any]
"""Columns of ``N`` rows by name: tensors ``(N, ...)`` and lists of ``N`` values."""


@dataclass(frozen=True)
class Completions:
    """Sampled token sequences, padded on the right.

    Args:
        tokens: Token ids ``(N, T)``. Ids at padding are never read.
        mask: ``(N, T)``, 1 for the tokens of a completion including its end-of-sequence token, and 0 for padding, as
            integers or bools.
        finished: ``(N,)``, whether a completion has an end-of-sequence token; ``None`` if unknown.
        log_probs: Log-probabilities ``(N, T)`` of the tokens that the sampler returned, if its weights differ from
            those of the trainer by rounding: vLLM, or merged adapters.

    Raises:
        TypeError: If the mask contains floats; its sums are the lengths of completions.
    """

    tokens: Tensor
    mask: Tensor
    finished: Tensor | None = None
    log_probs: Tensor | None = None

    def __post_init__(self) -> None:
        if self.mask.is_floating_point():
            dtype = str(self.mask.dtype).removeprefix("torch.")
            raise TypeError(f"mask must contain integers or bools, got {dtype}; pass mask.long()")

    @classmethod
    def until_end(cls, tokens: Tensor, end_token_ids: int | Iterable[int]) -> "Completions":
        """Return completions that end with their first end-of-sequence token.

        Args:
            tokens: Generated token ids ``(N, T)`` without prompt and start token.
            end_token_ids: Ids of end-of-sequence tokens.

        Example:
            >>> import torch
            >>> Completions.until_end(torch.tensor([[5, 2, 2], [5, 6, 7]]), 2).mask
            tensor([[1, 1, 0],
                    [1, 1, 1]])
        """
        ends = [end_token_ids] if isinstance(end_token_ids, int) else list(end_token_ids)
        is_end = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
        # The number of end tokens that precede each token.
        before = is_end.cumsum(1) - is_end.long()
        return cls(tokens, (before == 0).long(), is_end.any(1))

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each completion, ``(N,)``."""
        return self.mask.sum(1)

    @cached_property
    def length_list(self) -> list[int]:
        """The lengths as a list. Only the first call waits for the device."""
        return [int(length) for length in self.lengths.tolist()]

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, rows: Tensor) -> "Completions":
        """Return the completions of some rows, truncated to the longest of them."""
        lengths = [self.length_list[row] for row in rows.tolist()]
        width = max([*lengths, 1]) if lengths else 0
        own = rows.to(self.tokens.device)
        finished = None if self.finished is None else self.finished[own]
        log_probs = None if self.log_probs is None else self.log_probs[own][:, :width]
        part = Completions(self.tokens[own][:, :width], self.mask[own][:, :width], finished, log_probs)
        part.__dict__["length_list"] = lengths
        return part

    def replaced(self, rows: Tensor, other: "Completions") -> "Completions":
        """Return the completions with others at some rows, truncated to the longest."""
        width, own = max(self.tokens.shape[1], other.tokens.shape[1]), rows.to(self.tokens.device)

        def put(name: str) -> Any:
            mine, new = getattr(self, name), getattr(other, name)
            if mine is None or new is None:
                return None
            if mine.ndim == 2:
                mine, new = (pad(values, (0, width - values.shape[1])) for values in (mine, new))
            return mine.index_copy(0, own, new.to(mine))

        whole = Completions(*(put(name) for name in ("tokens", "mask", "finished", "log_probs")))
        return whole.rows(torch.arange(len(whole)))

    def token_lists(self) -> list[list[int]]:
        """Return the token ids of each completion without padding."""
        return [row[:length] for row, length in zip(self._token_rows, self.length_list, strict=True)]

    @cached_property
    def _token_rows(self) -> list[list[int]]:
        rows: list[list[int]] = self.tokens.tolist()
        return rows


@dataclass(frozen=True)
class TokenScores:
    """Scores of given completions under a policy.

    Args:
        log_probs: Log-probabilities ``(N, T)`` of the tokens, at the sampling temperature.
        entropies: Entropies ``(N, T)`` of the sampling distributions, without gradient, or ``None``. They are only
            logged. :meth:`from_logits` omits them if no gradient is computed.
        hidden: Hidden states ``(N, T, H)`` from which the tokens are predicted, for a value head; or ``None``.
    """

    log_probs: Tensor
    entropies: Tensor | None = None
    hidden: Tensor | None = None

    @classmethod
    def from_logits(
        cls, logits: Tensor, completions: Completions, temperature: float = 1.0, hidden: Tensor | None = None
    ) -> "TokenScores":
        """Compute scores from logits.

        Args:
            logits: Logits ``(N, T, V)`` of the tokens of the completions.
            completions: ``N`` completions of ``T`` tokens.
            temperature: Sampling temperature.
            hidden: Hidden states ``(N, T, H)``.
        """
        entropies = None
        if torch.is_grad_enabled():
            with torch.no_grad():
                entropies = token_entropies(logits.detach(), temperature)
        return cls(token_log_probs(logits, completions.tokens, temperature), entropies, hidden)

    @classmethod
    def from_states(
        cls, states: Tensor, head: Callable[[Tensor], Tensor], completions: Completions, temperature: float = 1.0
    ) -> "TokenScores":
        """Compute scores from the inputs of a language model head, such that few logits exist at any time.

        Logits are computed in tiles, and again in the backward pass, unless one tile has all.

        Args:
            states: Hidden states ``(N, T, H)`` from which the tokens are predicted.
            head: Function from states ``(n, H)`` to logits ``(n, V)``.
            completions: ``N`` completions of ``T`` tokens.
            temperature: Sampling temperature.
        """

        def score(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
            own = Completions(tokens.unsqueeze(0), torch.ones_like(tokens).unsqueeze(0))
            scores = cls.from_logits(head(states).unsqueeze(0), own, temperature)
            return scores.log_probs[0], None if scores.entropies is None else scores.entropies[0]

        flat, tokens = states.flatten(0, 1), completions.tokens.flatten()
        with torch.no_grad():
            vocabulary = head(flat[:1]).shape[-1]
        tiles = list(zip(*(torch.split(values, max(1, _TILE // vocabulary)) for values in (flat, tokens)), strict=True))
        run = partial(checkpoint, score, use_reentrant=False) if len(tiles) > 1 else score
        log_probs, entropies = zip(*(run(*tile) for tile in tiles), strict=True)
        shape = completions.tokens.shape
        return cls(
            torch.cat(log_probs).view(shape), None if entropies[0] is None else torch.cat(entropies).view(shape), states
        )

    @classmethod
    def joined(cls, parts: Sequence["TokenScores"], rows: Tensor, width: int) -> "TokenScores":
        """Return the scores of all rows from those of parts, padded with 0 to ``width`` tokens.

        Args:
            parts: Scores of parts of the rows.
            rows: Numbers of the rows, in the order of the parts.
            width: Number of tokens of the result.
        """
        order = rows.argsort().to(parts[0].log_probs.device)

        def join(values: Sequence[Tensor]) -> Tensor:
            padded = [pad(part, (0, 0) * (part.ndim - 2) + (0, width - part.shape[1])) for part in values]
            return torch.cat(padded).index_select(0, order)

        log_probs = join([part.log_probs for part in parts])
        entropies = [part.entropies for part in parts if part.entropies is not None]
        hidden = [part.hidden for part in parts if part.hidden is not None]
        return cls(log_probs, join(entropies) if entropies else None, join(hidden) if hidden else None)


@runtime_checkable
class ReportGenerator(Protocol):
    """Interface of report generators for :class:`rrg_rewards.training.PolicyModule`, ``nn.Module`` with three methods.

    A batch from the data loader is a dict of columns: tensors ``(N, ...)`` and lists of ``N`` values. The trainer
    repeats and selects rows, so each value must belong to one row. In a rollout, ``batch`` is a mapping that copies a
    column for the completions of each row when it is read
    (:class:`~rrg_rewards.training.policy.generators.RepeatedRows`).

    Dr. GRPO requires the attribute ``max_new_tokens``, the maximum length of a completion. PPO requires the attribute
    ``hidden_size``, the width of :attr:`TokenScores.hidden`. A generator whose samples come from a copy of the weights
    has the method ``update_engine()``, which the trainer calls before sampling if weights have changed.
    """

    def sample(self, batch: Batch, *, greedy: bool = False) -> Completions:
        """Sample one completion for each row at the policy's temperature, or decode greedily, without gradient.

        Samples must follow the distribution that :meth:`log_probs` scores: do not use top-k, top-p or a repetition
        penalty.
        """
        ...

    def log_probs(self, batch: Batch, completions: Completions) -> TokenScores:
        """Return the scores of given completions, one for each row, under the current policy."""
        ...

    def decode(self, completions: Completions) -> Sequence[str]:
        """Return the texts of completions, without special tokens."""
        ...


def num_rows(batch: Batch) -> int:
    """Return the number of rows of a batch.

    Raises:
        TypeError: If the batch is not a dict, or a column is neither a tensor nor a list.
        ValueError: If there is no column, or columns differ in length.

    Example:
        >>> num_rows({"image": torch.zeros(2, 3), "report": ["a", "b"]})
        2
    """
    if isinstance(batch, RepeatedRows):
        return len(batch.index)
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


@dataclass(frozen=True, eq=False)
class RepeatedRows(Mapping[str, Any]):
    """Rows of a batch, each of them any number of times, without copies of its columns.

    A column that is read, as in ``rows["image"]``, has one value per row. Generators that compute each prompt once read
    ``prompts`` and ``index`` instead.

    Args:
        prompts: The batch.
        index: For each row, the number of its row in ``prompts``, ``(N,)``, on the CPU.

    Example:
        >>> rows = RepeatedRows({"report": ["a", "b", "c"]}, torch.tensor([2, 2, 0]))
        >>> rows["report"], rows.take(torch.tensor([2, 1]))["report"]
        (['c', 'c', 'a'], ['a', 'c'])
    """

    prompts: Batch
    index: Tensor

    def __getitem__(self, name: str) -> Any:
        column = self.prompts[name]
        if isinstance(column, Tensor):
            return column[self.index.to(column.device)]
        return [column[row] for row in self.index.tolist()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.prompts)

    def __len__(self) -> int:
        return len(self.prompts)

    def take(self, rows: Tensor) -> "RepeatedRows":
        """Return some of the rows."""
        return RepeatedRows(self.prompts, self.index[rows])

    def distinct(self) -> tuple[Batch, Tensor]:
        """Return the prompts that the rows have, in the order of the rows, and the number of each row's prompt."""
        numbers = {row: number for number, row in enumerate(dict.fromkeys(self.index.tolist()))}
        kept = list(numbers)
        is_whole = kept == list(range(num_rows(self.prompts)))
        prompts = self.prompts if is_whole else RepeatedRows(self.prompts, torch.tensor(kept))
        return prompts, torch.tensor([numbers[row] for row in self.index.tolist()])


def repeat_rows(batch: Batch, times: int) -> RepeatedRows:
    """Repeat each row of a batch. The copies of a row are consecutive.

    Example:
        >>> repeat_rows({"report": ["a", "b"]}, 2)["report"]
        ['a', 'a', 'b', 'b']
    """
    return RepeatedRows(batch, torch.arange(num_rows(batch)).repeat_interleave(times))
