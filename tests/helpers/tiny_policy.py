"""A policy with random weights and a word-level tokenizer, made without a download."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

WORDS = ["edema", "effusion", "nodule", "normal", "heart", "lungs", "report", "system", "user", "assistant"]
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>"]
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def tiny_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=TEMPLATE,
    )


def tiny_model(words: Sequence[str] = WORDS) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def save_tiny_policy(folder: Path, words: Sequence[str] = WORDS) -> Path:
    """Write model and tokenizer as one Hugging Face folder."""
    tiny_model(words).save_pretrained(folder)
    tiny_tokenizer(words).save_pretrained(folder)
    return folder


def sliding_model():
    """A model with sliding windows."""
    config = MistralConfig(
        vocab_size=14, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=4, pad_token_id=0, eos_token_id=2, bos_token_id=1,
    )  # fmt: skip
    return MistralForCausalLM(config)
