"""Report pairs as tokens in memory, and batches of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

__all__ = ["TokenizedPairs", "load_tokenizer"]

# How many pairs are tokenised at once: enough for the tokenizer's threads, little memory for its encodings.
_AT_ONCE = 1024


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load an encoder's tokenizer from a folder or the Hub; code that comes with it is never executed."""
    check_model_source(name)
    return require("transformers", extra="train").AutoTokenizer.from_pretrained(name, revision=revision)


class TokenizedPairs(Dataset[dict[str, Tensor]]):
    """Reference and candidate of each record in one sequence, as the model reads them, tokenised once.

    Indexed by a list of rows, it gives a batch padded to its longest pair: ``input_ids``, ``attention_mask``,
    ``token_type_ids`` where the tokenizer makes them, ``labels`` ``(N, C)`` float32 and ``source`` ``(N,)``, the index
    of the record's source.

    Args:
        records: Mappings with ``reference``, ``candidate``, ``counts`` and ``origin``.
        sources: Names of the sources.
        tokenizer: A Hugging Face tokenizer.
        max_length: Tokens of a pair at most; the longer report is cut first.
    """

    def __init__(
        self, records: Sequence[Mapping[str, Any]], sources: Sequence[str], tokenizer: Any, max_length: int
    ) -> None:
        self.tokenizer = tokenizer
        self.sources = tuple(sources)
        self.rows: list[dict[str, list[int]]] = []
        for start in range(0, len(records), _AT_ONCE):
            self.rows += encode_pairs(tokenizer, records[start : start + _AT_ONCE], max_length)
        self.labels = torch.tensor([record["counts"] for record in records], dtype=torch.float32)
        self.source = torch.tensor([self.sources.index(record["origin"]) for record in records])
        self.lengths = [len(row["input_ids"]) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        batch = self.tokenizer.pad([self.rows[row] for row in rows], return_tensors="pt")
        return {**batch, "labels": self.labels[rows], "source": self.source[rows]}

    def describe(self) -> dict[str, Any]:
        """Number of pairs, by source, and their mean and longest number of tokens."""
        by_source = Counter(self.sources[place] for place in self.source.tolist())
        return {
            "pairs": len(self),
            "by_source": {name: by_source[name] for name in self.sources},
            "mean_counts": self.labels.double().nanmean(0).tolist(),
            "mean_tokens": sum(self.lengths) / len(self),
            "longest_tokens": max(self.lengths),
        }


def encode_pairs(tokenizer: Any, records: Sequence[Mapping[str, Any]], max_length: int) -> list[dict[str, list[int]]]:
    """Token ids of pairs, without padding, by the names that the model takes."""
    encoded = tokenizer(
        [record["reference"] for record in records],
        [record["candidate"] for record in records],
        truncation="longest_first",
        max_length=max_length,
    )
    return [{name: column[row] for name, column in encoded.items()} for row in range(len(records))]
