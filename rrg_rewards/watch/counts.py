"""What is counted of completions and references: sums that add up over batches, steps and processes."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeGuard

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.watch.instructions import find_instructions

__all__ = ["Block", "Counts", "count_pairs", "count_texts", "count_values"]

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\n;]")
# Labels that say that there is nothing.
_NORMAL_LABELS = frozenset({"no finding", "normal"})

Sums = dict[str, tuple[float, ...]]


@dataclass
class Counts:
    """Sums by name, and sets of hashes of which the number of members counts; text is never kept.

    Args:
        sums: Numbers to be added element by element: (numerator, denominator) of a ratio; for ``agreement/...`` the
            sums of 1, x, y, x², y² and xy.
        distinct: Hashes of what was seen, by the name of the ratio whose numerator is how many there are.

    Example:
        >>> counts = Counts()
        >>> count_texts(counts, "completions", ["No effusion. No effusion."], n_gram=2)
        >>> counts.closed()["completions/distinct_ngrams"], counts.closed()["completions/repeated_sentences"]
        ((2.0, 3.0), (1.0, 2.0))
    """

    sums: Sums = field(default_factory=dict)
    distinct: dict[str, set[int]] = field(default_factory=dict)

    def add(self, name: str, *values: float) -> None:
        """Add numbers to those under a name."""
        before = self.sums.get(name, (0.0,) * len(values))
        self.sums[name] = tuple(float(one + other) for one, other in zip(before, values, strict=True))

    def add_distinct(self, name: str, hashes: Sequence[int]) -> None:
        """Add things of which the different ones count, and how many there are."""
        self.add(name, 0.0, len(hashes))
        self.distinct.setdefault(name, set()).update(hashes)

    def merge(self, other: "Counts") -> None:
        """Add what others counted."""
        for name, values in other.sums.items():
            self.add(name, *values)
        for name, hashes in other.distinct.items():
            self.distinct.setdefault(name, set()).update(hashes)

    @property
    def reports(self) -> int:
        """How many completions were counted."""
        return int(self.sums.get("completions/words", (0.0, 0.0))[1])

    def closed(self) -> Sums:
        """The sums, with numbers of different things in place of their hashes."""
        return {name: (float(len(self.distinct[name])), *values[1:]) if name in self.distinct else values
                for name, values in self.sums.items()}  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Itself as plain data."""
        return {
            "sums": {name: list(values) for name, values in self.sums.items()},
            "distinct": {name: sorted(hashes) for name, hashes in self.distinct.items()},
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Counts":
        """The counts of a :meth:`state_dict`."""
        return cls(
            {name: tuple(map(float, values)) for name, values in state["sums"].items()},
            {name: set(hashes) for name, hashes in state["distinct"].items()},
        )


@dataclass(frozen=True)
class Block:
    """What was counted over some steps in a row: the unit of all statistics.

    Args:
        step: The last of the steps.
        reports: Number of completions.
        sums: Sums by name, as :meth:`Counts.closed` gives them.
    """

    step: int
    reports: int
    sums: Mapping[str, tuple[float, ...]]

    def ratio(self, name: str) -> tuple[float, float]:
        """Numerator and denominator of a series; 0 and 0 where it was not counted."""
        values = self.sums.get(name, (0.0, 0.0))
        return values[0], values[1]

    def state_dict(self) -> dict[str, Any]:
        """Itself as plain data."""
        sums = {name: list(values) for name, values in self.sums.items()}
        return {"step": self.step, "reports": self.reports, "sums": sums}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Block":
        """The block of a :meth:`state_dict`."""
        sums = {name: tuple(map(float, values)) for name, values in state["sums"].items()}
        return cls(int(state["step"]), int(state["reports"]), sums)


def count_texts(counts: Counts, side: str, texts: Iterable[str], n_gram: int) -> None:
    """Count what texts themselves tell: length, repetition, variety, instructions.

    Args:
        counts: What is added to.
        side: ``"completions"`` or ``"references"``, which the names start with.
        texts: Reports.
        n_gram: Words of the n-grams that are counted.
    """
    for text in texts:
        words = _WORD.findall(text.lower())
        grams = [" ".join(words[start : start + n_gram]) for start in range(len(words) - n_gram + 1)]
        sentences = [" ".join(_WORD.findall(part)) for part in _SENTENCE_END.split(text.lower())]
        sentences = [sentence for sentence in sentences if sentence]
        counts.add(f"{side}/words", len(text.split()), 1)
        counts.add(f"{side}/repeated_sentences", len(sentences) - len(set(sentences)), len(sentences))
        counts.add(f"{side}/instructions", bool(find_instructions(text)), 1)
        counts.add_distinct(f"{side}/distinct_ngrams", list(map(_hash, grams)))
        counts.add_distinct(f"{side}/distinct_reports", [_hash(" ".join(words))])


def _hash(text: str) -> int:
    # Not Python's own, which differs between processes.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def count_pairs(
    counts: Counts, labeler: Labeler, completions: Sequence[str | None], references: Sequence[str | None]
) -> list[float | None]:
    """Count positive labels on both sides, and normal reports where the reference is not normal.

    Args:
        counts: What is added to.
        labeler: Labels both sides.
        completions: ``N`` completions.
        references: ``N`` references.

    Returns:
        The F1 of each completion's labels against its reference's, 1 where both have none; ``None`` where a side is
        missing.
    """
    chosen = [column for column, label in enumerate(labeler.labels) if label.lower() not in _NORMAL_LABELS]
    names = [labeler.labels[column] for column in chosen]
    # A reference stands beside each completion of its group, and completions repeat: label each text once.
    texts = list(dict.fromkeys(text for text in (*completions, *references) if text is not None))
    rows = dict(zip(texts, labeler(texts)[:, chosen].tolist(), strict=True)) if texts else {}
    scores: list[float | None] = []
    for completion, reference in zip(completions, references, strict=True):
        if completion is not None:
            _count_positives(counts, "completions", names, rows[completion])
        if reference is not None:
            _count_positives(counts, "references", names, rows[reference])
        if completion is None or reference is None:
            scores.append(None)
            continue
        own, wanted = rows[completion], rows[reference]
        if any(wanted):
            counts.add("completions/normal_reports", not any(own), 1)
        positives = sum(own) + sum(wanted)
        hits = sum(one and other for one, other in zip(own, wanted, strict=True))
        scores.append(2 * hits / positives if positives else 1.0)
    return scores


def _count_positives(counts: Counts, side: str, names: Sequence[str], row: Sequence[bool]) -> None:
    counts.add(f"{side}/positives", sum(row), 1)
    for name, positive in zip(names, row, strict=True):
        counts.add(f"{side}/positives/{name}", positive, 1)


def count_values(
    counts: Counts, rewards: Mapping[str, Sequence[float | None]], metrics: Mapping[str, Sequence[float | None]]
) -> None:
    """Count rewards, held-out metrics, how often there is none, and how the two go together.

    Args:
        counts: What is added to.
        rewards: ``N`` rewards by name, ``None`` or NaN where there is none.
        metrics: ``N`` values of held-out metrics by name, higher is better.
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
