"""Timing of benchmarks, and a description of the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """Seconds of the wall clock and of the processor."""

    wall: float
    processor: float


def seconds(run: Callable[[], object]) -> Took:
    """Time one run. Its result must be on the CPU; otherwise a GPU may not have finished."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Took(time.perf_counter() - wall, time.process_time() - processor)


def machine() -> dict[str, object]:
    """Describe the machine."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def in_turn(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, Took]:
    """Return the median seconds of each side. The sides run in turn, because other load then affects all of them."""
    times: dict[str, list[Took]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            times[name].append(seconds(run))
    return {name: Took(*map(statistics.median, zip(*took, strict=True))) for name, took in times.items()}
