"""Rollouts: advantages, and the base class of policy modules that samples completions."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.functional import pad

from rrg_rewards.functional import (
    decoupled_advantages,
    generalized_advantages,
    greedy_baseline_advantages,
    group_advantages,
    kl_estimate,
    leave_one_out_advantages,
)
from rrg_rewards.functional.advantages import group_deviations
from rrg_rewards.rewards.deadline import RewardDeadline
from rrg_rewards.rewards.unrewarded import UnrewardedCalls
from rrg_rewards.training.base import TrainingModule
from rrg_rewards.training.policy.adapters import adapters_off
from rrg_rewards.training.policy.generators import (
    Batch,
    Completions,
    RepeatedRows,
    TokenScores,
    num_rows,
    repeat_rows,
)
from rrg_rewards.training.policy.options import Algorithm, Scale
from rrg_rewards.training.policy.rewards import RewardSet, RewardTable, TrainerState, replaced_values
from rrg_rewards.training.policy.rollouts import Rollout, rollout_statistics
from rrg_rewards.utilities.processes import gather_objects, process_index


def _against_group(rollout: Rollout, group_size: int, scale: Scale, has_spread: Tensor) -> None:
    """Set advantages relative to the group mean. The scales ``"batch"`` and ``"gdpo"`` need those of all processes."""
    # Groups that are left out have no part in the deviation of the batch.
    rewards = rollout.rewards.masked_fill(~has_spread.unsqueeze(1), math.nan)
    by_process = gather_objects((rewards.tolist(), rollout.total.masked_fill(~has_spread, math.nan).tolist()))
    if scale == "gdpo":
        rewards, weights = (
            torch.tensor([row for process in by_process for row in process[0]]),
            torch.tensor(rollout.weights),
        )
        advantages = decoupled_advantages(rewards[:, weights != 0], weights[weights != 0], group_size)
    else:
        totals = torch.tensor([total for process in by_process for total in process[1]])
        advantages = group_advantages(totals, group_size, scale=scale)
    first = sum(len(process[1]) for process in by_process[: process_index()])
    rollout.advantages = advantages[first : first + len(rollout)].to(rollout.mask.device)


def _against_others(rollout: Rollout, group_size: int, beta: float) -> None:
    """Set advantages relative to the other rewards of the group, with the divergence subtracted from the rewards."""
    total = rollout.total.to(rollout.mask.device)
    if rollout.reference_log_probs is not None:
        total = total - beta * _divergences(rollout).sum(1)
    rollout.advantages = leave_one_out_advantages(total, group_size)


def _against_greedy(rollout: Rollout, greedy_total: Tensor) -> None:
    """Set advantages relative to the reward of the greedy completion of each group."""
    repeated = greedy_total.repeat_interleave(len(rollout) // len(greedy_total))
    rollout.advantages = greedy_baseline_advantages(rollout.total, repeated).to(rollout.mask.device)


def _against_values(rollout: Rollout, beta: float, gamma: float, lam: float) -> None:
    """Set returns, and whitened advantages of each token relative to a value head.

    The reward of a token is its negated weighted divergence. The reward of the completion is added at the last token.
    Unscorable completions are removed from the rollout's mask because they have no return.
    """
    assert rollout.values is not None
    scored = ~rollout.total.isnan().to(rollout.mask.device)
    rollout.mask = rollout.mask * scored.unsqueeze(1)
    rewards = torch.zeros_like(rollout.values)
    if rollout.reference_log_probs is not None:
        rewards -= beta * _divergences(rollout)
    last = rollout.completions.lengths.unsqueeze(1) - 1
    rewards.scatter_add_(1, last.clamp(min=0), rollout.total.to(rewards).nan_to_num(0.0).unsqueeze(1))
    advantages, rollout.returns = generalized_advantages(rewards, rollout.values, rollout.mask, gamma=gamma, lam=lam)
    rollout.advantages = _whitened(advantages, rollout.mask)


def _divergences(rollout: Rollout) -> Tensor:
    assert rollout.old_log_probs is not None
    assert rollout.reference_log_probs is not None
    return kl_estimate(rollout.old_log_probs, rollout.reference_log_probs, "k1", rollout.mask)


def _whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Whiten over the tokens of all processes."""
    inside = advantages.double()[mask.bool()]
    # Variances instead of sums of squares, in which the differences of large advantages would be lost.
    own = [len(inside), float(inside.mean()), float(inside.var(correction=0))] if len(inside) else [0, 0.0, 0.0]
    parts = gather_objects(own)
    count = max(sum(part[0] for part in parts), 1)
    mean = sum(size * part_mean for size, part_mean, _ in parts) / count
    deviation = (sum(size * (variance + (part_mean - mean) ** 2) for size, part_mean, variance in parts) / count) ** 0.5
    if deviation <= 2 * torch.finfo(torch.float32).eps * abs(mean):
        return torch.zeros_like(advantages)
    whitened: Tensor = ((advantages.double() - mean) / (deviation + 1e-8)).masked_fill(mask == 0, 0.0)
    return whitened.float()


class SamplingModule(TrainingModule):
    """Base class of :class:`~rrg_rewards.training.PolicyModule` that makes rollouts. The subclass sets attributes."""

    generator: Any
    rewards: RewardSet
    algorithm: Algorithm
    reference: Any
    value_head: nn.Sequential | None
    reward_timeout: float | None
    _unrewarded: UnrewardedCalls
    # The number of optimiser steps at which the generator's engine got the weights.
    _engine_step: int | None = None

    @property
    def steps_per_rollout(self) -> int:
        """Number of training steps on each rollout."""
        steps: int = self.minibatches * self.epochs
        return steps

    def set_mode(self) -> None:
        """Set the generator to the mode of training steps."""
        self.generator.train(self.train_mode)
        for part in self.generator.modules():
            # cuDNN requires training mode for gradients of recurrent layers. Without dropout, the output is the same.
            if isinstance(part, nn.RNNBase) and not part.dropout:
                part.train()

    def update_engine(self, force: bool = False) -> None:
        """Give the generator's engine the current weights, if it has one and an optimiser step has changed them.

        Args:
            force: Whether the weights may have changed otherwise, for example by loading a checkpoint.
        """
        update = getattr(self.generator, "update_engine", None)
        if update is not None and (force or self._engine_step != self.global_step):
            update()
            self._engine_step = self.global_step

    @torch.no_grad()
    def roll_out(self, batch: Batch) -> Rollout:
        """Make the rollout of a batch. Every process must call it.

        Raises:
            ValueError: If the batch cannot be divided into minibatches, or its columns differ in length.
        """
        count = num_rows(batch)
        if count * self.num_generations % self.minibatches:
            raise ValueError(
                f"{count} rows of {self.num_generations} completions cannot be divided into {self.minibatches} "
                "minibatches of equal size"
            )
        rows = repeat_rows(batch, self.num_generations)
        self.update_engine()
        completions, texts, table, has_spread = self._draw_until_spread(rows)
        greedy_table = self._draw(batch, greedy=True)[2] if self.algorithm.baseline == "greedy" else None
        with self._sampling():
            scored = self._scores_of_sampling(rows, completions)
        rollout = Rollout(
            rows,
            completions,
            texts,
            rewards=table.values,
            total=table.total,
            weights=table.weights,
            mask=self._mask(completions, has_spread),
            advantages=table.total,
            **scored,  # type: ignore[arg-type]  # tensors of these names
            extras=table.extras,
        )
        self._set_advantages(rollout, has_spread, None if greedy_table is None else greedy_table.total)
        has_rewards = not bool(table.total.isnan().all())
        own = int(rollout.mask.sum()), has_rewards, float(has_spread.float().mean())
        tokens, any_rewards, kept = zip(*gather_objects(own), strict=True)
        self._unrewarded.add(any(any_rewards))
        rollout.tokens_per_step = max(sum(tokens), 1) / (len(tokens) * self.minibatches)
        rollout.kept = sum(kept) / len(kept) or 1.0
        rollout.statistics = rollout_statistics(table, completions, self.rewards.names, self.num_generations)
        if callable(self.rewards.weights):
            named = zip(self.rewards.names, table.weights, strict=True)
            rollout.statistics |= {f"rewards/{name}/weight": weight for name, weight in named}
        return rollout

    def _draw(self, rows: Batch, greedy: bool = False) -> tuple[Completions, list[str], RewardTable]:
        """Return completions of rows as tokens and as texts, and their rewards."""
        with self._sampling():
            completions = self.generator.sample(rows, greedy=greedy)
            texts = list(self.generator.decode(completions))
        with RewardDeadline(self.reward_timeout, self.rewards.names):
            return completions, texts, self.rewards(rows, completions, texts, self._trainer_state())

    def _draw_until_spread(self, rows: RepeatedRows) -> tuple[Completions, list[str], RewardTable, Tensor]:
        """Draw completions, again those of groups with equal rewards, and return which have a group with spread."""
        completions, texts, table = self._draw(rows)
        if self.max_draws is None:
            return completions, texts, table, torch.ones(len(texts), dtype=torch.bool)
        for _ in range(self.max_draws - 1):
            again = self._has_spread(table).logical_not().nonzero().squeeze(1)
            if not any(gather_objects(len(again) > 0)):
                break
            if not len(again):
                # With sharded weights, every process must generate.
                with self._sampling():
                    self.generator.sample(rows.take(torch.arange(self.num_generations)))
                continue
            drawn = self._draw(rows.take(again))
            completions, table = completions.replaced(again, drawn[0]), table.replaced(again, drawn[2])
            texts = replaced_values(texts, again, drawn[1])
        return completions, texts, table, self._has_spread(table)

    def _has_spread(self, table: RewardTable) -> Tensor:
        """Return whether the rewards of the group of each completion differ, ``(N,)``."""
        used = torch.tensor(table.weights) != 0
        columns = table.values[:, used].unbind(1) if self.scale == "gdpo" else [table.total]
        spread = torch.stack([group_deviations(column, self.num_generations) > 0 for column in columns]).any(0)
        return spread.repeat_interleave(self.num_generations)

    def _mask(self, completions: Completions, has_spread: Tensor) -> Tensor:
        """Return which tokens of new completions are in the loss."""
        mask = completions.mask
        if not bool(has_spread.all()):
            mask = mask * has_spread.to(mask.device).unsqueeze(1)
        if not self.mask_truncated:
            return mask
        if completions.finished is None:
            raise ValueError("mask_truncated: the generator's Completions must say which are finished")
        return mask * completions.finished.unsqueeze(1)

    def _set_advantages(self, rollout: Rollout, has_spread: Tensor, greedy_total: Tensor | None) -> None:
        baseline = self.algorithm.baseline
        if baseline == "group":
            _against_group(rollout, self.num_generations, self.scale, has_spread)
        elif baseline == "leave_one_out":
            _against_others(rollout, self.num_generations, self.beta)
        elif baseline == "value":
            _against_values(rollout, self.beta, self.gamma, self.lam)
        else:
            assert greedy_total is not None
            _against_greedy(rollout, greedy_total)

    def _trainer_state(self) -> TrainerState:
        trainer = self.trainer
        epoch = self.current_epoch + trainer.fit_loop.epoch_loop.batch_progress.current.completed / max(
            trainer.num_training_batches, 1
        )
        return TrainerState(self.global_step, trainer.max_steps, epoch)

    def _scores_of_sampling(self, rows: RepeatedRows, completions: Completions) -> dict[str, Tensor]:
        """Return those log-probabilities and values of new completions that training steps and advantages require."""
        # If there is no optimiser step within the rollout, the training steps compute the old log-probabilities.
        is_fresh = self.trainer.accumulate_grad_batches % self.steps_per_rollout == 0
        paid_in_reward = self.algorithm.penalize_reward and self.beta > 0
        policy = self.value_head is not None or paid_in_reward or not is_fresh
        scored: dict[str, list[Tensor]] = {"old_log_probs": [], "values": [], "reference_log_probs": []}
        # Use parts of the size of a minibatch, which need no more memory than training.
        for part in torch.arange(len(completions)).chunk(self.minibatches):
            batch, sampled = rows.take(part), completions.rows(part)
            width = completions.tokens.shape[1] - sampled.tokens.shape[1]
            if policy:
                scores = self.generator.log_probs(batch, sampled)
                scored["old_log_probs"].append(pad(scores.log_probs, (0, width)))
                if self.value_head is not None:
                    scored["values"].append(pad(self.predict_values(scores), (0, width)))
            if self.beta:
                scored["reference_log_probs"].append(pad(self._reference_log_probs(batch, sampled), (0, width)))
        return {name: torch.cat(parts) for name, parts in scored.items() if parts}

    def _reference_log_probs(self, batch: Batch, completions: Completions) -> Tensor:
        if self.reference is not None:
            scores: TokenScores = self.reference.log_probs(batch, completions)
        else:
            with adapters_off(self.generator):
                scores = self.generator.log_probs(batch, completions)
        return scores.log_probs

    def predict_values(self, scores: TokenScores) -> Tensor:
        """Return the prediction of the value head at each token, ``(N, T)``."""
        assert self.value_head is not None
        if scores.hidden is None:
            raise ValueError("ppo requires hidden states: log_probs must return TokenScores with hidden")
        values: Tensor = self.value_head(scores.hidden.to(next(self.value_head.parameters()).dtype))
        return values.squeeze(-1).float()

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        """Set evaluation mode and the trainer's precision, and gather sharded weights."""
        strategy = self.trainer.strategy
        with ExitStack() as stack:
            stack.enter_context(strategy.precision_plugin.forward_context())
            if isinstance(strategy, FSDPStrategy):
                # Gather the parameters of the outermost unit. Inner units gather their own.
                stack.enter_context(
                    FullyShardedDataParallel.summon_full_params(strategy.model, writeback=False, recurse=False)
                )
            self.generator.eval()
            yield
            self.set_mode()
