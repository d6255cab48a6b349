"""Measure the reports per second of CT-FineBench by the finding engine on one core.

    python benchmarks/ct_finebench.py
    python benchmarks/ct_finebench.py --reports reports.csv --text-column text

References are the reports with the most questions; their number is chosen for a mean of ``--items`` questions. The
candidate of each reference is the next reference. "Cold" runs have empty caches. "Warm" runs read the same sentences
again, as in a group of candidates. Both build, answer and grade questions. Times are processor times. The output also
contains the paper's 0.42 reports per second, which was measured with another method on another machine (8B, A800).
"""

import argparse
import json
import platform
from pathlib import Path

from benchmark_data import read_reports
from timing import seconds

from rrg_rewards.findings.reading.engine import engine_of
from rrg_rewards.questions.descriptions import describer
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
PAPER = 0.42


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, help="CSV file with a column of reports")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--items", type=int, default=15, help="questions of a report, on average")
    parser.add_argument("--repeats", type=int, default=3, help="number of runs; the fastest is reported")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "ct_finebench.json")
    return parser.parse_args()


def forget() -> None:
    """Clear the caches of the engine and the describer."""
    engine_of.cache_clear()
    describer.cache_clear()
    # Lexicon and vocabulary are data that are loaded once per process.
    build_items("Nodule.")


def choose(reports: list[str], items: int) -> list[str]:
    """Return as many of the reports with the most questions as have a mean of ``items`` questions."""
    ranked = sorted(((len(build_items(report)), report) for report in reports), reverse=True)
    total = 0
    for number, (count, _) in enumerate(ranked, start=1):
        total += count
        if number > 1 and total / number < items:
            return [report for _, report in ranked[: number - 1]]
    return [report for _, report in ranked]


def evaluate(references: list[str], candidates: list[str]) -> int:
    """Score each candidate and return the number of questions."""
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
    reports = read_reports(arguments, "reports", arguments.text_column)
    references = choose(reports, arguments.items)
    candidates = references[1:] + references[:1]
    cold, warm, total = float("inf"), float("inf"), 0
    for _ in range(arguments.repeats):
        forget()
        cold = min(cold, seconds(lambda: evaluate(references, candidates)).processor)
        warm = min(warm, seconds(lambda: evaluate(references, candidates)).processor)
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
