"""Callbacks for the trainers of transformers and TRL: reward hacking and vLLM's cache."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rrg_rewards.callbacks.base import WatchCallback
from rrg_rewards.rewards.base import Reward
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import process_index
from rrg_rewards.watch.recording import RewardRecorder

# Check first: the error message names the extra that installs transformers.
require("transformers", extra="trl")

from transformers import TrainerCallback  # noqa: E402

logger = logging.getLogger(__name__)

# Arguments of TRL's trainers that sum rewards and have no other aggregation.
_SUMMING = {"RLOOConfig", "AsyncGRPOConfig"}


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
        >>> callback = TrainerRewardWatchCallback([make_reward("rouge")], stop=["divergence", "longer"])
        >>> rewards = callback.record([make_reward("crg", prior=0.2)])
        >>> # GRPOTrainer(..., reward_funcs=rewards, callbacks=[callback])
        >>> rewards[0].__name__
        'crg'
    """

    def __init__(self, metrics: Sequence[Reward] = (), **options: Any) -> None:
        super().__init__(metrics, **options)
        self.recorder = RewardRecorder([*self.columns, "prompts"])

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
        warn_of_sums(args, self.recorder.names)
        if state.global_step:
            self.load_state(_resumed_checkpoint(args, state))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Start recording the calls of the reward functions."""
        self.recorder.active = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Count the recorded calls; every process runs this hook after each step."""
        self.recorder.active = False
        batch = self.recorder.take()
        if batch.completions:
            weights = getattr(args, "reward_weights", None) or [1.0] * len(self.recorder.names)
            self.observe_step(
                batch.completions,
                batch.columns,
                step=state.global_step,
                rewards=batch.rewards,
                weights=dict(zip(self.recorder.names, weights, strict=True)),
                judge_failures=batch.judge_failures,
            )
        if self.end_step(state.global_step):
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the state of the watch to the checkpoint."""
        if state.is_world_process_zero:
            self.save_state(_checkpoint_folder(args, state))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the page."""
        self.write()


class ResetVLLMEncoderCache(TrainerCallback):  # type: ignore[misc]  # transformers is optional
    """Resets vLLM's encoder cache whenever a TRL trainer pushes weights to the engine.

    vLLM keeps the outputs of the vision encoder and the projector by image until it needs their place. TRL resets only
    the prefix cache when it pushes new weights. If the vision part of the model is trained and an image recurs, vLLM
    therefore samples with outputs of earlier weights: the samples no longer follow the trained policy, and nothing
    warns. This callback resets the cache after each push, also before evaluations. It is not needed if the vision part
    is frozen.

    The multi-modal cache is not reset, because it contains the inputs of the encoder, which do not depend on weights.

    The recipes add the callback if ``use_vllm`` is set. In server mode, the main process calls the server's
    ``/reset_encoder_cache``, which exists if the server was started with ``VLLM_SERVER_DEV_MODE=1``, as TRL requires.

    Args:
        trainer: A trainer that generates with vLLM: ``GRPOTrainer`` or ``RLOOTrainer`` with ``use_vllm=True``, or
            another trainer with the attribute ``vllm_generation``.

    Raises:
        ValueError: If the trainer does not generate with vLLM.

    Example:
        >>> from types import SimpleNamespace
        >>> from rrg_rewards.callbacks import ResetVLLMEncoderCache
        >>> # trainer = GRPOTrainer(..., args=GRPOConfig(use_vllm=True, vllm_mode="colocate"))
        >>> trainer = SimpleNamespace(vllm_generation=SimpleNamespace(mode="colocate"))
        >>> callback = ResetVLLMEncoderCache(trainer)
        >>> # trainer.add_callback(callback)
    """

    def __init__(self, trainer: Any) -> None:
        if getattr(trainer, "vllm_generation", None) is None:
            raise ValueError(
                f"{type(trainer).__name__} does not generate with vLLM; set use_vllm=True in its arguments"
            )
        self._generation = trainer.vllm_generation

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Reset the cache after each push of weights from now on."""
        push = self._generation.sync_weights
        # A trainer can train several times.
        if not (isinstance(push, partial) and push.func is _push_and_reset):
            self._generation.sync_weights = partial(_push_and_reset, push, self._generation)


def _push_and_reset(push: Callable[[], None], generation: Any) -> None:
    push()
    if generation.mode == "colocate":
        generation.llm.llm_engine.reset_encoder_cache()
    elif generation.accelerator.is_main_process:
        _reset_on_server(generation.vllm_client)


def _reset_on_server(client: Any) -> None:
    url = f"{client.base_url}/reset_encoder_cache"
    response = client.session.post(url)
    if response.status_code != 200:
        raise RuntimeError(
            f"{url} answered {response.status_code}; start the server with VLLM_SERVER_DEV_MODE=1 and a version of "
            "vLLM that has this endpoint, or freeze the vision part of the model and remove ResetVLLMEncoderCache"
        )


def warn_of_sums(args: Any, names: Sequence[str]) -> None:
    """Warn if the trainer counts a missing reward as 0, and has no other setting."""
    summing = _SUMMING.intersection(cls.__name__ for cls in type(args).__mro__)
    if len(names) > 1 and summing and process_index() == 0:
        logger.warning(
            "the trainer of %s sums the rewards %s, and counts one that is missing (None) as 0, although it was not "
            "scored; give it one composed reward of them: make_reward('composed', parts=[...])",
            min(summing),
            ", ".join(names),
        )


def _checkpoint_folder(args: Any, state: Any) -> Path:
    """Return the folder of the checkpoint that a transformers trainer writes at the current step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _resumed_checkpoint(args: Any, state: Any) -> Path:
    """Return the folder of the checkpoint that a transformers trainer resumes from."""
    given = args.resume_from_checkpoint
    return Path(given) if isinstance(given, str) and Path(given).is_dir() else _checkpoint_folder(args, state)
