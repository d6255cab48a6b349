"""``rrg-rewards generate``: reports for the rows of a table."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    finite_number,
    positive_int,
    read_input,
    with_new_columns,
    write_outputs,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.version import __version__

__all__ = ["add_command"]

_DESCRIPTION = """\
Generate a report for each row of a table with a language model, or with CT-CHAT from the features of volumes. The
output has the input columns, the generated report, and the column `truncated`: whether the report was cut off at
--max-new-tokens. Rows without input or volume get no report and are counted.

Each report is kept in OUTPUT.partial.jsonl until all are done. If the run is interrupted, repeat the command: only the
missing reports are generated, and the result is the same.

examples:
  rrg-rewards generate heldout.jsonl --model runs/ct_chat/sft_merged --image-column image \\
      --prompt-template "Write a radiology report for the following chest CT scan. <report_generation>" \\
      --output predictions.jsonl
  rrg-rewards generate reports.csv --model runs/sft --input-column findings --output predictions.csv --batch-size 32
  rrg-rewards generate heldout.jsonl --model runs/ct_chat/sft_merged --image-column image --backend vllm \\
      --vllm-option max_model_len=2048 --output predictions.jsonl
  rrg-rewards score predictions.csv --metrics crg,crimson --prediction-column prediction --reference-column impression
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``generate`` to the command line."""
    parser = add_command_parser(commands, "generate", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "TABLE", "prompts or volumes")
    parser.add_argument("--model", required=True, metavar="MODEL", help="folder or Hub id of a model")
    parser.add_argument("--revision", help="revision of a model on the Hub")
    parser.add_argument(
        "--input-column", default="findings", metavar="NAME", help="column for {input} (default: findings)"
    )
    parser.add_argument(
        "--prompt-template",
        default="{input}",
        metavar="TEXT",
        help="prompt; {input} is the input column, {NAME} is another column (default: {input})",
    )
    parser.add_argument(
        "--system-prompt",
        metavar="TEXT",
        help="system message, a .txt file of it, or conversation.py of CT-CHAT's code",
    )
    parser.add_argument("--plain", action="store_true", help="use no chat template")
    parser.add_argument(
        "--image-column", metavar="NAME", help="column of feature files, absolute or relative to the folder of TABLE"
    )
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="new column (default: prediction)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive_int, default=512, metavar="N", help="longest report, in tokens (default: 512)"
    )
    parser.add_argument(
        "--temperature",
        type=finite_number,
        default=0.0,
        help="temperature of sampling; 0 is greedy decoding (default: 0)",
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="only the first N rows")
    parser.add_argument(
        "--backend",
        choices=("transformers", "vllm"),
        default="transformers",
        help="library that generates (default: transformers)",
    )
    parser.add_argument(
        "--vllm-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of vllm.LLM, e.g. max_model_len=4096; may be repeated",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    parser.add_argument(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="type of the weights; auto is the saved one",
    )
    output = {"required": True, "help": "table to write"}
    batch_size = {
        "default": None,
        "help": "number of reports that are generated together (default: 8; with vLLM 256)",
    }
    add_shared_options(
        parser, "output", "json", "format", "overwrite", "seed", "batch-size", output=output, batch_size=batch_size
    )


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.output == "-":
        raise UsageError("argument --output: must be a file, because an interrupted run is resumed from it")
    if args.temperature < 0:
        raise UsageError(f"argument --temperature: must be a number from 0, got {args.temperature}")
    check_outputs(args)
    require("transformers", extra="models")
    from rrg_rewards.cli.generate_run import GenerationRun, read_rows

    table = read_input(args, terminal)
    if args.limit is not None:
        table = replace(table, columns={name: cells[: args.limit] for name, cells in table.columns.items()})
    rows = read_rows(table, args)
    check_model_source(args.model)
    if (Path(args.model) / "adapter_config.json").is_file():
        raise UsageError(f"{args.model} is a LoRA adapter; merge it first: rrg-rewards convert lora {args.model}")
    run = GenerationRun(args, rows)
    if run.num_held:
        terminal.note(f"{run.partial} contains {run.num_held} reports; the others are generated now")
    with terminal.progress("generating") as report:
        reports, is_cut = run.run(report, terminal.warn)
    columns: dict[str, Sequence[Any]] = {args.prediction_column: reports, "truncated": is_cut}
    write_outputs(args, with_new_columns(table, columns, "", terminal), _summary(args, reports, is_cut))
    run.partial.unlink(missing_ok=True)
    terminal.note(_described(reports, is_cut))
    return 0


def _summary(args: argparse.Namespace, reports: list[str | None], is_cut: list[bool | None]) -> dict[str, Any]:
    return {
        "version": __version__,
        "table": args.table,
        "model": args.model,
        "backend": args.backend,
        "rows": len(reports),
        "generated": sum(report is not None for report in reports),
        "truncated": sum(map(bool, is_cut)),
        "temperature": args.temperature,
        "max_new_tokens": args.max_new_tokens,
        "seed": args.seed,
    }


def _described(reports: list[str | None], is_cut: list[bool | None]) -> str:
    words = [len(report.split()) for report in reports if report is not None]
    text = f"{len(words)} reports, {sum(words) / max(len(words), 1):.0f} words on average"
    if cut := sum(map(bool, is_cut)):
        text += f"; {cut} cut off at --max-new-tokens"
    if missing := len(reports) - len(words):
        text += f"; {missing} rows without input or volume have none"
    return text
