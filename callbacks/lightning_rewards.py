"""Lightning callback of rewards: the detection of reward hacking."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rrg_rewards.callbacks.base import WatchCallback
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.completions import Completion
from rrg_rewards.utilities.imports import require
from rrg_rewards.watch.recording import failure_shares

# Check first: the error message names the extra that installs Lightning.
require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402


class RewardWatchCallback(WatchCallback, Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Watches a policy for reward hacking, in reinforcement learning with Lightning.

    The callback reads completions from the first of these sources that the module provides:

    - the output of ``training_step``: a dict with the loss, ``prediction`` (completions), ``reference``, ``rewards``
      (values by name) and optionally ``judge_failures`` (numbers by name). Held-out metrics read its other columns;
    - the attribute ``rollout``, which a policy module replaces when it samples new completions. It has the attributes
      ``texts``, ``batch`` (columns) and ``rewards`` ``(N, F)``; the names of the rewards are ``module.rewards.names``.
      Each rollout is counted once;
    - calls of :meth:`observe`.

    After each batch, counts are summed over processes, so all processes stop at the same step. Warnings are logged by
    the logger ``rrg_rewards.watch``. The logged value ``reward_watch/alarms`` is the number of causes that have
    raised an alarm. Checkpoints contain the state of the watch, from which a resumed run continues.

    Args:
        metrics: Held-out metrics as rewards, such as ``make_reward("rouge")``. Rewards that need a fit must be fitted.
        options: The following options, and further arguments of :class:`rrg_rewards.watch.RewardWatch`.

            - ``stop``: Names of the checks whose alarms stop the run, or ``True`` for all checks.
            - ``reference_column``: Name of the column of references. Default: ``"reference"``.
            - ``folder``: Folder for the page, its plots and the history. Default: nothing is written.
            - ``metric_every``: Number of steps from one evaluation of the held-out metrics to the next. Default: 1.
            - ``watch``: A :class:`rrg_rewards.watch.RewardWatch`, which replaces ``stop`` and the arguments of a watch.

    Raises:
        ValueError: If both a watch and its options are given; at the end of training, if nothing was observed.

    Example:
        >>> from rrg_rewards.callbacks import RewardWatchCallback
        >>> callback = RewardWatchCallback(stop=["divergence"], block_reports=32)
        >>> callback.observe(["Clear lungs."], {"reference": ["Clear lungs."]}, rewards={"bleu": [1.0]})
        >>> callback.watch.alarms
        []
    """

    def __init__(self, metrics: Sequence[Reward] = (), **options: Any) -> None:
        super().__init__(metrics, **options)
        self._step = 0
        self._rollout: Any = None

    def observe(
        self,
        completions: Sequence[Completion],
        columns: Mapping[str, Sequence[Any]],
        *,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        weights: Mapping[str, float] | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Count completions of this process.

        Args:
            completions: ``N`` completions, texts or lists of messages.
            columns: ``N`` values of each column: the references, and the columns that held-out metrics read.
            rewards: ``N`` rewards by name; ``None`` for unscorable completions.
            weights: Weights of the rewards. Default: 1 each.
            judge_failures: Number of completions for which the judge failed, by name of the reward.
        """
        self.observe_step(
            completions, columns, step=self._step, rewards=rewards, weights=weights, judge_failures=judge_failures
        )

    def on_train_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Store the current rollout, which is already counted."""
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
        """Count the completions of the batch; every process runs this hook after each batch."""
        rollout = getattr(pl_module, "rollout", None)
        if isinstance(outputs, Mapping) and "prediction" in outputs:
            self._observe_outputs(outputs)
        elif rollout is not None and rollout is not self._rollout:
            self._observe_rollout(pl_module, rollout)
        self._rollout = None
        if self.end_step(trainer.global_step):
            trainer.should_stop = True
        pl_module.log("reward_watch/alarms", float(len(self.watch.causes)), batch_size=1, rank_zero_only=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Write the page."""
        if not self.watch.seen:
            raise ValueError(
                "the watch has seen no completions: return them from training_step as a dict with "
                f"'prediction', {self.reference_column!r} and 'rewards', or call observe(...)"
            )
        self.write()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the watch."""
        return self.watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the watch from a checkpoint."""
        self.watch.load_state_dict(state_dict)

    def _observe_outputs(self, outputs: Mapping[str, Any]) -> None:
        own = {"prediction", "loss", "rewards", "judge_failures"}
        columns = {name: _listed(column) for name, column in outputs.items() if name not in own}
        rewards = {name: _listed(values) for name, values in (outputs.get("rewards") or {}).items()}
        self.observe(outputs["prediction"], columns, rewards=rewards, judge_failures=outputs.get("judge_failures"))

    def _observe_rollout(self, pl_module: Any, rollout: Any) -> None:
        names = pl_module.rewards.names
        rewards = dict(zip(names, rollout.rewards.double().unbind(1), strict=True))
        # The statistics are fractions over all processes. Each process adds its share.
        failed = {name: share * len(rollout.texts) for name, share in failure_shares(rollout.statistics).items()}
        keys = {"prompts": "prompt", **{name: name for name in self.columns}}
        self.observe(
            rollout.texts,
            {name: _listed(rollout.batch[key]) for name, key in keys.items() if key in rollout.batch},
            rewards={name: _listed(values) for name, values in rewards.items()},
            weights=dict(zip(names, rollout.weights, strict=True)),
            judge_failures=failed,
        )


def _listed(values: Any) -> Any:
    """Return a tensor of at most two axes as a list; other values unchanged."""
    return values.tolist() if isinstance(values, Tensor) and values.ndim <= 2 else values
