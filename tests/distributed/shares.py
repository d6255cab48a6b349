"""A corpus that processes share in several ways, and uses of a metric whose results must be those of one process."""

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

ROWS = 24
# Number of rows of each process.
SHARES = {
    2: {"even": (12, 12), "uneven": (19, 5), "last empty": (24, 0), "first empty": (0, 24)},
    3: {"even": (8, 8, 8), "uneven": (3, 20, 1), "last empty": (12, 12, 0), "two empty": (0, 24, 0)},
}
WHOLE = slice(0, ROWS)

Update = Callable[[Any, slice, int], object]
"""Updates a metric with some rows of the corpus of a seed, which is the same in all processes."""


def rows_of(rank: int, world_size: int) -> Iterator[tuple[str, slice]]:
    """Yield each way of sharing the corpus, and the rows of a process."""
    for share, lengths in SHARES[world_size].items():
        start = sum(lengths[:rank])
        yield share, slice(start, start + lengths[rank])


def picked(reports: Sequence[Any], rows: slice, seed: int) -> list[list[Any]]:
    """Return predictions and references of some rows, drawn from reports."""
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(reports), (2, ROWS), generator=generator)[:, rows].tolist()
    return [[reports[pick] for pick in column] for column in picks]


def feed(metric: Any, rows: slice, update: Update, seed: int = 0) -> Any:
    """Update a metric with its rows in two batches; a process without rows never calls update."""
    middle = (rows.start + rows.stop) // 2
    for part in (slice(rows.start, middle), slice(middle, rows.stop)):
        if part.start < part.stop:
            update(metric, part, seed)
    return metric


def exercise(make: Callable[[], Any], rows: slice, update: Update, results: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the results of a metric in every use, in the same order in all processes."""
    metric = feed(make(), rows, update)
    local = copy.deepcopy(metric.metric_state)
    found = {"first": results(metric), "repeated": results(metric)}
    torch.testing.assert_close(metric.metric_state, local, rtol=0, atol=0, equal_nan=True)
    found["cloned"] = results(metric.clone())
    found["unpickled"] = results(pickle.loads(pickle.dumps(metric)))
    metric.reset()
    found["after reset"] = results(feed(metric, rows, update, seed=1))
    return found


def assert_same(found: Any, expected: Any, place: Any) -> None:
    """Counts and tables are equal; sums of fractions to the last digits, because they are added in another order."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for name, value in expected.items():
            assert_same(found[name], value, (*place, name))
    elif isinstance(expected, int | list):
        assert type(found) is type(expected), place
        assert found == expected, place
    else:
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True), place
