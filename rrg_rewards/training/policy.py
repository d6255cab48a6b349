"""Reinforcement learning of any report generator with Lightning: GRPO, Dr. GRPO, RLOO, SCST and PPO."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rrg_rewards.functional import kl_estimate, policy_loss, value_loss
from rrg_rewards.functional.advantages import RewardScale
from rrg_rewards.functional.log_probs import KLEstimator
from rrg_rewards.training.algorithms import get_algorithm
from rrg_rewards.training.base import ScheduleName, learning_rate_factor, parameter_groups
from rrg_rewards.training.policy_sampling import SamplingModule
from rrg_rewards.training.policy_settings import (
    ReferenceName,
    check_generator,
    loss_options,
    make_reference,
    make_value_head,
)
from rrg_rewards.training.reward_set import RewardSet
from rrg_rewards.training.rollouts import Rollout
from rrg_rewards.utilities.processes import gather_objects

__all__ = ["PolicyModule"]


class PolicyModule(SamplingModule):
    r"""Trains a report generator by reinforcement learning.

    A *rollout*: for each row of a batch the generator samples ``num_generations`` completions, the reward functions
    score them, and the algorithm turns rewards into advantages. Then follow ``minibatches * epochs`` training steps,
    each on a part of the rollout, before the next one. One step is one ``training_step`` of Lightning under automatic
    optimisation, so that accumulation of gradients, clipping, mixed precision and the strategies are the trainer's.
    With more than one step a rollout, rows must come from :class:`~rrg_rewards.training.PolicyDataModule`.

    ========== ============================= =================================================== ===================
    algorithm  advantage                     loss                                                divergence
    ========== ============================= =================================================== ===================
    ``grpo``   against the group's mean,     clipped, mean of a sequence's tokens, then of       in the loss
               over its deviation            sequences
    ``dr_grpo`` against the group's mean     clipped, over the greatest length                   in the loss
    ``rloo``   against the others' mean      clipped on ratios of sequences                      off the reward
    ``scst``   against the greedy completion clipped, mean of tokens                             in the loss
    ``ppo``    GAE with a value head,        clipped, mean of tokens, and that of the values     off the reward,
               whitened                                                                          token by token
    ========== ============================= =================================================== ===================

    ``loss`` overrides what :func:`rrg_rewards.functional.policy_loss` is told: DAPO's loss, TRL's default, is GRPO with
    ``{"aggregation": "token_mean"}``, clip-higher adds ``"clip_high": 0.28``.

    A completion is unscorable where a reward function of a weight other than 0 gives ``None``: its advantage is 0, it
    takes no part in the baselines of others, and the share of such completions is logged.

    **Processes.** Each samples its own rows whole, so a group lies on one process; statistics, the scale ``"batch"``,
    whitening and token counts are over all. **Random numbers** of a step depend on the seed, its place in the run and
    the process alone, and what is left of a rollout, and what reward functions with a ``state_dict`` have learnt, goes
    into the checkpoint: a resumed run goes on as if it had never stopped.

    Logged, under TRL's names where it has one: ``reward``, ``reward_std``, ``rewards/<name>/mean``,
    ``rewards/<name>/std``, ``frac_reward_zero_std``, ``unscorable``, ``completions/mean_length``,
    ``completions/clipped_ratio``, what the reward functions log, and of each step ``loss``,
    ``clip_ratio/region_mean``, ``ratio``, ``entropy``, ``kl`` and ``value_loss`` where there are such.

    Validation writes greedily and returns what :class:`rrg_rewards.callbacks.ReportMetricsCallback` reads.

    Args:
        generator: A module with the methods of :class:`~rrg_rewards.training.ReportGenerator`.
        rewards: Reward functions in TRL's contract, as ``make_reward`` gives them, fitted; one or several.
        weights: Their weights; default: 1 each.
        algorithm: ``grpo``, ``dr_grpo``, ``rloo``, ``scst`` or ``ppo``.
        num_generations: Completions of a row; at least 2 for ``grpo``, ``dr_grpo`` and ``rloo``.
        minibatches: Parts that a rollout is cut into, each one training step; they must be of the same size.
        epochs: How often the steps go through a rollout.
        beta: What a nat of divergence from the reference costs; 0 for no reference.
        reference: ``"copy"``, the generator as it is given, frozen; ``"adapter_off"``, the generator with its LoRA
            adapters off, which costs no memory but is the base model, also where the adapters were trained before; or
            ``"auto"``, the latter where there are adapters.
        kl_estimator: How the divergence in the loss, and in the logs, is estimated.
        kl_correction: Whether the divergence in the loss is weighed by the ratio of a token's probabilities now and
            in sampling: the gradient of ``k3`` is then that of the divergence itself (DeepSeek-V3.2; TRL's default).
        scale: What advantages of ``grpo`` and ``dr_grpo`` are divided by; default: as the algorithm has it.
        loss: Options of :func:`rrg_rewards.functional.policy_loss` in place of the algorithm's.
        gamma: Discount of ``ppo``.
        lam: :math:`\lambda` of ``ppo``'s advantages.
        value_weight: Weight of ``ppo``'s value loss.
        value_clip: Clipping of ``ppo``'s value loss, or ``None``.
        learning_rate: Highest learning rate of the schedule.
        weight_decay: Decay of weights; biases and norms have none.
        warmup_ratio: Share of the steps over which the learning rate rises.
        schedule: ``linear``, ``cosine`` or ``constant``.
        train_mode: Whether the generator is in training mode in training steps: with dropout, whose noise looks like
            a change of the policy, and with gradient checkpointing, which Hugging Face models do in this mode only.
            Otherwise it is in evaluation mode all the time.
        reference_column: Column of reference reports, which validation returns.
        seed: Seed of sampling, of minibatches and of the value head.

    Raises:
        TypeError: If the generator is no module or lacks a method, or a reward is no function.
        ValueError: If a setting is unknown or out of range, or one that an algorithm needs is missing; in training, if
            a batch cannot be cut into minibatches or its columns differ in length.

    Example:
        >>> import torch
        >>> from rrg_rewards.rewards import make_reward
        >>> from rrg_rewards.training import Completions, PolicyModule, TokenScores
        >>> class OneWord(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.logits = torch.nn.Parameter(torch.zeros(2))
        ...     def sample(self, batch, *, greedy=False):
        ...         words = self.logits.softmax(0).multinomial(len(batch["report"]), replacement=True)
        ...         return Completions(words.unsqueeze(1), torch.ones(len(words), 1))
        ...     def log_probs(self, batch, completions):
        ...         return TokenScores.from_logits(self.logits.expand(len(completions), 1, 2), completions)
        ...     def decode(self, completions):
        ...         return [("Normal.", "Cardiomegaly.")[word] for word in completions.tokens[:, 0]]
        >>> reward = make_reward("crg", prior=0.2, reference_column="report")
        >>> PolicyModule(OneWord(), reward, algorithm="rloo", minibatches=2, epochs=2).steps_per_rollout
        4
    """

    def __init__(
        self,
        generator: nn.Module,
        rewards: Callable[..., Any] | Sequence[Callable[..., Any]],
        *,
        weights: Sequence[float] | None = None,
        algorithm: str = "grpo",
        num_generations: int = 8,
        minibatches: int = 1,
        epochs: int = 1,
        beta: float = 0.0,
        reference: ReferenceName = "auto",
        kl_estimator: KLEstimator = "k3",
        kl_correction: bool = True,
        scale: RewardScale | None = None,
        loss: Mapping[str, Any] | None = None,
        gamma: float = 1.0,
        lam: float = 0.95,
        value_weight: float = 0.1,
        value_clip: float | None = 0.2,
        learning_rate: float = 1e-6,
        weight_decay: float = 0.0,
        warmup_ratio: float = 0.0,
        schedule: ScheduleName = "constant",
        train_mode: bool = False,
        reference_column: str = "reference",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_generator(generator)
        self.algorithm = get_algorithm(algorithm)
        least = 2 if self.algorithm.baseline in ("group", "leave_one_out") else 1
        for name, value, lowest in (
            ("num_generations", num_generations, least),
            ("minibatches", minibatches, 1),
            ("epochs", epochs, 1),
            ("beta", beta, 0),
            ("weight_decay", weight_decay, 0),
            ("value_weight", value_weight, 0),
        ):
            if not value >= lowest:
                raise ValueError(f"{name} must be at least {lowest} for {algorithm}, got {value}")
        if not learning_rate > 0 or not 0 <= warmup_ratio < 1:
            raise ValueError(
                f"learning_rate must be positive and warmup_ratio lie in [0, 1), got {learning_rate} and {warmup_ratio}"
            )
        self.generator = generator
        self.rewards = RewardSet(rewards, weights)
        self.num_generations = num_generations
        self.minibatches = minibatches
        self.epochs = epochs
        self.beta = beta
        self.kl_estimator = kl_estimator
        self.kl_correction = kl_correction
        self.scale: RewardScale = scale or self.algorithm.scale
        self.loss_options = loss_options({**self.algorithm.loss, **(loss or {})}, generator)
        self.gamma, self.lam = gamma, lam
        self.value_weight, self.value_clip = value_weight, value_clip
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.warmup_ratio, self.schedule = warmup_ratio, schedule
        self.train_mode = train_mode
        self.reference_column = reference_column
        self.seed = seed
        self.reference = make_reference(generator, reference) if beta else None
        self.value_head = make_value_head(generator, seed) if self.algorithm.baseline == "value" else None
        self.rollout: Rollout | None = None

    def on_train_start(self) -> None:
        """Put the generator into the mode it is trained in, and what is left of a resumed rollout on the device."""
        self.set_mode()
        if self.rollout is not None:
            self.rollout = self.rollout.to(self.device)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Draw the step's random numbers anew; write and reward completions where the last rollout is used up."""
        torch.manual_seed(hash((self.seed, self.current_epoch, batch_idx, self.global_rank)) % 2**63)
        if batch_idx % self.steps_per_rollout == 0:
            if not batch:
                raise ValueError(
                    f"the loader gave no rows for step {batch_idx}, at which a rollout begins; its steps per rollout "
                    f"differ from the module's {self.steps_per_rollout}"
                )
            self.rollout = self.roll_out(batch)
        elif batch or self.rollout is None:
            raise ValueError(
                f"step {batch_idx} belongs to the rollout before, but the loader gave new rows for it: with "
                f"minibatches * epochs = {self.steps_per_rollout} the rows must come from PolicyDataModule"
            )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """The loss on the rollout's next part."""
        assert self.rollout is not None
        epoch, place = divmod(batch_idx % self.steps_per_rollout, self.minibatches)
        part = self.rollout if self.minibatches == 1 else self.rollout.rows(self._minibatch(batch_idx, epoch, place))
        scores = self.generator.log_probs(part.batch, part.completions)
        old = scores.log_probs.detach() if part.old_log_probs is None else part.old_log_probs
        kl = None
        if part.reference_log_probs is not None:
            kl = kl_estimate(scores.log_probs, part.reference_log_probs, self.kl_estimator)
        in_loss = kl is not None and not self.algorithm.penalize_reward
        paid = kl
        if kl is not None and self.kl_correction:
            paid = kl * (scores.log_probs - old).exp()
        options = dict(self.loss_options)
        if options.get("aggregation") == "token_mean":
            options.setdefault("normalizer", part.tokens_per_step)
        policy = policy_loss(
            scores.log_probs,
            old,
            part.advantages,
            part.mask,
            kl=paid if in_loss else None,
            beta=self.beta if in_loss else 0.0,
            **options,
        )
        loss = policy.loss
        steps = {"clip_ratio/region_mean": policy.clipped, "ratio": policy.mean_ratio}
        if self.value_head is not None:
            assert part.values is not None
            assert part.returns is not None
            values = self.predict_values(scores)
            error = value_loss(values, part.values, part.returns, part.mask, clip=self.value_clip)
            # Weighed by tokens, as the policy's loss is: processes differ in them.
            error = error * part.mask.sum() / part.tokens_per_step
            loss = loss + self.value_weight * error
            steps["value_loss"] = error.detach()
        for name, tokens in {"entropy": scores.entropies, "kl": kl}.items():
            if tokens is not None:
                steps[name] = _masked_mean(tokens.detach(), part.mask)
        self._log_step({"loss": loss.detach(), **steps})
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # noqa: ARG002 (Lightning's)
        """Greedy reports of a batch, with its references and further columns."""
        texts = self.generator.decode(self.generator.sample(batch, greedy=True))
        columns = {name: column for name, column in batch.items() if not isinstance(column, Tensor) or column.ndim < 3}
        reference = {"reference": batch[self.reference_column]} if self.reference_column in batch else {}
        return {**columns, "prediction": list(texts), **reference}

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW under the schedule, which advances with each step."""
        optimizer = AdamW(parameter_groups(self, self.weight_decay), lr=self.learning_rate)
        total = int(self.trainer.estimated_stepping_batches) if self.schedule != "constant" or self.warmup_ratio else 0
        warmup = math.ceil(total * self.warmup_ratio)
        scheduler = LambdaLR(optimizer, lambda step: learning_rate_factor(step, warmup, total, self.schedule))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is left of each process' rollout, and what its rewards have learnt."""
        begun = self.rollout is not None and self.steps_per_rollout > 1
        own = {"rollout": self.rollout.state_dict() if begun and self.rollout else None}
        checkpoint["policy"] = gather_objects({**own, "rewards": self.rewards.state_dict()})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take them up again; each process its own."""
        if self.trainer.state.fn != TrainerFn.FITTING:
            return
        states = checkpoint["policy"]
        if len(states) != self.trainer.world_size:
            raise ValueError(
                f"the checkpoint is of {len(states)} processes and cannot be resumed with {self.trainer.world_size}; "
                "start as many"
            )
        state = states[self.global_rank]
        self.rewards.load_state_dict(state["rewards"])
        self.rollout = None if state["rollout"] is None else Rollout.from_state_dict(state["rollout"])

    def _minibatch(self, batch_idx: int, epoch: int, place: int) -> Tensor:
        """Rows of one part; each pass over the rollout shuffles anew."""
        assert self.rollout is not None
        first = batch_idx - batch_idx % self.steps_per_rollout
        generator = torch.Generator().manual_seed(
            hash((self.seed, self.current_epoch, first, epoch, self.global_rank)) % 2**63
        )
        return torch.randperm(len(self.rollout), generator=generator).chunk(self.minibatches)[place]

    def _log_step(self, steps: Mapping[str, Tensor]) -> None:
        assert self.rollout is not None
        several = self.trainer.world_size > 1
        for name, value in steps.items():
            self.log(name, value, sync_dist=several, batch_size=1, prog_bar=name == "kl")
        # At every step of it: a logger that looks at some steps only misses none.
        for name, number in self.rollout.statistics.items():
            self.log(name, number, batch_size=1, prog_bar=name in ("reward", "completions/mean_length"))


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(mask == 0, 0.0).sum() / mask.sum().clamp(min=1)
