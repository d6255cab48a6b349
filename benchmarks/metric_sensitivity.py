"""Measure what CRG sees of errors in chest CT reports, beside CRIMSON, CT-FineBench and label F1 by rules.

    python benchmarks/metric_sensitivity.py

There are three tables, all on the references of 600 pairs of CT-RATE:

- ``changes``: ``rrg-rewards sensitivity``, with up to two errors of each category, the same reports for one and two.
- ``missed``: a sentence on one finding is added to every second of the references that name none of these findings,
  and the candidates are the references without it. It shows what a missed finding costs.
- ``constants``: the corpus value of one text that is the same for every study, whose labels are the best constant of
  CRG, beside that of the normal report and of a real system.

Differences of CRG are those of the corpus value.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmark_data import SHARED, need, write_results

from rrg_rewards.analysis import SensitivitySettings, measure_sensitivity
from rrg_rewards.data import Table, read_table
from rrg_rewards.findings import extract_findings
from rrg_rewards.metrics import ReportCRG, make_metric
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.version import __version__

METRICS = {
    "crg": ("crg", {}),
    "crg, macro": ("crg", {"average": "macro"}),
    "label_f1": ("label_f1", {}),
    "crimson": ("crimson", {"judge": "rules"}),
    "ct_finebench": ("ct_finebench", {}),
    "ct_finebench, f1": ("ct_finebench", {"mode": "f1"}),
}
MISSED = {
    "pulmonary embolism": "Acute pulmonary embolism is seen in the right main pulmonary artery.",
    "aortic dissection": "Dissection of the descending aorta is seen.",
    "pneumothorax": "A large pneumothorax is seen on the right.",
    "liver metastasis": "Multiple metastases are seen in the liver.",
    "lung nodule": "A nodule of 12 mm is seen in the right upper lobe.",
    "pleural effusion": "A large pleural effusion is seen on the left.",
    "hiatal hernia": "A small hiatal hernia is seen.",
    "coronary calcification": "Calcification of the coronary arteries is seen.",
}
# Reports that must allow two errors of a category.
FEWEST = 10
NORMAL = "The lungs are clear. The heart and the mediastinum are normal. There is no pleural effusion."


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs = SHARED / "reg2rg_ct_rate" / "pairs.csv"
    parser.add_argument("--pairs", type=Path, default=pairs, help="CSV with columns reference and prediction")
    parser.add_argument("--number", type=int, default=600, help="number of pairs")
    parser.add_argument("--quick", action="store_true", help="50 pairs, without a file of results")
    parser.add_argument("--output", type=Path, help="JSON file of the results")
    return parser.parse_args()


def metrics() -> dict[str, ReportMetric]:
    """Return the metrics of the tables."""
    return {name: make_metric(known, **options) for name, (known, options) in METRICS.items()}


def changes(references: list[str], bootstrap: int) -> dict[str, Any]:
    """Return difference, interval and share of worse reports for each version and metric, and the order of scores."""
    settings = SensitivitySettings(bootstrap=bootstrap, permutations=0)
    found = measure_sensitivity(Table({"reference": references}), metrics(), settings=settings)
    rows: dict[str, Any] = {}
    groups = [group for group in found.comparison.groups if min(len(one.rows) for one in group.metrics) >= FEWEST]
    for group in groups:
        for one in group.metrics:
            for difference in one.differences:
                rows.setdefault(difference.system, {})[one.metric] = {
                    "reports": len(one.rows),
                    "difference": round(difference.value, 4),
                    "interval": [round(difference.low, 4), round(difference.high, 4)],
                    "worse": round((difference.losses or 0) / len(one.rows), 4),
                }
    kinds = [str(group.group) for group in groups if group.group in found.order]
    orders = {kind: {name: round(value, 4) for name, value in found.order[kind].items()} for kind in kinds}
    return {"versions": rows, "order": orders}


def missed(references: list[str]) -> dict[str, Any]:
    """Return the difference of each metric's corpus value if a finding is missed, on the same references for all."""
    added = {name: concepts(sentence, "present") for name, sentence in MISSED.items()}
    named = set().union(*added.values())
    kept = [text for text in references if not named & concepts(text)]
    rows: dict[str, Any] = {}
    for name, sentence in MISSED.items():
        stated = [text if row % 2 else f"{text} {sentence}" for row, text in enumerate(kept)]
        costs = {key: round(corpus(one, kept, stated) - 1, 4) for key, one in metrics().items()}
        rows[name] = {"reports": len(kept), **costs}
    return rows


def concepts(text: str, presence: str | None = None) -> set[str]:
    """Return the concepts of the findings of a text, all or those of a presence."""
    return {one.concept for one in extract_findings(text) if presence is None or one.presence == presence}


def corpus(metric: ReportMetric, preds: list[str], target: list[str]) -> float:
    """Return the corpus value."""
    metric.update(preds, target)
    return round(float(metric.compute()), 4)


def constants(references: list[str], predictions: list[str]) -> dict[str, Any]:
    """Return the corpus value of texts that are the same for every study, and of a system."""
    crg = ReportCRG()
    crg.update(references, references)
    best = crg.label_statistics()["best_constant"].tolist()
    text = " ".join(f"{label}." for label, is_best in zip(crg.labels, best, strict=True) if is_best)
    texts = {"best constant": [text] * len(references), "normal report": [NORMAL] * len(references)}
    values = {
        name: {key: corpus(one, preds, references) for key, one in metrics().items()}
        for name, preds in {**texts, "system": predictions}.items()
    }
    return {"text": text, "values": values}


def show(title: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print a table in Markdown."""
    print(f"\n**{title}**\n\n| | {' | '.join(METRICS)} |\n|---|{'---:|' * len(METRICS)}")
    for name, row in rows.items():
        cells = (row[metric] for metric in METRICS)
        print(f"| {name} | {' | '.join(cell if isinstance(cell, str) else f'{cell:.3f}' for cell in cells)} |")


def main() -> None:
    """Measure, print and write."""
    arguments = parse_arguments()
    need(arguments.pairs, "pairs of references and generated reports of CT-RATE")
    table = next(read_table(arguments.pairs).batches(50 if arguments.quick else arguments.number))
    references, predictions = table.required_texts("reference"), table.required_texts("prediction")
    result = {
        "version": __version__,
        "reports": len(references),
        "changes": changes(references, 100 if arguments.quick else 1000),
        "missed": missed(references),
        "constants": constants(references, predictions),
        "signatures": {name: metric.signature for name, metric in metrics().items()},
    }
    cells = {
        version: {name: f"{one['difference']:+.3f} ({one['worse']:.0%})" for name, one in row.items()}
        for version, row in result["changes"]["versions"].items()
    }
    show("difference, share of worse reports", cells)
    show("order", result["changes"]["order"])
    show("missed finding", result["missed"])
    show("the same text for every study", result["constants"]["values"])
    write_results(result, arguments, "metric_sensitivity")


if __name__ == "__main__":
    main()
