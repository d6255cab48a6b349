"""Report pairs a second on one core: CRIMSON by rules against ROUGE-L.

    python benchmarks/rule_judge.py
    python benchmarks/rule_judge.py --pairs pairs.json

Reads RadPref's file (references, two candidates each, age and indication). "Cold" scores each pair for the first time,
with the engine's memory empty; "warm" scores them again, as a policy that repeats itself is scored. Both include the
metric: text in, score out. ROUGE-L is torchmetrics', pair by pair, the cheapest score in common use.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torchmetrics.functional.text import rouge_score

from rrg_rewards.findings.extract import get_engine
from rrg_rewards.findings.vocabulary import load_lexicon
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=ROOT.parent / "shared" / "data" / "radpref" / "pairs.json")
    parser.add_argument("--repeats", type=int, default=5, help="the fastest of so many runs counts")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "rule_judge.json")
    return parser.parse_args()


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Measure both sides, print their figures and write them."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    cases = json.loads(arguments.pairs.read_text(encoding="utf-8"))
    preds = [case[f"{name}_report"] for case in cases for name in ("C1", "C2")]
    target, age, indication = (
        [case[key] for case in cases for _ in range(2)] for key in ("ground_truth_report", "PatientAge", "Indication")
    )
    metric = CRIMSON()
    cold, warm = [], []
    for _ in range(arguments.repeats):
        get_engine.cache_clear()
        load_lexicon.cache_clear()
        get_engine("chest")
        cold.append(seconds(lambda: metric.score(preds, target, age=age, indication=indication)))
        warm.append(seconds(lambda: metric.score(preds, target, age=age, indication=indication)))
    rouge = min(
        seconds(lambda: [rouge_score(p, t, rouge_keys="rougeL") for p, t in zip(preds, target, strict=True)])
        for _ in range(arguments.repeats)
    )
    words = sum(len(text.split()) for text in preds + target) / len(preds)
    figures = {
        "pairs": len(preds),
        "mean_words_per_pair": round(words, 1),
        "crimson_cold_pairs_per_second": round(len(preds) / min(cold)),
        "crimson_warm_pairs_per_second": round(len(preds) / min(warm)),
        "rouge_l_pairs_per_second": round(len(preds) / rouge),
        "ratio_cold": round(rouge / min(cold), 2),
        "ratio_warm": round(rouge / min(warm), 2),
    }
    for name, value in figures.items():
        print(f"{name:32}{value:>12}")
    result = {"version": __version__, "metric": metric.signature, "figures": figures}
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
