"""Measure a judge on CT-FineBench's tasks: share of valid answers, seconds per answer, and reasons of refused answers.

    python -m llama_cpp.server --model SmolLM2-135M-Instruct.Q4_1.gguf --n_ctx 8192 --port 8000
    python benchmarks/ct_finebench_judge.py --judge "{name: openai, model: smollm2, response_format: schema_object}"

The reports are the first ones of CT-RATE's labelled sample that have a question on a detail. The judge mines
triples, makes questions, answers the questions on a report from the next report, grades the answers of the finding
engine, says the report in other words, and makes single details wrong. Every answer is checked by its task. The
questions for answers, grades and details are those of the finding engine, so that each task is measured by itself.
With ``cache`` in the judge's settings all accepted answers are asked for again, and must come from the cache.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from benchmark_data import read_reports
from timing import machine

from rrg_rewards.findings import corrupt_report
from rrg_rewards.judges import JudgeFailure, get_judge
from rrg_rewards.judges.tasks.finebench import AnswerPairs, AnswersTask, GradesTask, ItemsTask, Questions
from rrg_rewards.judges.tasks.finebench_mining import ReportFindings, TriplesTask
from rrg_rewards.judges.tasks.rewriting import ParaphraseTask, WrongDetail, WrongDetailTask
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.version import __version__

RESULTS = Path(__file__).resolve().parent / "results"
SCHEMA = get_question_schema("ct_rate")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", required=True, help="name, or settings as a YAML mapping")
    parser.add_argument("--reports", type=Path, help="CSV file with a column report_text")
    parser.add_argument("--number", type=int, default=5, help="number of reports")
    parser.add_argument("--details", type=int, default=2, help="number of wrong details of a report")
    parser.add_argument("--output", type=Path, default=RESULTS / "ct_finebench_judge.json")
    return parser.parse_args()


def tasks(reports: list[str], details: int) -> dict[str, tuple[Any, list[Any]]]:
    """Return each task with its items."""
    items = [build_items(report) for report in reports]
    wrong = [corrupt_report(report, seed=0).candidate for report in reports]
    pairs = []
    for report, asked in zip(wrong, items, strict=True):
        answered = [
            (item, answer)
            for item, answer in zip(asked, answer_items(report, asked), strict=True)
            if answer is not None and item.answer_type != "existence"
        ]
        pairs.append(AnswerPairs(tuple(item for item, _ in answered), tuple(answer for _, answer in answered)))
    edits = []
    for report, asked in zip(reports, items, strict=True):
        stated = [item for item in asked if item.answer_type != "existence"]
        for item in stated[:details]:
            others = tuple(one for one in stated if one.finding == item.finding and one is not item)
            edits.append(WrongDetail(report, item, others))
    found = [tuple(dict.fromkeys(item.finding for item in asked)) for asked in items]
    return {
        "triples": (TriplesTask(SCHEMA), [ReportFindings(*pair) for pair in zip(reports, found, strict=True)]),
        "questions": (ItemsTask(SCHEMA), reports),
        "answers": (
            AnswersTask(),
            [Questions(*pair) for pair in zip([*reports[1:], reports[0]], items, strict=True)],
        ),
        "grades": (GradesTask(), [pair for pair in pairs if pair.items]),
        "paraphrases": (ParaphraseTask(SCHEMA), reports),
        "wrong details": (WrongDetailTask(SCHEMA), edits),
    }


def measure(judge: Any, task: Any, items: list[Any]) -> dict[str, Any]:
    """Evaluate the items of a task; evaluate accepted ones again if the judge has a cache."""
    start = time.perf_counter()
    results = judge.evaluate_now(task, items)
    taken = time.perf_counter() - start
    failures = Counter(f"{one.kind}: {one.reason}" for one in results if isinstance(one, JudgeFailure))
    accepted = [item for item, one in zip(items, results, strict=True) if not isinstance(one, JudgeFailure)]
    entry = {
        "asked": len(items),
        "valid": len(accepted),
        "share": round(len(accepted) / len(items), 3),
        "seconds_per_answer": round(taken / len(items), 1),
        "failures": dict(failures.most_common()),
    }
    usage = getattr(judge, "usage", None)
    if accepted and usage is not None:
        before = usage
        judge.evaluate_now(task, accepted)
        entry["from_cache"] = judge.usage.cached - before.cached
    return entry


def main() -> None:
    """Evaluate, print and write."""
    arguments = parse_arguments()
    setting = yaml.safe_load(arguments.judge)
    judge = get_judge(setting)
    texts = read_reports(arguments, "reports", "report_text")
    rich = [text for text in texts if any(item.answer_type != "existence" for item in build_items(text))]
    result: dict[str, Any] = {
        "version": __version__,
        "machine": machine(),
        "judge": judge.signature,
        "reports": arguments.number,
        "tasks": {},
    }
    for name, (task, items) in tasks(rich[: arguments.number], arguments.details).items():
        result["tasks"][name] = measure(judge, task, items)
        print(name, json.dumps(result["tasks"][name], indent=2), flush=True)
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
