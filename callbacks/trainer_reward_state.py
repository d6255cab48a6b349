"""Synchronisation of rewards between processes, and their states in checkpoints of transformers' and TRL's trainers."""

import json
from typing import Any

from rrg_rewards.callbacks.base import StateCallback, checkpoint_folder, resumed_checkpoint
from rrg_rewards.data.tables.writers import write_json
from rrg_rewards.utilities.imports import require

# Check first: the error message names the extra that installs transformers.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

__all__ = ["TrainerRewardStateCallback"]

_FILE = "reward_state.json"


class TrainerRewardStateCallback(StateCallback, TrainerCallback):  # type: ignore[misc]  # transformers is optional
    """Synchronises the statistics of rewards after each step and saves them in the trainer's checkpoints.

    This is the counterpart of :class:`rrg_rewards.callbacks.RewardStateCallback` for TRL's trainers. Each checkpoint
    contains the states as plain JSON in ``reward_state.json``. A resumed run continues from them.

    Args:
        rewards: The rewards of the run. These must be the objects that the trainer calls.

    Example:
        >>> from rrg_rewards.callbacks import TrainerRewardStateCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> callback = TrainerRewardStateCallback([make_reward("crg", prior="running")])
        >>> # GRPOTrainer(..., reward_funcs=callback.rewards, callbacks=[callback])
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Restore the states from the checkpoint that training resumes from, if any.

        Raises:
            FileNotFoundError: If a reward has a state and the checkpoint contains none.
            ValueError: If the checkpoint belongs to other rewards.
        """
        if state.global_step and any(self.state_dict().values()):
            file = resumed_checkpoint(args, state) / _FILE
            self.load_state_dict(json.loads(file.read_text(encoding="utf-8")))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Synchronise the rewards; every process runs this hook after each step."""
        self.synchronize()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the states to the checkpoint."""
        if state.is_world_process_zero:
            write_json(self.state_dict(), checkpoint_folder(args, state) / _FILE, overwrite=True)
