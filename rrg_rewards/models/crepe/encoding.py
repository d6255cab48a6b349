"""Token sequences of report pairs, for an encoder that reads both reports together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.models.pair_predictor import PairTokenizer, shares


@dataclass(frozen=True)
class TokenizedPair:
    """Tokens of a report pair.

    Args:
        input_ids: Token ids of reference and candidate, with special tokens.
        token_type_ids: 0 for tokens of the reference, 1 for tokens of the candidate.
        num_cut: Number of tokens of both reports that were cut.
    """

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    # Not compared, because it does not change the input of the model.
    num_cut: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.input_ids)


class PairEncoder(PairTokenizer[TokenizedPair]):
    """Make token sequences of report pairs with the tokenizer's pair encoding.

    If both reports fit, the sequence is the tokenizer's for ``(reference, candidate)``. For an empty candidate, that is
    the encoding of the reference alone, without a second separator. Otherwise each report keeps its first tokens. A
    report may use half of the available tokens, plus those that the other report does not use. This is the default
    truncation of tokenizers.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        max_length: Maximum number of tokens of a sequence, special tokens included.

    Raises:
        ValueError: If the tokenizer is not a fast one, or the length leaves no room.

    Example:
        >>> encoder = PairEncoder(tokenizer, max_length=512)                                     # doctest: +SKIP
        >>> encoder.collate(encoder(["Effusion."], ["No effusion."]))["input_ids"].shape         # doctest: +SKIP
        torch.Size([1, 8])
    """

    def __init__(self, tokenizer: Any, max_length: int = 512) -> None:
        super().__init__(tokenizer, max_length)
        self._room = max_length - self._backend.num_special_tokens_to_add(True)
        if self._room < 2:
            raise ValueError(f"max_length {max_length} leaves no room for two reports")
        self._room_alone = max_length - self._backend.num_special_tokens_to_add(False)
        self._takes_types = "token_type_ids" in tokenizer.model_input_names

    def collate(self, pairs: Sequence[TokenizedPair]) -> dict[str, Tensor]:
        """Pad sequences to the longest; return the model's keyword arguments, each int64 ``(N, T)``."""
        ids, mask = self._padded([pair.input_ids for pair in pairs])
        batch = {"input_ids": ids, "attention_mask": mask}
        if self._takes_types:
            longest = ids.shape[1]
            types = [[*pair.token_type_ids] + [0] * (longest - len(pair)) for pair in pairs]
            batch["token_type_ids"] = torch.tensor(types)
        return batch

    def _tokenize(self, candidate: str, first: Any, second: Any) -> TokenizedPair:
        if not candidate:
            alone = self._backend.post_process(_cut(first, self._room_alone), None, True)
            return TokenizedPair(tuple(alone.ids), tuple(alone.type_ids), max(0, len(first) - self._room_alone))
        kept = shares(len(first), len(second), self._room)
        num_cut = len(first) + len(second) - sum(kept)
        if num_cut:
            first, second = (_cut(encoding, length) for encoding, length in zip((first, second), kept, strict=True))
        pair = self._backend.post_process(first, second, True)
        return TokenizedPair(tuple(pair.ids), tuple(pair.type_ids), num_cut)


def _cut(encoding: Any, length: int) -> Any:
    # Copy, because `truncate` works in place and all pairs with this text share the encoding.
    copy = type(encoding).merge([encoding], growing_offsets=False)
    copy.truncate(length)
    return copy
