"""Compare the agreement with radiologists of CRIMSON by rules, text similarity and label F1.

    python benchmarks/crimson_agreement.py
    python benchmarks/crimson_agreement.py --data FOLDER

The script prints tables, in which all metrics score the same reports:

- RadJudge: number of cases in which a metric reproduces all rankings on which three radiologists agree. Scores within
  0.01 are equal.
- Clinical cases: the same for rankings that a language model wrote from the published rules, half of them of chest CT.
- RadPref: Kendall's tau between differences of scores and differences of mean ratings of two candidates, with a
  bootstrap 95 % interval over cases.
- IU X-Ray: mean scores of three systems, one of which is a fixed normal template, on references with and without a
  finding of weight above 0. For CRIMSON also the share of the reference's weight that a system finds, the weight of
  invented findings, and the share of reports that score higher than a normal report.
"""

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import RESULTS, SHARED, Preference, agreement_with_interval, bootstrap_draws, read_preferences, rouge_l
from benchmark_data import need
from torchmetrics.functional.text import bleu_score, chrf_score

from rrg_rewards.analysis.rankings import RankedCase, read_ranked_cases
from rrg_rewards.functional import crimson_score, crimson_statistics
from rrg_rewards.judges import JudgeFailure, ReportPair, RuleJudge
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.version import __version__

SYSTEMS = ("fixed_normal_template", "sft_model", "retrieval_oracle")

Score = Callable[[str, str, dict[str, str]], float]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the sets")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "crimson_agreement.json")
    return parser.parse_args()


JUDGE, LABELER = RuleJudge(), RuleLabeler("chexbert")


def evaluate(reference: str, candidate: str, context: dict[str, str]) -> Any:
    """Evaluate a pair with the rule judge."""
    return JUDGE.evaluation(ReportPair(reference, candidate, tuple(context.items())))


def unread_references(pairs: Sequence[ReportPair]) -> int:
    """Count the pairs that CRIMSON by rules does not score, because it could not read the reference."""
    return sum(isinstance(result, JudgeFailure) for result in JUDGE.evaluate_now(CrimsonTask(), pairs))


def label_f1(reference: str, candidate: str, _: dict[str, str]) -> float:
    """Compute F1 of the CheXbert labels of the two reports."""
    ours, theirs = LABELER([reference, candidate])
    total = int(ours.sum() + theirs.sum())
    return 2 * int((ours & theirs).sum()) / total if total else 1.0


METRICS: dict[str, Score] = {
    "CRIMSON (rules)": lambda r, c, context: float(crimson_score(evaluate(r, c, context))),
    # Fewer errors are better.
    "CRIMSON errors (rules)": lambda r, c, context: -float(crimson_statistics([evaluate(r, c, context)]).num_errors),
    "CRIMSON weighted errors (rules)": lambda r, c, context: (
        -float(crimson_statistics([evaluate(r, c, context)]).error_weight)
    ),
    "ROUGE-L": lambda r, c, _: rouge_l(r, c),
    "BLEU-4": lambda r, c, _: float(bleu_score([c], [[r]], smooth=True)),
    "chrF": lambda r, c, _: float(chrf_score([c], [[r]])),
    "CheXbert-label F1 (rules)": label_f1,
}


def passed_rankings(cases: Sequence[RankedCase]) -> dict[str, int]:
    """Return the number of cases in which each metric reproduces all rankings."""
    passed = dict.fromkeys(METRICS, 0)
    for case in cases:
        for name, metric in METRICS.items():
            scores = {
                key: metric(case.reference, text, dict(case.context[key])) for key, text in case.candidates.items()
            }
            passed[name] += case.holds(scores)
    return passed


def radpref(cases: Sequence[Preference], resamples: int) -> dict[str, dict[str, float]]:
    """Return Kendall's tau of each metric with the mean rating."""
    ratings = np.array([np.mean(case.ratings) for case in cases])
    draws = bootstrap_draws(len(cases), resamples)
    found = {}
    for name, metric in METRICS.items():
        differences = []
        for case in cases:
            first, second = (metric(case.reference, candidate, case.context) for candidate in case.candidates)
            differences.append(first - second)
        found[name] = agreement_with_interval(np.array(differences), ratings, draws)
    return found


def iu_xray(rows: Sequence[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Return the scores of each system on abnormal and on normal references."""
    found = {}
    for system in SYSTEMS:
        evaluations = [evaluate(row["reference"], row[system], {}) for row in rows]
        scores, parts = crimson_score(evaluations), crimson_statistics(evaluations)
        abnormal = parts.reference_weight > 0
        rouge = torch.tensor([METRICS["ROUGE-L"](row["reference"], row[system], {}) for row in rows])
        found[system] = {
            "abnormal_references": int(abnormal.sum()),
            "rouge_l_abnormal": float(rouge[abnormal].mean()),
            "crimson_abnormal": float(scores[abnormal].mean()),
            "crimson_normal": float(scores[~abnormal].mean()),
            "weight_found": float(parts.credit[abnormal].sum() / parts.reference_weight[abnormal].sum()),
            "weight_invented": float(parts.false_weight[abnormal].mean()),
            "better_than_normal": float((scores[abnormal] > 0).double().mean()),
        }
    return found


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    need(arguments.data / "radjudge" / "cases.json", "the cases of RadJudge by CRIMSON's authors")
    need(arguments.data / "clinical_cases" / "cases.json", "ranking cases in the form of RadJudge's")
    need(
        arguments.data / "radpref" / "pairs.json",
        "RadPref by CRIMSON's authors, with radiologists' ratings",
    )
    need(arguments.data / "iu_xray" / "systems.csv", "reports of three systems on IU X-Ray, from MRG_RL's results")
    rankings = {
        name: read_ranked_cases(arguments.data / name / "cases.json") for name in ("radjudge", "clinical_cases")
    }
    pairs = read_preferences(arguments.data / "radpref" / "pairs.json")
    with (arguments.data / "iu_xray" / "systems.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    passed = {name: passed_rankings(cases) for name, cases in rankings.items()}
    preferences, systems = radpref(pairs, arguments.resamples), iu_xray(rows)
    print(
        f"{'':34s} RadJudge of {len(rankings['radjudge'])}   clinical cases of {len(rankings['clinical_cases'])}"
        f"   RadPref of {len(pairs)}: tau (95 %)"
    )
    for name in METRICS:
        row = preferences[name]
        right = f"{passed['radjudge'][name]:14d}   {passed['clinical_cases'][name]:21d}"
        print(f"{name:34s} {right}   {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
    unread = {
        "radpref": unread_references([ReportPair(case.reference, text) for case in pairs for text in case.candidates]),
        "iu_xray": unread_references([ReportPair(row["reference"], row[SYSTEMS[0]]) for row in rows]),
    }
    # The figures are of all pairs, as if the unread words were not there.
    print(f"\nPairs with an unread reference: {unread['radpref']} of RadPref, {unread['iu_xray']} of IU X-Ray")
    print(f"\nIU X-Ray, {systems[SYSTEMS[0]]['abnormal_references']} of {len(rows)} references abnormal")
    columns = ("rouge_l_abnormal", "crimson_abnormal", "weight_found", "weight_invented", "better_than_normal")
    print(" " * 22, *(f"{column:>18s}" for column in (*columns, "crimson_normal")))
    for name, row in systems.items():
        print(f"{name:22s}", *(f"{row[column]:18.3f}" for column in (*columns, "crimson_normal")))
    result = {
        "version": __version__,
        "judge": JUDGE.signature,
        **{name: {"cases": len(cases), "passed": passed[name]} for name, cases in rankings.items()},
        "radpref": {"pairs": len(pairs), "kendall_tau": preferences},
        "iu_xray": systems,
        "unread_references": unread,
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
