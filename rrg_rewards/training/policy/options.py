"""Options of reinforcement learning: algorithms by name, and the settings of a policy module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from rrg_rewards.functional import policy_loss
from rrg_rewards.functional.log_probs import KLEstimator
from rrg_rewards.functional.policy_losses import ImportanceMode
from rrg_rewards.rewards.deadline import REWARD_TIMEOUT, check_reward_timeout
from rrg_rewards.rewards.unrewarded import MAX_UNREWARDED_CALLS
from rrg_rewards.training.base import OptimizerSettings, ScheduleName
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError, setting

Baseline = Literal["group", "leave_one_out", "greedy", "value"]
Scale = Literal["group", "batch", "none", "gdpo"]
ReferenceName = Literal["auto", "copy", "adapter_off"]


@dataclass(frozen=True)
class Algorithm:
    """Baseline, loss and use of the divergence of an algorithm.

    Args:
        baseline: Value that is subtracted from a reward: the mean of the group, the mean of the other rewards in the
            group, the reward of the greedy completion, or the prediction of a value head.
        scale: Divisor of the advantages of a group.
        penalize_reward: Whether the divergence from the reference is subtracted from the reward. Otherwise it is
            added to the loss.
        loss: Options of :func:`rrg_rewards.functional.policy_loss`.
    """

    baseline: Baseline
    scale: Scale = "none"
    penalize_reward: bool = False
    loss: Mapping[str, Any] = field(default_factory=dict)


ALGORITHMS: Mapping[str, Algorithm] = {
    "grpo": Algorithm("group", scale="group"),
    "dr_grpo": Algorithm("group", loss={"aggregation": "constant"}),
    "rloo": Algorithm("leave_one_out", penalize_reward=True, loss={"level": "sequence_product"}),
    "scst": Algorithm("greedy", loss={"aggregation": "token_mean"}),
    "ppo": Algorithm("value", penalize_reward=True, loss={"aggregation": "token_mean"}),
}


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(OptimizerSettings):
    r"""Options of :class:`~rrg_rewards.training.PolicyModule`, which takes each by its name.

    Args:
        algorithm: ``grpo``, ``dr_grpo``, ``rloo``, ``scst`` or ``ppo``.
        num_generations: Number of completions per row; at least 2 for ``grpo``, ``dr_grpo`` and ``rloo``.
        minibatches: Number of minibatches into which a rollout is divided. All have the same size.
        epochs: Number of passes over a rollout.
        scale: Divisor of the advantages of ``grpo`` and ``dr_grpo``: the deviation of the ``"group"``, of the
            ``"batch"``, or ``"none"``. ``"gdpo"`` normalises each reward in its group, then their weighted sum over the
            batch (:func:`rrg_rewards.functional.decoupled_advantages`). Default: that of the algorithm.
        mask_truncated: Whether completions without an end-of-sequence token are left out of the loss, as proposed for
            DAPO. Their rewards count in the baselines of others; with ``rloo``, without their divergence, as in TRL.
        max_draws: Greatest number of times that the completions of a row are drawn until their rewards differ (dynamic
            sampling, DAPO). Rows whose rewards are still equal are left out of the loss and of the deviation of the
            batch. ``None``: each is drawn once and is in both, with advantages of 0. Only for ``grpo``, ``dr_grpo`` and
            ``rloo``.
        loss: Options of :func:`rrg_rewards.functional.policy_loss` that replace those of the algorithm.
        beta: Weight of the divergence from the reference policy; 0 for no reference policy.
        reference: The reference policy. ``"copy"`` is a frozen copy of the given generator. ``"adapter_off"`` is the
            generator with disabled LoRA adapters. It needs no memory, but is the base model even if the given adapters
            are trained. ``"auto"`` is ``"adapter_off"`` for a generator with adapters, otherwise ``"copy"``.
        kl_estimator: Estimator of the divergence in the loss and in the logs.
        kl_correction: Whether to weight the divergence in the loss by the ratio of a token's current probability to its
            probability in sampling. The gradient of ``k3`` is then that of the divergence (DeepSeek-V3.2; TRL's
            default).
        sampler_correction: Correction of the loss for completions with log-probabilities of their sampler
            (:class:`~rrg_rewards.training.VLLMGenerator`): a mode of
            :func:`rrg_rewards.functional.importance_weights`, or ``None``.
        sampler_clip_max: Upper bound of the ratios of trainer and sampler, or ``None``.
        gamma: Discount of ``ppo``.
        lam: :math:`\lambda` of the generalised advantage estimation of ``ppo``.
        value_weight: Weight of the value loss of ``ppo``.
        learning_rate: Highest learning rate of the schedule.
        weight_decay: Weight decay. Biases and norms are not decayed.
        warmup_ratio: Fraction of the steps in which the learning rate rises.
        schedule: ``linear``, ``cosine`` or ``constant``.
        train_mode: Whether the generator is in training mode in training steps. Training mode enables dropout, whose
            noise changes the probability ratios. Hugging Face models also require it for gradient checkpointing. By
            default, the generator is always in evaluation mode.
        micro_batch_tokens: Greatest number of tokens, with padding, whose activations a training step keeps in memory.
            A step computes the gradients of such parts of a minibatch one after the other. The gradient is the same, up
            to rounding. Parts consist of whole groups. ``"auto"`` is 4,096 on the CPU, where this takes no more time,
            and ``None``, the whole minibatch, on other devices, and with FSDP, DeepSpeed, ``train_mode`` and a gradient
            scaler, with which steps cannot be divided.
        reference_column: Column of the reference reports, which validation returns.
        max_unrewarded_calls: Number of rollouts in a row in which no completion of any process has a reward, after
            which the run ends with :class:`~rrg_rewards.rewards.unrewarded.NoRewardError`; ``None`` for no limit.
        reward_timeout: Seconds after which a run ends with :class:`~rrg_rewards.rewards.deadline.RewardTimeoutError` if
            the rewards of a rollout are missing in a process; ``None`` for no limit. Only in the main thread, and not
            on Windows.
        seed: Seed of sampling, minibatches and the value head.

    Raises:
        TypeError: If an option is unknown.
        ValueError: If a value is invalid, or has no effect with the algorithm.

    Example:
        >>> PolicyOptions(algorithm="rloo", scale="group")
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: scale: only grpo and dr_grpo divide advantages, not rloo
    """

    algorithm: str = "grpo"
    num_generations: int = setting(8, minimum=1)
    minibatches: int = setting(1, minimum=1)
    epochs: int = setting(1, minimum=1)
    scale: Scale | None = setting(None)
    mask_truncated: bool = False
    max_draws: int | None = setting(None, minimum=1)
    loss: Mapping[str, Any] | None = None
    beta: float = setting(0.0, minimum=0)
    reference: ReferenceName = setting("auto")
    kl_estimator: KLEstimator = setting("k3")
    kl_correction: bool = True
    sampler_correction: ImportanceMode | None = setting("token_truncate")
    sampler_clip_max: float | None = setting(3.0, above=0)
    gamma: float = setting(1.0, minimum=0, maximum=1)
    lam: float = setting(0.95, minimum=0, maximum=1)
    value_weight: float = setting(0.1, minimum=0)
    learning_rate: float = setting(1e-6, above=0)
    weight_decay: float = setting(0.0, minimum=0)
    warmup_ratio: float = setting(0.0, minimum=0)
    schedule: ScheduleName = setting("constant")
    train_mode: bool = False
    micro_batch_tokens: int | Literal["auto"] | None = "auto"
    reference_column: str = "reference"
    max_unrewarded_calls: int | None = setting(MAX_UNREWARDED_CALLS, minimum=1)
    reward_timeout: float | None = REWARD_TIMEOUT
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm not in ALGORITHMS:
            raise ValueError(unknown_name_message("algorithm", self.algorithm, tuple(ALGORITHMS)))
        baseline = ALGORITHMS[self.algorithm].baseline
        if baseline in ("group", "leave_one_out") and self.num_generations < 2:
            raise SettingError("num_generations", f"must be at least 2 for {self.algorithm}, got 1")
        if baseline != "group" and self.scale is not None:
            raise SettingError("scale", f"only grpo and dr_grpo divide advantages, not {self.algorithm}")
        if baseline not in ("group", "leave_one_out") and self.max_draws is not None:
            raise SettingError("max_draws", f"{self.algorithm} does not compare the completions of a row")
        check_reward_timeout(self.reward_timeout)
        tokens = self.micro_batch_tokens
        if tokens not in (None, "auto") and (not isinstance(tokens, int) or tokens < 1):
            raise SettingError("micro_batch_tokens", f"must be at least 1, 'auto' or None, got {tokens!r}")
        if own := sorted({"kl", "beta", "token_weights"} & (self.loss or {}).keys()):
            raise SettingError("loss", f"must not contain {', '.join(own)}, which the module sets")
        # The loss checks its arguments. Call it now instead of at the first step.
        once = torch.ones(1, 1)
        policy_loss(once, once, once[0], once, **self.loss_options)

    @property
    def loss_options(self) -> dict[str, Any]:
        """Options of :func:`rrg_rewards.functional.policy_loss`: those of the algorithm, replaced by ``loss``."""
        return {**ALGORITHMS[self.algorithm].loss, **(self.loss or {})}
