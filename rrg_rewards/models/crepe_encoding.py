"""Report pairs as token sequences of an encoder that reads both reports at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.models.crepe_chunks import aligned_chunks
from rrg_rewards.utilities.checks import check_same_length

__all__ = ["LongReports", "PairEncoder", "TokenizedPair", "shares"]

LongReports = Literal["truncate", "chunks"]


@dataclass(frozen=True)
class TokenizedPair:
    """A report pair as tokens.

    Args:
        input_ids: Token ids of reference and candidate, with special tokens.
        token_type_ids: For each token, whether it is of the reference (0) or the candidate (1).
        num_cut: Tokens of the two reports that had no place.
    """

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    # No part of what makes two pairs one for the encoder.
    num_cut: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.input_ids)


class PairEncoder:
    """Make token sequences of report pairs: the tokenizer's own pair encoding, with a rule for what is too long.

    Where both reports fit, the result is the tokenizer's for ``(reference, candidate)``. Where they do not, with
    ``"truncate"`` each keeps its first tokens: half of the room, and what the other leaves of its half, as tokenizers
    cut pairs by default. So no report, however long, drives the other out. With ``"chunks"`` the pair is divided at
    sentences into aligned pairs that fit: groups of the reference's sentences in order, each with the sentences of the
    candidate that speak of the same (:func:`rrg_rewards.models.crepe_chunks.aligned_chunks`).

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        max_length: Tokens of a sequence at most, special tokens included.
        long_reports: ``"truncate"`` or ``"chunks"``.

    Raises:
        ValueError: If the tokenizer is no fast one, the length leaves no room, or the rule is unknown.

    Example:
        >>> encoder = PairEncoder(tokenizer, max_length=512)                            # doctest: +SKIP
        >>> pairs = [chunks[0] for chunks in encoder(["Effusion."], ["No effusion."])]  # doctest: +SKIP
        >>> encoder.collate(pairs)["input_ids"].shape                                   # doctest: +SKIP
        torch.Size([1, 8])
    """

    def __init__(self, tokenizer: Any, max_length: int = 512, long_reports: LongReports = "truncate") -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{type(tokenizer).__name__} must be a fast tokenizer, one with a tokenizer.json")
        if long_reports not in ("truncate", "chunks"):
            raise ValueError(f"long_reports must be 'truncate' or 'chunks', got {long_reports!r}")
        backend = tokenizer.backend_tokenizer
        # A copy: what a tokenizer file says of truncation and padding must not cut the reports, and the tokenizer that
        # was given keeps it.
        self._backend = type(backend).from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._room = max_length - self._backend.num_special_tokens_to_add(True)
        if self._room < 2:
            raise ValueError(f"max_length {max_length} leaves no room for two reports")
        self._takes_types = "token_type_ids" in tokenizer.model_input_names
        self._pad_token_id = tokenizer.pad_token_id or 0
        self.max_length = max_length
        self.long_reports = long_reports

    def __call__(self, references: Sequence[str], candidates: Sequence[str]) -> list[list[TokenizedPair]]:
        """Tokenise report pairs.

        Args:
            references: ``N`` reference reports.
            candidates: ``N`` candidate reports.

        Returns:
            For each pair its sequences, at least one; more only with ``"chunks"``.

        Raises:
            ValueError: If lengths differ.
        """
        check_same_length("references", references, "candidates", candidates)
        # Each text once: a GRPO group has one reference.
        texts = list(dict.fromkeys([*references, *candidates]))
        tokens = dict(zip(texts, self._encode(texts), strict=True))
        return [
            self._sequences(reference, candidate, tokens[reference], tokens[candidate])
            for reference, candidate in zip(references, candidates, strict=True)
        ]

    def collate(self, pairs: Sequence[TokenizedPair]) -> dict[str, Tensor]:
        """Pad sequences to the longest of them, as a model's keyword arguments, each int64 ``(N, T)``."""
        longest = max(map(len, pairs))
        columns = {
            "input_ids": [[*pair.input_ids] + [self._pad_token_id] * (longest - len(pair)) for pair in pairs],
            "attention_mask": [[1] * len(pair) + [0] * (longest - len(pair)) for pair in pairs],
        }
        if self._takes_types:
            columns["token_type_ids"] = [[*pair.token_type_ids] + [0] * (longest - len(pair)) for pair in pairs]
        return {name: torch.tensor(rows) for name, rows in columns.items()}

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        encodings: list[Any] = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def _sequences(self, reference: str, candidate: str, first: Any, second: Any) -> list[TokenizedPair]:
        if len(first) + len(second) <= self._room or self.long_reports == "truncate":
            return [self._sequence(first, second)]
        chunks = aligned_chunks(reference, candidate, self._lengths, self._room)
        texts = self._encode([text for chunk in chunks for text in chunk])
        return [self._sequence(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]

    def _lengths(self, sentences: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._encode(sentences)]

    def _sequence(self, first: Any, second: Any) -> TokenizedPair:
        """One sequence of two texts, each cut to its share."""
        kept = shares(len(first), len(second), self._room)
        num_cut = len(first) + len(second) - sum(kept)
        if num_cut:
            first, second = (_cut(encoding, length) for encoding, length in zip((first, second), kept, strict=True))
        pair = self._backend.post_process(first, second, True)
        return TokenizedPair(tuple(pair.ids), tuple(pair.type_ids), num_cut)


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens each of two texts keeps: half of the room, and what the other leaves of its half.

    An odd token goes to the longer text, of equal ones to the second.
    """
    shorter = min(first, second, room // 2)
    longer = min(max(first, second), room - shorter)
    return (shorter, longer) if first <= second else (longer, shorter)


def _cut(encoding: Any, length: int) -> Any:
    # In place, and an encoding is shared by all pairs of its text.
    copy = type(encoding).merge([encoding], growing_offsets=False)
    copy.truncate(length)
    return copy
