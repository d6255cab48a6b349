"""Measure the accuracy of the rule labeler on the labels of a CSV file.

    python benchmarks/label_accuracy.py reports.csv --text-column report_text
    python benchmarks/label_accuracy.py pairs.csv --text-column GT_whole_report --prefix GT_

``--errors N`` also prints up to N disagreements per label, with the words that decided the label.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import Tensor

from rrg_rewards.functional import label_averages, label_counts, label_statistics
from rrg_rewards.labelers import RuleLabeler


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--schema", default="ct_rate")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--prefix", default="", help="prefix of the label columns, before the label's name")
    parser.add_argument("--errors", type=int, default=0, metavar="N", help="disagreements to list for each label")
    parser.add_argument("--label", action="append", help="list disagreements of this label only")
    return parser.parse_args()


def print_table(labels: tuple[str, ...], predicted: Tensor, true: Tensor) -> None:
    """Print one line per label, then the macro and micro averages; 0/0 counts 0 in the macro average."""
    counts = label_counts(predicted, true, dim=0)
    columns = {name: values.tolist() for name, values in {**counts._asdict(), **label_statistics(counts)}.items()}
    names = ("precision", "recall", "f1", "accuracy")
    print(f"{'label':34}{'TP':>6}{'FP':>6}{'FN':>6}" + "".join(f"{name:>10}" for name in names))
    for row, label in enumerate(labels):
        cells = "".join(f"{columns[name][row]:6}" for name in ("tp", "fp", "fn"))
        print(f"{label:34}{cells}" + "".join(f"{columns[name][row]:10.3f}" for name in names))
    for average in ("macro", "micro"):
        values = label_averages(counts, average)
        print(f"{average + f', {len(true)} reports':52}" + "".join(f"{float(values[name]):10.4f}" for name in names))


def print_errors(
    labeler: RuleLabeler, texts: list[str], predicted: Tensor, true: Tensor, column: int, limit: int
) -> None:
    """Print disagreements of one label: deciding sentences of false positives, text of false negatives."""
    label = labeler.labels[column]
    print(f"\n== {label}")
    for row in (predicted[:, column] != true[:, column]).nonzero().flatten().tolist()[:limit]:
        text = texts[row]
        if true[row, column]:
            print(f"-- row {row}: missed\n{text}")
            continue
        print(f"-- row {row}: false")
        for finding in labeler.explain(text).get(label, []):
            begin = text.rfind(". ", 0, finding.start) + 1
            end = text.find(". ", finding.end)
            print(f"   [{finding.text}] {finding.presence}: {text[begin : end if end > 0 else None].strip()}")


def main() -> None:
    """Print the table and, if requested, the disagreements."""
    arguments = parse_arguments()
    labeler = RuleLabeler(arguments.schema)
    with arguments.file.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [row[arguments.text_column] for row in rows]
    true = torch.tensor([[float(row[arguments.prefix + label]) > 0.5 for label in labeler.labels] for row in rows])
    predicted = labeler(texts)
    print_table(labeler.labels, predicted, true)
    for column, label in enumerate(labeler.labels):
        if arguments.errors and label in (arguments.label or labeler.labels):
            print_errors(labeler, texts, predicted, true, column, arguments.errors)


if __name__ == "__main__":
    main()
