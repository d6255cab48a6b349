"""Compare options of CT-FineBench on reports of a real generator: labels of the data set, and over-specified answers.

    python benchmarks/ct_finebench_options.py

The pairs are those of Reg2RG on CTRG (180, with RadBERT's labels of both reports) and the first pairs on CT-RATE. The
questions on CT-RATE's labelled reports (labels by hand) are counted with and without the labels. The finding engine
makes, answers and grades the questions. No judge takes part.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmark_data import SHARED, need

from rrg_rewards.data import read_table
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions import get_question_schema, positive_findings
from rrg_rewards.questions.engine import build_items
from rrg_rewards.version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
SCHEMA = get_question_schema("ct_rate")
NAMES = [finding.name for finding in SCHEMA.findings]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the data sets")
    parser.add_argument("--pairs", type=int, default=200, help="number of pairs of CT-RATE")
    parser.add_argument("--output", type=Path, default=RESULTS / "ct_finebench_options.json")
    return parser.parse_args()


def score(preds: list[str], target: list[str], labels: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the mean score, the number of scored pairs and the mean number of questions."""
    metric = CTFineBench(**options)
    scores = metric.score(preds, target, **({} if labels is None else {"labels": labels}))
    values = scores.value[scores.scored]
    return {
        "score": round(values.mean().item(), 4),
        "scored": int(scores.scored.sum()),
        "items_per_pair": round(
            scores.details["recall_items" if options.get("mode") == "f1" else "items"].nanmean().item(), 2
        ),
    }


def questions(path: Path) -> dict[str, Any]:
    """Count the questions of labelled reports with and without their labels."""
    table = read_table(path)
    rows = list(zip(table.texts("report_text"), table.labels(NAMES), strict=True))
    count = {"reports": 0, "items": 0, "items_with_labels": 0, "positive_labels": 0, "positive_labels_with_items": 0}
    for text, labels in rows:
        if text is None or labels is None:
            continue
        positive = positive_findings(labels, SCHEMA)
        every, chosen = build_items(text), build_items(text, labels=labels)
        count["reports"] += 1
        count["items"] += len(every)
        count["items_with_labels"] += len(chosen)
        count["positive_labels"] += len(positive)
        count["positive_labels_with_items"] += len({item.finding for item in chosen})
    return count


def main() -> None:
    """Score, print and write."""
    arguments = parse_arguments()
    paths = [
        arguments.data / folder / name
        for folder, name in (
            ("ct_rate_labels", "reports.csv"),
            ("reg2rg_ctrg", "pairs.csv"),
            ("reg2rg_ct_rate", "pairs.csv"),
        )
    ]
    for path in paths:
        need(path, "reports")
    ctrg, ct_rate = read_table(paths[1]), read_table(paths[2])
    corpora = {
        "CTRG": (ctrg.texts("Pred_whole_report"), ctrg.texts("GT_whole_report")),
        "CT-RATE": (ct_rate.texts("prediction")[: arguments.pairs], ct_rate.texts("reference")[: arguments.pairs]),
    }
    labels = ctrg.labels([f"GT_{name}" for name in NAMES])
    result: dict[str, Any] = {"version": __version__, "questions of CT-RATE's labelled reports": questions(paths[0])}
    for name, (preds, target) in corpora.items():
        result[name] = {
            f"{mode}, over-specified answers {setting}": score(preds, target, mode=mode, over_specified=setting)
            for mode in ("recall", "f1")
            for setting in ("right", "partial")
        }
    result["CTRG"]["recall, findings with a positive label"] = score(*corpora["CTRG"], labels)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
