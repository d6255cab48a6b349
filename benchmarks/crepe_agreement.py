"""Compare the agreement with radiologists of CREPE, ROUGE-L, BERTScore and the finding engine.

    python benchmarks/crepe_agreement.py runs/crepe/minilm_phantom/model --encoder runs/crepe/minilm
    python benchmarks/crepe_agreement.py MODEL --encoder ENCODER --radpref PAIRS.json --report RUN/report.json

The table contains Kendall's tau between each metric's scores and the radiologists' total error counts on RadPref, with
a bootstrap 95 % interval over references. The counts are means over the radiologists of false and missing findings,
wrong locations, severities and measurements; the radiologists did not count comparisons. Scores for which higher is
better are negated, therefore all taus should be positive. `crepe (A to D)` omits the categories that were not counted.
BERTScore is the greedy matching of Zhang et al. (2020) on the last layer of the encoder, without idf weights.

No pair of RadPref is used for training or tuning. With --report, the output also contains the held-out figures of the
training report.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import RADPREF, RESULTS, Array, agreement_with_interval, bert_score, bootstrap_draws, rouge_l
from benchmark_data import need

from rrg_rewards.data import ErrorRecord, read_annotated_set
from rrg_rewards.findings import compare_findings
from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.version import __version__

COUNTED = 4


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a CREPE model")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the encoder for BERTScore")
    parser.add_argument("--radpref", type=Path, default=RADPREF, help="RadPref's pairs.json")
    parser.add_argument("--report", type=Path, help="report.json of the training run")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "crepe_agreement.json")
    return parser.parse_args()


def engine_counts(reference: str, candidate: str) -> float:
    """Count false and missing findings and significant attribute errors by the finding engine."""
    found = compare_findings(reference, candidate)
    wrong = sum(any(error.significant for error in match.discrepancies) for match in found.matches)
    return float(len(found.false) + len(found.missing) + wrong)


def scores_of(records: Sequence[ErrorRecord], arguments: argparse.Namespace) -> dict[str, Array]:
    """Return the scores of each metric; higher is worse."""
    references, candidates = [r.reference for r in records], [r.candidate for r in records]
    details = list(CREPE(arguments.model, device="cpu", dtype="float32").score(candidates, references).details.values())
    pairs = list(zip(references, candidates, strict=True))
    bert = bert_score(arguments.encoder)
    return {
        "crepe": torch.stack(details).sum(0).numpy(),
        "crepe (A to D)": torch.stack(details[:COUNTED]).sum(0).numpy(),
        "rouge-l": -np.array([rouge_l(r, c) for r, c in pairs]),
        "bertscore": -np.array([bert(r, c) for r, c in pairs]),
        "finding engine": np.array([engine_counts(r, c) for r, c in pairs]),
    }


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    need(arguments.radpref, "RadPref by CRIMSON's authors, with radiologists' ratings")
    records = read_annotated_set("radpref", arguments.radpref)
    totals = np.array([record.total for record in records])
    # The two candidates of a reference are adjacent.
    draws = bootstrap_draws(len(records) // 2, arguments.resamples)
    table = {
        name: agreement_with_interval(scores, totals, draws) for name, scores in scores_of(records, arguments).items()
    }
    print(f"RadPref: tau of {len(records)} candidates' scores with radiologists' total error counts (95 %)")
    for name, row in table.items():
        print(f"{name:16s} {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
    result: dict[str, Any] = {"version": __version__, "candidates": len(records), "kendall_tau": table}
    if arguments.report is not None:
        report = json.loads(arguments.report.read_text(encoding="utf-8"))
        result["held_out"] = {key: report[key] for key in ("test", "test_by_source")}
        print(f"\nHeld-out pairs of the training run: tau {report['test']['tau']:.3f}")
        for name, row in report["test"]["categories"].items():
            print(f"{name:20s} MAE {row['mae']:.3f}, of always predicting the mean {row['mae_of_mean']:.3f}")
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
