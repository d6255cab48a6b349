"""Counts of completions and references, summed over batches, steps and processes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.watch.text_counts import TextCounts

# Frames that are rarer, per report, are not counted one by one, nor more than this number of them.
_LEAST_RATE = 0.05
_MOST_FRAMES = 100

Sums = dict[str, tuple[float, ...]]


@dataclass
class Counts:
    """Sums and sets of hashes by name; texts are not stored.

    Args:
        sums: Sums of tuples (numerator, denominator) of a ratio.
        distinct: Hashes of distinct items, by name of the ratio whose numerator is the number of distinct items.
        frames: Numbers of sentences by side (``completions`` or ``references``) and hash of the frame.

    Example:
        >>> counts = Counts()
        >>> counts.add("completions/words", 4, 1)
        >>> counts.closed(step=7).sums
        {'completions/words': (4.0, 1.0)}
    """

    sums: Sums = field(default_factory=dict)
    distinct: dict[str, set[int]] = field(default_factory=dict)
    frames: dict[str, Counter[int]] = field(default_factory=dict)

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
            frames = self.frames.setdefault(side, Counter())
            for frame, count in counted.frames.items():
                frames[frame] += count * number
        for series, entry in sums.items():
            self.add(f"{side}/{series}", *entry)

    def merge(self, other: "Counts") -> None:
        """Add other counts."""
        for name, values in other.sums.items():
            self.add(name, *values)
        for name, hashes in other.distinct.items():
            self.distinct.setdefault(name, set()).update(hashes)
        for side, frames in other.frames.items():
            self.frames.setdefault(side, Counter()).update(frames)

    @property
    def reports(self) -> int:
        """Number of counted completions."""
        return int(self.sums.get("completions/words", (0.0, 0.0))[1])

    def closed(self, step: int) -> "Block":
        """Return the block of the counts, with the numbers of distinct items and the rates of the common frames."""
        sums = {name: (float(len(self.distinct[name])), *values[1:]) if name in self.distinct else values
                for name, values in self.sums.items()}  # fmt: skip
        common: dict[str, dict[str, float]] = {}
        for side, frames in self.frames.items():
            # By hash where the counts are equal, so that the order of the reports has no effect.
            most = sorted(frames.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FRAMES]
            least = _LEAST_RATE * self.sums[f"{side}/words"][1]
            common[side] = {f"{frame:016x}": float(count) for frame, count in most if count > least}
        return Block(step, self.reports, sums, common)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "sums": dict(self.sums),
            "distinct": {name: sorted(hashes) for name, hashes in self.distinct.items()},
            "frames": {side: sorted(frames.items()) for side, frames in self.frames.items()},
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Counts":
        """Restore counts from their :meth:`state_dict`."""
        return cls(
            _tuples(state["sums"]),
            {name: set(hashes) for name, hashes in state["distinct"].items()},
            {side: Counter(dict(frames)) for side, frames in state.get("frames", {}).items()},
        )


@dataclass(frozen=True)
class Block:
    """The counts of consecutive steps, the unit of all statistics.

    Args:
        step: Number of the last step.
        reports: Number of completions.
        sums: Sums by name, as in :class:`Counts`.
        frames: Numbers of sentences by side and common frame; empty in blocks that are in no comparison of frames.
    """

    step: int
    reports: int
    sums: Mapping[str, tuple[float, ...]]
    frames: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def ratio(self, name: str) -> tuple[float, float]:
        """Return the numerator and the denominator of a series; both are 0 for an unknown series."""
        values = self.sums.get(name, (0.0, 0.0))
        return values[0], values[1]

    def without_frames(self) -> "Block":
        """Return a copy without frames."""
        return Block(self.step, self.reports, self.sums)

    def joined(self, later: "Block") -> "Block":
        """Return the sum of this block and the next one, without frames."""
        counts = Counts(dict(self.sums))
        counts.merge(Counts(dict(later.sums)))
        return Block(later.step, self.reports + later.reports, counts.sums)

    def state_dict(self) -> dict[str, Any]:
        """Return the block as plain data."""
        frames = {side: dict(counts) for side, counts in self.frames.items()}
        return {"step": self.step, "reports": self.reports, "sums": dict(self.sums), "frames": frames}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Block":
        """Restore a block from its :meth:`state_dict`."""
        return cls(int(state["step"]), int(state["reports"]), _tuples(state["sums"]), state.get("frames", {}))


def _tuples(sums: Mapping[str, Sequence[float]]) -> Sums:
    return {name: tuple(map(float, values)) for name, values in sums.items()}
