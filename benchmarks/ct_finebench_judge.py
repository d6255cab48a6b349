"""Measure a judge on CT-FineBench's tasks: share of valid answers, and reasons of refused ones.

    llama-server --model SmolLM2-135M-Instruct.Q4_1.gguf --ctx-size 32768 --parallel 4 --port 8000
    python benchmarks/ct_finebench_judge.py --judge "{name: openai, model: smollm2, cache: judge_cache}"

The reports are the shortest of the first 100 of CT-RATE's labelled sample that have a question on a detail. The judge
mines triples, makes questions, answers the questions on a report from the next report, and grades the answers of the
finding engine. Every answer is checked by its task. The questions for answers and grades are those of the finding
engine, so that each task is measured by itself. All
tasks run at the same time, with a schema of the findings that the reports state. Accepted answers are asked for again,
to count those that come from the judge's cache.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from benchmark_data import read_reports
from timing import machine

from rrg_rewards.findings import corrupt_report
from rrg_rewards.judges import Judge, JudgeFailure, get_judge
from rrg_rewards.judges.tasks.finebench import (
    AnswerPairs,
    AnswersTask,
    GradesTask,
    ItemsTask,
    Questions,
    Refused,
    ReportFindings,
    TriplesTask,
)
from rrg_rewards.questions import QuestionSchema, get_question_schema
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
    parser.add_argument("--output", type=Path, default=RESULTS / "ct_finebench_judge.json")
    return parser.parse_args()


def stated_part(reports: list[str]) -> QuestionSchema:
    """Return the schema of the findings that the reports state; the whole one fills half of a small model's context."""
    stated = {item.finding for report in reports for item in build_items(report)}
    findings = tuple(finding for finding in SCHEMA.findings if finding.name in stated)
    return QuestionSchema(f"{SCHEMA.name}_part", findings, SCHEMA.lexicon)


def tasks(reports: list[str]) -> dict[str, tuple[Any, list[Any]]]:
    """Return each task with its items."""
    schema, items = stated_part(reports), [build_items(report) for report in reports]
    wrong = [corrupt_report(report, seed=0).candidate for report in reports]
    pairs = []
    for report, asked in zip(wrong, items, strict=True):
        answered = [
            (item, answer)
            for item, answer in zip(asked, answer_items(report, asked), strict=True)
            if answer is not None and item.answer_type != "existence"
        ]
        pairs.append(AnswerPairs(tuple(item for item, _ in answered), tuple(answer for _, answer in answered)))
    found = [tuple(dict.fromkeys(item.finding for item in asked)) for asked in items]
    return {
        "triples": (TriplesTask(schema), [ReportFindings(*pair) for pair in zip(reports, found, strict=True)]),
        "questions": (ItemsTask(schema), reports),
        "answers": (
            AnswersTask(),
            [Questions(*pair) for pair in zip([*reports[1:], reports[0]], items, strict=True)],
        ),
        "grades": (GradesTask(), [pair for pair in pairs if pair.items]),
    }


async def evaluate(judge: Judge, asked: dict[str, tuple[Any, list[Any]]]) -> list[list[Any]]:
    """Evaluate the items of all tasks at the same time."""
    return await asyncio.gather(*(judge.evaluate(task, items) for task, items in asked.values()))


def summary(results: list[Any]) -> dict[str, Any]:
    """Count valid answers, refused ones by reason, and single answers in other words in valid ones."""
    failures = Counter(f"{one.kind}: {one.reason}" for one in results if isinstance(one, JudgeFailure))
    valid = len(results) - failures.total()
    listed = [one for result in results if isinstance(result, tuple) for one in result]
    return {
        "asked": len(results),
        "valid": valid,
        "share": round(valid / len(results), 3),
        "not_verbatim": listed.count(Refused.NOT_VERBATIM),
        "failures": dict(failures.most_common()),
    }


def from_cache(judge: Judge, asked: dict[str, tuple[Any, list[Any]]], results: list[list[Any]]) -> int | None:
    """Return the number of accepted answers that the judge's cache gives; ``None`` for a judge without a cache."""
    if getattr(judge, "usage", None) is None:
        return None
    before = judge.usage.cached  # type: ignore[attr-defined]
    accepted = {
        name: (task, [item for item, one in zip(items, found, strict=True) if not isinstance(one, JudgeFailure)])
        for (name, (task, items)), found in zip(asked.items(), results, strict=True)
    }
    asyncio.run(evaluate(judge, accepted))
    return int(judge.usage.cached - before)  # type: ignore[attr-defined]


def main() -> None:
    """Evaluate, print and write."""
    arguments = parse_arguments()
    setting = yaml.safe_load(arguments.judge)
    judge = get_judge(setting)
    texts = read_reports(arguments, "reports", "report_text")
    rich = [text for text in texts[:100] if any(item.answer_type != "existence" for item in build_items(text))]
    asked = tasks(sorted(rich, key=len)[: arguments.number])
    start = time.perf_counter()
    results = asyncio.run(evaluate(judge, asked))
    result: dict[str, Any] = {
        "version": __version__,
        "machine": machine(),
        "judge": judge.signature,
        "reports": arguments.number,
        "seconds": round(time.perf_counter() - start),
        "tasks": {name: summary(found) for name, found in zip(asked, results, strict=True)},
        "from_cache": from_cache(judge, asked, results),
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
