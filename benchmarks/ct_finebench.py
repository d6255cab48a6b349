"""Compare the report pairs per second of CT-FineBench by the finding engine and of ROUGE-L on one core.

    python benchmarks/ct_finebench.py
    python benchmarks/ct_finebench.py --reports reports.csv --text-column text
    python benchmarks/ct_finebench.py --quick

References are the reports with the most questions; their number is chosen for a mean of ``--items`` questions. The
candidate of each reference is the next reference. "Cold" runs have empty caches. "Warm" runs read the same sentences
again, as in a group of candidates. Both build, answer and grade questions. ROUGE-L is computed by torchmetrics on the
same texts, one pair at a time. Cold, warm and ROUGE-L run in turn, and the fastest run of each counts. Times are
processor times, because other work on the machine changes them less than the wall clock. The output also contains the
paper's 0.42 reports per second, which was measured with another method on another machine (8B, A800).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from benchmark_data import REPORTS, read_reports, write_results
from timing import machine, seconds
from torchmetrics.functional.text import rouge_score

from rrg_rewards.findings.reading.engine import engine_of
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.stated import schema_findings
from rrg_rewards.version import __version__

PAPER = 0.42
QUICK_PAIRS, QUICK_REPEATS = 60, 3


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, help="CSV file with a column of reports")
    parser.add_argument("--text-column", default="report_text")
    parser.add_argument("--items", type=int, default=15, help="questions of a report, on average")
    parser.add_argument("--repeats", type=int, default=5, help="number of runs of each side; the fastest is reported")
    parser.add_argument("--quick", action="store_true", help="60 pairs and three runs; writes only to --output")
    parser.add_argument("--output", type=Path, help="file of the result (default: the one in benchmarks/results)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repeats = QUICK_REPEATS
    return arguments


def forget() -> None:
    """Clear the caches of the engines."""
    engine_of.cache_clear()
    schema_findings.cache_clear()
    # Lexicon and vocabulary are data that are loaded once per process.
    build_items("Nodule.")


def choose(reports: Sequence[str], items: int) -> list[str]:
    """Return as many of the reports with the most questions as have a mean of ``items`` questions."""
    ranked = sorted(((len(build_items(report)), report) for report in reports), reverse=True)
    total = 0
    for number, (count, _) in enumerate(ranked, start=1):
        total += count
        if number > 1 and total / number < items:
            return [report for _, report in ranked[: number - 1]]
    return [report for _, report in ranked]


def evaluate(references: Sequence[str], candidates: Sequence[str]) -> int:
    """Score each candidate and return the number of questions."""
    total = 0
    for reference, candidate in zip(references, candidates, strict=True):
        items = build_items(reference)
        answers = answer_items(candidate, items)
        for item, answer in zip(items, answers, strict=True):
            compare_answers(answer, item.answer, item.answer_type)
        total += len(items)
    return total


def measure(references: Sequence[str], repeats: int) -> dict[str, float]:
    """Return the figures of both sides."""
    candidates = [*references[1:], *references[:1]]
    cold, warm, rouge = [], [], []
    for _ in range(repeats):
        forget()
        cold.append(seconds(lambda: evaluate(references, candidates)).processor)
        warm.append(seconds(lambda: evaluate(references, candidates)).processor)
        rouge.append(
            seconds(
                lambda: [rouge_score(p, t, rouge_keys="rougeL") for p, t in zip(candidates, references, strict=True)]
            ).processor
        )
    pairs = len(references)
    return {
        "pairs": pairs,
        "mean_words_per_pair": round(2 * sum(len(report.split()) for report in references) / pairs, 1),
        "items_per_report": round(evaluate(references, candidates) / pairs, 2),
        "cold_reports_per_second": round(pairs / min(cold), 1),
        "warm_reports_per_second": round(pairs / min(warm), 1),
        "rouge_l_pairs_per_second": round(pairs / min(rouge), 1),
        "ratio_cold": round(min(rouge) / min(cold), 2),
        "ratio_warm": round(min(rouge) / min(warm), 2),
    }


def main() -> None:
    """Measure, print and write."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    reports = read_reports(arguments, "reports", arguments.text_column)
    name = "CT-RATE" if REPORTS.is_file() else "phantom reports"
    if arguments.reports is not None:
        name = arguments.reports.stem
    references = choose(reports, arguments.items)
    if arguments.quick:
        # Evenly spaced, because the first reports are the longest.
        references = references[:: max(1, len(references) // QUICK_PAIRS)][:QUICK_PAIRS]
    figures = {name: measure(references, arguments.repeats)}
    print(name)
    for figure, value in figures[name].items():
        print(f"  {figure:28}{value:>12}")
    to_paper = round(figures[name]["cold_reports_per_second"] / PAPER)
    print(f"cold, relative to the paper's {PAPER} reports per second: {to_paper}")
    described = {"version": __version__, "machine": {**machine(), "cores_used": 1}}
    paper = {"paper_reports_per_second": PAPER, "cold_ratio_to_paper": to_paper}
    result = {**described, "figures": figures, **paper}
    write_results(result, arguments, "ct_finebench")


if __name__ == "__main__":
    main()
