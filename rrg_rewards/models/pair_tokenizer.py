"""Base of the tokenisers of CREPE and ER²Score: tokens of report pairs, cut to a maximum length."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rrg_rewards.utilities.checks import check_same_length

__all__ = ["PairTokenizer", "shares"]

TokensT = TypeVar("TokensT")


class PairTokenizer(ABC, Generic[TokensT]):
    """Tokenise report pairs with a copy of a fast tokenizer; each distinct text is tokenised once.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        max_length: Maximum number of tokens of a sequence, special tokens included.

    Raises:
        ValueError: If the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{type(tokenizer).__name__} must be a fast tokenizer, one with a tokenizer.json")
        backend = tokenizer.backend_tokenizer
        # Truncation and padding from a tokenizer file must not change the reports. The copy leaves the given tokenizer
        # unchanged.
        self._backend = type(backend).from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        # Padding is masked, so any token id is valid.
        self._pad_token_id = tokenizer.pad_token_id or 0
        self.max_length = max_length

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> list[TokensT]:
        """Tokenise report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            The tokens of each pair.

        Raises:
            ValueError: If lengths differ.
        """
        check_same_length("references", references, "candidates", candidates)
        texts = list(dict.fromkeys([*references, *candidates]))
        encodings = dict(zip(texts, self._encode(texts), strict=True))
        return [
            self._tokenize(reference, candidate, encodings[reference], encodings[candidate])
            for reference, candidate in zip(references, candidates, strict=True)
        ]

    @abstractmethod
    def _tokenize(self, reference: str, candidate: str, first: Any, second: Any) -> TokensT:
        """Combine the encodings of a reference and a candidate."""

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        """Encode texts without special tokens."""
        encodings: list[Any] = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def _padded(self, rows: Sequence[Sequence[int]], left: bool = False) -> tuple[Tensor, Tensor]:
        """Pad rows of token ids to the longest; return ids and attention mask, each int64 ``(N, T)``."""
        longest = max(map(len, rows))
        ids, mask = [], []
        for row in rows:
            padding = [self._pad_token_id] * (longest - len(row))
            masked, kept = [0] * len(padding), [1] * len(row)
            ids.append([*padding, *row] if left else [*row, *padding])
            mask.append([*masked, *kept] if left else [*kept, *masked])
        return torch.tensor(ids), torch.tensor(mask)


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens each of two texts keeps: half of the room, plus those that the other does not use.

    An odd token goes to the longer text; if both have the same length, to the second.

    Example:
        >>> shares(300, 40, room=100), shares(300, 300, room=101)
        ((60, 40), (50, 51))
    """
    shorter = min(first, second, room // 2)
    longer = min(max(first, second), room - shorter)
    return (shorter, longer) if first <= second else (longer, shorter)
