"""DeepSpeed on CPU, to test a run before it is started on GPUs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rrg_rewards.utilities.imports import require

__all__ = ["start_deepspeed_on_cpu", "with_configured_state"]

# Environment variables that a launcher would set for a single process; port 0 selects any free port.
_SINGLE_PROCESS = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def start_deepspeed_on_cpu() -> None:
    """Join a gloo process group under DeepSpeed; call this function before the training arguments are constructed.

    On CPU, the training arguments would otherwise start plain data-parallel processes and ignore ``deepspeed``. With
    :func:`with_configured_state` they keep the existing process group. Without a launcher the group has one process.

    Raises:
        ModuleNotFoundError: If DeepSpeed is not installed; the message contains the pip command.
    """
    # Set before the import, because DeepSpeed selects its accelerator when it is imported.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed = require("deepspeed", extra="deepspeed")
    # Otherwise DeepSpeed spends over a minute compiling a shared-memory collective that gloo does not need.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(_SINGLE_PROCESS)
    # PartialState reads these variables. `cpu=True` would disable DeepSpeed, which accelerate supports on GPUs only.
    temporary = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_TORCH_DEVICE": "cpu"}
    os.environ.update(temporary)
    try:
        PartialState(backend="gloo")
    finally:
        for name in temporary:
            del os.environ[name]


def with_configured_state(accelerator_config: Mapping[str, Any] | str | None) -> str:
    """Return an ``accelerator_config`` as JSON that makes the trainer use the existing process group.

    Args:
        accelerator_config: Other settings: a mapping, JSON, or the path of a JSON file.

    Example:
        >>> with_configured_state({"even_batches": False})
        '{"even_batches": false, "use_configured_state": true}'
    """
    if isinstance(accelerator_config, str):
        is_json = accelerator_config.lstrip().startswith("{")
        return with_configured_state(
            json.loads(accelerator_config if is_json else Path(accelerator_config).read_text())
        )
    return json.dumps({**(accelerator_config or {}), "use_configured_state": True})
