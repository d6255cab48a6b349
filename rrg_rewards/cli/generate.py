r"""``rrg-rewards generate``: reports for the rows of a table.

Generate a report for each row of a table with a language model, with an image-text model of transformers from images,
or with CT-CHAT from the features of volumes. The output has the input columns, the generated report, and the column
`truncated`: whether the report was cut off at --max-new-tokens. Rows without input, image or volume get no report and
are counted.

Each report is kept in OUTPUT.partial.jsonl until all are done. If the run is interrupted, repeat the command: only the
missing reports are generated, and the result is the same.

Examples:
  rrg-rewards generate heldout.jsonl --model runs/ct_chat/sft_merged --image-column image \
      --prompt-template "Write a radiology report for the following chest CT scan. <report_generation>" \
      --output predictions.jsonl
  rrg-rewards generate reports.csv --model runs/sft --input-column findings --output predictions.csv --batch-size 32
  rrg-rewards generate xrays.csv --model runs/medgemma --image-column png --output predictions.csv \
      --prompt-template "Describe the findings of this chest X-ray."
  rrg-rewards generate heldout.jsonl --model runs/ct_chat/sft_merged --image-column image --backend vllm \
      --vllm-option max_model_len=2048 --output predictions.jsonl
  rrg-rewards score predictions.csv --metrics crg,crimson --prediction-column prediction --reference-column impression
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.recipes.generation import GenerationSettings, generate_reports
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import Settings, setting


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Rows(Settings):
    """The rows of the table, and their new column."""

    prediction_column: str = setting("prediction", "new column", metavar="NAME")
    limit: int | None = setting(None, "only the first N rows", metavar="N", minimum=1)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``generate`` to the command line."""
    parser = add_command_parser(commands, "generate", _run, summary, __doc__)
    add_table_argument(parser, "TABLE", "prompts or volumes")
    prompts = ("input_column", "prompt_template", "system_prompt", "plain", "image_column")
    add_settings(parser, GenerationSettings, "model", "revision", *prompts)
    add_settings(parser, _Rows)
    sampling = ("max_new_tokens", "temperature", "backend", "vllm_option", "device", "dtype")
    add_settings(parser, GenerationSettings, *sampling)
    output = {"required": True, "help": "table to write"}
    batch_size = {
        "default": None,
        "help": "number of reports that are generated together (default: 8; with vLLM 256)",
    }
    names = ("output", "json", "format", "overwrite", "spreadsheet_safe", "seed", "batch_size")
    add_shared_options(parser, *names, output=output, batch_size=batch_size)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.output == "-":
        raise UsageError("argument --output: must be a file, because an interrupted run is resumed from it")
    settings, outputs = settings_from(args, GenerationSettings), settings_from(args, Outputs)
    outputs.check()
    require("transformers", extra="models")
    table = settings_from(args, InputTable).read(terminal)
    if args.limit is not None:
        table = replace(table, columns={name: cells[: args.limit] for name, cells in table.columns.items()})
    partial = Path(f"{args.output}.partial.jsonl")
    result = generate_reports(table, settings, partial, terminal)
    columns: dict[str, Sequence[Any]] = {args.prediction_column: result.reports, "truncated": result.truncated}
    if replaced := [name for name in columns if name in table.columns]:
        terminal.warn(f"the output replaces columns of the input: {', '.join(replaced)}; see --prediction-column")
    outputs.write(table.with_columns(columns), {**result.to_dict(), "table": args.table})
    partial.unlink(missing_ok=True)
    terminal.note(str(result))
    return 0
