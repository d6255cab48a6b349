"""A callback for TRL's trainers that detects reward hacking."""

from collections.abc import Callable, Sequence
from typing import Any

from rrg_rewards.callbacks.base import WatchCallback, checkpoint_folder, resumed_checkpoint
from rrg_rewards.rewards.base import Reward
from rrg_rewards.utilities.imports import require
from rrg_rewards.watch.recording import RewardRecorder

# Check first: the error message names the extra that installs transformers.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

__all__ = ["TrainerRewardWatchCallback"]


class TrainerRewardWatchCallback(WatchCallback, TrainerCallback):  # type: ignore[misc]  # transformers is optional
    """Watches a policy for reward hacking, in a trainer with ``reward_funcs``.

    This is the counterpart of :class:`rrg_rewards.callbacks.RewardWatchCallback` for TRL's trainers, which pass
    completions to reward functions only. :meth:`record` wraps the reward functions. At the end of a training step, the
    callback counts the completions that they received. Completions of evaluations are not counted. Processes
    communicate once per step, to sum counts.

    Warnings are logged by the logger ``rrg_rewards.watch``. Each checkpoint contains the state of the watch, from
    which a resumed run continues.

    Args:
        metrics: Held-out metrics as rewards, such as ``make_reward("rouge")``. Rewards that need a fit must be fitted.
        options: Options of :class:`rrg_rewards.callbacks.RewardWatchCallback`: ``stop``, ``reference_column``,
            ``folder``, ``metric_every``, ``watch``, and arguments of :class:`rrg_rewards.watch.RewardWatch`.

    Raises:
        ValueError: If both a watch and its options are given; in training, if no reward function was recorded.

    Example:
        >>> from rrg_rewards.callbacks import TrainerRewardWatchCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> callback = TrainerRewardWatchCallback([make_reward("rouge")], stop=["divergence", "instructions"])
        >>> rewards = callback.record([make_reward("crg", prior=0.2)])
        >>> # GRPOTrainer(..., reward_funcs=rewards, callbacks=[callback])
        >>> rewards[0].__name__
        'crg'
    """

    def __init__(self, metrics: Sequence[Reward] = (), **options: Any) -> None:
        super().__init__(metrics, **options)
        self.recorder = RewardRecorder(self.session.columns)

    def record(self, rewards: Sequence[Callable[..., Any]]) -> list[Any]:
        """Wrap the reward functions of the run; pass the result to the trainer.

        Args:
            rewards: All reward functions of the run, in the order of ``reward_weights``.
        """
        return self.recorder.wrap(rewards)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Restore the watch from the checkpoint that training resumes from, if any."""
        if not self.recorder.names:
            raise ValueError("no reward function is recorded; give the trainer reward_funcs=callback.record(rewards)")
        if state.global_step:
            self.session.load_state(resumed_checkpoint(args, state))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Start recording the calls of the reward functions."""
        self.recorder.active = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Count the recorded calls; every process runs this hook after each step."""
        self.recorder.active = False
        batch = self.recorder.take()
        if batch.completions:
            weights = getattr(args, "reward_weights", None) or [1.0] * len(self.recorder.names)
            self.session.observe(
                batch.completions,
                batch.columns,
                step=state.global_step,
                rewards=batch.rewards,
                weights=dict(zip(self.recorder.names, weights, strict=True)),
                judge_failures=batch.judge_failures,
            )
        if self.session.end_step(state.global_step):
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the state of the watch to the checkpoint."""
        if state.is_world_process_zero:
            self.session.save_state(checkpoint_folder(args, state))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the page."""
        self.session.write()
