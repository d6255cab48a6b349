"""``rrg-rewards finebench``: make question items, count attributes in a corpus, and score altered reports."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    metric_settings,
    positive_int,
    read_input,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.cli.sensitivity import Scorer
    from rrg_rewards.findings.reading.finding import Finding
    from rrg_rewards.questions.schema import QAItem

    BuiltItems = dict[str, tuple[QAItem, ...]]

__all__ = ["add_command"]

_DESCRIPTION = """\
Make questions on single attributes of findings for CT-FineBench, count the attributes that a corpus states, or measure
how metrics score paraphrased reports and reports with wrong details. To score reports with CT-FineBench, use
rrg-rewards score --metrics ct_finebench.
"""

_BUILD = """\
Make question items from reference reports: for each finding that a report states, a question about its existence and
one about each attribute that the report states. Items are made by the finding engine, which is deterministic and
downloads nothing, or by a judge. The output has one row per report, with a list of items. Missing and blank reports,
and reports on which the judge fails, are left out and counted.

examples:
  rrg-rewards finebench build reports.csv --text-column report_text --id-column AccessionNo --output items.jsonl
  rrg-rewards finebench build reports.csv --text-column findings --schema merlin --output items.parquet \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
"""

_MINE = """\
Count (finding, attribute, value) triples in reports, for authors of question schemas. Pairs of finding and attribute
that occur fewer than --min-count times are left out. The finding engine reads the reports: each finding of a report
counts once, and findings that the engine does not know are not counted.

example:
  rrg-rewards finebench mine reports.csv --text-column report_text --min-count 50 --output triples.csv
"""

_SENSITIVITY = """\
Make two versions of each report, a paraphrase and one with wrong details, and score both against the report. A metric
of clinical content gives the paraphrase the higher score; a metric of wording gives it the lower score. The metrics are
bleu2, rougeL, bertscore (with --set bertscore.model=FOLDER) and those of rrg-rewards score.

examples:
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics bleu2,rougeL,ct_finebench \\
      --output table.md --pairs pairs.jsonl
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics crepe,crimson,bertscore \\
      --set crepe.model=runs/crepe/model --set bertscore.model=runs/crepe/minilm --output table.json
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``finebench`` to the command line."""
    summary = "make question items on attributes of findings"
    parser = commands.add_parser("finebench", help=summary, description=_DESCRIPTION)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    build = _add_task(tasks, "build", _build, "make question items from reports", _BUILD)
    build.add_argument("--id-column", metavar="NAME", help="column of report ids (default: row numbers)")
    build.add_argument(
        "--schema",
        default="ct_rate",
        metavar="NAME",
        help="question schema: ct_rate, merlin or a YAML file (default: ct_rate)",
    )
    build.add_argument(
        "--judge",
        metavar="JUDGE",
        help="openai:MODEL, local:MODEL, or a YAML mapping of a name and settings (default: the finding engine)",
    )
    add_shared_options(build, "output", "batch-size")

    mine = _add_task(tasks, "mine", _mine, "count the attributes of findings in reports", _MINE)
    mine.add_argument(
        "--min-count", type=positive_int, default=50, metavar="N", help="minimum count of a pair (default: 50)"
    )
    add_shared_options(mine, "output")

    sense = _add_task(
        tasks, "sensitivity", _sensitivity, "score paraphrased reports and reports with wrong details", _SENSITIVITY
    )
    sense.add_argument("--metrics", required=True, metavar="NAME[,NAME...]", help="metrics to compare")
    add_shared_options(sense, "set", "seed")
    sense.add_argument("--limit", type=positive_int, metavar="N", help="use the first N reports only")
    sense.add_argument("--pairs", metavar="FILE", help="write the reports with both versions to FILE")
    sense.add_argument("--output", metavar="FILE", help="write the table to FILE: .json or .md")


def _add_task(
    tasks: Any, name: str, run: Callable[[argparse.Namespace, Terminal], int], summary: str, description: str
) -> argparse.ArgumentParser:
    parser = add_command_parser(tasks, name, run, summary, description)
    add_table_argument(parser, "REPORTS", "reports")
    add_shared_options(parser, "text-column", "format", "overwrite")
    return parser


def _reports(args: argparse.Namespace, terminal: Terminal, id_column: str | None = None) -> dict[str, str]:
    """Return the reports by id, without missing and blank ones."""
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    ids = [str(row + 1) for row in range(len(table))]
    if id_column is not None:
        ids = [str(cell) for cell in table.column(id_column)]
        twice = [report_id for report_id, count in Counter(ids).items() if count > 1]
        if twice:
            raise UsageError(f"argument --id-column: {twice[0]!r} occurs more than once in {id_column!r}")
    found = {report_id: text for report_id, text in zip(ids, texts, strict=True) if text is not None and text.strip()}
    if len(found) < len(table):
        terminal.warn(f"{len(table) - len(found)} of {len(table)} reports are missing or blank, and are left out")
    return found


def _build(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.records.question_items import ReportItems, write_question_items
    from rrg_rewards.data.tables.writers import check_output

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
    from rrg_rewards.questions.engine import build_items

    built = {}
    with terminal.progress("building") as report:
        report(0, len(reports))
        for report_id, text in reports.items():
            built[report_id] = build_items(text, args.schema)
            report(1, 0)
    return built


def _judged_items(args: argparse.Namespace, reports: dict[str, str], terminal: Terminal) -> "BuiltItems":
    from rrg_rewards.cli.judge_options import BatchedJudge, judge_from_option
    from rrg_rewards.judges.base import JudgeFailure
    from rrg_rewards.judges.rules import RuleJudge
    from rrg_rewards.judges.tasks.finebench import ItemsTask
    from rrg_rewards.questions.schema import get_question_schema

    task = ItemsTask(get_question_schema(args.schema))
    chosen = judge_from_option(args.judge)
    if isinstance(chosen, RuleJudge):
        raise UsageError(
            "argument --judge: the judge 'rules' evaluates CRIMSON only; omit --judge to use the finding engine"
        )
    with terminal.progress("judging") as report:
        judge = BatchedJudge(chosen, args.batch_size, report)
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
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.data.tables.writers import check_output, write_table
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
        name: [triple[index] for triple in kept] for index, name in enumerate(("finding", "attribute", "value"))
    }
    columns["count"] = [counts[triple] for triple in kept]
    columns["pair_count"] = [pairs[triple[:2]] for triple in kept]
    write_table(Table(columns), args.output, args.format, args.overwrite)
    groups = len({triple[:2] for triple in kept})
    terminal.note(
        f"{len(kept)} values of {groups} pairs that occur {args.min_count} times or more in {len(reports)} reports; "
        f"{len(pairs) - groups} rarer pairs are left out"
    )
    return 0


def _triples(finding: "Finding") -> Iterator[tuple[str, str, str]]:
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


def _sensitivity(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.sensitivity import VERSIONS, markdown_table, sensitivity, versions_of
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.data.tables.writers import check_output, open_output, write_json, write_table

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
        raise ValueError(f"{args.table}: contains no report")
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
