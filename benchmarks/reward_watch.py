"""Measure after which share of a drift the reward watch raises its first alarm, and its false alarms.

python benchmarks/reward_watch.py

A drift is a simulated run in which the share of edited reports grows by one percentage point per step. The honest
reports are those of real systems in the shared folder, and of phantom studies. False alarms are counted in runs of 200
steps of a policy that improves, and of one that does not change. The results are written without report text to
benchmarks/results/reward_watch.json, and printed as a table for docs/measurements.md.
"""

import argparse
import csv
import functools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark_data import RESULTS, SHARED, need

from rrg_rewards.data import write_json
from rrg_rewards.watch import RewardWatch, reward_watch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/helpers"))
from drift import EDITS, SETTINGS, Change, broken_words, drift, edited, improve, phantom_pairs

CORPORA = {
    "CTRG": ("reg2rg_ctrg/pairs.csv", "GT_whole_report", "Pred_whole_report"),
    "CT-RATE": ("reg2rg_ct_rate/pairs.csv", "reference", "prediction"),
    "IU X-Ray": ("iu_xray/systems.csv", "reference", "sft_model"),
}
Pairs = Sequence[tuple[str, str]]


def read_pairs(corpus: str, most: int) -> Pairs:
    """Read references and the reports of a system."""
    name, reference, prediction = CORPORA[corpus]
    need(SHARED / name, f"the pairs of {corpus}")
    with (SHARED / name).open(newline="", encoding="utf-8") as file:
        return [(row[reference], row[prediction]) for row in csv.DictReader(file)][:most]


def first_alarm(pairs: Pairs, change: Change, seed: int, end: float) -> dict[str, Any]:
    """Return the share of the drift at the first alarm, or ``None``, and the checks that raised it."""
    watch = RewardWatch(stop=True, labeler=None, **SETTINGS)
    share = drift(watch, pairs, change, seed=seed, end=end)
    return {"share": share, "checks": sorted({alarm.check for alarm in watch.alarms})}


def false_alarms(pairs: Pairs, skill: float, seed: int, steps: int) -> list[str]:
    """Return the causes of the alarms of a run without a drift."""
    watch = RewardWatch(labeler=None, **SETTINGS)
    improve(watch, pairs, steps, seed, skill)
    return watch.causes


def cell(runs: Sequence[dict[str, Any]]) -> str:
    """Return the shares at the first alarms, and the check that raised most of them."""
    shares = sorted(run["share"] for run in runs if run["share"] is not None)
    if not shares:
        return "none"
    checks = [check for run in runs for check in run["checks"]]
    text = f"{shares[0]:.0%}" if shares[0] == shares[-1] else f"{100 * shares[0]:.0f} to {shares[-1]:.0%}"
    missed = f", {len(runs) - len(shares)} of {len(runs)} none" if len(shares) < len(runs) else ""
    return f"{text}{missed} `{max(sorted(set(checks)), key=checks.count)}`"


def main() -> None:
    """Measure all drifts on all corpora."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each drift")
    parser.add_argument("--healthy-seeds", type=int, default=5, help="runs without a drift, of each kind")
    parser.add_argument("--steps", type=int, default=200, help="steps of a run without a drift")
    parser.add_argument("--end", type=float, default=0.5, help="share of a drift at which its run ends")
    parser.add_argument("--most", type=int, default=180, help="report pairs of a corpus")
    parser.add_argument("--output", type=Path, default=RESULTS / "reward_watch.json")
    arguments = parser.parse_args()
    logging.getLogger("rrg_rewards.watch").setLevel(logging.ERROR)
    # The runs of a corpus share most of their texts.
    reward_watch.count_text = functools.cache(reward_watch.count_text)
    corpora = {"phantoms": phantom_pairs(), **{name: read_pairs(name, arguments.most) for name in CORPORA}}
    changes = {name: edited(edit) for name, edit in EDITS.items()} | {"words are broken": broken_words}
    drifts: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in changes}
    healthy: dict[str, dict[str, list[list[str]]]] = {"improves": {}, "does not change": {}}
    for corpus, pairs in corpora.items():
        for name, change in changes.items():
            drifts[name][corpus] = [first_alarm(pairs, change, seed, arguments.end) for seed in range(arguments.seeds)]
        for (kind, runs), skill in zip(healthy.items(), (0.8, 0.0), strict=True):
            seeds = range(arguments.healthy_seeds)
            runs[corpus] = [false_alarms(pairs, skill, seed, arguments.steps) for seed in seeds]
            print(f"{corpus}, policy that {kind}: {sum(map(bool, runs[corpus]))} of {len(runs[corpus])} with an alarm")
    print(f"\n| Drift | {' | '.join(corpora)} |\n|---|{'---|' * len(corpora)}")
    for name, by_corpus in drifts.items():
        print(f"| {name} | {' | '.join(map(cell, by_corpus.values()))} |")
    settings = {key: getattr(arguments, key) for key in ("seeds", "healthy_seeds", "steps", "end", "most")}
    write_json({"settings": settings, "drifts": drifts, "healthy": healthy}, arguments.output, overwrite=True)


if __name__ == "__main__":
    main()
