"""Weight updates of vLLM engines on CPU, for tests and trials of training with vLLM on machines without a GPU."""

from typing import Any

import torch

from rrg_rewards.utilities.imports import require


def keep_cpu_weights() -> None:
    """Make engines of this process that start later keep their weights in the original layout.

    On CPU, vLLM packs the weights of linear layers when a model is loaded, and discards the originals. Weights can
    therefore not be updated: TRL's first push fails with ``'Parameter' object has no attribute 'weight_loader'``. This
    function replaces vLLM's choice of a kernel by ``torch.nn.functional.linear``, which is slower. It has no effect on
    engines that use a GPU.

    Raises:
        ModuleNotFoundError: If vLLM is not installed.
        RuntimeError: If the installed vLLM chooses its kernels by other means.
    """
    require("vllm", extra="vllm")
    # vLLM has no setting for this. Its layers import the function when they have loaded their weights.
    kernels: Any = require("vllm.model_executor.layers.utils", extra="vllm")
    if not hasattr(kernels, "dispatch_cpu_unquantized_gemm"):
        raise RuntimeError(
            "this version of vLLM chooses its CPU kernels elsewhere; its weights cannot be updated on CPU"
        )
    kernels.dispatch_cpu_unquantized_gemm = _use_plain_linear


def _use_plain_linear(layer: Any, remove_weight: bool) -> None:  # noqa: ARG001 (vLLM's signature)
    layer.cpu_linear = torch.nn.functional.linear
