"""Rewards of TRL's trainers in the background, while the policy generates."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.rewards.background import BackgroundReward
from rrg_rewards.rewards.base import Reward, is_asynchronous
from rrg_rewards.rewards.overlap import PART, SHARE, RewardClock, has_free_core
from rrg_rewards.utilities.imports import require

# Check first: the error message names the extra that installs transformers.
require("transformers", extra="trl")

from transformers import StoppingCriteria, StoppingCriteriaList, TrainerCallback  # noqa: E402

logger = logging.getLogger(__name__)


def in_background(rewards: Sequence[Reward], overlap: str, processes: int = 1) -> list[Reward]:
    """Return rewards for a trainer, of which those that can be scored in parts are computed in the background.

    Args:
        rewards: The rewards.
        overlap: ``"thread"`` for asynchronous rewards only, ``"process"`` or ``"auto"`` for rewards by rules, too, or
            ``"none"``.
        processes: Number of processes of each reward by rules.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> in_background([make_reward("crimson"), make_reward("crg", prior="running")], "process")
        [BackgroundReward('crimson'), CRGReward('crg')]
    """
    kinds = {"none": (), "thread": (True,), "process": (True, False), "auto": (True, False)}[overlap]
    dependent = ", ".join(reward.__name__ for reward in rewards if not reward.has_independent_rows)
    if overlap == "process" and dependent:
        logger.warning("not in the background, because their rewards depend on other completions: %s", dependent)
    return [
        BackgroundReward(reward, processes)
        if reward.has_independent_rows and is_asynchronous(reward) in kinds
        else reward
        for reward in rewards
    ]


class BackgroundRewardsCallback(TrainerCallback):  # type: ignore[misc]  # transformers is an optional dependency
    """Lets a TRL trainer compute background rewards while it generates.

    ``GRPOTrainer`` and ``RLOOTrainer`` call reward functions when all completions of a batch are generated and their
    log-probabilities computed. This callback watches the generation: completions that have ended are scored while the
    others are generated (:meth:`rrg_rewards.rewards.BackgroundReward.score_early`), and the last ones while the trainer
    computes log-probabilities. The trainer's call waits for what is left. Sampling, rewards and logged values are the
    same. Completions that vLLM generates are scored when the trainer calls the rewards.

    The processes of the rewards end with the training, also after an error while completions are generated and scored.

    Args:
        trainer: ``GRPOTrainer``, ``RLOOTrainer``, or another trainer with their method
            ``_generate_and_score_completions``.
        rewards: The rewards of the trainer. Those that are no background rewards are ignored.
        automatic: Compute rewards in the background only if they take more than 1 % of the time in the first steps,
            and rewards by rules only if a core is free. A message says so.

    Raises:
        TypeError: If the trainer lacks the method.

    Example:
        >>> from types import SimpleNamespace
        >>> from rrg_rewards.callbacks import BackgroundRewardsCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> rewards = [make_reward("crimson", background=1)]
        >>> # trainer = GRPOTrainer(..., reward_funcs=rewards)
        >>> trainer = SimpleNamespace(_generate_and_score_completions=lambda inputs: inputs)
        >>> callback = BackgroundRewardsCallback(trainer, rewards)
        >>> # trainer.add_callback(callback)
    """

    def __init__(self, trainer: Any, rewards: Sequence[Any], automatic: bool = False) -> None:
        if not callable(getattr(trainer, "_generate_and_score_completions", None)):
            raise TypeError(f"{type(trainer).__name__} generates in another way than GRPOTrainer and RLOOTrainer")
        self.rewards = [reward for reward in rewards if isinstance(reward, BackgroundReward)]
        self._trainer = trainer
        self._automatic = automatic
        self._clock = RewardClock()
        for reward in self.rewards:
            reward.is_active, reward.clock = not automatic, self._clock

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Watch the generations of the trainer from now on."""
        method = self._trainer._generate_and_score_completions
        # A trainer can train several times.
        if not isinstance(method, partial):
            self._trainer._generate_and_score_completions = partial(self._generate, method)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """End the processes."""
        self._close()

    def _close(self) -> None:
        for reward in self.rewards:
            reward.close()

    def _generate(self, method: Callable[[Any], Any], inputs: Sequence[Mapping[str, Any]]) -> Any:
        if self._automatic and self._clock.count_batch():
            self._choose(self._clock.share)
        active = [reward for reward in self.rewards if reward.is_active]
        if not active:
            return method(inputs)
        for reward in active:
            reward.drop_early()
        try:
            with _watched(self._trainer, partial(_score_early, self._trainer, active, inputs)):
                return method(inputs)
        except BaseException:
            # Python waits at its exit for a process that computes, and so forever for a reward that does not return.
            self._close()
            raise

    def _choose(self, share: float) -> None:
        """Choose which rewards are computed in the background from now on."""
        rules = has_free_core(self._trainer.accelerator.device.type == "cpu")
        for reward in self.rewards:
            reward.is_active = share > SHARE and (rules or is_asynchronous(reward.reward))
        names = ", ".join(reward.__name__ for reward in self.rewards if reward.is_active)
        logger.info(
            "rewards take %.1f %% of the time; computed in the background from now on: %s",
            100 * share,
            names or ("nothing" if rules or share <= SHARE else "nothing, because the policy uses all cores"),
        )


def _score_early(
    trainer: Any,
    rewards: Sequence[BackgroundReward],
    inputs: Sequence[Mapping[str, Any]],
    rows: Sequence[int],
    tokens: Sequence[list[int]],
) -> None:
    """Start to score completions that have ended."""
    texts = trainer.processing_class.batch_decode(tokens, skip_special_tokens=True)
    plain = isinstance(inputs[rows[0]]["prompt"], str)
    completions = texts if plain else [[{"role": "assistant", "content": text}] for text in texts]
    for reward in rewards:
        # A missing column is an error of the trainer's own call.
        if all(name in inputs[0] for name in reward.columns):
            columns = {name: [inputs[row][name] for row in rows] for name in reward.columns}
            reward.score_early(rows, completions, columns)


@contextmanager
def _watched(trainer: Any, ended: Callable[[Sequence[int], Sequence[list[int]]], None]) -> Any:
    """Call a function with the rows and tokens of completions that have ended, while the model generates others."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    before = vars(model).get("generate")
    generate = model.generate

    def watched(*arguments: Any, **options: Any) -> Any:
        watch = _Ended(trainer.eos_token_ids, ended)
        tokens = generate(*arguments, **options, stopping_criteria=StoppingCriteriaList([watch]))
        # The trainer computes log-probabilities before it calls the rewards.
        watch.report_remaining(tokens)
        return tokens

    model.generate = watched
    try:
        yield
    finally:
        # The method belongs to the class, unless the object had one of its own.
        del model.generate
        if before is not None:
            model.generate = before


class _Ended(StoppingCriteria):  # type: ignore[misc]  # transformers is an optional dependency
    """Stops nothing, and reports which rows have ended.

    Args:
        end_token_ids: Ids of the end-of-sequence tokens.
        ended: Called with the numbers of rows and their tokens.
    """

    def __init__(
        self, end_token_ids: Sequence[int], ended: Callable[[Sequence[int], Sequence[list[int]]], None]
    ) -> None:
        self._ends = list(end_token_ids)
        self._ended = ended
        self._start: int | None = None
        self._lengths: dict[int, int] = {}
        self._reported: set[int] = set()

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:  # noqa: ARG002 (of transformers)
        """Note the rows whose last token is an end."""
        count, length = input_ids.shape
        if self._start is None:
            self._start = length - 1
        last = torch.isin(input_ids[:, -1], torch.tensor(self._ends, device=input_ids.device))
        new = [row for row in last.nonzero().flatten().tolist() if row not in self._lengths]
        self._lengths.update(dict.fromkeys(new, length))
        if new and len(self._lengths) - len(self._reported) >= PART * count:
            self._report([row for row in self._lengths if row not in self._reported], input_ids)
        return torch.zeros(count, dtype=torch.bool, device=input_ids.device)

    def report_remaining(self, tokens: Tensor) -> None:
        """Report the rows that have not been reported, when all rows are generated."""
        rows = [row for row in range(len(tokens)) if row not in self._reported]
        if rows:
            self._report(rows, tokens)

    def _report(self, rows: list[int], tokens: Tensor) -> None:
        self._reported.update(rows)
        self._ended(rows, [tokens[row, self._start : self._lengths.get(row)].tolist() for row in rows])
