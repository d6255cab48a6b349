"""Training processes on CPU under DeepSpeed: a rehearsal of what will run on GPUs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rrg_rewards.utilities.imports import require

__all__ = ["start_deepspeed_on_cpu", "with_configured_state"]

# What a launcher would set for a single process; port 0 is any free one.
_SINGLE_PROCESS = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def start_deepspeed_on_cpu() -> None:
    """Join this process to a gloo group under DeepSpeed, before training arguments are made.

    Training arguments on CPU would start plain data-parallel processes, whatever their ``deepspeed`` says; with
    :func:`with_configured_state` they keep the group that is there. Without a launcher the process is a group of its
    own.

    Raises:
        ModuleNotFoundError: If DeepSpeed is not installed, naming the pip command.
    """
    # Before its import, at which DeepSpeed looks for a GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed = require("deepspeed", extra="deepspeed")
    # Else a collective for shared memory is compiled, which takes more than a minute; gloo has its own.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "LOCAL_RANK" not in os.environ:
        os.environ.update(_SINGLE_PROCESS)
    # Read when the state is made. accelerate takes DeepSpeed for a matter of GPUs: it must not be told `cpu=True`.
    only_now = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_TORCH_DEVICE": "cpu"}
    os.environ.update(only_now)
    try:
        PartialState(backend="gloo")
    finally:
        for name in only_now:
            del os.environ[name]


def with_configured_state(accelerator_config: Mapping[str, Any] | str | None) -> str:
    """The trainer's ``accelerator_config``, as JSON, with which it keeps the processes as they were started.

    Args:
        accelerator_config: What else it says: a mapping, JSON, or the path of a JSON file.

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
