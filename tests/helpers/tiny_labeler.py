"""A report classifier with random weights in Hugging Face form, for the words of the tiny policy."""

from pathlib import Path

import torch
from tiny_policy import tiny_tokenizer
from transformers import RobertaConfig, RobertaForSequenceClassification

from rrg_rewards.schemas import CT_RATE


def save_tiny_labeler(folder: Path) -> Path:
    """Write a classifier whose labels differ between reports, and its tokenizer, as one folder."""
    tokenizer = tiny_tokenizer()
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=514,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        # With the usual 0.02 all reports would have the same labels.
        initializer_range=0.5,
        id2label=dict(enumerate(CT_RATE.labels)),
    )
    torch.manual_seed(0)
    RobertaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
