"""Time of `score --engine ray` beside plain `map_batches` of Ray Data, on one cluster in one run.

Both sides read the same Parquet file of synthetic report pairs with Ray Data, score it with the same metrics in the
same number of workers, and write Parquet. The engine also checks the table first, keeps checkpoints, and computes the
corpus values with their intervals. Rounds alternate, and the ratio is that of the medians.

    python benchmarks/ray_engine.py                  (extra ray)
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from rrg_rewards.analysis import ScoreSettings
from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.integrations.ray import ReportScorer
from rrg_rewards.integrations.ray_tables import Cluster, TableFiles
from rrg_rewards.integrations.ray_works import ScoreWork, score_files
from rrg_rewards.metrics import ROUGE, ReportCRG
from rrg_rewards.metrics.base import ReportMetric

RESULT = Path(__file__).parent / "results" / "ray_engine.json"


def write_pairs(path: Path, count: int) -> None:
    """Write reports of phantom studies, each with the report of another study as its prediction."""
    rng = random.Random(0)
    reports = [study.report for study in phantom_studies(2000)]
    rows = {name: [rng.choice(reports) for _ in range(count)] for name in ("prediction", "reference")}
    parquet.write_table(arrow.table(rows), path, row_group_size=max(1, count // 8))


def score_plain(ray: Any, metrics: dict[str, ReportMetric], pairs: Path, output: Path, workers: int) -> None:
    """Score with `map_batches` of Ray Data alone."""
    ray.data.read_parquet(str(pairs)).map_batches(
        ReportScorer,
        fn_constructor_kwargs={"metrics": metrics},
        batch_size=256,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=0.5,
    ).write_parquet(str(output))


def main() -> None:
    """Measure both sides and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    metrics: dict[str, ReportMetric] = {"crg": ReportCRG(prior=0.2), "rouge": ROUGE()}
    seconds: dict[str, list[float]] = {"plain": [], "engine": []}
    cluster = Cluster(workers=options.workers)
    with tempfile.TemporaryDirectory() as folder, cluster.connected() as (ray, workers):
        pairs = Path(folder) / "pairs.parquet"
        write_pairs(pairs, options.pairs)
        for turn in range(options.rounds):
            start = time.perf_counter()
            score_plain(ray, metrics, pairs, Path(folder) / f"plain{turn}", workers)
            seconds["plain"].append(time.perf_counter() - start)
            start = time.perf_counter()
            output = Path(folder) / f"engine{turn}"
            score_files(ScoreWork(metrics=metrics), TableFiles(path=pairs), output, cluster, ScoreSettings())
            seconds["engine"].append(time.perf_counter() - start)
        version = ray.__version__
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "pairs": options.pairs,
        "workers": options.workers,
        "ray": version,
        "metrics": [*metrics],
        "seconds": {name: [round(one, 2) for one in times] for name, times in seconds.items()},
        "ratio": round(medians["engine"] / medians["plain"], 3),
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
