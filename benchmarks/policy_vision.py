"""A small vision encoder-decoder for phantom volumes, and its warm start."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from transformers import (
    BertGenerationConfig,
    BertGenerationDecoder,
    GenerationConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTModel,
)

from rrg_rewards.recipes.phantom.policy import compact_tokenizer
from rrg_rewards.training import EncoderDecoderGenerator
from rrg_rewards.training.policy.generators import Completions
from rrg_rewards.utilities.features import read_features

__all__ = ["collate_volumes", "vision_generator", "warm_start"]

_SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    # With smaller weights, all tokens initially attend equally to all cells, which delays training.
    "initializer_range": 0.1,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def collate_volumes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate rows to columns, with each volume of 4 x 4 x 4 cells as an image of 8 x 8 pixels."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    volumes = [torch.from_numpy(read_features(path)).float().reshape(64, -1) for path in columns["image"]]
    return {**columns, "pixel_values": torch.stack(volumes).transpose(1, 2).unflatten(2, (8, 8))}


def vision_generator(channels: int = 32, seed: int = 0) -> EncoderDecoderGenerator:
    """Make an untrained model of about 200,000 parameters."""
    torch.manual_seed(seed)
    tokenizer = compact_tokenizer()
    encoder = ViTModel(
        ViTConfig(**_SIZE, **_NO_DROPOUT, image_size=8, patch_size=1, num_channels=channels), add_pooling_layer=False
    )
    decoder = BertGenerationDecoder(
        BertGenerationConfig(
            **_SIZE, **_NO_DROPOUT, vocab_size=len(tokenizer), is_decoder=True, add_cross_attention=True
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return EncoderDecoderGenerator(model, tokenizer, max_new_tokens=64)


def warm_start(generator: EncoderDecoderGenerator, rows: Any, steps: int, seed: int = 0) -> list[float]:
    """Train on the column ``abridged`` and return the loss of each step."""
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(generator.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.05)
    generator.train()
    losses = []
    for _ in range(steps):
        batch = collate_volumes([rows[row] for row in torch.randint(len(rows), (32,), generator=order).tolist()])
        completions = _written(generator, batch["abridged"])
        log_probs = generator.log_probs(batch, completions).log_probs
        loss = -(log_probs * completions.mask).sum() / completions.mask.sum()
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(generator.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def _written(generator: EncoderDecoderGenerator, texts: Sequence[str]) -> Completions:
    """Return reports as completions of the generator."""
    tokenizer = generator.tokenizer
    ids = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in texts]
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.long) for row in ids], batch_first=True)
    return Completions(tokens, mask)
