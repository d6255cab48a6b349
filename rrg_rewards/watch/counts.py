"""Counts of completions and references, summed over batches, steps and processes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.watch.text_counts import TextCounts

# Sentences and frames that are rarer, per report, are not counted one by one, nor more than this number of each.
_LEAST_RATE = 0.05
_MOST_ITEMS = 100

Sums = dict[str, tuple[float, ...]]


@dataclass
class Counts:
    """Sums and sets of hashes by name; texts are not stored.

    Args:
        sums: Sums of tuples: (numerator, denominator) of a ratio, or (1, x, y, x², y², xy) for ``agreement/...``.
        distinct: Hashes of distinct items, by name of the ratio whose numerator is the number of distinct items.
        tallies: Numbers of items, by kind (``completions/sentences``, ``references/frames``) and hash of the item.

    Example:
        >>> counts = Counts()
        >>> counts.add("completions/words", 4, 1)
        >>> counts.closed()
        {'completions/words': (4.0, 1.0)}
    """

    sums: Sums = field(default_factory=dict)
    distinct: dict[str, set[int]] = field(default_factory=dict)
    tallies: dict[str, Counter[int]] = field(default_factory=dict)

    def add(self, name: str, *values: float) -> None:
        """Add a tuple to the sums of a name."""
        before = self.sums.get(name, (0.0,) * len(values))
        self.sums[name] = tuple(float(one + other) for one, other in zip(before, values, strict=True))

    def add_texts(self, side: str, texts: Iterable[tuple[TextCounts, int]]) -> None:
        """Add the counts of texts, each with the number of completions or references that have this text."""
        # Names are joined and sums looked up once per series, not once per text.
        sums: dict[str, list[float]] = {}
        for counted, number in texts:
            for series, (value, total) in counted.sums.items():
                entry = sums.setdefault(series, [0.0, 0.0])
                entry[0] += value * number
                entry[1] += total * number
            for series, hashes in counted.distinct.items():
                sums.setdefault(series, [0.0, 0.0])[1] += len(hashes) * number
                self.distinct.setdefault(f"{side}/{series}", set()).update(hashes)
            for kind, items in counted.items.items():
                tally = self.tallies.setdefault(f"{side}/{kind}", Counter())
                for item, count in items.items():
                    tally[item] += count * number
        for series, entry in sums.items():
            self.add(f"{side}/{series}", *entry)

    def merge(self, other: "Counts") -> None:
        """Add other counts."""
        for name, values in other.sums.items():
            self.add(name, *values)
        for name, hashes in other.distinct.items():
            self.distinct.setdefault(name, set()).update(hashes)
        for kind, tally in other.tallies.items():
            self.tallies.setdefault(kind, Counter()).update(tally)

    @property
    def reports(self) -> int:
        """Number of counted completions."""
        return int(self.sums.get("completions/words", (0.0, 0.0))[1])

    def closed(self) -> Sums:
        """Return the sums, those of distinct items with their number, and those of the common sentences and frames."""
        sums = {name: (float(len(self.distinct[name])), *values[1:]) if name in self.distinct else values
                for name, values in self.sums.items()}  # fmt: skip
        for kind, tally in self.tallies.items():
            reports = self.sums[f"{kind.partition('/')[0]}/words"][1]
            # By hash where the counts are equal, so that the order of the reports has no effect.
            common = sorted(tally.items(), key=lambda item: (-item[1], item[0]))[:_MOST_ITEMS]
            least = _LEAST_RATE * reports
            sums |= {f"{kind}/{item:016x}": (float(count), reports) for item, count in common if count > least}
        return sums

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        distinct = {name: sorted(hashes) for name, hashes in self.distinct.items()}
        return {
            "sums": _lists(self.sums),
            "distinct": distinct,
            "tallies": {kind: _items(tally) for kind, tally in self.tallies.items()},
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Counts":
        """Restore counts from their :meth:`state_dict`."""
        return cls(
            _tuples(state["sums"]),
            {name: set(hashes) for name, hashes in state["distinct"].items()},
            {kind: _counter(tally) for kind, tally in state["tallies"].items()},
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
