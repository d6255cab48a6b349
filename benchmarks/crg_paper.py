"""Compute the columns of the CRG paper's Table 2, and CRG on levels, for generated reports of chest CT.

    python benchmarks/crg_paper.py

For each table of reference and generated reports: precision, recall, F1 and accuracy, as means over the 18 labels, as
Table 2 prints them, and of the pooled counts; the pooled counts; CRG; and the CRG of each level (abnormality, type,
side, lobe) with their mean. Labels are those of the rules. The figures of CTRG are also computed with the labels that
come with the table, which RadBERT has set as in the paper. The rows of the paper's own Table 2 cannot be computed:
neither its reports nor its counts by label are published.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import torch
from benchmark_data import SHARED, need
from timing import machine

from rrg_rewards.functional import LabelCounts, crg_score_from_counts, label_averages, label_counts
from rrg_rewards.metrics import ReportCRG
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("abnormality", "type", "side", "lobe")
TABLES = {
    "ctrg": ("reg2rg_ctrg", "GT_whole_report", "Pred_whole_report"),
    "ct_rate": ("reg2rg_ct_rate", "reference", "prediction"),
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the tables")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "crg_paper.json")
    return parser.parse_args()


def row_of_table_2(counts: LabelCounts) -> dict[str, Any]:
    """Return the columns of Table 2 from the counts of each label."""
    pooled = LabelCounts(*(count.sum() for count in counts))
    return {
        **{average: rounded(label_averages(counts, average)) for average in ("macro", "micro")},
        "counts": {name: int(count) for name, count in pooled._asdict().items()},
        "crg": round(float(crg_score_from_counts(*pooled)), 4),
    }


def rounded(values: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the values with four decimals."""
    return {name: round(float(value), 4) for name, value in values.items()}


def given_labels(rows: list[dict[str, str]], labels: tuple[str, ...], prefix: str) -> torch.Tensor:
    """Return the labels in the columns of a table."""
    return torch.tensor([[float(row[prefix + label]) > 0.5 for label in labels] for row in rows])


def measure(rows: list[dict[str, str]], reference: str, prediction: str) -> dict[str, Any]:
    """Measure one table."""
    metric = ReportCRG(levels=LEVELS)
    scores = metric.score([row[prediction] for row in rows], [row[reference] for row in rows])
    metric.add_scores(scores)
    counts, labels = scores.counts(dim=0), metric.labeler.labels
    figures = {
        "pairs": int(scores.scored.sum()),
        "rules": row_of_table_2(LabelCounts(*(count[: len(labels)] for count in counts))),
        "levels": {
            name: {"labels": width, "crg": round(float(value), 4)}
            for name, width, value in zip(LEVELS, metric.widths, metric.level_scores(), strict=True)
        },
        "crg_of_levels": round(float(metric.compute()), 4),
        "best_constant_of_levels": round(float(metric.statistics()["best_constant"]), 4),
    }
    if f"Pred_{labels[0]}" in rows[0]:
        given = (given_labels(rows, labels, prefix) for prefix in ("Pred_", "GT_"))
        figures["radbert"] = row_of_table_2(label_counts(*given, dim=0))
    return figures


def main() -> None:
    """Measure all tables, print their figures and write them."""
    arguments = parse_arguments()
    figures = {}
    for name, (folder, reference, prediction) in TABLES.items():
        path = arguments.data / folder / "pairs.csv"
        need(path, "reference and generated reports")
        with path.open(newline="", encoding="utf-8") as file:
            figures[name] = measure(list(csv.DictReader(file)), reference, prediction)
        print(name, json.dumps(figures[name], indent=2))
    described = {**machine(), "rrg_rewards": __version__}
    arguments.output.write_text(json.dumps({"machine": described, "figures": figures}, indent=2) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
