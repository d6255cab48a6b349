"""vLLM on a CPU, in the process of the test."""

import os
from pathlib import Path
from typing import Any

from torch.nn.functional import linear

# An engine that is deleted ends the process groups, which the other engines of the process need.
_ENGINES: list[Any] = []


def start_engine(folder: Path, **options: Any) -> Any:
    """Return ``vllm.LLM`` of a model folder, whose weights can be replaced by name."""
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1")
    # vLLM numbers the cores of the machine, and binds itself to some of them.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    import vllm.model_executor.layers.utils as layers
    from vllm import LLM

    # On CPUs vLLM packs the weights and throws the originals away, so that none can be replaced. On GPUs it does not.
    layers.dispatch_cpu_unquantized_gemm = _keep_weights
    options = {"dtype": "float32", "enforce_eager": True, "max_model_len": 256, **options}
    _ENGINES.append(LLM(str(folder), limit_mm_per_prompt={"image": 3}, disable_log_stats=True, **options))
    return _ENGINES[-1]


def _keep_weights(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = linear
