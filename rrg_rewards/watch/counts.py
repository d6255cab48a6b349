"""Counts of completions and references, summed over batches, steps and processes."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, TypeGuard

from rrg_rewards.labelers.base import Labeler, label_reports
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.watch.findings import count_findings, is_hedged
from rrg_rewards.watch.instructions import find_instructions

__all__ = ["Block", "Counts", "count_found", "count_pairs", "count_texts", "count_values"]

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)|[\n;]")

# Sentences in a smaller share of the reports are not counted one by one, nor more than this number of sentences.
_LEAST_SHARE = 0.05
_MOST_SENTENCES = 100

Sums = dict[str, tuple[float, ...]]


@dataclass
class Counts:
    """Sums and sets of hashes by name; texts are not stored.

    Args:
        sums: Sums of tuples: (numerator, denominator) of a ratio, or (1, x, y, x², y², xy) for ``agreement/...``.
        distinct: Hashes of distinct items, by name of the ratio whose numerator is the number of distinct items.
        tallies: Numbers of reports that contain each item, by side and hash of the item.
        words: Numbers of occurrences of each word, by side and hash of the word.

    Example:
        >>> counts = Counts()
        >>> count_texts(counts, "completions", ["No effusion. No effusion."], n_gram=2)
        >>> counts.closed()["completions/distinct_ngrams"], counts.closed()["completions/repeated_sentences"]
        ((2.0, 3.0), (1.0, 2.0))
    """

    sums: Sums = field(default_factory=dict)
    distinct: dict[str, set[int]] = field(default_factory=dict)
    tallies: dict[str, Counter[int]] = field(default_factory=dict)
    words: dict[str, Counter[int]] = field(default_factory=dict)

    def add(self, name: str, *values: float) -> None:
        """Add a tuple to the sums of a name."""
        before = self.sums.get(name, (0.0,) * len(values))
        self.sums[name] = tuple(float(one + other) for one, other in zip(before, values, strict=True))

    def add_distinct(self, name: str, hashes: Sequence[int]) -> None:
        """Add hashes of items to a ratio of the number of distinct items to the number of items."""
        self.add(name, 0.0, len(hashes))
        self.distinct.setdefault(name, set()).update(hashes)

    def merge(self, other: "Counts") -> None:
        """Add other counts."""
        for name, values in other.sums.items():
            self.add(name, *values)
        for name, hashes in other.distinct.items():
            self.distinct.setdefault(name, set()).update(hashes)
        for side, tally in other.tallies.items():
            self.tallies.setdefault(side, Counter()).update(tally)
        for side, words in other.words.items():
            self.words.setdefault(side, Counter()).update(words)

    @property
    def reports(self) -> int:
        """Number of counted completions."""
        return int(self.sums.get("completions/words", (0.0, 0.0))[1])

    def closed(self) -> Sums:
        """Return the sums, with numbers of distinct items as numerators, and the shares of the common sentences."""
        sums = {name: (float(len(self.distinct[name])), *values[1:]) if name in self.distinct else values
                for name, values in self.sums.items()}  # fmt: skip
        for side, tally in self.tallies.items():
            reports = self.sums[f"{side}/words"][1]
            # By hash where the counts are equal, so that the order of the reports has no effect.
            common = sorted(tally.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SENTENCES]
            sums |= {
                f"{side}/sentences/{sentence:016x}": (float(count), reports)
                for sentence, count in common
                if count > _LEAST_SHARE * reports
            }
        return sums

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        distinct = {name: sorted(hashes) for name, hashes in self.distinct.items()}
        return {
            "sums": _lists(self.sums),
            "distinct": distinct,
            "tallies": {side: _items(tally) for side, tally in self.tallies.items()},
            "words": {side: _items(words) for side, words in self.words.items()},
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Counts":
        """Restore counts from their :meth:`state_dict`."""
        return cls(
            _tuples(state["sums"]),
            {name: set(hashes) for name, hashes in state["distinct"].items()},
            {side: _counter(tally) for side, tally in state["tallies"].items()},
            {side: _counter(words) for side, words in state["words"].items()},
        )


@dataclass(frozen=True)
class Block:
    """The counts of consecutive steps, the unit of all statistics.

    Args:
        step: Number of the last step.
        reports: Number of completions.
        sums: Sums by name, as :meth:`Counts.closed` returns them.
        words: Numbers of occurrences of the words of the completions, by hash.
    """

    step: int
    reports: int
    sums: Mapping[str, tuple[float, ...]]
    words: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, step: int, counts: Counts) -> "Block":
        """Return the block of counts."""
        return cls(step, counts.reports, counts.closed(), counts.words.get("completions", Counter()))

    def ratio(self, name: str) -> tuple[float, float]:
        """Return the numerator and the denominator of a series; both are 0 for an unknown series."""
        values = self.sums.get(name, (0.0, 0.0))
        return values[0], values[1]

    def with_known_words(self, known: Collection[int]) -> "Block":
        """Return the block with the share of the words of completions that are not known.

        Args:
            known: Hashes of words.
        """
        unknown = sum(number for word, number in self.words.items() if word not in known)
        share = (float(unknown), float(sum(self.words.values())))
        return replace(self, sums={**self.sums, "completions/unknown_words": share})

    def history(self) -> dict[str, Any]:
        """Return the block as plain data, without the words."""
        return {"step": self.step, "reports": self.reports, "sums": _lists(self.sums)}

    def state_dict(self) -> dict[str, Any]:
        """Return the block as plain data."""
        return {**self.history(), "words": _items(self.words)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Block":
        """Restore a block from its :meth:`state_dict` or :meth:`history`."""
        return cls(int(state["step"]), int(state["reports"]), _tuples(state["sums"]), _counter(state.get("words", ())))


def _lists(sums: Mapping[str, tuple[float, ...]]) -> dict[str, list[float]]:
    return {name: list(values) for name, values in sums.items()}


def _tuples(sums: Mapping[str, Sequence[float]]) -> Sums:
    return {name: tuple(map(float, values)) for name, values in sums.items()}


def _items(counter: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(counter.items())


def _counter(items: Iterable[Sequence[int]]) -> Counter[int]:
    return Counter(dict(map(tuple, items)))


def count_texts(counts: Counts, side: str, texts: Iterable[str], n_gram: int) -> None:
    """Count words, repeated, hedged and equal sentences, distinct n-grams and reports, and instructions to a judge.

    Sentences, and whole reports as one sentence, are compared without case, punctuation and the values of numbers.
    Words are compared without case; numbers are not words.

    Args:
        counts: The counts to change.
        side: ``"completions"`` or ``"references"``, the prefix of the names.
        texts: Reports.
        n_gram: Number of words of the counted n-grams.
    """
    letters: Counter[str] = Counter()
    for text in texts:
        letters.update(_LETTERS.findall(text.lower()))
        words = _WORD.findall(text.lower())
        grams = [" ".join(words[start : start + n_gram]) for start in range(len(words) - n_gram + 1)]
        sentences = [" ".join(_WORD.findall(part)) for part in _SENTENCE_END.split(text.lower())]
        sentences = [sentence for sentence in sentences if sentence]
        counts.add(f"{side}/words", len(text.split()), 1)
        counts.add(f"{side}/repeated_sentences", len(sentences) - len(set(sentences)), len(sentences))
        counts.add(f"{side}/hedged_sentences", sum(map(is_hedged, sentences)), len(sentences))
        counts.add(f"{side}/instructions", bool(find_instructions(text)), 1)
        same = {_hash(_NUMBER.sub("0", text)) for text in (*sentences, " ".join(words))}
        counts.tallies.setdefault(side, Counter()).update(same)
        counts.add_distinct(f"{side}/distinct_ngrams", list(map(_hash, grams)))
        counts.add_distinct(f"{side}/distinct_reports", [_hash(" ".join(words))])
    counts.words.setdefault(side, Counter()).update({_hash(word): number for word, number in letters.items()})


def count_found(counts: Counts, side: str, texts: Iterable[str]) -> None:
    """Count findings, hedged findings and sizes; see :func:`rrg_rewards.watch.findings.count_findings`.

    Args:
        counts: The counts to change.
        side: ``"completions"`` or ``"references"``, the prefix of the names.
        texts: Reports.
    """
    for text, number in Counter(texts).items():
        for series, count in zip(("findings", "hedged_findings", "sizes"), count_findings(text), strict=True):
            counts.add(f"{side}/{series}", count * number, number)


def _hash(text: str) -> int:
    # Not hash(), which differs between processes.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def count_pairs(
    counts: Counts, labeler: Labeler, completions: Sequence[str | None], references: Sequence[str | None]
) -> list[float | None]:
    """Count positive labels of completions and references, and normal completions with an abnormal reference.

    Args:
        counts: The counts to change.
        labeler: Labeler of completions and references.
        completions: ``N`` completions.
        references: ``N`` references.

    Returns:
        F1 of the labels of each completion and its reference; 1 if both have no positive label; ``None`` if a text is
        missing, or the labeler failed on it.
    """
    chosen = [column for column, label in enumerate(labeler.labels) if not is_no_abnormality(label)]
    names = [labeler.labels[column] for column in chosen]
    # Label each distinct text once. All completions of a group have the same reference, and completions may repeat.
    texts = list(dict.fromkeys(text for text in (*completions, *references) if text is not None))
    rows = _label_rows(labeler, texts, chosen)
    scores: list[float | None] = []
    for completion, reference in zip(completions, references, strict=True):
        own, wanted = rows[completion], rows[reference]
        if own is not None:
            _count_positives(counts, "completions", names, own)
        if wanted is not None:
            _count_positives(counts, "references", names, wanted)
        if own is None or wanted is None:
            scores.append(None)
            continue
        if any(wanted):
            counts.add("completions/normal_reports", not any(own), 1)
        positives = sum(own) + sum(wanted)
        hits = sum(one and other for one, other in zip(own, wanted, strict=True))
        scores.append(2 * hits / positives if positives else 1.0)
    return scores


def _label_rows(labeler: Labeler, texts: Sequence[str], chosen: Sequence[int]) -> dict[str | None, list[bool] | None]:
    """Return the chosen labels of each text; ``None`` for a missing text, or if the labeler failed."""
    rows: dict[str | None, list[bool] | None] = {None: None}
    if texts:
        labels, failures = label_reports(labeler, texts)
        rows.update(zip(texts, labels[:, list(chosen)].tolist(), strict=True))
        rows.update({text: None for text, failure in zip(texts, failures or (), strict=False) if failure is not None})
    return rows


def _count_positives(counts: Counts, side: str, names: Sequence[str], row: Sequence[bool]) -> None:
    counts.add(f"{side}/positives", sum(row), 1)
    for name, positive in zip(names, row, strict=True):
        counts.add(f"{side}/positives/{name}", positive, 1)


def count_values(
    counts: Counts, rewards: Mapping[str, Sequence[float | None]], metrics: Mapping[str, Sequence[float | None]]
) -> None:
    """Count rewards, held-out metrics, missing values and products of rewards and metrics.

    Args:
        counts: The counts to change.
        rewards: ``N`` rewards by name; ``None`` or NaN for unscorable completions.
        metrics: ``N`` values of held-out metrics by name; higher is better.
    """
    for kind, columns in (("rewards", rewards), ("metrics", metrics)):
        for name, values in columns.items():
            known = [float(value) for value in values if _is_known(value)]
            counts.add(f"{kind}/{name}", math.fsum(known), len(known))
            counts.add(f"{kind}_squared/{name}", math.fsum(value * value for value in known), len(known))
            if kind == "rewards":
                counts.add(f"completions/unscorable/{name}", len(values) - len(known), len(values))
    for reward, given in rewards.items():
        for metric, held_out in metrics.items():
            pairs = [
                (float(one), float(other))
                for one, other in zip(given, held_out, strict=True)
                if _is_known(one) and _is_known(other)
            ]
            moments = [(1.0, x, y, x * x, y * y, x * y) for x, y in pairs]
            counts.add(
                f"agreement/{reward}/{metric}", *map(math.fsum, zip(*moments, strict=True)) if pairs else [0] * 6
            )


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)
