"""CT-CHAT in vLLM: the same tokens and log-probabilities as in transformers."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_ct_chat import save_tiny_ct_chat, save_volumes
from transformers import AutoModelForCausalLM, AutoProcessor

pytest.importorskip("vllm", reason="vLLM has an environment of its own")
pytestmark = pytest.mark.vllm

TOKENS = 12
# vLLM's kernels for CPUs take no heads of the usual test size.
SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_ct_chat(tmp_path_factory.mktemp("ct_chat"), **SIZES)


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return save_volumes(tmp_path_factory.mktemp("features"), 4)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Any:
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1")
    from vllm import LLM

    return LLM(str(folder), dtype="float32", enforce_eager=True, max_model_len=256, limit_mm_per_prompt={"image": 3})


def test_greedy_tokens_are_those_of_transformers(llm: Any, folder: Path, volumes: list[str]) -> None:
    from vllm import SamplingParams

    model, processor = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    prompts = [("heart", []), ("<image>\nreport heart", volumes[:1]), ("<image> edema <image>", volumes[1:3])]
    given = [{"prompt": text, **({"multi_modal_data": {"image": own}} if own else {})} for text, own in prompts]
    outputs = llm.generate(given, SamplingParams(max_tokens=TOKENS, temperature=0.0))
    for output, (text, own) in zip(outputs, prompts, strict=True):
        inputs = processor(text=text, images=[own] if own else None, return_tensors="pt")
        assert output.prompt_token_ids == inputs["input_ids"][0].tolist()
        with torch.inference_mode():
            tokens = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        assert list(output.outputs[0].token_ids) == tokens[0, inputs["input_ids"].shape[1] :].tolist()
