"""Report pairs as tokens in memory, and batches of them."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rrg_rewards.data.error_records import ErrorRecord
from rrg_rewards.models.crepe_encoding import PairEncoder
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

__all__ = ["TokenizedPairs", "load_tokenizer"]


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load an encoder's tokenizer from a folder or the Hub; code that comes with it is never executed."""
    check_model_source(name)
    return require("transformers", extra="train").AutoTokenizer.from_pretrained(name, revision=revision)


class TokenizedPairs(Dataset[dict[str, Tensor]]):
    """Reference and candidate of each record in one sequence, as the model reads them, tokenised once.

    Indexed by a list of rows, it gives a batch padded to its longest pair: ``input_ids``, ``attention_mask``,
    ``token_type_ids`` where the encoder takes them, ``labels`` ``(N, C)`` float32, NaN where a category is not
    annotated, and ``source`` ``(N,)``, the index of the record's source.

    Args:
        records: Records, each with one of the sources' names.
        sources: Names of the sources.
        encode: Makes token sequences of pairs.
    """

    def __init__(self, records: Sequence[ErrorRecord], sources: Sequence[str], encode: PairEncoder) -> None:
        self.sources = tuple(sources)
        self.encode = encode
        sequences = encode([record.reference for record in records], [record.candidate for record in records])
        self.pairs = [sequence for (sequence,) in sequences]
        counts = [[math.nan if count is None else count for count in record.counts] for record in records]
        self.labels = torch.tensor(counts, dtype=torch.float32)
        self.source = torch.tensor([self.sources.index(record.source) for record in records])
        self.lengths = [len(pair) for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, rows: list[int]) -> dict[str, Tensor]:
        batch = self.encode.collate([self.pairs[row] for row in rows])
        return {**batch, "labels": self.labels[rows], "source": self.source[rows]}

    def describe(self) -> dict[str, Any]:
        """Numbers of pairs, by source, their mean counts, and how long they are in tokens."""
        by_source = Counter(self.sources[place] for place in self.source.tolist())
        return {
            "pairs": len(self),
            "by_source": {name: by_source[name] for name in self.sources},
            "mean_counts": self.labels.double().nanmean(0).tolist(),
            "mean_tokens": sum(self.lengths) / len(self),
            "longest_tokens": max(self.lengths),
            "pairs_cut": sum(pair.num_cut > 0 for pair in self.pairs),
        }
