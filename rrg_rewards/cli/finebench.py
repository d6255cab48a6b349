"""``rrg-rewards finebench``: make question items, count attributes in a corpus, and score altered reports."""

import argparse
from collections.abc import Callable
from typing import Any

from rrg_rewards.cli.finebench_input import add_label_options
from rrg_rewards.cli.options import add_command_parser, add_shared_options, add_table_argument, positive_int
from rrg_rewards.cli.terminal import Terminal

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
and reports on which the judge fails, are left out and counted. With --labels only findings that the labels of the data
set call positive have items; the labels are 0 or 1 in columns that are named like the findings of the schema.

examples:
  rrg-rewards finebench build reports.csv --text-column report_text --id-column AccessionNo --output items.jsonl
  rrg-rewards finebench build reports.csv --text-column report_text --labels --output items.jsonl
  rrg-rewards finebench build reports.csv --text-column findings --schema merlin --output items.parquet \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
"""

_MINE = """\
Count (finding, attribute, value) triples in reports, for authors of question schemas. Pairs of finding and attribute
that occur fewer than --min-count times are left out. By default the finding engine reads the reports: each finding of
a report counts once, and findings that the engine does not know are not counted. With --judge a language model lists
the attributes of the findings of --schema, in words of the report, and each triple of a report counts once.

examples:
  rrg-rewards finebench mine reports.csv --text-column report_text --min-count 50 --output triples.csv
  rrg-rewards finebench mine reports.csv --text-column report_text --labels --output triples.csv \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"
"""

_SENSITIVITY = """\
Make two versions of each report, a paraphrase and one with wrong details, and score both against the report. A metric
of clinical content gives the paraphrase the higher score; a metric of wording gives it the lower score. The metrics are
bleu2, rougeL, bertscore (with --set bertscore.model=FOLDER) and those of rrg-rewards score.

Both versions are made by rules, or by a language model with --judge. A judge's paraphrase is kept only if it states the
same findings of --schema, the same numbers and the same sides as the report; each of its wrong details replaces one
named attribute. Reports without two accepted versions are left out and counted.

examples:
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics bleu2,rougeL,ct_finebench \\
      --output table.md --pairs pairs.jsonl
  rrg-rewards finebench sensitivity reports.csv --text-column report_text --metrics crepe,crimson,bertscore \\
      --set crepe.model=runs/crepe/model --set bertscore.model=runs/crepe/minilm --output table.json
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``finebench`` to the command line."""
    parser = commands.add_parser("finebench", help=summary, description=_DESCRIPTION)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    build = _add_task(tasks, "build", _build, "make question items from reports", _BUILD)
    build.add_argument("--id-column", metavar="NAME", help="column of report ids (default: row numbers)")
    _add_judge_options(build, "the finding engine")
    add_label_options(build, "make items only for findings whose label is 1, in columns named like the findings")
    add_shared_options(build, "output", "batch-size")

    mine = _add_task(tasks, "mine", _mine, "count the attributes of findings in reports", _MINE)
    mine.add_argument(
        "--min-count", type=positive_int, default=50, metavar="N", help="minimum count of a pair (default: 50)"
    )
    _add_judge_options(mine, "the finding engine")
    add_label_options(mine, "ask the judge only about findings whose label is 1, in columns named like the findings")
    add_shared_options(mine, "output", "batch-size")

    sense = _add_task(
        tasks, "sensitivity", _sensitivity, "score paraphrased reports and reports with wrong details", _SENSITIVITY
    )
    sense.add_argument("--metrics", required=True, metavar="NAME[,NAME...]", help="metrics to compare")
    _add_judge_options(sense, "rules")
    add_shared_options(sense, "set", "seed", "batch-size")
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


def _add_judge_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options on the judge and on the findings that it is asked about."""
    parser.add_argument(
        "--schema",
        default="ct_rate",
        metavar="NAME",
        help="question schema: ct_rate, merlin or a YAML file (default: ct_rate)",
    )
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help=f"openai:MODEL, local:MODEL, or a YAML mapping of a name and settings (default: {default})",
    )


def _build(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.finebench_build import build

    return build(args, terminal)


def _mine(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.finebench_mine import mine

    return mine(args, terminal)


def _sensitivity(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.finebench_sensitivity import run_sensitivity

    return run_sensitivity(args, terminal)
