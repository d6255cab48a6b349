"""Timing of several sides of a benchmark in turn."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Took(NamedTuple):
    """Seconds of the wall clock and of the processor."""

    wall: float
    processor: float


def seconds(run: Callable[[], object]) -> Took:
    """Time one run; what it returns lies on the CPU, so a GPU is done too."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Took(time.perf_counter() - wall, time.process_time() - processor)


def in_turn(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, Took]:
    """Median seconds of each side; turns go through all sides, so that load meets all alike."""
    times: dict[str, list[Took]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            times[name].append(seconds(run))
    return {name: Took(*map(statistics.median, zip(*took, strict=True))) for name, took in times.items()}
