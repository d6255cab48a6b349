"""``rrg-rewards finebench``: make question items.

Make questions on single attributes of findings for CT-FineBench, or convert the released ones. To score reports with
CT-FineBench, use rrg-rewards score --metrics ct_finebench.
"""

import argparse

from rrg_rewards.analysis.settings import (
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

_ITEMS = ("id_column", "schema", "judge", "labels", "label_prefix", "key", "one_per_scan", "no_chest", "batch_size")
_LABELS = {"action": "store", "nargs": "?", "const": True, "default": False, "metavar": "FILE"}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``finebench`` to the command line."""
    parser = commands.add_parser("finebench", help=summary, description=__doc__)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    build = add_command_parser(tasks, "build", run_build, "make question items from reports")
    add_table_argument(build, "REPORTS", "reports")
    add_settings(build, QuestionSettings, "text_column", text_column={"required": True})
    add_shared_options(build, "format", "overwrite")
    add_settings(build, QuestionSettings, *_ITEMS, labels=_LABELS)
    add_shared_options(build, "output", "spreadsheet_safe")

    schema = add_command_parser(tasks, "schema", run_schema, "convert a released table of attributes")
    add_table_argument(schema, "ATTRIBUTES", "attributes")
    add_settings(schema, ReleasedSchemaSettings)
    output = {"help": "YAML file to write; - is standard output (default: -)"}
    add_shared_options(schema, "output", "format", "overwrite", output=output)

    questions = add_command_parser(tasks, "questions", run_questions, "convert a released file of questions")
    questions.add_argument("questions", metavar="QUESTIONS", help="file of questions (.json)")
    add_settings(questions, ReleasedQuestionSettings)
    add_shared_options(questions, "output", "format", "overwrite", "spreadsheet_safe")


def run_build(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Make question items from reference reports.

    For each finding that a report states, there is a question about its existence and one about each attribute that the
    report states. Items are made by the finding engine, which is deterministic and downloads nothing, or by a judge.
    The output has one row per report, with a list of items. Missing and blank reports, and reports on which the judge
    fails, are left out and counted. With --labels only findings that the labels of the data set call positive have
    items; the labels are 0 or 1, or -1 for not mentioned, in columns that are named like the findings of the schema,
    ignoring case and underscores.

    Examples:
      rrg-rewards finebench build reports.csv --text-column report_text --id-column AccessionNo --output items.jsonl
      rrg-rewards finebench build reports.csv --text-column report_text --labels --output items.jsonl
      rrg-rewards finebench build validation_reports.csv --text-column "{Findings_EN} {Impressions_EN}" \
          --key VolumeName --labels valid_predicted_labels.csv --one-per-scan --no-chest no_chest_valid.txt \
          --output items.jsonl
      rrg-rewards finebench build reports.csv --text-column findings --schema merlin --output items.parquet \
          --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
    """
    from rrg_rewards.analysis.question_items import build_question_items, read_report_texts
    from rrg_rewards.data.records.question_items import write_question_items

    settings_from(args, Outputs).check()
    settings = settings_from(args, QuestionSettings)
    reports = read_report_texts(settings_from(args, InputTable).read(terminal), settings, terminal, args.table)
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
    score. Type of the answer, explanation and examples of each attribute are those of the schema.

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
