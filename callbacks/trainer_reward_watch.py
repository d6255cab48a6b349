"""A watch for reward hacking in the trainers of TRL."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.rewards.base import Reward
from rrg_rewards.utilities.imports import require
from rrg_rewards.watch import RewardRecorder, RewardWatch, WatchSession

# Before the modules that import it by name: where it is missing, this says which extra installs it.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

__all__ = ["TrainerRewardWatchCallback"]


class TrainerRewardWatchCallback(TrainerCallback):  # type: ignore[misc]  # transformers is an optional dependency
    """Watches what a policy learns to exploit, in a trainer that takes ``reward_funcs``.

    The twin of :class:`rrg_rewards.callbacks.RewardWatchCallback` for TRL's trainers, which show completions to reward
    functions alone: :meth:`record` wraps these, and what they are called with in a training step is counted when it
    ends. Evaluations are not. In a step no process waits for another because of it; at a step's end numbers are summed.

    Warnings are logged with their numbers, by the logger ``rrg_rewards.watch.core``. Each checkpoint gets what was
    seen, so that a resumed run goes on.

    Args:
        metrics: Held-out metrics as rewards, as ``make_reward`` gives them, fitted.
        stop: Which alarms stop the run: ``True`` for all, or names of checks.
        reference_column: Column of references in the data set.
        folder: Where the page, its plots and the history go; default: nowhere.
        metric_every: Score held-out metrics on every so many steps.
        watch: A watch of your own, which has its own ``stop``.
        options: Arguments of :class:`rrg_rewards.watch.RewardWatch` otherwise.

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

    def __init__(
        self,
        metrics: Sequence[Reward] = (),
        *,
        stop: bool | Collection[str] = False,
        reference_column: str = "reference",
        folder: str | Path | None = None,
        metric_every: int = 1,
        watch: RewardWatch | None = None,
        **options: Any,
    ) -> None:
        if watch is not None and (options or stop):
            raise ValueError("watch: give a watch, or stop and the options of one, not both")
        self.session = WatchSession(
            watch or RewardWatch(stop=stop, **options),
            metrics,
            reference_column=reference_column,
            metric_every=metric_every,
            folder=folder,
        )
        self.recorder = RewardRecorder(self.session.columns)

    @property
    def watch(self) -> RewardWatch:
        """The watch, with its alarms."""
        return self.session.watch

    def record(self, rewards: Sequence[Callable[..., Any]]) -> list[Any]:
        """Wrap the run's reward functions: give the trainer what this returns.

        Args:
            rewards: All reward functions of the run, in their order.
        """
        return self.recorder.wrap(rewards)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Go on from the checkpoint that training resumes from, if any."""
        if not self.recorder.names:
            raise ValueError("no reward function is recorded; give the trainer reward_funcs=callback.record(rewards)")
        if state.global_step:
            given = args.resume_from_checkpoint
            named = Path(given) if isinstance(given, str) and Path(given).is_dir() else None
            self.session.load_state(named or Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Note what rewards are called with from now on."""
        self.recorder.active = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Count what was noted; every process comes here after each step."""
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
        """Write what was seen into the checkpoint."""
        if state.is_world_process_zero:
            self.session.save_state(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the page."""
        self.session.write()
