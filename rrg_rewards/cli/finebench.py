"""``rrg-rewards finebench``: make question items, and count attributes in a corpus.

Make questions on single attributes of findings for CT-FineBench, or convert the released ones, or count the attributes
that a corpus states. To score reports with CT-FineBench, use rrg-rewards score --metrics ct_finebench; its test with
paraphrased and adversarial reports is rrg-rewards sensitivity.
"""

import argparse
from collections.abc import Callable
from typing import Any

from rrg_rewards.analysis.settings import (
    MiningSettings,
    QuestionSettings,
    ReleasedQuestionSettings,
    ReleasedSchemaSettings,
)
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal

_ITEMS = ("id_column", "schema", "judge", "prompt", "labels", "key", "batch_size")
_LABELS = {"action": "store", "nargs": "?", "const": True, "default": False, "metavar": "FILE"}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``finebench`` to the command line."""
    parser = commands.add_parser("finebench", help=summary, description=__doc__)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    build = _add_task(tasks, "build", run_build, "make question items from reports")
    add_settings(build, QuestionSettings, *_ITEMS, labels=_LABELS)
    add_shared_options(build, "output", "spreadsheet_safe")

    mine = _add_task(tasks, "mine", run_mine, "count the attributes of findings in reports")
    add_settings(mine, MiningSettings, "min_count", "draft", *_ITEMS[1:], labels=_LABELS)
    add_shared_options(mine, "output", "spreadsheet_safe")

    schema = add_command_parser(
        tasks,
        "schema",
        run_schema,
        "convert a released table of attributes",
    )
    add_table_argument(schema, "ATTRIBUTES", "attributes")
    add_settings(schema, ReleasedSchemaSettings)
    output = {"help": "YAML file to write; - is standard output (default: -)"}
    add_shared_options(schema, "output", "format", "overwrite", output=output)

    questions = add_command_parser(
        tasks,
        "questions",
        run_questions,
        "convert a released file of questions",
    )
    questions.add_argument("questions", metavar="QUESTIONS", help="file of questions (.json)")
    add_settings(questions, ReleasedQuestionSettings)
    add_shared_options(questions, "output", "format", "overwrite", "spreadsheet_safe")


def _add_task(
    tasks: Any, name: str, run: Callable[[argparse.Namespace, Terminal], int], summary: str
) -> argparse.ArgumentParser:
    parser = add_command_parser(tasks, name, run, summary)
    add_table_argument(parser, "REPORTS", "reports")
    add_settings(parser, QuestionSettings, "text_column", text_column={"required": True})
    add_shared_options(parser, "format", "overwrite")
    return parser


def run_build(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Make question items from reference reports.

    For each finding that a report states, there is a question about its existence and one about each attribute that the
    report states. Items are made by the finding engine, which is deterministic and downloads nothing, or by a judge.
    The output has one row per report, with a list of items. Missing and blank reports, and reports on which the judge
    fails, are left out and counted. With --labels only findings that the labels of the data set call positive have
    items; the labels are 0 or 1, or -1 for not mentioned, in columns that are named like the findings of the schema,
    ignoring case and underscores. With --prompt each attribute of a finding is a request of its own; the file has the
    placeholders <report>, <disease>, <attribute>, <attribute explanation> and <attribute example>, and asks for
    <step3>["question", "answer"]</step3>, as the prompt that the paper prints.

    Examples:
      rrg-rewards finebench build reports.csv --text-column report_text --id-column AccessionNo --output items.jsonl
      rrg-rewards finebench build reports.csv --text-column report_text --labels --output items.jsonl
      rrg-rewards finebench build validation_reports.csv --text-column "{Findings_EN} {Impressions_EN}" \
          --key VolumeName --labels valid_predicted_labels.csv --output items.jsonl
      rrg-rewards finebench build reports.csv --text-column findings --schema merlin --output items.parquet \
          --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
    """
    from rrg_rewards.analysis.question_items import build_question_items, read_report_texts
    from rrg_rewards.data.records.question_items import write_question_items

    settings_from(args, Outputs).check()
    settings = settings_from(args, QuestionSettings)
    reports = read_report_texts(settings_from(args, InputTable).read(terminal), settings, terminal)
    items = build_question_items(reports, settings, terminal)
    write_question_items(items.rows, args.output, args.format, args.overwrite, args.spreadsheet_safe)
    terminal.note(
        f"{items.num_items} items on {len(items.rows)} reports, of which {items.num_empty} have no item on a finding "
        f"of {args.schema}"
    )
    if items.positive_labels is not None:
        terminal.note(
            f"{items.num_findings} of {items.positive_labels} positive labels have an item; no report states the "
            "others in words known here"
        )
    return 0


def run_mine(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Count (finding, attribute, value) triples in reports, for authors of question schemas.

    Pairs of finding and attribute that occur fewer than --min-count times are left out. By default the finding engine
    reads the reports: each finding of a report counts once, and findings that the engine does not know are not counted.
    With --judge a language model lists the attributes of the findings of --schema, in words of the report, and each
    triple of a report counts once. With --prompt the judge gets the text of a file with <report> and <findings>, the
    names of the findings, and answers with a list of [sentence, finding, attribute, value] in <step3>.

    --draft writes one row for each finding and attribute, to be edited by these steps: (1) remove attributes without
    medical meaning; (2) split attributes that have several meanings; (3) join attributes of one meaning, which the
    column Merge proposes; (4) write the Explanation of each, and five Examples or more. `finebench schema` reads the
    table.

    Examples:
      rrg-rewards finebench mine reports.csv --text-column report_text --min-count 50 --output triples.csv \
          --draft attributes.csv
      rrg-rewards finebench mine reports.csv --text-column report_text --labels --output triples.csv \
          --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"
    """
    from rrg_rewards.analysis.question_items import mine_attributes, read_report_texts
    from rrg_rewards.data.tables.writers import write_table

    settings_from(args, Outputs).check(draft=args.draft)
    settings = settings_from(args, MiningSettings)
    reports = read_report_texts(settings_from(args, InputTable).read(terminal), settings, terminal)
    mined = mine_attributes(reports, settings, terminal)
    if args.draft is not None:
        write_table(mined.draft(), args.draft, None, args.overwrite, args.spreadsheet_safe)
    write_table(mined.to_table(), args.output, args.format, args.overwrite, args.spreadsheet_safe)
    terminal.note(
        f"{len(mined.counts)} values of {mined.num_kept} pairs that occur {args.min_count} times or more in "
        f"{len(reports.texts)} reports; {len(mined.pairs) - mined.num_kept} rarer pairs are left out"
    )
    return 0


def run_schema(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Convert the table of attributes that the authors of CT-FineBench released to a question schema.

    The table has the columns Finding, Feature, Explanation and Examples. Findings and attributes that the finding
    engine cannot read are listed. They need a judge that makes and answers the questions, or are left out with
    --readable-only.

    Examples:
      rrg-rewards finebench schema merlin_attributes.csv --output merlin_attributes.yaml
      rrg-rewards finebench schema merlin_attributes.csv --answer-type size=numeric --readable-only \
          --output readable.yaml
    """
    from rrg_rewards.analysis.released_questions import convert_schema
    from rrg_rewards.data.tables.writers import check_output, open_output
    from rrg_rewards.questions.schema_files import question_schema_yaml

    check_output(args.output, args.overwrite)
    table = settings_from(args, InputTable).read(terminal)
    schema = convert_schema(table, settings_from(args, ReleasedSchemaSettings), terminal)
    with open_output(args.output, args.overwrite) as file:
        file.write(question_schema_yaml(schema).encode())
    return 0


def run_questions(args: argparse.Namespace, terminal: Terminal) -> int:
    """Convert a file of questions in JSON that the authors of CT-FineBench released to question items.

    The output has one row per report with its name, report_id, and a list of items, the context column of rrg-rewards
    score. Type of the answer, explanation and examples of each attribute come from the schema.

    Examples:
      rrg-rewards finebench questions ctrate_qa_test.json --schema ctrate_attributes.yaml --output items.jsonl
      rrg-rewards finebench questions questions.json --column report_id=name --column answer=gt --output items.jsonl
    """
    from rrg_rewards.analysis.released_questions import convert_questions
    from rrg_rewards.data.records.question_items import write_question_items

    settings_from(args, Outputs).check()
    found = convert_questions(args.questions, settings_from(args, ReleasedQuestionSettings), terminal)
    write_question_items(found.reports, args.output, args.format, args.overwrite, args.spreadsheet_safe)
    return 0
