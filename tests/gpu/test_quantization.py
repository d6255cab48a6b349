"""QLoRA: an adapter on 4-bit weights."""

from pathlib import Path

import pytest
import torch
from tiny_crepe import random_pairs
from tiny_er2score import LORA, randomize, save_tiny_llama

from rrg_rewards.models import ER2ScoreModel
from rrg_rewards.models.er2score.prompt import PromptEncoder, PromptTemplate


def test_an_adapter_on_four_bits_is_trained(tmp_path: Path, device: torch.device) -> None:
    pytest.importorskip("bitsandbytes", reason="4-bit weights need bitsandbytes: pip install 'rrg-rewards[qlora]'")
    # Blocks of 64 weights share a constant.
    backbone = save_tiny_llama(tmp_path / "llama", hidden_size=64, intermediate_size=128)
    torch.manual_seed(0)
    model = randomize(ER2ScoreModel.from_backbone(backbone, lora=LORA, quantization="4bit")).to(device)
    encoder = PromptEncoder(model.tokenizer, PromptTemplate(model.config.prompt), model.config.max_prompt_length)
    candidates, references = random_pairs(8, longest=30)
    batch = {name: value.to(device) for name, value in encoder.collate(encoder(references, candidates)).items()}
    frozen = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    assert any(value.dtype == torch.uint8 for value in frozen.values()), "no weight has 4 bits"
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-2)
    target = torch.linspace(-1, 1, 8, device=device)
    losses = []
    for _ in range(20):
        loss = (model(**batch).rewards.mean(1) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    for name, value in model.named_parameters():
        assert value.device.type == device.type, name
        assert name not in frozen or torch.equal(value, frozen[name]), name
