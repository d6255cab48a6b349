"""Time the paired tests of ``rrg-rewards compare`` and of sacrebleu, and count false alarms of both tests.

    python benchmarks/compare.py [--systems FILE] [--output benchmarks/results/compare.json]

Data: reports of three systems for the same studies (columns ``reference``, ``fixed_normal_template``, ``sft_model`` and
``retrieval_oracle``). Both sides test the difference in corpus BLEU between two systems, from sacrebleu's sufficient
statistics, with 1,000 draws of the paired bootstrap and 10,000 permutations of approximate randomisation, in turn, on
one core. Each side extracts the statistics itself. The second size repeats each report ten times; only its time counts.

For false alarms, the outputs of two systems are exchanged at random for each study, so that neither is better, and both
tests run with 1,000 draws. 200 such comparisons are made for CRG, ROUGE-L and corpus BLEU.
"""

import argparse
import csv
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_data import SHARED, need
from sacrebleu import BLEU
from sacrebleu.significance import PairedTest
from timing import in_turn, machine
from torch import Tensor

from rrg_rewards.analysis import compare_systems
from rrg_rewards.functional import paired_bootstrap, paired_randomisation
from rrg_rewards.metrics import ROUGE, ReportCRG

SYSTEMS = SHARED / "iu_xray" / "systems.csv"
NAMES = ("fixed_normal_template", "sft_model", "retrieval_oracle")
FIRST, SECOND = NAMES[1:]
DRAWS, PERMUTATIONS, REPEATS = 1_000, 10_000, 3
LARGER = 10
COMPARISONS, NULL_DRAWS, LEVEL = 200, 1_000, 0.05


def corpus_bleu(weights: Tensor, statistics: Tensor) -> Tensor:
    """BLEU of weighted sums of sacrebleu's statistics: lengths, then matches and counts of 1- to 4-grams."""
    sums = weights.double() @ statistics
    candidate, reference, matches, counts = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    brevity = torch.minimum(torch.ones_like(candidate), (1 - reference / candidate).exp())
    return 100 * brevity * (matches / counts).log().mean(1).exp()


def bleu_statistics(reports: list[str], references: list[str]) -> Tensor:
    """Return sacrebleu's sufficient statistics of each report."""
    return torch.tensor(BLEU(force=True)._extract_corpus_statistics(reports, [references]), dtype=torch.float64)


def speed(columns: dict[str, list[str]]) -> dict[str, Any]:
    """Time both sides, and return what they found. The time with one draw is that of the statistics."""
    references = columns["reference"]
    found: dict[str, dict[str, float]] = {"sacrebleu": {}, "rrg_rewards": {}}

    def theirs(kind: str, times: int) -> None:
        named = [(name, columns[name]) for name in (FIRST, SECOND)]
        _, scores = PairedTest(named, {"bleu": BLEU(force=True)}, [references], test_type=kind, n_samples=times)()
        found["sacrebleu"][kind] = scores["BLEU"][1].p_value

    def ours(kind: str, times: int) -> None:
        runs = [[[bleu_statistics(columns[name], references)]] for name in (SECOND, FIRST)]
        if kind == "bs":
            test = paired_bootstrap(*runs, corpus_bleu, num_resamples=times)
        else:
            test = paired_randomisation(*runs, corpus_bleu, num_permutations=times)
        found["rrg_rewards"][kind] = test.p_value

    result: dict[str, Any] = {}
    for name, kind, times in (("bootstrap", "bs", DRAWS), ("randomisation", "ar", PERMUTATIONS)):
        sides = {
            "sacrebleu": partial(theirs, kind, times),
            "rrg_rewards": partial(ours, kind, times),
            "sacrebleu, 1 draw": partial(theirs, kind, 1),
            "rrg_rewards, 1 draw": partial(ours, kind, 1),
        }
        took = {side: one.processor for side, one in in_turn(sides, REPEATS).items()}
        draws_only = {side: took[side] - took[f"{side}, 1 draw"] for side in found}
        for side in found:
            sides[side]()  # So that the p-values are not those of one draw.
        result[name] = {
            "draws": times,
            "seconds": {side: round(one, 4) for side, one in took.items()},
            "ratio": round(took["sacrebleu"] / took["rrg_rewards"], 1),
            "ratio_without_statistics": round(draws_only["sacrebleu"] / draws_only["rrg_rewards"], 1),
            "p_value": {side: round(values[kind], 4) for side, values in found.items()},
        }
    return result


def false_alarms(columns: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """Return the share of comparisons without effect whose p-value is at most 0.05, by metric and test."""
    references = columns["reference"]
    scores: dict[str, list[Any]] = {}
    for name, metric in (("crg", ReportCRG(labeler="rules:chexbert")), ("rouge", ROUGE())):
        both = [metric.score(columns[system], references) for system in (FIRST, SECOND)]
        scores[name] = [both[0].aggregate_weighted, *(one.sufficient_statistics for one in both)]
    scores["corpus_bleu"] = [corpus_bleu, *((bleu_statistics(columns[name], references),) for name in (FIRST, SECOND))]
    generator = torch.Generator().manual_seed(0)
    alarms = {name: {"bootstrap": 0, "randomisation": 0} for name in scores}
    for seed in range(COMPARISONS):
        exchanged = torch.rand(len(references), generator=generator) < 0.5
        for name, (statistic, first, second) in scores.items():
            mixed = [_mixed(exchanged, first, second), _mixed(exchanged, second, first)]
            runs = [[columns] for columns in mixed]
            bootstrap = paired_bootstrap(*runs, statistic, num_resamples=NULL_DRAWS, seed=seed)
            randomisation = paired_randomisation(*runs, statistic, num_permutations=NULL_DRAWS, seed=seed)
            alarms[name]["bootstrap"] += bootstrap.p_value <= LEVEL
            alarms[name]["randomisation"] += randomisation.p_value <= LEVEL
    return {name: {test: count / COMPARISONS for test, count in one.items()} for name, one in alarms.items()}


def _mixed(exchanged: Tensor, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the columns of the first system with those of the second in the exchanged rows."""
    return [
        torch.where(exchanged.view(-1, *[1] * (ours.ndim - 1)), theirs, ours)
        for ours, theirs in zip(first, second, strict=True)
    ]


def example(columns: dict[str, list[str]]) -> dict[str, Any]:
    """Compare the three systems by CRG and ROUGE-L."""
    metrics = {"crg": ReportCRG(labeler="rules:chexbert"), "rouge": ROUGE()}
    systems = {name: columns[name] for name in NAMES}
    return compare_systems(systems, columns["reference"], metrics, baseline=FIRST).to_dict()


def main() -> None:
    """Run the benchmark and write its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=Path, default=SYSTEMS, help="CSV file of references and systems")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "compare.json")
    arguments = parser.parse_args()
    need(arguments.systems, "references and the reports of three systems")
    torch.set_num_threads(1)
    with arguments.systems.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in ("reference", *NAMES)}
    result = {
        "reports": len(rows),
        "systems": [FIRST, SECOND],
        "speed": {
            f"{copies * len(rows)} reports": speed({name: copies * cells for name, cells in columns.items()})
            for copies in (1, LARGER)
        },
        "false_alarms": {"comparisons": COMPARISONS, "level": LEVEL, "draws": NULL_DRAWS, **false_alarms(columns)},
        "example": example(columns),
        "machine": machine(),
    }
    print(json.dumps({key: value for key, value in result.items() if key != "example"}, indent=2))
    if arguments.output != Path(os.devnull):
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
