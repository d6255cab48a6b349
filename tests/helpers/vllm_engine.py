"""vLLM on a CPU, in the process of the test."""

import os
from pathlib import Path
from typing import Any

from rrg_rewards.utilities.vllm_cpu import keep_cpu_weights

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1")
# vLLM numbers the cores of the machine, and binds itself to some of them.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

# An engine that is deleted ends the process groups, which the other engines of the process need.
_ENGINES: list[Any] = []


def start_engine(folder: Path, **options: Any) -> Any:
    """Return ``vllm.LLM`` of a model folder, whose weights can be replaced by name."""
    options = {"dtype": "float32", "enforce_eager": True, "max_model_len": 256, **options}
    return kept_engine(str(folder), limit_mm_per_prompt={"image": 3}, disable_log_stats=True, **options)


def kept_engine(model: str, **options: Any) -> Any:
    """Return ``vllm.LLM`` with the given arguments."""
    # Imported here, because pytest imports this file in environments without vLLM.
    from vllm.entrypoints.llm import LLM

    keep_cpu_weights()
    _ENGINES.append(LLM(model, **options))
    return _ENGINES[-1]
