"""A CT-CHAT with random weights and its processor, made without a download."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tiny_policy import tiny_tokenizer
from transformers import AutoConfig

from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration, CTChatProcessor
from rrg_rewards.utilities.features import write_features

QUERIES, CHANNELS, GRID = 3, 24, (2, 3, 4)


def tiny_processor() -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], special_tokens=True)
    tokenizer.eos_token = "<|eot_id|>"
    return CTChatProcessor.from_tokenizer(tokenizer, "llama3", QUERIES, CHANNELS)


def tiny_ct_chat(processor: Any, seed: int = 0, **text_options: Any) -> Any:
    torch.manual_seed(seed)
    options = {
        "model_type": "llama",
        "vocab_size": processor.image_token_id,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 128,
        # Weights large enough for greedy tokens that depend on the prompt and on the volume.
        "initializer_range": 0.4,
        "pad_token_id": processor.tokenizer.pad_token_id,
        "bos_token_id": processor.tokenizer.bos_token_id,
        "eos_token_id": processor.tokenizer.eos_token_id,
    }
    text_config = AutoConfig.for_model(**(options | text_options))
    config = CTChatConfig(
        text_config, num_image_tokens=QUERIES, feature_size=CHANNELS, pooler_heads=4, initializer_range=0.4
    )
    return CTChatForConditionalGeneration(config)


def save_tiny_ct_chat(folder: Path, **text_options: Any) -> Path:
    """Write model and processor as one Hugging Face folder."""
    processor = tiny_processor()
    tiny_ct_chat(processor, **text_options).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def volume(seed: int) -> NDArray[np.float16]:
    return np.random.default_rng(seed).standard_normal((*GRID, CHANNELS)).astype(np.float16)


def save_volumes(folder: Path, count: int) -> list[str]:
    """Write feature files as published: ``.npz``, key ``arr``, a leading axis of 1."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"study_{index}.npz" for index in range(count)]
    for index, path in enumerate(paths):
        write_features(path, volume(index))
    return [str(path) for path in paths]
