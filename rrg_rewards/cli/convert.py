"""``rrg-rewards convert``: published checkpoints and adapters as Hugging Face folders."""

import argparse
from pathlib import Path
from typing import Any

from rrg_rewards.cli.options import UsageError, add_common_options, new_parser_options, positive_int
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

__all__ = ["add_command"]

_DESCRIPTION = """\
Write a model as a Hugging Face folder, which transformers, PEFT and TRL load. Weights are read without executing
pickled code; nothing is sent anywhere, and only a base model named by its Hub id is downloaded.
"""

_CT_CHAT = """\
CT-CHAT, as its own code (a fork of LLaVA) saves it, with its processor: a LoRA adapter with non_lora_trainables.bin,
which is merged into the base model; mm_projector.bin alone; or a full checkpoint. Every key is used and every parameter
filled, or the checkpoint is refused by the names of the keys. Licence of the published weights: CC BY-NC-SA.

examples:
  rrg-rewards convert ct-chat CT-CHAT/llama_3.1_8b --base-model meta-llama/Llama-3.1-8B-Instruct --output ct_chat
  rrg-rewards convert ct-chat checkpoints/full --output ct_chat --dtype bfloat16
"""

_LORA = """\
A LoRA adapter that a recipe wrote, merged into the model it was trained on, with what was trained beside it
(CT-CHAT's projector). Reinforcement learning starts from the merged model and adds an adapter of its own.

example:
  rrg-rewards convert lora runs/ct_chat/sft --output runs/ct_chat/sft_merged
"""

_DTYPES = ("auto", "bfloat16", "float16", "float32")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``convert`` to the command line."""
    parser = commands.add_parser(
        "convert", help="write a model as a Hugging Face folder", description=_DESCRIPTION, **new_parser_options()
    )
    models = parser.add_subparsers(title="models", metavar="MODEL", required=True)

    ct_chat = models.add_parser(
        "ct-chat", help="CT-CHAT's published layout", description=_CT_CHAT, **new_parser_options()
    )
    ct_chat.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="folder that CT-CHAT's training wrote")
    ct_chat.add_argument(
        "--base-model", metavar="MODEL", help="folder or Hub id of the language model it was trained from"
    )
    ct_chat.add_argument("--revision", help="revision of a base model on the Hub")
    ct_chat.add_argument(
        "--chat-format",
        choices=("auto", "llama3", "mistral", "vicuna"),
        default="auto",
        help="format of the conversation (default: llama3 by its tokens, mistral by its kind, else vicuna)",
    )
    ct_chat.add_argument(
        "--pooler-heads",
        type=positive_int,
        default=8,
        metavar="N",
        help="heads of the projector (default: 8, published)",
    )
    ct_chat.set_defaults(run=_convert_ct_chat, parser=ct_chat)

    lora = models.add_parser("lora", help="a LoRA adapter, merged", description=_LORA, **new_parser_options())
    lora.add_argument("adapter", metavar="ADAPTER", type=Path, help="folder of the adapter")
    lora.add_argument("--base-model", metavar="MODEL", help="model it was trained on (default: as the adapter says)")
    lora.set_defaults(run=_merge_lora, parser=lora)

    for model in (ct_chat, lora):
        model.add_argument("--output", metavar="FOLDER", type=Path, required=True, help="folder to write")
        model.add_argument(
            "--dtype", choices=_DTYPES, default="auto", help="type of the weights (default: that of the base model)"
        )
        add_common_options(model)


def _check(args: argparse.Namespace) -> None:
    folder = args.output
    if args.quiet:
        require("transformers.utils.logging", extra="models").disable_progress_bar()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists; choose another --output")


def _convert_ct_chat(args: argparse.Namespace, terminal: Terminal) -> int:
    _check(args)
    require("transformers", extra="models")
    from rrg_rewards.models import CTChatForConditionalGeneration, CTChatProcessor

    if not args.checkpoint.is_dir():
        raise UsageError(f"{args.checkpoint}: no such folder")
    model = CTChatForConditionalGeneration.from_llava_checkpoint(
        args.checkpoint, args.base_model, pooler_heads=args.pooler_heads, dtype=args.dtype, revision=args.revision
    )
    source = args.checkpoint if args.base_model is None else args.base_model
    processor = CTChatProcessor.from_base_model(source, model.config, args.chat_format, args.revision)
    return _save(model, processor, args.output, terminal)


def _merge_lora(args: argparse.Namespace, terminal: Terminal) -> int:
    _check(args)
    peft = require("peft", extra="models")
    transformers = require("transformers", extra="models")
    # Makes CT-CHAT known to the automatic classes.
    require("rrg_rewards.models.ct_chat", extra="models")
    if not (args.adapter / "adapter_config.json").is_file():
        raise UsageError(f"{args.adapter}: no LoRA adapter (there is no adapter_config.json)")
    source = args.base_model or peft.PeftConfig.from_pretrained(str(args.adapter)).base_model_name_or_path
    try:
        check_model_source(source)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}; say where the model is that the adapter was trained on: --base-model"
        ) from error
    base = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=args.dtype)
    model = peft.PeftModel.from_pretrained(base, str(args.adapter)).merge_and_unload(safe_merge=True)
    return _save(model, transformers.AutoProcessor.from_pretrained(str(args.adapter)), args.output, terminal)


def _save(model: Any, processor: Any, folder: Path, terminal: Terminal) -> int:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    terminal.note(f"{model.num_parameters():,} parameters in {str(model.dtype).removeprefix('torch.')}, in {folder}")
    return 0
