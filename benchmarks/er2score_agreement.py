"""Compare how well ER²Score, ROUGE-L, BERTScore, CREPE and CRIMSON predict radiologists' preferences.

    python benchmarks/er2score_agreement.py
    python benchmarks/er2score_agreement.py --er2score runs/er2score/smollm2_phantom/model \
        --crepe runs/crepe/minilm_phantom/model --encoder runs/crepe/minilm

All metrics score the same pairs of RadPref. ER²Score, CREPE and the encoder were not trained or tuned on these pairs;
CRIMSON's lexicon was revised on them. The table has two columns with bootstrap 95 % intervals over pairs:

- preference accuracy: share of pairs in which the metric prefers the candidate with the higher mean rating. A tie of
  the metric counts half. Pairs with equal mean ratings are omitted and counted.
- Kendall's tau between differences of scores and differences of mean ratings, over all pairs.

Metrics whose models are not given are omitted. The last row compares each radiologist with the mean of the others,
averaged over radiologists, as an upper bound for metrics.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from agreement import (
    RADPREF,
    RESULTS,
    Array,
    Preference,
    agreement_with_interval,
    bert_score,
    bootstrap_draws,
    read_preferences,
    rouge_l,
)
from benchmark_data import need

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.metrics.crimson import CRIMSON
from rrg_rewards.metrics.er2score import ER2Score
from rrg_rewards.version import __version__


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--er2score", type=Path, help="folder of an ER²Score model")
    parser.add_argument("--crepe", type=Path, help="folder of a CREPE model")
    parser.add_argument("--encoder", type=Path, help="folder of the encoder for BERTScore, such as MiniLM")
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "er2score_agreement.json")
    return parser.parse_args()


def agreement(differences: Array, ratings: Array, draws: Array) -> dict[str, dict[str, float]]:
    """Return both figures of one metric with their intervals."""
    return {
        "accuracy": agreement_with_interval(differences, ratings, draws, "preference", "accuracy"),
        "tau": agreement_with_interval(differences, ratings, draws),
    }


def of_texts(score: Callable[[str, str], float], cases: Sequence[Preference]) -> Array:
    """Return the differences between the two candidates' scores by a function of reference and candidate."""
    scores = [[score(case.reference, candidate) for candidate in case.candidates] for case in cases]
    return np.array([first - second for first, second in scores])


def of_metric(metric: ReportMetric, cases: Sequence[Preference], context: Sequence[str] = ()) -> Array:
    """Return the differences between the two candidates' scores by a metric; positive if the first is better."""
    candidates = [candidate for case in cases for candidate in case.candidates]
    references = [case.reference for case in cases for _ in case.candidates]
    columns = {name: [case.context[name] for case in cases for _ in case.candidates] for name in context}
    values = metric.score(candidates, references, **columns).value.double().numpy()
    if np.isnan(values).any():
        raise ValueError(f"{metric.signature} has no score for {int(np.isnan(values).sum())} of {len(values)} reports")
    return (values[::2] - values[1::2]) * (1 if metric.higher_is_better else -1)


def differences_of(cases: Sequence[Preference], arguments: argparse.Namespace) -> tuple[dict[str, Array], list[str]]:
    """Return the differences of each available metric, and the signatures of the report metrics."""
    differences = {"ROUGE-L": of_texts(rouge_l, cases)}
    if arguments.encoder is not None:
        differences["BERTScore"] = of_texts(bert_score(arguments.encoder), cases)
    metrics: dict[str, ReportMetric] = {}
    if arguments.crepe is not None:
        metrics["CREPE"] = CREPE(arguments.crepe, device="cpu", dtype="float32")
    metrics["CRIMSON (rules)"] = CRIMSON(judge="rules")
    if arguments.er2score is not None:
        metrics["ER²Score"] = ER2Score(arguments.er2score, device="cpu", dtype="float32")
    for name, metric in metrics.items():
        context = ("age", "indication") if isinstance(metric, CRIMSON) else ()
        differences[name] = of_metric(metric, cases, context)
    return differences, [metric.signature for metric in metrics.values()]


def among_radiologists(judged: Array) -> dict[str, float]:
    """Compare each radiologist with the mean of the others, averaged; ``judged`` has shape (cases, raters)."""
    found = []
    for rater in range(judged.shape[1]):
        others = np.delete(judged, rater, axis=1).mean(1)
        row = agreement(judged[:, rater].astype(float), others, np.arange(len(judged))[None])
        found.append((row["accuracy"]["accuracy"], row["tau"]["tau"]))
    accuracy, tau = np.mean(found, axis=0)
    return {"accuracy": float(accuracy), "tau": float(tau)}


def row_of(name: str, row: Mapping[str, Mapping[str, float]]) -> str:
    """Format a row of the table."""
    cells = (f"{row[figure][figure]:.3f} ({row[figure]['low']:.3f} to {row[figure]['high']:.3f})" for figure in row)
    return f"{name:24s} " + "   ".join(cells)


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    need(arguments.radpref, "RadPref by CRIMSON's authors, with radiologists' ratings")
    cases = read_preferences(arguments.radpref)
    judged = np.array([case.ratings for case in cases])
    ratings = judged.mean(1)
    draws = bootstrap_draws(len(cases), arguments.resamples)
    differences, signatures = differences_of(cases, arguments)
    table = {name: agreement(values, ratings, draws) for name, values in differences.items()}
    alike, radiologists = int((ratings == 0).sum()), among_radiologists(judged)
    print(f"RadPref, {len(cases)} pairs, {alike} of them rated alike: preference accuracy and tau (95 %)")
    for name, row in table.items():
        print(row_of(name, row))
    print(f"{'one radiologist':24s} {radiologists['accuracy']:.3f}{'':20s}{radiologists['tau']:.3f}")
    result: dict[str, Any] = {
        "version": __version__,
        "pairs": len(cases),
        "rated_alike": alike,
        "metrics": table,
        "one_radiologist": radiologists,
        "signatures": signatures,
    }
    arguments.output.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
