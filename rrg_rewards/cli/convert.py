"""``rrg-rewards convert``: checkpoints and adapters as Hugging Face folders, and tables of reports as JSON.

Write a model as a Hugging Face folder, which transformers, PEFT and TRL load, or reports as the JSON document of a
leaderboard. Weights load without executing pickled code. Only a base model that is named by its Hub id is downloaded.
Nothing is uploaded.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rrg_rewards.analysis.settings import PairColumns
from rrg_rewards.cli.options import (
    InputTable,
    RunInstead,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.settings import SettingError, Settings, setting


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Model(Settings):
    """A model to write."""

    base_model: str | None = setting(
        None,
        "folder or Hub id of the language model that was trained (default: as a LoRA adapter's configuration names it)",
        metavar="MODEL",
    )
    output: str = setting(help="folder to write", metavar="FOLDER")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = setting(
        "auto", "type of the weights (default: the type of the base model)"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _CTChat(Settings):
    """What a checkpoint of CT-CHAT does not say."""

    revision: str | None = setting(None, "revision of a base model on the Hub")
    chat_format: Literal["auto", "llama3", "mistral", "vicuna"] = setting(
        "auto",
        "format of the conversation (default: auto: by the tokenizer, configuration or name of the base model)",
    )
    pooler_heads: int = setting(
        8, "attention heads of the projector (default: 8, as published)", metavar="N", minimum=1
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Document(Settings):
    """A document of reports."""

    layout: Literal["rexrank", "vlm3d", "vlm3d-predictions"] = setting(help="layout of the document")
    study_column: str = setting(help="column of the names of the studies", metavar="NAME")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``convert`` to the command line."""
    parser = commands.add_parser("convert", help=summary, description=__doc__)
    kinds = parser.add_subparsers(title="what to convert", metavar="KIND", required=True)

    reports = add_command_parser(
        kinds,
        "reports",
        run_reports,
        "write reports as ReXrank's or VLM3D's JSON",
    )
    add_table_argument(reports, "REPORTS", "predicted reports")
    add_settings(reports, _Document)
    add_settings(reports, PairColumns, "prediction_column", "missing_section")
    output = {"required": True, "default": None, "help": "document to write; - is standard output"}
    add_shared_options(reports, "format", "overwrite", output=output)

    ct_chat = add_command_parser(kinds, "ct-chat", run_ct_chat, "convert a checkpoint of CT-CHAT")
    ct_chat.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="folder of the checkpoint")
    ct_chat.usage = "%(prog)s CHECKPOINT --output FOLDER [OPTIONS]\n       %(prog)s --example FOLDER"
    example = "write a small checkpoint in the published form and its base model, and print the names of its weights"
    ct_chat.add_argument(
        "--example", metavar="FOLDER", type=Path, action=RunInstead, const=_write_example, help=example
    )
    lora = add_command_parser(kinds, "lora", run_lora, "merge a LoRA adapter into its base model")
    lora.add_argument("adapter", metavar="ADAPTER", type=Path, help="folder of the adapter")
    for model in (ct_chat, lora):
        add_settings(model, _Model, output={"type": Path})
    add_settings(ct_chat, _CTChat)


def run_reports(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Write predicted reports as the JSON document that a leaderboard or challenge takes.

      rexrank            an object of studies by name; each has the other columns, and the prediction as
                         model_prediction
      vlm3d              an object with a list generated_reports of the names of volumes (input_image_name) and reports
                         (report): the ground truth, and the results.json of an algorithm on grand-challenge
      vlm3d-predictions  the same object in a list of one job, [{"outputs": [{"value": {...}}]}]: the predictions.json
                         that the evaluation reads, and that an algorithm on the later platform writes

    The evaluation of VLM3D removes what follows the last dot of a name. In its layouts names are therefore written
    without folder and ending (.nii.gz, .mha, ...), and with .mha if the name itself contains a dot.

    The other direction needs no conversion: all commands read these layouts from files ending in .json.

    Examples:
      rrg-rewards convert reports predictions.csv --layout vlm3d-predictions --study-column volume \
          --output predictions.json
      rrg-rewards convert reports valid_reports.csv --layout vlm3d --study-column VolumeName \
          --prediction-column "Findings: {Findings_EN} Impression: {Impressions_EN}" --output ground_truth.json
      rrg-rewards convert reports predictions.csv --layout rexrank --study-column study_id --output predictions.json
    """
    from rrg_rewards.data.tables.json_documents import write_report_document
    from rrg_rewards.data.tables.writers import check_output

    if args.missing_section is not None and "{" not in args.prediction_column:
        raise SettingError("missing_section", "needs a template of predictions, as in '{findings}'")
    check_output(args.output, args.overwrite)
    write_report_document(
        settings_from(args, InputTable).read(terminal),
        args.output,
        args.layout,
        study_column=args.study_column,
        prediction_column=args.prediction_column,
        missing_section=args.missing_section,
        overwrite=args.overwrite,
    )
    return 0


def _write_example(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write an example in place of a conversion, and show its weights."""
    folder = args.example
    if folder.exists():
        raise UsageError(f"argument --example: {folder} exists; choose another folder")
    require("peft", extra="models")
    from rrg_rewards.recipes.ct_chat.example import write_example

    weights = write_example(folder)
    terminal.show(*(f"{name}  {' x '.join(map(str, shape))}" for name, shape in weights.items()))
    terminal.note(f"convert it: {args.parser.prog} {folder}/checkpoint --base-model {folder}/base --output OUTPUT")
    return 0


def _check(folder: Path, quiet: bool) -> None:
    if quiet:
        require("transformers.utils.logging", extra="models").disable_progress_bar()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists; choose another --output")


def run_ct_chat(args: argparse.Namespace, terminal: Terminal) -> int:
    """Convert a checkpoint of CT-CHAT's own code (a fork of LLaVA), with its processor.

    The checkpoint is a LoRA adapter with non_lora_trainables.bin, which is merged into the base model; mm_projector.bin
    alone; or a full checkpoint. A checkpoint with unknown or missing keys is rejected with an error that names them.
    Licence of the published weights: CC BY-NC-SA.

    Examples:
      rrg-rewards convert ct-chat CT-CHAT/llama_3.1_8b --base-model meta-llama/Llama-3.1-8B-Instruct --output ct_chat
      rrg-rewards convert ct-chat checkpoints/full --output ct_chat --dtype bfloat16
      rrg-rewards convert ct-chat --example ct_chat_example
    """
    _check(args.output, args.quiet)
    require("transformers", extra="models")
    from rrg_rewards.models import CTChatForConditionalGeneration, CTChatProcessor

    if not args.checkpoint.is_dir():
        raise UsageError(f"{args.checkpoint}: no such folder")
    model = CTChatForConditionalGeneration.from_llava_checkpoint(
        args.checkpoint,
        args.base_model,
        pooler_heads=args.pooler_heads,
        dtype=args.dtype,
        revision=args.revision,
    )
    source = args.checkpoint if args.base_model is None else args.base_model
    processor = CTChatProcessor.from_base_model(source, model.config, args.chat_format, args.revision)
    return _save(model, processor, args.output, terminal)


def run_lora(args: argparse.Namespace, terminal: Terminal) -> int:
    """Merge a LoRA adapter of a recipe into the model that it was trained on.

    Modules trained with it, such as CT-CHAT's projector, are merged as well. Reinforcement learning starts from the
    merged model and adds a new adapter.

    Example:
      rrg-rewards convert lora runs/ct_chat/sft --output runs/ct_chat/sft_merged
    """
    _check(args.output, args.quiet)
    require("peft", extra="models")
    from rrg_rewards.models.loading import merge_adapter
    from rrg_rewards.recipes.generation import read_prompt_settings, write_prompt_settings

    prompts = read_prompt_settings(Path(args.adapter))
    code = _save(*merge_adapter(args.adapter, args.base_model, args.dtype), args.output, terminal)
    if prompts:
        write_prompt_settings(prompts, args.output)
    return code


def _save(model: Any, processor: Any, folder: Path, terminal: Terminal) -> int:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    terminal.note(f"{model.num_parameters():,} parameters in {str(model.dtype).removeprefix('torch.')}, in {folder}")
    return 0
