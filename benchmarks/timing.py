"""Timing of benchmarks, and a description of the machine."""

import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Instructions of a CPU on which the speed of models depends, as Linux names them.
INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "avx512f", "avx512_vnni", "avx2")


class Took(NamedTuple):
    """Seconds of the wall clock and of the processor."""

    wall: float
    processor: float


def seconds(run: Callable[[], object]) -> Took:
    """Time one run. Its result must be on the CPU; otherwise a GPU may not have finished."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Took(time.perf_counter() - wall, time.process_time() - processor)


def compiling(run: Callable[[], object]) -> dict[str, float]:
    """Run a function whose model ``torch.compile`` compiles; return the seconds for it, and the number of graphs.

    More graphs than the model has parts mean recompilations, for example for a batch of one sequence, because torch
    treats a size of 1 as a constant.
    """
    counters = importlib.import_module("torch._dynamo.utils").counters["stats"]
    before = counters["unique_graphs"]
    first, second = seconds(run), seconds(run)
    return {"compile_seconds": round(first.wall - second.wall, 1), "graphs": counters["unique_graphs"] - before}


def machine() -> dict[str, object]:
    """Describe the machine, and the torch of this process with its number of threads."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next(
        (line.split(":", 1)[1].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    torch = importlib.import_module("torch")
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def in_turn(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, Took]:
    """Return the median seconds of each side. The sides run in turn, because other load then affects all of them."""
    times: dict[str, list[Took]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            times[name].append(seconds(run))
    return {name: Took(*map(statistics.median, zip(*took, strict=True))) for name, took in times.items()}
