"""Counts of completions and references, summed over batches, steps and processes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    Example:
        >>> counts = Counts()
        >>> counts.add("completions/words", 4, 1)
        >>> counts.add_distinct("completions/distinct_ngrams", [17, 4, 17])
        >>> counts.closed()
        {'completions/words': (4.0, 1.0), 'completions/distinct_ngrams': (2.0, 3.0)}
    """

    sums: Sums = field(default_factory=dict)
    distinct: dict[str, set[int]] = field(default_factory=dict)
    tallies: dict[str, Counter[int]] = field(default_factory=dict)

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
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Counts":
        """Restore counts from their :meth:`state_dict`."""
        return cls(
            _tuples(state["sums"]),
            {name: set(hashes) for name, hashes in state["distinct"].items()},
            {side: _counter(tally) for side, tally in state["tallies"].items()},
        )


@dataclass(frozen=True)
class Block:
    """The counts of consecutive steps, the unit of all statistics.

    Args:
        step: Number of the last step.
        reports: Number of completions.
        sums: Sums by name, as :meth:`Counts.closed` returns them.
    """

    step: int
    reports: int
    sums: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, step: int, counts: Counts) -> "Block":
        """Return the block of counts."""
        return cls(step, counts.reports, counts.closed())

    def ratio(self, name: str) -> tuple[float, float]:
        """Return the numerator and the denominator of a series; both are 0 for an unknown series."""
        values = self.sums.get(name, (0.0, 0.0))
        return values[0], values[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the block as plain data."""
        return {"step": self.step, "reports": self.reports, "sums": _lists(self.sums)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Block":
        """Restore a block from its :meth:`state_dict`."""
        return cls(int(state["step"]), int(state["reports"]), _tuples(state["sums"]))


def _lists(sums: Mapping[str, tuple[float, ...]]) -> dict[str, list[float]]:
    return {name: list(values) for name, values in sums.items()}


def _tuples(sums: Mapping[str, Sequence[float]]) -> Sums:
    return {name: tuple(map(float, values)) for name, values in sums.items()}


def _items(counter: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(counter.items())


def _counter(items: Iterable[tuple[int, int]]) -> Counter[int]:
    return Counter(dict(items))
