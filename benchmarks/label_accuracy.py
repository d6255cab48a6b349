"""Measure the accuracy of the rule labeler on the labels of a CSV file.

    python benchmarks/label_accuracy.py reports.csv --text-column report_text
    python benchmarks/label_accuracy.py pairs.csv --text-column GT_whole_report --prefix GT_

``--errors N`` also prints up to N disagreements per label, with the words that decided the label.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

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


def ratio(part: float, whole: float) -> float:
    """Return ``part / whole``, or 0 if the whole is 0."""
    return part / whole if whole else 0.0


def f1(tp: int, fp: int, fn: int) -> float:
    """Return F1, which is 1 if all counts are 0."""
    return ratio(2 * tp, 2 * tp + fp + fn) if tp + fp + fn else 1.0


def print_table(labels: tuple[str, ...], predicted: np.ndarray, true: np.ndarray) -> None:
    """Print one line per label, then the macro average over labels that occur and the micro average."""
    counts = np.stack([(predicted & true).sum(0), (predicted & ~true).sum(0), (~predicted & true).sum(0)], axis=1)
    print(f"{'label':34}{'TP':>6}{'FP':>6}{'FN':>6}{'prec':>8}{'recall':>8}{'F1':>8}")
    scores = []
    for label, (tp, fp, fn) in zip(labels, counts.tolist(), strict=True):
        scores.append(f1(tp, fp, fn))
        print(f"{label:34}{tp:6}{fp:6}{fn:6}{ratio(tp, tp + fp):8.3f}{ratio(tp, tp + fn):8.3f}{scores[-1]:8.3f}")
    tp, fp, fn = counts.sum(0).tolist()
    print(f"macro F1 {np.mean(scores):.4f}   micro F1 {f1(tp, fp, fn):.4f}   ({len(true)} reports)")


def print_errors(
    labeler: RuleLabeler, texts: list[str], predicted: np.ndarray, true: np.ndarray, column: int, limit: int
) -> None:
    """Print disagreements of one label: deciding sentences of false positives, text of false negatives."""
    label = labeler.labels[column]
    print(f"\n== {label}")
    for row in np.flatnonzero(predicted[:, column] != true[:, column])[:limit]:
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
    true = np.array([[float(row[arguments.prefix + label]) > 0.5 for label in labeler.labels] for row in rows])
    predicted = labeler(texts).numpy()
    print_table(labeler.labels, predicted, true)
    for column, label in enumerate(labeler.labels):
        if arguments.errors and label in (arguments.label or labeler.labels):
            print_errors(labeler, texts, predicted, true, column, arguments.errors)


if __name__ == "__main__":
    main()
