"""A tiny language model to train ER²Score from, with the words of tiny_records."""

from pathlib import Path

import torch
from tiny_crepe import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PROMPT = "reference {reference} candidate {candidate} score"


def save_tiny_backbone(folder: Path) -> Path:
    """Write a Llama of random weights and its tokenizer."""
    words = ["<pad>", "<unk>", "<eos>", *dict.fromkeys([*WORDS, "reference", "candidate", "score"])]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        # With the usual 0.02 such a small model learns slowly.
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    ).save_pretrained(folder)
    return folder
