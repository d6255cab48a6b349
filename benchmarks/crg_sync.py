"""Compare the time of CRG's synchronised counters with that of a metric that stores all labels until ``compute``.

    python benchmarks/crg_sync.py [--rows 1000 100000 1000000] [--output benchmarks/results/crg_sync.json]

Both metrics receive the same labels in the same run, half of the rows in each of two gloo processes with one thread.
``sync`` only exchanges states; ``compute`` includes this. Each is timed five times after a barrier, and the median of
the slower process is reported. The counters are computed in ``update``, therefore the total time of all updates and one
``compute`` is also reported. Labels are stored as uint8, the smallest type that the other metric can synchronise.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from timing import seconds
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from rrg_rewards.functional import crg_score
from rrg_rewards.metrics import CRGScore

PROCESSES = 2
LABELS = 18
BATCH = 1000
REPEATS = 5


class KeepsLabels(Metric):
    """Metric that stores all labels and scores them in ``compute``."""

    full_state_update = False
    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Store the labels."""
        self.preds.append(preds)
        self.target.append(target)

    def compute(self) -> Tensor:
        """Score all stored labels."""
        return crg_score(dim_zero_cat(self.preds), dim_zero_cat(self.target))


def state_bytes(metric: Metric) -> int:
    """Return the size of the state that is sent to every other process in ``compute``."""
    states = [getattr(metric, name) for name in metric._defaults]
    tensors = [tensor for state in states for tensor in (state if isinstance(state, list) else [state])]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def median_seconds(call: Callable[[], Any], before: Callable[[], Any]) -> float:
    """Return the median duration of a call that all processes start together, without the first call."""
    durations = []
    for _ in range(REPEATS + 1):
        before()
        dist.barrier()
        durations.append(seconds(call).wall)
    return statistics.median(durations[1:])


def measure(metric: Metric, rows: int, rank: int) -> dict[str, float]:
    """Update with this process's rows, then sync and compute several times."""
    generator = torch.Generator().manual_seed(rank)
    updating = 0.0
    for start in range(0, rows, BATCH):
        size = min(BATCH, rows - start)
        preds, target = (torch.rand(2, size, LABELS, generator=generator) < 0.2).to(torch.uint8)
        updating += seconds(lambda preds=preds, target=target: metric.update(preds, target)).wall
    size = state_bytes(metric)
    computing = median_seconds(metric.compute, before=lambda: setattr(metric, "_computed", None))
    syncing = median_seconds(metric.sync, before=lambda: metric.unsync(should_unsync=metric._is_synced))
    metric.unsync()
    slowest = torch.tensor([syncing, computing, updating], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    sync_ms, compute_ms, update_ms = (slowest * 1e3).tolist()
    return {
        "state_bytes": size,
        "sync_ms": sync_ms,
        "compute_ms": compute_ms,
        "all_updates_ms": update_ms,
        "updates_and_compute_ms": update_ms + compute_ms,
        "value": metric.compute().item(),
    }


def work(rank: int, folder: str, all_rows: list[int]) -> None:
    """Measure both metrics at each size in one process; the first process writes the figures."""
    torch.set_num_threads(1)
    store = (Path(folder) / "store").as_uri()
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES)
    found = []
    for rows in all_rows:
        share = rows // PROCESSES
        counters = measure(CRGScore(LABELS), share, rank)
        naive = measure(KeepsLabels(), share, rank)
        if counters["value"] != naive["value"]:
            raise RuntimeError(f"the metrics disagree: {counters['value']} and {naive['value']}")
        found.append({"rows": rows, "counters": counters, "keeps_labels": naive})
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


RATIOS = ("state_bytes", "sync_ms", "compute_ms", "updates_and_compute_ms")


def with_ratios(entry: dict[str, Any]) -> dict[str, Any]:
    """Add the ratios between the metric that stores labels and the counters."""
    naive, counters = entry["keeps_labels"], entry["counters"]
    return {**entry, "ratio": {name: naive[name] / counters[name] for name in RATIOS}}


def main() -> None:
    """Measure both sides, print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "crg_sync.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder, arguments.rows), nprocs=PROCESSES)
        found = [with_ratios(entry) for entry in json.loads((Path(folder) / "found.json").read_text())]
    for entry in found:
        print(f"{entry['rows']} rows: keeping labels over counters")
        for name, ratio in entry["ratio"].items():
            naive, counters = entry["keeps_labels"][name], entry["counters"][name]
            print(f"  {name:24} {naive:14.2f} / {counters:10.2f} = {ratio:10.1f}")
    machine = {"python": platform.python_version(), "torch": torch.__version__, "load_average": os.getloadavg()[0]}
    result = {"machine": machine, "processes": PROCESSES, "labels": LABELS, "sizes": found}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
