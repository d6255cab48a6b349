"""Rewards as the reward model that TRL's PPO trainer asks for."""

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.judges.base import run_coroutine
from rrg_rewards.rewards.base import Reward

__all__ = ["RewardFunctionModel"]


class RewardFunctionModel(nn.Module):
    """Rewards on report text in the place of a reward model, for ``trl.experimental.ppo.PPOTrainer`` (TRL <= 1.12).

    A reward model reads token ids and gives a number a token, of which the trainer takes the last one. This one finds
    out by the first tokens which prompt a row begins with, decodes what follows as the completion, and gives the
    rewards of completions and the prompts' columns at every token. It has no parameters, and is called with
    the rows of its process alone, as reward functions are.

    PPO needs a number for each completion. One that is unscorable raises, or gets the number that ``unscorable`` says.

    Args:
        reward: A reward, or several whose sum counts.
        tokenizer: The policy's tokenizer, with a padding token that is no end of text.
        prompts: Token ids of each row's prompt, without padding, all different: the trainer's ``input_ids``.
        columns: Columns of the data set that the rewards read, a value a row.
        weights: Factors of the rewards; default: 1 each.
        unscorable: Reward of completions that cannot be scored; default: none, they raise.

    Raises:
        ValueError: If lengths differ, a column is missing, two prompts are equal or one begins with another, or padding
            is the end of text; when called, if a row begins with no known prompt, or a completion is unscorable.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> from rrg_rewards.rewards.ppo import RewardFunctionModel
        >>> from transformers import AutoTokenizer                                          # doctest: +SKIP
        >>> tokenizer = AutoTokenizer.from_pretrained("policy")                             # doctest: +SKIP
        >>> prompts = tokenizer(["Findings: ...", "Findings: ..."])["input_ids"]            # doctest: +SKIP
        >>> model = RewardFunctionModel(                                                    # doctest: +SKIP
        ...     make_reward("crg", prior=0.1), tokenizer, prompts, {"reference": ["...", "..."]}
        ... )
        >>> PPOTrainer(..., reward_model=model)                                             # doctest: +SKIP
    """

    # The trainer calls the attribute of this name, then `score` on its last hidden state.
    base_model_prefix = "reader"

    def __init__(
        self,
        reward: Reward | Sequence[Reward],
        tokenizer: Any,
        prompts: Sequence[Sequence[int]],
        columns: Mapping[str, Sequence[Any]],
        *,
        weights: Sequence[float] | None = None,
        unscorable: float | None = None,
    ) -> None:
        super().__init__()
        self.rewards = [reward] if isinstance(reward, Reward) else list(reward)
        self.weights = [1.0] * len(self.rewards) if weights is None else list(weights)
        if len(self.weights) != len(self.rewards) or not self.rewards:
            raise ValueError(f"each reward needs a weight: {len(self.rewards)} rewards, {len(self.weights)} weights")
        if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
            raise ValueError(
                "PPO tells padding from the end of a completion by its token: give the tokenizer a padding token of "
                "its own, as in tokenizer.add_special_tokens({'pad_token': '<pad>'}), and resize the models"
            )
        if unscorable is not None and not math.isfinite(unscorable):
            raise ValueError(f"unscorable must be a finite number or None, got {unscorable}")
        self.tokenizer = tokenizer
        self.columns = _checked_columns(columns, self.rewards, len(prompts))
        self.rows = _rows_by_prompt(prompts)
        self.lengths = sorted({len(prompt) for prompt in self.rows})
        self.unscorable = unscorable
        self._logged: dict[str, list[float]] = defaultdict(list)
        # DeepSpeed sizes its buffers by it.
        self.config = SimpleNamespace(hidden_size=1)

    def reader(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> SimpleNamespace:
        """Rewards of token sequences in the form of a model's output: ``hidden_states`` with one of ``(N, T, 1)``.

        Args:
            input_ids: Token ids ``(N, T)``: a prompt and its completion, padded on either side.
            attention_mask: ``(N, T)``, 0 at padding.
        """
        sequences = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        values = torch.tensor(self._reward(sequences), dtype=torch.float32, device=input_ids.device)
        return SimpleNamespace(hidden_states=(values[:, None, None].expand(*input_ids.shape, 1),))

    def score(self, hidden_states: Tensor) -> Tensor:
        """What a reward head would do: nothing, the rewards are there."""
        return hidden_states

    def forward(self, **inputs: Any) -> Tensor:
        """Rewards ``(N, T, 1)``: :meth:`score` of :meth:`reader`."""
        return self.score(self.reader(**inputs).hidden_states[-1])

    def take_logged(self) -> dict[str, float]:
        """Means of what the rewards have logged since the last call: PPO's trainer offers them no place to."""
        means = {name: sum(values) / len(values) for name, values in self._logged.items() if values}
        self._logged.clear()
        return means

    def _log(self, name: str, value: float) -> None:
        known = self._logged[name]
        if not math.isnan(value):
            known.append(value)

    def _reward(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        rows, completions = zip(*map(self._split, sequences), strict=True)
        texts = self.tokenizer.batch_decode(completions, skip_special_tokens=True)
        given: dict[str, Any] = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        totals = [0.0] * len(rows)
        for reward, weight in zip(self.rewards, self.weights, strict=True):
            called: Any = reward(texts, completion_ids=list(completions), log_metric=self._log, **given)
            rewarded = run_coroutine(called) if inspect.iscoroutine(called) else called
            for place, value in enumerate(rewarded):
                totals[place] += weight * self._scored(value, reward, rows[place])
        return totals

    def _split(self, sequence: Sequence[int]) -> tuple[int, list[int]]:
        """The row that a sequence begins with the prompt of, and its completion."""
        for length in self.lengths:
            row = self.rows.get(tuple(sequence[:length]))
            if row is not None:
                return row, list(sequence[length:])
        raise ValueError(
            "a sequence begins with no known prompt: prompts must be the trainer's own input_ids, token by token, "
            "neither cut nor with tokens added"
        )

    def _scored(self, value: float | None, reward: Reward, row: int) -> float:
        if value is not None:
            return value
        if self.unscorable is None:
            raise ValueError(
                f"reward {reward.__name__!r} cannot score the completion of row {row}, and PPO needs a number: leave "
                "out rows without a reference, or set unscorable to what such a completion is worth"
            )
        return self.unscorable


def _checked_columns(
    columns: Mapping[str, Sequence[Any]], rewards: Sequence[Reward], length: int
) -> dict[str, Sequence[Any]]:
    needed = dict.fromkeys(name for reward in rewards for name in reward.columns)
    for name in needed:
        if name not in columns:
            raise ValueError(f"columns lacks {name!r}, which a reward reads; it has {', '.join(columns) or 'none'}")
        if len(columns[name]) != length:
            raise ValueError(f"column {name!r} has {len(columns[name])} values, but there are {length} prompts")
    return {name: columns[name] for name in needed}


def _rows_by_prompt(prompts: Sequence[Sequence[int]]) -> dict[tuple[int, ...], int]:
    rows: dict[tuple[int, ...], int] = {}
    for row, prompt in enumerate(prompts):
        key = tuple(prompt)
        if not key:
            raise ValueError(f"the prompt of row {row} is empty")
        if key in rows:
            raise ValueError(
                f"rows {rows[key]} and {row} have the same prompt, so that PPO could not tell whose completion it "
                "scores: keep one of them"
            )
        rows[key] = row
    ordered = sorted(rows)
    # Sorted, a prompt stands right before the first one that begins with it.
    for shorter, longer in pairwise(ordered):
        if longer[: len(shorter)] == shorter:
            raise ValueError(
                f"the prompt of row {rows[longer]} begins with that of row {rows[shorter]}, so that completions of the "
                "two could be confused: end prompts alike, as by 'Impression:'"
            )
    return rows
