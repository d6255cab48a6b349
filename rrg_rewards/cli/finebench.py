"""``rrg-rewards finebench``: question items, what attributes a corpus states, and how metrics take altered reports."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_common_options,
    metric_settings,
    new_parser_options,
    positive_int,
    read_input,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.cli.sensitivity import Scorer
    from rrg_rewards.findings.types import Finding
    from rrg_rewards.schemas import QAItem

    BuiltItems = dict[str, tuple[QAItem, ...]]

__all__ = ["add_command"]

_DESCRIPTION = """\
CT-FineBench as data: questions on single attributes of findings, the attributes that a corpus states, and how metrics
take reports in other words and reports with wrong details. To score reports: rrg-rewards score --metrics ct_finebench.
"""

_BUILD = """\
Make question items from reference reports: for each finding that a report states whether it is there, and for each
attribute that it states of it what it is. By the finding engine, which is deterministic and downloads nothing, or by a
judge. One row a report, with the items as a list. A missing or blank report, and one that a judge fails on, is left out
and counted.

examples:
  rrg-rewards finebench build reports.csv --text-column report_text --id-column AccessionNo --output items.jsonl
  rrg-rewards finebench build reports.csv --text-column findings --schema merlin --output items.parquet \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
"""

_MINE = """\
Count what reports say of their findings, as (finding, attribute, value) triples, for people who write or check a
question schema. A pair of finding and attribute is left out if it is told fewer times than --min-count. By the finding
engine: a report's finding counts once, and words that the engine does not know are not seen.

example:
  rrg-rewards finebench mine reports.csv --text-column report_text --min-count 50 --output triples.csv
"""

_SENSITIVITY = """\
Tell each report once in other words and once with its details wrong, and score both against it. A metric of facts
keeps the first high and puts the second low; a metric of words does the reverse. The metrics are bleu2, rougeL,
bertscore (with --set bertscore.model=FOLDER) and all that rrg-rewards score knows.

examples:
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics bleu2,rougeL,ct_finebench \\
      --output table.md --pairs pairs.jsonl
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics crepe,crimson,bertscore \\
      --set crepe.model=runs/crepe/model --set bertscore.model=runs/crepe/minilm --output table.json
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``finebench`` to the command line."""
    parser = commands.add_parser(
        "finebench", help="question items on attributes of findings", description=_DESCRIPTION, **new_parser_options()
    )
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    build = _add_task(tasks, "build", "make question items from reports", _BUILD)
    build.add_argument("--id-column", metavar="NAME", help="column of report ids (default: the row's number)")
    build.add_argument("--schema", default="ct_rate", metavar="NAME", help="ct_rate, merlin or a YAML file")
    build.add_argument("--judge", metavar="JUDGE", help="openai:MODEL, local:MODEL or a mapping (default: the engine)")
    build.add_argument("--batch-size", type=positive_int, default=256, metavar="N", help="reports judged at once")
    build.add_argument("--output", default="-", metavar="FILE", help="where to write the items (default: -)")
    build.set_defaults(run=_build, parser=build)

    mine = _add_task(tasks, "mine", "count what reports say of their findings", _MINE)
    mine.add_argument("--min-count", type=positive_int, default=50, metavar="N", help="fewest of a pair (default: 50)")
    mine.add_argument("--output", default="-", metavar="FILE", help="where to write the triples (default: -)")
    mine.set_defaults(run=_mine, parser=mine)

    sense = _add_task(tasks, "sensitivity", "score reports in other words and with wrong details", _SENSITIVITY)
    sense.add_argument("--metrics", required=True, metavar="NAME[,NAME...]", help="metrics to compare")
    sense.add_argument(
        "--set", action="append", default=[], metavar="METRIC.OPTION=VALUE", help="set an option; may be repeated"
    )
    sense.add_argument("--limit", type=positive_int, metavar="N", help="take the first N reports only")
    sense.add_argument("--seed", type=int, default=0, help="seed of the versions (default: 0)")
    sense.add_argument("--pairs", metavar="FILE", help="write the reports with both versions to FILE")
    sense.add_argument("--output", metavar="FILE", help="write the table to FILE: .json or .md")
    sense.set_defaults(run=_sensitivity, parser=sense)


def _add_task(tasks: Any, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    text, _, examples = description.partition("\nexample")
    parser: argparse.ArgumentParser = tasks.add_parser(
        name, help=summary, description=text, epilog=f"example{examples}", **new_parser_options()
    )
    parser.add_argument(
        "table", metavar="REPORTS", help="table of reports (.csv, .jsonl, .parquet); - is standard input"
    )
    parser.add_argument("--text-column", required=True, metavar="NAME", help="column of report texts")
    parser.add_argument(
        "--format",
        choices=("csv", "jsonl", "parquet"),
        help="format of standard input and output, and of files whose ending tells nothing (default: csv for -)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace output files that exist")
    add_common_options(parser)
    return parser


def _reports(args: argparse.Namespace, terminal: Terminal, id_column: str | None = None) -> dict[str, str]:
    """Reports by id, missing and blank ones left out."""
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    ids = [str(row + 1) for row in range(len(table))]
    if id_column is not None:
        ids = [str(cell) for cell in table.column(id_column)]
        twice = [report_id for report_id, count in Counter(ids).items() if count > 1]
        if twice:
            raise UsageError(f"argument --id-column: {twice[0]!r} stands more than once in {id_column!r}")
    found = {report_id: text for report_id, text in zip(ids, texts, strict=True) if text is not None and text.strip()}
    if len(found) < len(table):
        terminal.warn(f"{len(table) - len(found)} of {len(table)} reports are missing or blank: they are left out")
    return found


def _build(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.question_items import ReportItems, write_question_items
    from rrg_rewards.data.writers import check_output

    check_output(args.output, args.overwrite)
    reports = _reports(args, terminal, args.id_column)
    built = _judged_items(args, reports, terminal) if args.judge else _engine_items(args, reports, terminal)
    rows: list[ReportItems] = [ReportItems(report_id, items, reports[report_id]) for report_id, items in built.items()]
    write_question_items(rows, args.output, args.format, args.overwrite)
    number = sum(len(row.items) for row in rows)
    empty = sum(not row.items for row in rows)
    terminal.note(f"{number} items on {len(rows)} reports, of which {empty} state no finding of {args.schema}")
    return 0


def _engine_items(args: argparse.Namespace, reports: dict[str, str], terminal: Terminal) -> "BuiltItems":
    from rrg_rewards.findings.questions import build_items

    built = {}
    with terminal.progress("building") as report:
        report(0, len(reports))
        for report_id, text in reports.items():
            built[report_id] = build_items(text, args.schema)
            report(1, 0)
    return built


def _judged_items(args: argparse.Namespace, reports: dict[str, str], terminal: Terminal) -> "BuiltItems":
    from rrg_rewards.cli.judging import BatchedJudge, judge_from_option
    from rrg_rewards.judges.base import JudgeFailure
    from rrg_rewards.judges.finebench import ItemsTask
    from rrg_rewards.judges.rules import RuleJudge
    from rrg_rewards.schemas import get_question_schema

    task = ItemsTask(get_question_schema(args.schema))
    asked = judge_from_option(args.judge)
    if isinstance(asked, RuleJudge):
        raise UsageError(
            "argument --judge: the judge 'rules' evaluates CRIMSON only; the engine builds without --judge"
        )
    with terminal.progress("judging") as report:
        judge = BatchedJudge(asked, args.batch_size, report)
        results = judge.evaluate_now(task, list(reports.values()))
    failed = Counter(result.kind for result in results if isinstance(result, JudgeFailure))
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        if failed.total() == len(reports):
            raise ValueError(f"{args.table}: the judge failed on every report ({kinds}); nothing is written")
        terminal.warn(f"the judge failed on {failed.total()} of {len(reports)} reports ({kinds}): they are left out")
    return {
        report_id: result
        for report_id, result in zip(reports, results, strict=True)
        if not isinstance(result, JudgeFailure)
    }


def _mine(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables import Table
    from rrg_rewards.data.writers import check_output, write_table
    from rrg_rewards.findings import abnormal_findings, extract_findings

    check_output(args.output, args.overwrite)
    reports = _reports(args, terminal)
    counts: Counter[tuple[str, str, str]] = Counter()
    with terminal.progress("reading") as report:
        report(0, len(reports))
        for text in reports.values():
            findings = abnormal_findings(text, extract_findings(text))
            counts.update(triple for finding in findings for triple in _triples(finding))
            report(1, 0)
    pairs: Counter[tuple[str, str]] = Counter()
    for (finding, attribute, _), count in counts.items():
        pairs[finding, attribute] += count
    kept = [triple for triple in counts if pairs[triple[:2]] >= args.min_count]
    kept.sort(key=lambda triple: (triple[0], -pairs[triple[:2]], triple[1], -counts[triple], triple[2]))
    columns: dict[str, list[Any]] = {
        name: [triple[place] for triple in kept] for place, name in enumerate(("finding", "attribute", "value"))
    }
    columns["count"] = [counts[triple] for triple in kept]
    columns["pair_count"] = [pairs[triple[:2]] for triple in kept]
    write_table(Table(columns), args.output, args.format, args.overwrite)
    groups = len({triple[:2] for triple in kept})
    terminal.note(
        f"{len(kept)} values of {groups} pairs told {args.min_count} times or more in {len(reports)} reports; "
        f"{len(pairs) - groups} rarer pairs are left out"
    )
    return 0


def _triples(finding: "Finding") -> Iterator[tuple[str, str, str]]:
    """What one finding is told to be, and that it is there."""
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


def _sensitivity(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.sensitivity import VERSIONS, markdown_table, sensitivity, versions_of
    from rrg_rewards.data.tables import Table
    from rrg_rewards.data.writers import check_output, open_output, write_json, write_table

    if args.seed < 0:
        raise UsageError(f"argument --seed: must not be negative, got {args.seed}")
    if args.output is not None and Path(args.output).suffix not in (".json", ".md"):
        raise UsageError(f"argument --output: must end in .json or .md, got {args.output!r}")
    for path in (args.output, args.pairs):
        if path is not None:
            check_output(path, args.overwrite)
    scorers = _scorers(args)
    reports = dict(list(_reports(args, terminal).items())[: args.limit])
    if not reports:
        raise ValueError(f"{args.table}: holds no report to tell otherwise")
    with terminal.progress("scoring") as report:
        result = sensitivity(list(reports.values()), scorers, args.seed, report)
    result = {"version": __version__, "table": args.table, "text_column": args.text_column, **result}
    if args.pairs is not None:
        made = versions_of(list(reports.values()), args.seed)
        texts = {version: [rewritten.candidate for rewritten in made[version]] for version in VERSIONS}
        table = Table({"row": list(reports), "reference": list(reports.values()), **texts})
        write_table(table, args.pairs, args.format, args.overwrite)
    if args.output is not None and args.output.endswith(".json"):
        write_json(result, args.output, args.overwrite)
    elif args.output is not None:
        with open_output(args.output, args.overwrite) as file:
            file.write(markdown_table(result).encode())
    terminal.show(markdown_table(result).rstrip())
    return 0


def _scorers(args: argparse.Namespace) -> "list[Scorer]":
    from rrg_rewards.cli.sensitivity import make_scorer

    names: Sequence[str] = [name.strip() for name in args.metrics.split(",")]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"argument --metrics: {twice[0]} is named more than once")
    settings = metric_settings(args.set, names)
    try:
        return [make_scorer(name, **settings[name]) for name in names]
    except (ValueError, TypeError) as error:
        raise UsageError(f"argument --metrics: {error}") from error
