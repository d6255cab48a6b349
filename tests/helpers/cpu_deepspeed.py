"""Lightning's strategy for DeepSpeed on CPU, where Lightning refuses it. Everything else is Lightning's."""

import os
from typing import Any

# Without it, DeepSpeed would look for a GPU.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy

# It would be compiled in 80 seconds.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class CPUDeepSpeedStrategy(DeepSpeedStrategy):  # type: ignore[misc]
    """ZeRO with gloo."""

    def __init__(self, stage: int = 2, **options: Any) -> None:
        super().__init__(stage=stage, process_group_backend="gloo", logging_batch_size_per_gpu=1, **options)
        # A model of the tests' size would stay whole on every process.
        self.config["zero_optimization"]["stage3_param_persistence_threshold"] = 0

    def setup_environment(self) -> None:
        """Set up the processes without the check for a GPU."""
        DDPStrategy.setup_environment(self)

    def setup_distributed(self) -> None:
        """Join the processes without the check of the GPUs' numbers."""
        self.set_world_ranks()
        self._init_deepspeed_distributed()

    @property
    def root_device(self) -> torch.device:
        """The CPU with a number, which DeepSpeed reads."""
        return torch.device("cpu", 0)
