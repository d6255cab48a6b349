"""A tiny encoder, and records in its words with error counts that follow from the candidate."""

import json
import random
from pathlib import Path

import torch
from tiny_crepe import WORDS, tiny_bert_tokenizer
from transformers import BertConfig, BertModel


def save_tiny_encoder(folder: Path, dropout: float = 0.0) -> Path:
    """Write a BERT of random weights and its tokenizer, without any head."""
    tokenizer = tiny_bert_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        # With the usual 0.02 such a small model learns slowly.
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_records(references: int, per_reference: int = 2, seed: int = 0) -> list[dict]:
    """Make candidates that name a mass once per false finding and a nodule once per omission."""
    choose = random.Random(seed)
    words = [word for word in WORDS if word not in ("mass", "nodule")]
    records = []
    for _ in range(references):
        reference = " ".join(choose.choices(words, k=choose.randint(4, 9)))
        for _ in range(per_reference):
            false, omitted = choose.randint(0, 3), choose.randint(0, 1)
            candidate = " ".join(choose.choices(words, k=3) + ["mass"] * false + ["nodule"] * omitted)
            counts = [false, omitted, 0, 0, 0, 0]
            records.append({"reference": reference, "candidate": candidate, "counts": counts})
    return records


def write_records(path: Path, records: list[dict]) -> Path:
    """Write records as JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
