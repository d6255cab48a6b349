"""Measure a language model as a labeler: share of valid answers, and agreement with the rules and with given labels.

    python benchmarks/judge_labeler.py --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
    python benchmarks/judge_labeler.py --judge local:my-model --schema my_labels.yaml --limit 50

Reports are those of CT-RATE with labels set by hand, or of ``--reports FILE`` with a column for each label. The first
``--limit`` reports are labelled. Agreement is measured on the reports with a valid answer: share of equal labels, and
F1 and Cohen's kappa of all labels together, against the rules (``rules:ct_rate``) and against the given labels.
"""

import argparse
import csv
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import yaml
from benchmark_data import SHARED, need
from timing import machine
from torch import Tensor

from rrg_rewards.functional import label_averages, label_counts
from rrg_rewards.judges import JudgeFailure
from rrg_rewards.labelers import JudgeLabeler, RuleLabeler
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", required=True, type=yaml.safe_load, help="name or settings of the judge, as YAML")
    parser.add_argument("--schema", default="ct_rate", help="label schema, whose labels are among those of CT-RATE")
    parser.add_argument("--reports", type=Path, default=SHARED / "ct_rate_labels" / "reports.csv")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results" / "judge_labeler" / "last_run.json"
    )
    return parser.parse_args()


def agreement(ours: Tensor, theirs: Tensor) -> dict[str, float | None]:
    """Return the agreement of two label matrices; ``None`` for undefined values."""
    pooled = label_averages(label_counts(ours, theirs, dim=0), "micro")
    observed = float(pooled["accuracy"])
    shares = [float(labels.double().mean()) for labels in (ours, theirs)]
    expected = shares[0] * shares[1] + (1 - shares[0]) * (1 - shares[1])
    values = {
        "equal_labels": observed,
        **{name: float(pooled[name]) for name in ("precision", "recall", "f1")},
        "kappa": (observed - expected) / (1 - expected) if expected < 1 else float("nan"),
    }
    return {name: None if value != value else round(value, 4) for name, value in values.items()}


def main() -> None:
    """Label the reports, print the figures and write them."""
    arguments = parse_arguments()
    need(arguments.reports, "reports with labels")
    with arguments.reports.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[: arguments.limit]
    reports = [row[arguments.text_column] for row in rows]
    labeler = JudgeLabeler(arguments.schema, arguments.judge)
    start = time.perf_counter()
    states = labeler.states(reports)
    took = time.perf_counter() - start
    valid = [not isinstance(one, JudgeFailure) for one in states]
    kinds = Counter(one.kind for one in states if isinstance(one, JudgeFailure))
    reasons = Counter(one.reason.partition(": ")[2] or one.reason for one in states if isinstance(one, JudgeFailure))
    stated = Counter(label.state for one in states if not isinstance(one, JudgeFailure) for label in one)
    figures: dict[str, Any] = {
        "reports": len(reports),
        "labels": len(labeler.labels),
        "valid_answers": sum(valid),
        "failures": dict(kinds),
        "reasons": dict(reasons.most_common(5)),
        "states": dict(stated),
        "seconds_per_report": round(took / max(len(reports), 1), 1),
    }
    if any(valid):
        rules = RuleLabeler("ct_rate")
        columns = [rules.labels.index(label) for label in labeler.labels]
        kept = [report for report, is_valid in zip(reports, valid, strict=True) if is_valid]
        ours = labeler.label(kept).labels
        figures["positive_labels"] = {"judge": int(ours.sum()), "rules": int(rules(kept)[:, columns].sum())}
        figures["against_rules"] = agreement(ours, rules(kept)[:, columns])
        if all(label in rows[0] for label in labeler.labels):
            given = [
                [float(row[label]) > 0.5 for label in labeler.labels]
                for row, is_valid in zip(rows, valid, strict=True)
                if is_valid
            ]
            figures["against_given_labels"] = agreement(ours, torch.tensor(given))
    print(json.dumps(figures, indent=2))
    described = {**machine(), "rrg_rewards": __version__, "labeler": labeler.signature}
    arguments.output.write_text(json.dumps({"machine": described, "figures": figures}, indent=2) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
