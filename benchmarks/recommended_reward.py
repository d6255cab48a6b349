"""Compare what compositions of rewards pay for honest reports, edits of them and constants, on references not fitted.

    python benchmarks/recommended_reward.py
    python benchmarks/recommended_reward.py --data FOLDER

The reports are those of real systems: Reg2RG on CTRG and CT-RATE, and three systems on IU X-Ray. What a reward measures
on references is measured on one half of them, and the rewards are those of the other half; then the halves are
exchanged. Equal references are in the same half. The texts that look at no image are the edits of
``crimson_training.py`` (blank, vague, hedged, half), and constants made from the fitted half:

- commonest: the report that the system writes most often;
- normal: a normal report;
- common 1, 3 and 10: the findings that most references state, by name;
- bounds: the first three of them, each of less than 100 mm.

The script prints the mean reward of the honest reports, and the mean gain over them of each text, and of the system's
reports given to other patients (shuffled), with its bootstrap 95 % interval over references; the same without chance
for several weights of normal references; and Kendall's tau with the CRIMSON score of annotated pairs.
"""

import argparse
import csv
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from agreement import RESULTS, SHARED, agreement_with_interval, bootstrap_draws
from benchmark_data import need
from crimson_ct_agreement import SETS, annotated_evaluation, read_entries
from crimson_training import EDITS, SYSTEMS, effects, evaluate
from ct_finebench_options import halves
from timing import machine
from torch import Tensor, stack, tensor, where

from rrg_rewards.data import write_json
from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.functional import crimson_score, crimson_training_score
from rrg_rewards.rewards import Reward, make_reward
from rrg_rewards.version import __version__

JUDGE = {"name": "rules", "unread": "normal"}
# Parts of the compositions, made for the labels of a corpus.
PARTS: dict[str, Callable[[str], Reward]] = {
    "published": lambda _: make_reward("crimson", judge=JUDGE),
    "training": lambda _: make_reward("crimson", judge=JUDGE, form="training"),
    "above chance": lambda _: make_reward("crimson", judge=JUDGE, form="training", chance="dataset"),
    **{
        f"price {price}": lambda _, price=price: make_reward(
            "crimson", judge=JUDGE, form="training", chance="dataset", chance_share=0.5, false_price=price
        )
        for price in (1, 2, 3)
    },
    "repetition": lambda _: make_reward("repetition"),
    "ct_finebench": lambda _: make_reward("ct_finebench", chance="dataset"),
    "crg": lambda labeler: make_reward("crg", average="macro", labeler=labeler),
}
OTHERS: dict[str, float] = {"ct_finebench": 1, "crg": 0.1}
COMPOSITIONS: dict[str, dict[str, float]] = {
    "training": {"training": 1},
    "above chance": {"above chance": 1},
    # The candidates of teaching.py.
    "recommended 0.1": {"above chance": 1, "repetition": 0.1},
    "no chance": {"training": 1, **OTHERS},
    "all chance": {"above chance": 1, **OTHERS},
    "price 1": {"price 1": 1, **OTHERS},
    "recommended": {"price 2": 1, **OTHERS},
    "price 3": {"price 3": 1, **OTHERS},
}
# Weights of normal references; the training form has the first.
WEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the sets")
    parser.add_argument("--references", type=int, default=300, help="references of a system, at even distances")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "recommended_reward.json")
    return parser.parse_args()


def constants(references: Sequence[str], reports: Sequence[str]) -> dict[str, str]:
    """Return texts that are the same for all patients, made from references and a system's reports."""
    stated = Counter(
        name
        for report in references
        for name in {one.concept for one in abnormal_findings(report, extract_findings(report))}
    )
    common = [name.replace("_", " ").capitalize() for name, _ in sorted(stated.items(), key=lambda one: (-one[1], one))]
    return {
        "commonest": Counter(reports).most_common(1)[0][0],
        "normal": "No abnormality.",
        **{f"common {number}": " ".join(f"{name}." for name in common[:number]) for number in (1, 3, 10)},
        "bounds": " ".join(f"{name} of less than 100 mm." for name in common[:3]),
    }


def part_scores(
    make: Callable[[str], Reward], labeler: str, references: Sequence[str], honest: Sequence[str]
) -> dict[str, Tensor]:
    """Return the rewards of all texts, each on the half of the references that was not fitted."""
    found: dict[str, list[float]] = {}
    first, second = halves(range(len(references)), references)
    for fitted, held_out in ((first, second), (second, first)):
        training = [references[row] for row in fitted]
        reward = make(labeler).fit(reference=training)
        target, reports = ([column[row] for row in held_out] for column in (references, honest))
        same = constants(training, [honest[row] for row in fitted])
        texts = {
            "honest": reports,
            **{name: list(map(edit, reports)) for name, edit in EDITS.items()},
            **{name: [text] * len(target) for name, text in same.items()},
            "shuffled": [reports[row - len(reports) // 2] for row in range(len(reports))],
        }
        for name, given in texts.items():
            values = reward(given, reference=target)
            if any(value is None for value in values):
                raise ValueError(f"{reward.__name__} has no score for one of the texts {name!r}")
            found.setdefault(name, []).extend(float(value or 0.0) for value in values)
    return {name: tensor(values, dtype=Tensor().double().dtype) for name, values in found.items()}


def summary(scores: Mapping[str, Tensor], draws: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the mean reward of honest reports, and those of the other texts with their gains."""
    honest = scores["honest"]
    others = {name: effects(honest, values, draws) for name, values in scores.items() if name != "honest"}
    return {"honest": float(honest.mean()), **others}


def measure_system(name: str, data: Path, most: int, resamples: int) -> dict[str, Any]:
    """Return what each composition pays for the texts of a system."""
    table, reference, prediction = SYSTEMS[name]
    need(data / table, "reference reports and those of a real system")
    with (data / table).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row[reference] and row[prediction]]
    number = min(most, len(rows))
    rows = [rows[place * len(rows) // number] for place in range(number)]
    references, honest = ([row[column] for row in rows] for column in (reference, prediction))
    labeler = "rules:chexbert" if name.startswith("IU") else "rules:ct_rate"
    parts = {part: part_scores(make, labeler, references, honest) for part, make in PARTS.items()}
    draws = bootstrap_draws(len(rows), resamples)
    found: dict[str, Any] = {"references": len(rows)}
    for composition, weights in COMPOSITIONS.items():
        scores = {
            text: stack([weight * parts[part][text] for part, weight in weights.items()]).sum(0)
            for text in parts["training"]
        }
        found[composition] = summary(scores, draws)
    order = [row for half in reversed(halves(range(len(references)), references)) for row in half]
    normal = crimson_score(evaluate([references[row] for row in order], [""] * len(order))) == 1
    found["normal_references"] = int(normal.sum())
    for weight in WEIGHTS:
        scaled = {text: where(normal, weight * values, values) for text, values in parts["training"].items()}
        found[f"training, normal {weight:g}"] = summary(scaled, draws)
    return found


def agreement(data: Path, resamples: int) -> dict[str, Any]:
    """Return the agreement with annotated pairs: with their published scores, and with those of the training form."""
    found: dict[str, Any] = {}
    for name, entries in read_entries(data).items():
        _, table, reference, _ = SETS[name]
        used = {entry["reference"] for entry in entries}
        with (data / table / "pairs.csv").open(newline="", encoding="utf-8") as file:
            training = [row[reference] for row in csv.DictReader(file) if row[reference] not in used]
        reports = {key: [entry[key] for entry in entries] for key in ("candidate", "reference")}
        annotated = list(map(annotated_evaluation, entries))
        draws = bootstrap_draws(len(entries), resamples)
        rewards = {
            "published": make_reward("crimson", judge=JUDGE),
            **{part: PARTS[part]("") for part in ("training", "above chance")},
        }
        found[name] = {}
        for part, reward in rewards.items():
            values = reward.fit(reference=training)(reports["candidate"], reference=reports["reference"])
            own = crimson_score if part == "published" else crimson_training_score
            targets = np.array(own(annotated)), np.array(values, dtype=float)
            found[name][part] = agreement_with_interval(targets[1], targets[0], draws)
    return found


def show(name: str, found: Mapping[str, Any]) -> None:
    """Print the figures of a system."""
    print(f"\n{name}: {found['references']} references, {found['normal_references']} of them normal")
    for composition, row in found.items():
        if isinstance(row, dict):
            print(f"  {composition}: honest {row['honest']:+.3f}")
        for text, one in row.items() if isinstance(row, dict) else ():
            if text != "honest":
                gain = f"{one['gain']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f})"
                print(f"    {text:12s} {one['score']:+.3f}, gain {gain}")


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    result: dict[str, Any] = {"version": __version__, "compositions": COMPOSITIONS, "systems": {}}
    result |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}
    for name in SYSTEMS:
        result["systems"][name] = measure_system(name, arguments.data, arguments.references, arguments.resamples)
        show(name, result["systems"][name])
    result["kendall_tau"] = agreement(arguments.data, arguments.resamples)
    for name, rewards in result["kendall_tau"].items():
        for reward, row in rewards.items():
            print(f"{name}: tau of {reward} {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
    write_json(result, arguments.output, overwrite=True)


if __name__ == "__main__":
    main()
