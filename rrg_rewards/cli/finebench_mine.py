"""Count the attributes that reports state: ``rrg-rewards finebench mine``."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.finebench_input import ReportTexts, ask_judge, finebench_judge, read_reports
from rrg_rewards.cli.options import UsageError
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.findings.reading.finding import Finding

__all__ = ["mine"]

Triple = tuple[str, str, str]
"""Finding, attribute and value."""


def mine(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the task and return the exit code."""
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.data.tables.writers import check_output, write_table

    check_output(args.output, args.overwrite)
    if args.judge is None and (args.labels or args.label_prefix is not None):
        raise UsageError("argument --labels: needs --judge; the finding engine counts findings that are no labels, too")
    reports = read_reports(args, terminal)
    count = _judged_counts if args.judge else _engine_counts
    counts = count(args, reports, terminal)
    pairs: Counter[tuple[str, str]] = Counter()
    for (finding, attribute, _), number in counts.items():
        pairs[finding, attribute] += number
    kept = [triple for triple in counts if pairs[triple[:2]] >= args.min_count]
    kept.sort(key=lambda triple: (triple[0], -pairs[triple[:2]], triple[1], -counts[triple], triple[2]))
    columns: dict[str, list[Any]] = {
        name: [triple[index] for triple in kept] for index, name in enumerate(("finding", "attribute", "value"))
    }
    columns["count"] = [counts[triple] for triple in kept]
    columns["pair_count"] = [pairs[triple[:2]] for triple in kept]
    write_table(Table(columns), args.output, args.format, args.overwrite)
    groups = len({triple[:2] for triple in kept})
    terminal.note(
        f"{len(kept)} values of {groups} pairs that occur {args.min_count} times or more in {len(reports.texts)} "
        f"reports; {len(pairs) - groups} rarer pairs are left out"
    )
    return 0


def _engine_counts(args: argparse.Namespace, reports: ReportTexts, terminal: Terminal) -> Mapping[Triple, int]:  # noqa: ARG001 (as the judge's)
    """Count the triples of the findings that the finding engine reads."""
    from rrg_rewards.findings import abnormal_findings, extract_findings

    counts: Counter[Triple] = Counter()
    with terminal.progress("reading") as report:
        report(0, len(reports.texts))
        for text in reports.texts.values():
            findings = abnormal_findings(text, extract_findings(text))
            counts.update(triple for finding in findings for triple in _triples(finding))
            report(1, 0)
    return counts


def _triples(finding: "Finding") -> Iterator[Triple]:
    """Return the triples of one finding, with its presence as ``existence``."""
    yield finding.concept, "existence", finding.presence
    for attribute in fields(finding.attributes):
        value = getattr(finding.attributes, attribute.name)
        if attribute.name == "size_mm":
            if value is not None:
                yield finding.concept, "size", f"{value:g} mm"
        elif isinstance(value, tuple):
            yield from ((finding.concept, attribute.name, each) for each in value)
        elif value is not None:
            yield finding.concept, attribute.name, str(value)


def _judged_counts(args: argparse.Namespace, reports: ReportTexts, terminal: Terminal) -> Mapping[Triple, int]:
    """Count the triples that a judge lists, each once in a report."""
    from rrg_rewards.judges.base import JudgeFailure
    from rrg_rewards.judges.tasks.finebench import FindingTriples, ReportFindings, TriplesTask
    from rrg_rewards.questions.schema import get_question_schema

    task = TriplesTask(get_question_schema(args.schema))
    names = tuple(finding.name for finding in task.questions.findings)
    positive = reports.positive
    items = [
        ReportFindings(text, tuple(name for name in names if positive is None or name in positive[report_id]))
        for report_id, text in reports.texts.items()
    ]
    # A report without a positive finding has nothing to list.
    asked = [item for item in items if item.findings]
    results = ask_judge(args, terminal, finebench_judge(args.judge), task, asked) if asked else []
    counts: Counter[Triple] = Counter()
    for result in results:
        if not isinstance(result, JudgeFailure):
            listed: FindingTriples = result
            counts.update({(one.finding, one.attribute, one.value) for one in listed})
            counts.update({(one.finding, "existence", "present") for one in listed})
    return counts
