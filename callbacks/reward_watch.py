"""A watch for reward hacking in Lightning."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rrg_rewards.rewards.base import Completion, Reward
from rrg_rewards.utilities.imports import require
from rrg_rewards.watch import RewardWatch, WatchSession

# Before the modules that import it by name: where it is missing, this says which extra installs it.
require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402

__all__ = ["RewardWatchCallback"]

_FAILED = "/failed"


class RewardWatchCallback(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Watches what a policy learns to exploit, in reinforcement learning with Lightning.

    It takes completions from whichever of these the module has:

    - what ``training_step`` returns: a dict with ``prediction`` (completions), ``reference`` and ``rewards`` (values by
      name), beside the loss; and ``judge_failures`` (numbers by name), if there are any. Further columns go to the
      held-out metrics;
    - the attribute ``rollout`` that a policy module sets when it has written anew, with ``texts``, ``batch`` (columns)
      and ``rewards`` ``(N, F)``, whose names are ``module.rewards.names``: each rollout is counted once;
    - :meth:`observe`, called by the module or by anybody.

    After each batch numbers are summed over processes, so that all stop at the same step. Warnings are logged with
    their numbers, by the logger ``rrg_rewards.watch.core``; ``reward_watch/alarms`` is the number of causes so far.
    Checkpoints hold what was seen, so that a resumed run goes on.

    Args:
        metrics: Held-out metrics as rewards, as ``make_reward`` gives them, fitted.
        stop: Which alarms stop the run: ``True`` for all, or names of checks.
        reference_column: Name of the column of references.
        prediction_key: Key of the completions in what ``training_step`` returns.
        folder: Where the page, its plots and the history go; default: nowhere.
        metric_every: Score held-out metrics on every so many steps.
        watch: A watch of your own, which has its own ``stop``.
        options: Arguments of :class:`rrg_rewards.watch.RewardWatch` otherwise.

    Raises:
        ValueError: If both a watch and its options are given; at the end of training, if nothing was observed.

    Example:
        >>> from rrg_rewards.callbacks import RewardWatchCallback
        >>> callback = RewardWatchCallback(stop=["divergence"], block_reports=32)
        >>> callback.observe(["Clear lungs."], {"reference": ["Clear lungs."]}, rewards={"bleu": [1.0]})
        >>> callback.watch.alarms
        []
    """

    def __init__(
        self,
        metrics: Sequence[Reward] = (),
        *,
        stop: bool | Collection[str] = False,
        reference_column: str = "reference",
        prediction_key: str = "prediction",
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
        self.prediction_key = prediction_key
        self._step = 0
        self._rollout: Any = None

    @property
    def watch(self) -> RewardWatch:
        """The watch, with its alarms."""
        return self.session.watch

    def observe(
        self,
        completions: Sequence[Completion],
        columns: Mapping[str, Sequence[Any]],
        *,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        weights: Mapping[str, float] | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Count completions of this process, from wherever they are written.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column: the references, and what held-out metrics read.
            rewards: ``N`` rewards by name, ``None`` where a completion is unscorable.
            weights: Weights of the rewards, where they differ.
            judge_failures: On how many completions the judge of a reward failed, by name.
        """
        self.session.observe(
            completions, columns, step=self._step, rewards=rewards, weights=weights, judge_failures=judge_failures
        )

    def on_train_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Remember the rollout there is, which was counted."""
        self._step = trainer.global_step
        self._rollout = getattr(pl_module, "rollout", None)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Count what the batch brought; every process comes here after each."""
        rollout = getattr(pl_module, "rollout", None)
        if isinstance(outputs, Mapping) and self.prediction_key in outputs:
            self._observe_outputs(outputs)
        elif rollout is not None and rollout is not self._rollout:
            self._observe_rollout(pl_module, rollout)
        self._rollout = None
        if self.session.end_step(trainer.global_step):
            trainer.should_stop = True
        pl_module.log("reward_watch/alarms", float(len(self.watch.causes)), batch_size=1, rank_zero_only=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Write the page."""
        if not self.watch.seen:
            raise ValueError(
                "the watch has seen no completions: return them from training_step as a dict with "
                f"{self.prediction_key!r}, {self.session.reference_column!r} and 'rewards', or call observe(...)"
            )
        self.session.write()

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return self.watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.watch.load_state_dict(state_dict)

    def _observe_outputs(self, outputs: Mapping[str, Any]) -> None:
        own = {self.prediction_key, "loss", "rewards", "judge_failures"}
        columns = {name: _listed(column) for name, column in outputs.items() if name not in own}
        rewards = {name: _listed(values) for name, values in (outputs.get("rewards") or {}).items()}
        self.observe(
            outputs[self.prediction_key], columns, rewards=rewards, judge_failures=outputs.get("judge_failures")
        )

    def _observe_rollout(self, pl_module: Any, rollout: Any) -> None:
        names = pl_module.rewards.names
        rewards = dict(zip(names, rollout.rewards.double().unbind(1), strict=True))
        # Shares over all processes: each adds its part of them.
        failed = {
            name.removesuffix(_FAILED): share * len(rollout.texts)
            for name, share in rollout.statistics.items()
            if name.endswith(_FAILED)
        }
        self.observe(
            rollout.texts,
            {name: _listed(column) for name, column in rollout.batch.items()},
            rewards={name: _listed(values) for name, values in rewards.items()},
            weights=dict(zip(names, pl_module.rewards.weights, strict=True)),
            judge_failures=failed,
        )


def _listed(values: Any) -> Any:
    """Tensors as lists; what is no column stays as it is, and nobody reads it."""
    return values.tolist() if isinstance(values, Tensor) and values.ndim <= 2 else values
