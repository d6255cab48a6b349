"""The backends of ``rrg-rewards generate``: transformers and vLLM."""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rrg_rewards.cli.options import UsageError, read_assignments
from rrg_rewards.utilities.imports import require

__all__ = ["BATCH_SIZES", "ReportBackend", "load_backend"]

# vLLM starts a report as soon as another one ends, so that more of them at a time are faster.
BATCH_SIZES = {"transformers": 8, "vllm": 256}


class ReportBackend(Protocol):
    """Generates reports."""

    config: Any
    """The model's configuration."""

    def generate(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[tuple[str, bool]]:
        """Return the report of each row, and whether it ends by itself."""


def load_backend(args: argparse.Namespace) -> ReportBackend:
    """Load the model of a command's arguments.

    Raises:
        ImportError: If the backend is not installed.
        UsageError: If an option does not fit the backend or the model.
    """
    return (_load_vllm if args.backend == "vllm" else _Transformers)(args)


def _load_vllm(args: argparse.Namespace) -> ReportBackend:
    if args.device != "auto":
        raise UsageError("argument --device: vLLM runs on the device that it was installed for; leave the option out")
    # As the messages of the command; vLLM reads the variables when it is imported.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    from rrg_rewards.integrations.vllm.reports import VLLMReports

    options = {"revision": args.revision, "seed": args.seed} | ({} if args.dtype == "auto" else {"dtype": args.dtype})
    options |= read_assignments("--vllm-option", "NAME=VALUE", args.vllm_option, as_yaml=True)
    return VLLMReports(
        args.model,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        has_images=args.image_column is not None,
        options=options,
    )


class _Transformers:
    """Generates the reports of a batch together, from the seed of its first row."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        transformers = require("transformers", extra="models")
        from rrg_rewards.models import CTChatForConditionalGeneration
        from rrg_rewards.training.policy.hf_generators import CausalLMGenerator, CTChatGenerator

        if args.vllm_option:
            raise UsageError("argument --vllm-option: needs --backend vllm")
        device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
        model = transformers.AutoModelForCausalLM.from_pretrained(
            args.model, dtype=args.dtype, revision=args.revision, trust_remote_code=False
        )
        model = model.to(device).eval()
        is_ct_chat, has_images = isinstance(model, CTChatForConditionalGeneration), args.image_column is not None
        if has_images and not is_ct_chat:
            raise UsageError(f"--image-column needs a CT-CHAT model; {args.model} is a {type(model).__name__}")
        processor = (transformers.AutoProcessor if is_ct_chat else transformers.AutoTokenizer).from_pretrained(
            args.model, revision=args.revision, trust_remote_code=False
        )
        tokenizer = processor.tokenizer if is_ct_chat else processor
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        options = {"max_new_tokens": args.max_new_tokens, "temperature": args.temperature or 1.0}
        self._generator = (CTChatGenerator if has_images else CausalLMGenerator)(model, processor, **options)
        self._is_greedy = not args.temperature
        self.config = model.config

    def generate(self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[tuple[str, bool]]:
        """Return the report of each row, and whether it ends by itself."""
        import torch

        torch.manual_seed(seeds[0])
        device = self._generator.model.device
        inputs = {
            name: value.to(device) if torch.is_tensor(value) else value
            for name, value in self._generator.collate(rows).items()
        }
        with torch.inference_mode():
            completions = self._generator.sample(inputs, greedy=self._is_greedy)
        finished: Any = completions.finished
        return list(zip(self._generator.decode(completions), finished.tolist(), strict=True))
