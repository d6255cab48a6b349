"""Compare Kendall's tau with SciPy, and the interval and the test of agreement with resampling of SciPy's tau.

    python benchmarks/correlation.py

Scores are continuous, and judgements are ratings from 1 to 5. The sides run in turn on one core; the figures are
processor times. The resampling with SciPy computes its tau for each draw.
"""

import argparse
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.stats import kendalltau
from timing import in_turn, machine

from rrg_rewards.functional import agreement_interval, agreement_permutation_test, kendall_tau
from rrg_rewards.functional.bootstrap import bootstrap_draws
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--resampled-rows", type=int, nargs="+", default=[30, 100, 1_000, 2_000])
    parser.add_argument("--draws", type=int, default=1000, help="draws of the bootstrap, and permutations")
    parser.add_argument("--repeats", type=int, default=9, help="number of runs; the median is reported")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "correlation.json")
    return parser.parse_args()


def sample(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores and ratings with a correlation."""
    generator = np.random.default_rng(rows)
    ratings = generator.integers(1, 6, rows)
    return torch.from_numpy(ratings + generator.normal(size=rows) * 2), torch.from_numpy(ratings)


def compare(ours: Any, scipy: Any, repeats: int) -> dict[str, float]:
    """Return the processor times of both sides in ms, and the ratio of SciPy's to ours."""
    took = in_turn({"ours": ours, "scipy": scipy}, repeats)
    return {
        "ms": round(took["ours"].processor * 1e3, 3),
        "scipy_ms": round(took["scipy"].processor * 1e3, 3),
        "ratio": round(took["scipy"].processor / took["ours"].processor, 2),
    }


def compare_tau(rows: int, repeats: int) -> dict[str, float]:
    """Compare Kendall's tau."""
    scores, ratings = sample(rows)
    columns = scores.numpy(), ratings.numpy()
    difference = float(kendall_tau(scores, ratings)) - float(kendalltau(*columns).statistic)
    times = compare(lambda: kendall_tau(scores, ratings), lambda: kendalltau(*columns), repeats)
    return {**times, "difference": abs(difference)}


def compare_resampling(rows: int, draws: int, repeats: int) -> dict[str, dict[str, float]]:
    """Compare the bootstrap interval of agreement and its permutation test."""
    scores, ratings = sample(rows)
    x, y = scores.numpy(), ratings.numpy()
    generator = np.random.default_rng(0)

    def bootstrap() -> list[float]:
        return [kendalltau(x[kept], y[kept]).statistic for kept in (d.numpy() for d in bootstrap_draws(rows, draws))]

    def permutations() -> list[float]:
        return [kendalltau(x, generator.permutation(y)).statistic for _ in range(draws)]

    return {
        "interval": compare(lambda: agreement_interval(scores, ratings, num_resamples=draws), bootstrap, repeats),
        "permutation_test": compare(
            lambda: agreement_permutation_test(scores, ratings, num_permutations=draws), permutations, repeats
        ),
    }


def main() -> None:
    """Measure both sides, print their figures and write them."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    compare_tau(100, 1)
    figures: dict[str, Any] = {
        "tau": {rows: compare_tau(rows, arguments.repeats) for rows in arguments.rows},
        "resampling": {rows: compare_resampling(rows, arguments.draws, 3) for rows in arguments.resampled_rows},
    }
    for rows, one in figures["tau"].items():
        print(f"tau, {rows} rows: {one['ms']} ms, SciPy {one['scipy_ms']} ms, {one['ratio']} times as fast")
    for rows, both in figures["resampling"].items():
        for name, one in both.items():
            print(f"{name}, {rows} rows: {one['ms']} ms, SciPy {one['scipy_ms']} ms, {one['ratio']} times as fast")
    about = {**machine(), "cores_used": 1, "torch": torch.__version__, "scipy": version("scipy")}
    result = {"machine": {**about, "rrg_rewards": __version__}, "draws": arguments.draws, "figures": figures}
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
