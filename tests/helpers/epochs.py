"""Checks of samplers that hand out rows in batches."""

from typing import Any


def check_epochs(batches: Any, num_rows: int, per_epoch: int) -> None:
    """Check that 20 epochs differ, repeat no row, reach all rows together, and depend on their number alone."""
    epochs = []
    for epoch in range(20):
        batches.set_epoch(epoch)
        rows = [row for batch in batches for row in batch]
        assert len(rows) == len(set(rows)) == per_epoch
        epochs.append(rows)
    assert epochs[0] != epochs[1]
    assert {row for rows in epochs for row in rows} == set(range(num_rows))
    batches.set_epoch(0)
    assert [row for batch in batches for row in batch] == epochs[0]


def of_process(monkeypatch: Any, module: Any, batches: Any, rank: int, world_size: int) -> list[list[int]]:
    """Return the batches that one of several processes gets; ``module`` asks for its rank."""
    monkeypatch.setattr(module, "process_index", lambda: rank)
    monkeypatch.setattr(module, "num_processes", lambda: world_size)
    return list(batches)
