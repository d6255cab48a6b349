"""CT-CHAT in vLLM on the GPU: the tests of CT-CHAT in vLLM on the CPU, with an engine on the GPU."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="CT-CHAT in vLLM needs vLLM, which has an environment of its own")

from tests.integrations.test_vllm_model import folder, prompts, test_vllm_model_writes_the_greedy_tokens, volumes

__all__ = ["folder", "llm", "prompts", "test_vllm_model_writes_the_greedy_tokens", "volumes"]

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def llm(folder: Path) -> Any:
    # In this process, where CUDA has started, so that vLLM must not fork.
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1")
    from vllm import LLM

    lengths = {"max_model_len": 256, "limit_mm_per_prompt": {"image": 3}}
    # Not most of the memory, which the other tests need.
    return LLM(str(folder), dtype="float32", enforce_eager=True, gpu_memory_utilization=0.3, **lengths)
