"""Reinforcement learning of report generators with Lightning: GRPO, Dr. GRPO, RLOO, SCST and PPO."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rrg_rewards.functional import importance_weights, kl_estimate, policy_loss, value_loss
from rrg_rewards.functional.log_probs import bounded_exp
from rrg_rewards.rewards.unrewarded import UnrewardedCalls
from rrg_rewards.training.policy.adapters import has_adapters
from rrg_rewards.training.policy.options import ALGORITHMS, PolicyOptions
from rrg_rewards.training.policy.rewards import RewardSet, Weights
from rrg_rewards.training.policy.rollouts import Rollout
from rrg_rewards.training.policy.sampling import SamplingModule
from rrg_rewards.utilities.checkpoints import CheckpointError
from rrg_rewards.utilities.processes import gather_objects
from rrg_rewards.utilities.settings import SettingError

# Number of tokens of a part on the CPU. Larger parts take more memory, and are not faster.
_TOKENS_ON_CPU = 4096

_METHODS = ("sample", "log_probs", "decode")


class PolicyModule(SamplingModule):
    r"""Trains a report generator by reinforcement learning.

    Training alternates between rollouts and training steps. In a *rollout*, the generator samples ``num_generations``
    completions for each row of a batch, the reward functions score them, and the algorithm converts rewards to
    advantages. The rollout is followed by ``minibatches * epochs`` training steps, each on one minibatch. A step is one
    ``training_step`` with automatic optimisation, so the trainer's settings of gradient accumulation, clipping, mixed
    precision and strategy apply. With more than one step per rollout, rows must come from
    :class:`~rrg_rewards.training.PolicyDataModule`.

    ========== ============================= =================================================== ===================
    algorithm  advantage                     loss                                                divergence
    ========== ============================= =================================================== ===================
    ``grpo``   reward minus the group mean,  clipped, mean over the tokens of a sequence, then   in the loss
               over the group deviation      over sequences
    ``dr_grpo`` reward minus the group mean  clipped, divided by the maximum length              in the loss
    ``rloo``   reward minus the mean of the  clipped ratios of sequences                         subtracted from the
               other rewards in the group                                                        reward
    ``scst``   reward minus that of the      clipped, mean over tokens                           in the loss
               greedy completion
    ``ppo``    GAE with a value head,        clipped, mean over tokens, plus the value loss      subtracted from the
               whitened                                                                          reward of each token
    ========== ============================= =================================================== ===================

    ``loss`` overrides options of :func:`rrg_rewards.functional.policy_loss`. The DAPO loss, TRL's default, is ``grpo``
    with ``{"aggregation": "token_mean"}``. ``"clip_high": 0.28`` adds the asymmetric clipping of DAPO.

    A completion is unscorable if a reward function with a non-zero weight returns ``None``. Its advantage is 0, and it
    does not affect the baselines of other completions. The fraction of unscorable completions is logged. With
    ``scale="gdpo"``, a missing reward counts as the mean of its group.

    **Processes.** Each process samples complete groups for its own rows. Statistics, the scale ``"batch"``, whitening
    and token counts are computed over all processes.

    **Gradients.** A step whose gradients are not finite is skipped with a warning and counted as ``skipped_steps``; a
    run with ten such steps in a row ends (:class:`~rrg_rewards.training.base.GradientError`).

    **Resuming.** The random numbers of a step depend only on the seed, its position in the run and the process.
    Checkpoints contain the unused part of the rollout. A resumed run therefore repeats an uninterrupted run.

    **Logged values.** For each rollout, under TRL's names if TRL has one: ``reward``, ``reward_std``,
    ``rewards/<name>/mean``, ``rewards/<name>/std``, ``frac_reward_zero_std``, ``unscorable``,
    ``completions/mean_length``, ``completions/clipped_ratio`` and the values that reward functions log. For each step:
    ``loss``, ``clip_ratio/region_mean``, ``ratio``, and, if available, ``entropy``, ``kl``, ``value_loss``,
    ``sampling/sampling_logp_difference/mean`` and ``sampling/importance_sampling_ratio/mean``.

    Validation generates greedily and returns the columns that :class:`rrg_rewards.callbacks.ReportMetricsCallback`
    reads.

    Args:
        generator: A module with the methods of :class:`~rrg_rewards.training.ReportGenerator`.
        rewards: One or several fitted reward functions with TRL's signature, for example from ``make_reward``.
        weights: Weights of the reward functions, or a function that returns them for a number of completed optimiser
            steps, such as ``lambda step: [1.0, min(step / 100, 1.0)]``. Default: 1 each.
        options: Fields of :class:`~rrg_rewards.training.policy.options.PolicyOptions`, which are also attributes of the
            module.

    Raises:
        TypeError: If the generator is not a module or lacks a method, a reward is not a function, or an option is
            unknown.
        ValueError: If an option is invalid, or the generator lacks an attribute that the algorithm requires. In
            training, if a batch cannot be divided into minibatches or its columns differ in length.

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
        ...         return Completions(words.unsqueeze(1), torch.ones_like(words).unsqueeze(1))
        ...     def log_probs(self, batch, completions):
        ...         return TokenScores.from_logits(self.logits.expand(len(completions), 1, 2), completions)
        ...     def decode(self, completions):
        ...         return [("Normal.", "Cardiomegaly.")[word] for word in completions.tokens[:, 0]]
        >>> reward = make_reward("recommended", reference_column="report").fit(report=["Cardiomegaly.", "Normal."])
        >>> PolicyModule(OneWord(), reward, algorithm="rloo", minibatches=2, epochs=2).steps_per_rollout
        4
    """

    def __init__(
        self,
        generator: nn.Module,
        rewards: Callable[..., Any] | Sequence[Callable[..., Any]],
        *,
        weights: Weights = None,
        **options: Any,
    ) -> None:
        settings = PolicyOptions(**options)
        super().__init__(settings)
        _check_generator(generator)
        self.generator = generator
        self.rewards = RewardSet(rewards, weights)
        self._unrewarded = UnrewardedCalls(settings.max_unrewarded_calls)
        self.algorithm = ALGORITHMS[settings.algorithm]
        self.scale = settings.scale or self.algorithm.scale
        self.loss_options = _make_loss_options(settings, generator)
        self.reference = _make_reference(generator, settings)
        self.value_head = _make_value_head(generator, self.seed) if self.algorithm.baseline == "value" else None
        self.rollout: Rollout | None = None

    def on_train_start(self) -> None:
        """Set the mode of the generator, update its engine, and move a resumed rollout to the device."""
        self.set_mode()
        self.update_engine(force=True)
        if self.rollout is not None:
            self.rollout = self.rollout.to(self.device)

    def on_validation_start(self) -> None:
        """Update the engine of the generator."""
        self.update_engine(force=True)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed the step, and make a new rollout if all steps on the previous one are done."""
        super().on_train_batch_start(batch, batch_idx)
        if batch_idx % self.steps_per_rollout == 0:
            if not batch:
                raise ValueError(
                    f"a rollout begins at step {batch_idx}, but the loader gave no rows; its number of steps per "
                    f"rollout differs from that of the module, {self.steps_per_rollout}"
                )
            self.rollout = self.roll_out(batch)
        elif batch or self.rollout is None:
            raise ValueError(
                f"step {batch_idx} belongs to the previous rollout, but the loader gave new rows: with "
                f"minibatches * epochs = {self.steps_per_rollout}, rows must come from PolicyDataModule"
            )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """Return the loss on the next minibatch of the rollout."""
        assert self.rollout is not None
        epoch, index = divmod(batch_idx % self.steps_per_rollout, self.minibatches)
        part = self.rollout if self.minibatches == 1 else self.rollout.rows(self._minibatch(batch_idx, epoch, index))
        tokens = micro_batch_tokens(self.micro_batch_tokens, self)
        rows = divide_rows(part.completions.lengths, self.num_generations, tokens)
        if len(rows) == 1:
            loss, steps = self._loss(part)
        else:
            logged: list[tuple[Rollout, dict[str, Tensor]]] = []
            loss = sum_of_losses([partial(self._loss_of_rows, part, own, logged) for own in rows], self)
            steps = _joined(logged)
        self._log_step({"loss": loss.detach(), **steps})
        return loss

    def _loss_of_rows(self, whole: Rollout, rows: Tensor, logged: list[tuple[Rollout, dict[str, Tensor]]]) -> Tensor:
        """Return what some rows add to the loss of a minibatch, and append the values to log."""
        part = whole.rows(rows)
        loss, steps = self._loss(part, len(rows) / len(whole))
        logged.append((part, steps))
        return loss

    def _loss(self, part: Rollout, share: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss on a minibatch, or on a share of its rows, with values to log."""
        scores = self.generator.log_probs(part.batch, part.completions)
        old = scores.log_probs.detach() if part.old_log_probs is None else part.old_log_probs
        kl = None
        if part.reference_log_probs is not None:
            kl = kl_estimate(scores.log_probs, part.reference_log_probs, self.kl_estimator, part.mask)
        loss_kl = None if self.algorithm.penalize_reward else kl
        if loss_kl is not None and self.kl_correction:
            loss_kl = loss_kl * bounded_exp((scores.log_probs - old).masked_fill(part.mask == 0, 0.0))
        options = dict(self.loss_options)
        if options.get("aggregation") == "token_mean":
            options.setdefault("normalizer", part.tokens_per_step)
        weights, differences = self._compare_with_sampler(old, part)
        policy = policy_loss(
            scores.log_probs,
            old,
            part.advantages,
            part.mask,
            token_weights=weights,
            kl=loss_kl,
            beta=0.0 if loss_kl is None else self.beta,
            **options,
        )
        # The other aggregations are means over rows.
        loss = policy.loss if options.get("aggregation") == "token_mean" else policy.loss * share / part.kept
        steps = {"clip_ratio/region_mean": policy.clipped, "ratio": policy.mean_ratio, **differences}
        if self.value_head is not None:
            assert part.values is not None
            assert part.returns is not None
            values = self.predict_values(scores)
            error = value_loss(values, part.values, part.returns, part.mask)
            # Weight by tokens, as in the policy loss, because processes have different numbers of tokens.
            error = error * part.mask.sum() / part.tokens_per_step
            loss = loss + self.value_weight * error
            steps["value_loss"] = error.detach()
        for name, tokens in {"entropy": scores.entropies, "kl": kl}.items():
            if tokens is not None:
                steps[name] = _masked_mean(tokens.detach(), part.mask)
        return loss, steps

    def _compare_with_sampler(self, old: Tensor, part: Rollout) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Return the weights that correct for the sampler of completions, and values to log."""
        sampled = part.completions.log_probs
        if sampled is None:
            return None, {}
        weights = None
        if self.sampler_correction is not None:
            correction = {"mode": self.sampler_correction, "clip_max": self.sampler_clip_max}
            weights = importance_weights(old, sampled, part.mask, **correction)
        inside = part.mask.bool() & ~sampled.isnan()
        logged = {"sampling/sampling_logp_difference/mean": _masked_mean((old - sampled).abs(), inside)}
        if weights is not None:
            logged["sampling/importance_sampling_ratio/mean"] = _masked_mean(weights, part.mask)
        return weights, logged

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # noqa: ARG002 (Lightning's)
        """Return greedy completions of a batch with its references and further columns."""
        texts = self.generator.decode(self.generator.sample(batch, greedy=True))
        columns = {name: column for name, column in batch.items() if not isinstance(column, Tensor) or column.ndim < 3}
        reference = {"reference": batch[self.reference_column]} if self.reference_column in batch else {}
        return {**columns, "prediction": list(texts), **reference}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the rollout of each process, if steps on it remain."""
        super().on_save_checkpoint(checkpoint)
        begun = self.rollout is not None and self.steps_per_rollout > 1
        rollout = self.rollout.state_dict() if begun and self.rollout else None
        checkpoint["policy"] = gather_objects({"rollout": rollout})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the rollout of this process.

        Raises:
            CheckpointError: If the checkpoint belongs to another module or model.
            ValueError: If it belongs to another number of processes.
        """
        if not self._is_resumed:
            return
        if "policy" not in checkpoint:
            raise CheckpointError(
                "the checkpoint is not of a PolicyModule and cannot be resumed; to begin with its weights, load them "
                "into the generator"
            )
        super().on_load_checkpoint(checkpoint)
        states = checkpoint["policy"]
        if len(states) != self.trainer.world_size:
            raise ValueError(
                f"the checkpoint was saved by {len(states)} processes and cannot be resumed with "
                f"{self.trainer.world_size}; start {len(states)} processes"
            )
        state = states[self.global_rank]
        self.rollout = None if state["rollout"] is None else Rollout.from_state_dict(state["rollout"])

    def _minibatch(self, batch_idx: int, epoch: int, index: int) -> Tensor:
        """Return the rows of one minibatch. Each pass over the rollout has a different order.

        Minibatches contain whole groups if the number of groups allows it, because the completions of a group share
        the computation of their prompt.
        """
        assert self.rollout is not None
        first = batch_idx - batch_idx % self.steps_per_rollout
        generator = torch.Generator().manual_seed(
            hash((self.seed, self.current_epoch, first, epoch, self.global_rank)) % 2**63
        )
        size = self.num_generations
        if (len(self.rollout) // size) % self.minibatches:
            size = 1
        units = torch.randperm(len(self.rollout) // size, generator=generator).chunk(self.minibatches)[index]
        rows: Tensor = (units.unsqueeze(1) * size + torch.arange(size)).flatten()
        return rows

    def _log_step(self, steps: Mapping[str, Tensor]) -> None:
        assert self.rollout is not None
        several = self.trainer.world_size > 1
        for name, value in steps.items():
            self.log(name, value, sync_dist=several, batch_size=1, prog_bar=name == "kl")
        # Log the statistics at each step of the rollout, because loggers may skip steps.
        for name, number in self.rollout.statistics.items():
            self.log(name, number, batch_size=1, prog_bar=name in ("reward", "completions/mean_length"))


def _joined(logged: Sequence[tuple[Rollout, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the values to log of a minibatch from those of its parts: means over tokens, and sums of losses."""
    counts = torch.stack([part.mask.sum() for part, _ in logged])
    shares = counts / counts.sum().clamp(min=1)
    return {
        name: torch.stack([steps[name] for _, steps in logged]).mul(1 if name == "value_loss" else shares).sum()
        for name in logged[0][1]
    }


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(mask == 0, 0.0).sum() / mask.sum().clamp(min=1)


def _check_generator(generator: nn.Module) -> None:
    """Check that the generator is a module with the methods of a report generator."""
    missing = [name for name in _METHODS if not callable(getattr(generator, name, None))]
    if not isinstance(generator, nn.Module) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is no nn.Module"
        raise TypeError(
            f"generator must be a module with sample, log_probs and decode; {type(generator).__name__} {what}"
        )


def _make_reference(generator: nn.Module, options: PolicyOptions) -> nn.Module | None:
    """Return a frozen copy of the generator, or ``None`` without divergence or for ``"adapter_off"``."""
    adapted = has_adapters(generator)
    if not options.beta or (options.reference == "auto" and adapted):
        return None
    if options.reference == "adapter_off":
        if not adapted:
            raise SettingError("reference", "'adapter_off' needs a generator with PEFT adapters; this one has none")
        return None
    return copy.deepcopy(generator).requires_grad_(False).eval()


def _make_loss_options(settings: PolicyOptions, generator: nn.Module) -> dict[str, Any]:
    """Return the options of the policy loss, with the maximum length if the loss is divided by it."""
    options = settings.loss_options
    if options.get("aggregation") == "constant" and "normalizer" not in options:
        if not hasattr(generator, "max_new_tokens"):
            raise ValueError(
                "the loss is divided by the maximum length of a completion: give the generator an attribute "
                "max_new_tokens, or loss={'normalizer': ...}"
            )
        options["normalizer"] = generator.max_new_tokens
    return options


def _make_value_head(generator: nn.Module, seed: int) -> nn.Sequential:
    """Make a value head that predicts 0 for every state."""
    width = getattr(generator, "hidden_size", None)
    if width is None:
        raise ValueError("ppo needs the width of the generator's hidden states: give it an attribute hidden_size")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden, last = nn.Linear(width, width), nn.Linear(width, 1)
    # Predict 0 at first, because random predictions would affect the advantages.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(hidden, nn.Tanh(), last)


def micro_batch_tokens(setting: int | Literal["auto"] | None, module: Any) -> int | None:
    """Return the number of tokens of a part in training, or ``None`` for steps on all rows at once.

    Raises:
        ValueError: If a number is given for a strategy, a precision or a generator for which steps cannot be divided.
    """
    if setting is None or (setting == "auto" and module.device.type != "cpu"):
        return None
    reason = _reason_against(module)
    if reason is not None and setting != "auto":
        raise ValueError(f"micro_batch_tokens={setting} cannot be used with {reason}; set it to None or 'auto'")
    if reason is not None:
        return None
    return _TOKENS_ON_CPU if setting == "auto" else setting


def _reason_against(module: Any) -> str | None:
    """Return why steps cannot be divided: gradients are computed within the forward pass, before the loss is scaled."""
    strategy = module.trainer.strategy
    if isinstance(strategy, DeepSpeedStrategy) or not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
        return type(strategy).__name__
    if getattr(strategy.precision_plugin, "scaler", None) is not None:
        return "a gradient scaler (precision='16-mixed')"
    # Batch norms would see parts, and reentrant checkpoints, which are active in training mode only, fail.
    return "train_mode=True" if module.train_mode else None


def divide_rows(lengths: Tensor, group_size: int, tokens: int | None) -> list[Tensor]:
    """Divide rows into parts of at most ``tokens`` tokens with padding, if a group has no more, and of similar lengths.

    The rows of a group stay together, because they share a prompt.

    Args:
        lengths: Lengths of the rows, ``(N,)``.
        group_size: Number of consecutive rows that form a group.
        tokens: Greatest number of tokens, or ``None`` for one part.

    Example:
        >>> [part.tolist() for part in divide_rows(torch.tensor([2, 8, 1, 3, 7, 7]), 2, 16)]
        [[2, 3], [4, 5], [0, 1]]
    """
    if tokens is None or len(lengths) % group_size:
        return [torch.arange(len(lengths))]
    longest = lengths.view(-1, group_size).amax(1).tolist()
    parts: list[list[int]] = []
    for group in sorted(range(len(longest)), key=longest.__getitem__):
        # Groups come in the order of their lengths, so this one determines the width of its part.
        if not parts or (len(parts[-1]) + 1) * group_size * longest[group] > tokens:
            parts.append([])
        parts[-1].append(group)
    offsets = torch.arange(group_size)
    return [(torch.tensor(part).unsqueeze(1) * group_size + offsets).flatten() for part in parts]


def sum_of_losses(losses: Sequence[Callable[[], Tensor]], module: nn.Module) -> Tensor:
    """Return the sum of losses, whose gradients are computed one after the other, before the next loss.

    Args:
        losses: Functions that compute a loss with gradient.
        module: The module with the parameters of the losses.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    total: Tensor = _SumOfLosses.apply(losses, *parameters)  # type: ignore[no-untyped-call]
    return total


class _SumOfLosses(torch.autograd.Function):
    """Computes gradients in the forward pass; the backward pass scales them."""

    @staticmethod
    def forward(ctx: Any, losses: Sequence[Callable[[], Tensor]], *parameters: Tensor) -> Tensor:
        total: Tensor | None = None
        gradients: list[Tensor | None] = [None] * len(parameters)
        for compute in losses:
            with torch.enable_grad():
                loss = compute()
                new = torch.autograd.grad(loss, parameters, allow_unused=True)
            for index, gradient in enumerate(new):
                known = gradients[index]
                if gradient is not None:
                    gradients[index] = gradient if known is None else known.add_(gradient)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        ctx.gradients = gradients
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        return None, *(None if gradient is None else gradient.mul_(scale) for gradient in gradients)
