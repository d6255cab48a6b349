"""What rewards learn in training, shared between processes and kept in checkpoints, for transformers' and TRL's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.writers import write_json
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.states import load_reward_states, reward_states
from rrg_rewards.utilities.imports import require

# Before the modules that import it by name: where it is missing, this says which extra installs it.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

__all__ = ["TrainerRewardStateCallback"]

_FILE = "reward_state.json"


class TrainerRewardStateCallback(TrainerCallback):  # type: ignore[misc]  # transformers is an optional dependency
    """Shares what rewards learn with all processes after each step, and saves it with the trainer's checkpoints.

    The twin of :class:`rrg_rewards.callbacks.RewardStateCallback` for TRL's trainers. States are plain JSON,
    ``reward_state.json`` in each checkpoint, from which a resumed run goes on.

    Args:
        rewards: The rewards of the run, the very objects that the trainer calls.

    Example:
        >>> from rrg_rewards.callbacks import TrainerRewardStateCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> callback = TrainerRewardStateCallback([make_reward("crg", prior="running")])
        >>> # GRPOTrainer(..., reward_funcs=callback.rewards, callbacks=[callback])
    """

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Go on from the checkpoint that training resumes from, if any.

        Raises:
            FileNotFoundError: If that checkpoint holds no states of rewards, though these have some.
            ValueError: If it is of other rewards.
        """
        if state.global_step == 0 or not any(reward_states(self.rewards).values()):
            return
        given = args.resume_from_checkpoint
        named = Path(given) if isinstance(given, str) and Path(given).is_dir() else None
        folder = named or Path(args.output_dir) / f"checkpoint-{state.global_step}"
        load_reward_states(self.rewards, json.loads((folder / _FILE).read_text(encoding="utf-8")))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Share what was learned; every process comes here after each step."""
        for reward in self.rewards:
            reward.synchronize()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the states into the checkpoint."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_json(reward_states(self.rewards), folder / _FILE, overwrite=True)
