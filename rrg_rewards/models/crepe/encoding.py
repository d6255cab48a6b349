"""Token sequences of report pairs, for an encoder that reads both reports together, and division of long pairs."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.models.pair_predictor import PairTokenizer, shares

LongReports = Literal["truncate", "chunks"]


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


class PairEncoder(PairTokenizer[list[TokenizedPair]]):
    """Make token sequences of report pairs with the tokenizer's pair encoding and a rule for long pairs.

    If both reports fit, the sequence is the tokenizer's for ``(reference, candidate)``. For an empty candidate, that is
    the encoding of the reference alone, without a second separator. Otherwise:

    - ``"truncate"``: each report keeps its first tokens. A report may use half of the available tokens, plus those that
      the other report does not use. This is the default truncation of tokenizers.
    - ``"chunks"``: the pair is divided at sentence boundaries into aligned pairs that fit
      (:func:`rrg_rewards.models.crepe.encoding.aligned_chunks`).

    The encoder returns a list of sequences for each pair: one sequence, or several with ``"chunks"``.

    Args:
        tokenizer: A fast tokenizer of transformers. It is not changed.
        max_length: Maximum number of tokens of a sequence, special tokens included.
        long_reports: ``"truncate"`` or ``"chunks"``.

    Raises:
        ValueError: If the tokenizer is not a fast one, the length leaves no room, or the rule is unknown.

    Example:
        >>> encoder = PairEncoder(tokenizer, max_length=512)                            # doctest: +SKIP
        >>> pairs = [chunks[0] for chunks in encoder(["Effusion."], ["No effusion."])]  # doctest: +SKIP
        >>> encoder.collate(pairs)["input_ids"].shape                                   # doctest: +SKIP
        torch.Size([1, 8])
    """

    def __init__(self, tokenizer: Any, max_length: int = 512, long_reports: LongReports = "truncate") -> None:
        super().__init__(tokenizer, max_length)
        if long_reports not in ("truncate", "chunks"):
            raise ValueError(f"long_reports must be 'truncate' or 'chunks', got {long_reports!r}")
        self._room = max_length - self._backend.num_special_tokens_to_add(True)
        if self._room < 2:
            raise ValueError(f"max_length {max_length} leaves no room for two reports")
        self._room_alone = max_length - self._backend.num_special_tokens_to_add(False)
        self._takes_types = "token_type_ids" in tokenizer.model_input_names
        self.long_reports = long_reports

    def collate(self, pairs: Sequence[TokenizedPair]) -> dict[str, Tensor]:
        """Pad sequences to the longest; return the model's keyword arguments, each int64 ``(N, T)``."""
        ids, mask = self._padded([pair.input_ids for pair in pairs])
        batch = {"input_ids": ids, "attention_mask": mask}
        if self._takes_types:
            longest = ids.shape[1]
            types = [[*pair.token_type_ids] + [0] * (longest - len(pair)) for pair in pairs]
            batch["token_type_ids"] = torch.tensor(types)
        return batch

    def _tokenize(self, reference: str, candidate: str, first: Any, second: Any) -> list[TokenizedPair]:
        room = self._room if candidate else self._room_alone
        if len(first) + len(second) <= room or self.long_reports == "truncate":
            return [self._sequence(first, second if candidate else None)]
        chunks = aligned_chunks(reference, candidate, self._lengths, self._room)
        texts = [self._encode(side) for side in zip(*chunks, strict=True)]
        return [
            self._sequence(own, other if text else None) for own, other, (_, text) in zip(*texts, chunks, strict=True)
        ]

    def _lengths(self, sentences: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._encode(sentences)]

    def _sequence(self, first: Any, second: Any | None) -> TokenizedPair:
        """Join two encoded texts, each cut to its share of the available tokens; ``None`` for an empty candidate."""
        if second is None:
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


# White space after the end of a sentence, and line ends. No white space follows a decimal point.
_BOUNDARY = re.compile(r"(?<=[.!?;])\s+|[\r\n]+")
_WORD = re.compile(r"[a-z0-9]+")


def aligned_chunks(
    reference: str, candidate: str, lengths: Callable[[Sequence[str]], Sequence[int]], room: int
) -> list[tuple[str, str]]:
    """Divide a report pair at sentence boundaries into aligned pairs that fit, if possible.

    The reference is divided into the smallest sufficient number of groups of consecutive sentences, of about equal
    length. Each sentence of the candidate is assigned to the group with the most similar reference sentence. Similarity
    counts shared words, with higher weights for rare words. A sentence without shared words is assigned by its relative
    position. A candidate with the same sentences in another order is therefore compared with the same groups. If no
    division makes all chunks fit, because a single sentence is too long, the best division is returned.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        lengths: Function that returns the number of tokens of each text.
        room: Maximum number of tokens of the two texts of a chunk together.

    Returns:
        Pairs of reference text and candidate text that together contain every sentence once. Either text may be empty.

    Example:
        >>> words = lambda texts: [len(text.split()) for text in texts]
        >>> aligned_chunks("Small effusion. No nodule.", "No lung nodule. Large effusion.", words, room=5)
        [('Small effusion.', 'Large effusion.'), ('No nodule.', 'No lung nodule.')]
    """
    first, second = _sentences(reference), _sentences(candidate)
    first_lengths, second_lengths = lengths(first), lengths(second)
    nearest = _nearest(first, second)
    fewest = max(2, math.ceil((sum(first_lengths) + sum(second_lengths)) / room))
    best, smallest = [(reference, candidate)], math.inf
    for number in range(fewest, max(fewest, len(first)) + 1):
        groups = _groups(first_lengths, number)
        homes = [groups[index] for index in nearest]
        sizes = Counter[int]()
        for home, length in zip([*groups, *homes], [*first_lengths, *second_lengths], strict=True):
            sizes[home] += length
        # Keep the best division: more groups do not help if one group has most of the candidate's sentences.
        if max(sizes.values()) < smallest:
            smallest = max(sizes.values())
            best = [(_joined(first, groups, home), _joined(second, homes, home)) for home in sorted(sizes)]
        if smallest <= room:
            break
    return best


def _sentences(report: str) -> list[str]:
    return [sentence for sentence in map(str.strip, _BOUNDARY.split(report)) if sentence] or [""]


def _groups(lengths: Sequence[int], number: int) -> list[int]:
    """Return the group of each sentence: the one that contains its middle if all groups have equal lengths."""
    total = max(sum(lengths), 1)
    ends, end = [], 0
    for length in lengths:
        ends.append(end + length / 2)
        end += length
    return [min(int(number * middle / total), number - 1) for middle in ends]


def _nearest(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Return for each sentence of the second text the index of the most similar sentence of the first."""
    known = [frozenset(_WORD.findall(sentence.lower())) for sentence in first]
    spread = Counter(word for words in known for word in words)
    rarity = {word: math.log(1 + len(first) / count) for word, count in spread.items()}
    weights = [sum(rarity[word] for word in words) for words in known]
    nearest = []
    for index, sentence in enumerate(second):
        words = frozenset(_WORD.findall(sentence.lower()))
        own = sum(rarity.get(word, 1.0) for word in words)
        shared = [sum(rarity[word] for word in words & there) for there in known]
        alike = [2 * both / (own + there) if both else 0.0 for both, there in zip(shared, weights, strict=True)]
        # Among equally similar sentences, the one nearest to the same relative position.
        position = index * len(first) // len(second)
        nearest.append(max(range(len(alike)), key=lambda other: (alike[other], -abs(other - position))))
    return nearest


def _joined(sentences: Sequence[str], homes: Sequence[int], home: int) -> str:
    return " ".join(sentence for sentence, own in zip(sentences, homes, strict=True) if own == home)
