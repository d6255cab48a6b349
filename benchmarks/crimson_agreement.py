"""Agreement with radiologists: CRIMSON by rules against metrics of word overlap and of labels.

    python benchmarks/crimson_agreement.py
    python benchmarks/crimson_agreement.py --data FOLDER

Three tables, all metrics on the same reports:

- RadJudge: rankings of candidates that three radiologists agree on; a case passes if all its rankings hold, equal
  meaning within 0.01 (of the metric's range).
- RadPref: Kendall's tau between differences of scores and of mean ratings of two candidates, with a bootstrap 95 %
  interval over cases.
- IU X-Ray: mean score of three systems, one of them a fixed normal template, on references that hold a finding of
  weight above 0 and on the others; and CRIMSON's parts: the share of the reference's weight that a system finds, the
  weight of what it invents, and how often it does better than a normal report.
"""

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import RESULTS, SHARED, Preference, bootstrap_draws, read_preferences, rouge_l, tau_with_interval
from torchmetrics.functional.text import bleu_score, chrf_score

from rrg_rewards.functional import crimson_score, crimson_statistics
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.version import __version__

SYSTEMS = ("fixed_normal_template", "sft_model", "retrieval_oracle")
EQUAL = 0.01

Score = Callable[[str, str, dict[str, str]], float]


def parse_arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the three sets")
    parser.add_argument("--resamples", type=int, default=2000, help="of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "crimson_agreement.json")
    return parser.parse_args()


JUDGE, LABELER = RuleJudge(), RuleLabeler("chexbert")


def evaluate(reference: str, candidate: str, context: dict[str, str]) -> Any:
    """The rule judge's evaluation."""
    return JUDGE.evaluation(ReportPair(reference, candidate, tuple(context.items())))


def label_f1(reference: str, candidate: str, _: dict[str, str]) -> float:
    """F1 of the CheXbert labels of the two reports."""
    ours, theirs = LABELER([reference, candidate])
    total = int(ours.sum() + theirs.sum())
    return 2 * int((ours & theirs).sum()) / total if total else 1.0


METRICS: dict[str, Score] = {
    "CRIMSON (rules)": lambda r, c, context: float(crimson_score(evaluate(r, c, context))),
    "ROUGE-L": lambda r, c, _: rouge_l(r, c),
    "BLEU-4": lambda r, c, _: float(bleu_score([c], [[r]], smooth=True)),
    "chrF": lambda r, c, _: float(chrf_score([c], [[r]])),
    "CheXbert-label F1 (rules)": label_f1,
}


def holds(scores: dict[str, float], ranking: str) -> bool:
    """Whether scores agree with a ranking such as ``C1 > C2``."""
    first, relation, second = ranking.split()
    difference = scores[first] - scores[second]
    return difference > EQUAL if relation == ">" else abs(difference) <= EQUAL


def radjudge(cases: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Cases passed by each metric."""
    passed = dict.fromkeys(METRICS, 0)
    for case in cases:
        expected = case["expected_ranking"]
        rankings = [expected] if isinstance(expected, str) else expected
        for name, metric in METRICS.items():
            scores = {
                key: metric(case["ground_truth"], candidate["text"], candidate.get("context", {}))
                for key, candidate in case["candidates"].items()
            }
            passed[name] += all(holds(scores, ranking) for ranking in rankings)
    return passed


def radpref(cases: Sequence[Preference], resamples: int) -> dict[str, dict[str, float]]:
    """Kendall's tau of each metric with the mean rating."""
    ratings = np.array([np.mean(case.ratings) for case in cases])
    draws = bootstrap_draws(len(cases), resamples)
    found = {}
    for name, metric in METRICS.items():
        differences = []
        for case in cases:
            first, second = (metric(case.reference, candidate, case.context) for candidate in case.candidates)
            differences.append(first - second)
        found[name] = tau_with_interval(np.array(differences), ratings, draws)
    return found


def iu_xray(rows: Sequence[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Scores of each system, on abnormal and on normal references."""
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
    cases = json.loads((arguments.data / "radjudge" / "cases.json").read_text(encoding="utf-8"))
    pairs = read_preferences(arguments.data / "radpref" / "pairs.json")
    with (arguments.data / "iu_xray" / "systems.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    passed, preferences, systems = radjudge(cases), radpref(pairs, arguments.resamples), iu_xray(rows)
    print(f"{'':28s} RadJudge of {len(cases)}   RadPref of {len(pairs)}: tau (95 %)")
    for name in METRICS:
        row = preferences[name]
        print(f"{name:28s} {passed[name]:14d}   {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
    print(f"\nIU X-Ray, {systems[SYSTEMS[0]]['abnormal_references']} of {len(rows)} references abnormal")
    columns = ("rouge_l_abnormal", "crimson_abnormal", "weight_found", "weight_invented", "better_than_normal")
    print(" " * 22, *(f"{column:>18s}" for column in (*columns, "crimson_normal")))
    for name, row in systems.items():
        print(f"{name:22s}", *(f"{row[column]:18.3f}" for column in (*columns, "crimson_normal")))
    result = {
        "version": __version__,
        "judge": JUDGE.signature,
        "radjudge": {"cases": len(cases), "passed": passed},
        "radpref": {"pairs": len(pairs), "kendall_tau": preferences},
        "iu_xray": systems,
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
