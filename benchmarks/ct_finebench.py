"""Reports a second of CT-FineBench by the finding engine: questions made, answered and graded, on one core.

    python benchmarks/ct_finebench.py
    python benchmarks/ct_finebench.py --reports reports.csv --text-column text

References are the reports with the most questions, as many as make ``--items`` a report on average; the next one is
the candidate. "Cold" meets each sentence for the first time, with empty memories; "warm" meets it again, as the
candidates of a group meet those of their reference. Both make, answer and grade. Seconds are of the process's own time
on a core. The paper's 0.42 reports a second, an 8B model on an A800, stand beside it as context: another machine, and
another method.
"""

import argparse
import csv
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

from rrg_rewards.findings.described import describer
from rrg_rewards.findings.extract import get_engine
from rrg_rewards.findings.questions import answer_items, build_items
from rrg_rewards.functional import compare_answers
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SHARED_REPORTS = ROOT.parent / "shared" / "data" / "ct_rate_labels" / "reports.csv"
PAPER = 0.42


def parse_arguments() -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, default=SHARED_REPORTS, help="CSV file with a column of reports")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--items", type=int, default=15, help="questions of a report, on average")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many runs counts")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "ct_finebench.json")
    return parser.parse_args()


def seconds(run: Callable[[], object]) -> float:
    """Seconds of the process's own time that a run takes."""
    start = time.process_time()
    run()
    return time.process_time() - start


def forget() -> None:
    """Let engine and describer meet every sentence anew."""
    get_engine.cache_clear()
    describer.cache_clear()
    # Lexicon and vocabulary are data, loaded once a process.
    build_items("Nodule.")


def choose(reports: list[str], items: int) -> list[str]:
    """Reports with the most questions, as many as make ``items`` a report."""
    ranked = sorted(((len(build_items(report)), report) for report in reports), reverse=True)
    total = 0
    for place, (count, _) in enumerate(ranked, start=1):
        total += count
        if place > 1 and total / place < items:
            return [report for _, report in ranked[: place - 1]]
    return [report for _, report in ranked]


def evaluate(references: list[str], candidates: list[str]) -> int:
    """Score each candidate; returns the number of questions."""
    total = 0
    for reference, candidate in zip(references, candidates, strict=True):
        items = build_items(reference)
        answers = answer_items(candidate, items)
        for item, answer in zip(items, answers, strict=True):
            compare_answers(answer, item.answer, item.answer_type)
        total += len(items)
    return total


def main() -> None:
    """Measure, print and write."""
    arguments = parse_arguments()
    with arguments.reports.open(encoding="utf-8", newline="") as file:
        reports = [row[arguments.text_column] for row in csv.DictReader(file)]
    references = choose(reports, arguments.items)
    candidates = references[1:] + references[:1]
    cold, warm, total = float("inf"), float("inf"), 0
    for _ in range(arguments.repeats):
        forget()
        cold = min(cold, seconds(lambda: evaluate(references, candidates)))
        warm = min(warm, seconds(lambda: evaluate(references, candidates)))
        total = evaluate(references, candidates)
    result = {
        "version": __version__,
        "machine": platform.processor() or platform.machine(),
        "references": len(references),
        "items_per_report": round(total / len(references), 2),
        "cold_reports_per_second": round(len(references) / cold, 1),
        "warm_reports_per_second": round(len(references) / warm, 1),
        "paper_reports_per_second": PAPER,
        "cold_ratio_to_paper": round(len(references) / cold / PAPER),
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
