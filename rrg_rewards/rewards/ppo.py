"""A reward model for TRL's PPO trainer that calls reward functions."""

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.rewards.base import Reward
from rrg_rewards.utilities.processes import run_coroutine


class RewardFunctionModel(nn.Module):
    """A reward model that calls reward functions, for ``trl.experimental.ppo.PPOTrainer`` (TRL <= 1.12).

    A reward model returns one number for each token, and the trainer uses the last number. This model finds the prompt
    at the start of a sequence, decodes the remaining tokens as the completion, and returns the reward of the completion
    at every token. It has no parameters. Each process scores its own rows.

    PPO requires a number for each completion. An unscorable completion raises an error unless ``unscorable`` is set.

    Args:
        reward: A reward, or several rewards, which are summed.
        tokenizer: The tokenizer of the policy. Its padding token must differ from its end-of-text token.
        prompts: Token ids of the prompt of each row without padding, as in the trainer's ``input_ids``. All prompts
            must differ.
        columns: Columns of the data set that the rewards read, one value for each row.
        weights: Weights of the rewards. Default: 1 each.
        unscorable: Reward of unscorable completions; ``None`` raises an error.

    Raises:
        ValueError: If lengths differ, a column is missing, two prompts are equal, a prompt is a prefix of another one,
            or the padding token is the end-of-text token; when called, if a sequence starts with no known prompt or a
            completion is unscorable.

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

    # The trainer calls the attribute that has this name, then calls `score` with the last hidden state.
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
                "PPO needs a padding token that differs from the end of text: give the tokenizer one, as in "
                "tokenizer.add_special_tokens({'pad_token': '<pad>'}), and resize the models"
            )
        if unscorable is not None and not math.isfinite(unscorable):
            raise ValueError(f"unscorable must be a finite number or None, got {unscorable}")
        self.tokenizer = tokenizer
        self.columns = _checked_columns(columns, self.rewards, len(prompts))
        self.rows = _rows_by_prompt(prompts)
        self.lengths = sorted({len(prompt) for prompt in self.rows})
        self.unscorable = unscorable
        self._logged: dict[str, list[float]] = defaultdict(list)
        # DeepSpeed reads the size of its buffers from this attribute.
        self.config = SimpleNamespace(hidden_size=1)

    def reader(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> SimpleNamespace:
        """Return a model output whose only hidden state, of shape ``(N, T, 1)``, contains the rewards of sequences.

        Args:
            input_ids: Token ids ``(N, T)`` of prompts and completions, padded on either side.
            attention_mask: ``(N, T)``, 0 at padding.
        """
        sequences = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        values = torch.tensor(self._reward(sequences), dtype=torch.float32, device=input_ids.device)
        return SimpleNamespace(hidden_states=(values[:, None, None].expand(*input_ids.shape, 1),))

    def score(self, hidden_states: Tensor) -> Tensor:
        """Return the hidden states, which are the rewards."""
        return hidden_states

    def forward(self, **inputs: Any) -> Tensor:
        """Return the rewards ``(N, T, 1)``."""
        return self.score(self.reader(**inputs).hidden_states[-1])

    def take_logged(self) -> dict[str, float]:
        """Return the means of the values that the rewards have logged since the last call, by name."""
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
        starts = [ids[: len(ids) - len(own)] for ids, own in zip(sequences, completions, strict=True)]
        prompts = self.tokenizer.batch_decode(starts)
        given: dict[str, Any] = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        totals = [0.0] * len(rows)
        for reward, weight in zip(self.rewards, self.weights, strict=True):
            called: Any = reward(
                texts, prompts=prompts, completion_ids=list(completions), log_metric=self._log, **given
            )
            rewarded = run_coroutine(called) if inspect.iscoroutine(called) else called
            for place, value in enumerate(rewarded):
                totals[place] += weight * self._scored(value, reward, rows[place])
        return totals

    def _split(self, sequence: Sequence[int]) -> tuple[int, list[int]]:
        """Return the row whose prompt starts the sequence, and the token ids of the completion."""
        for length in self.lengths:
            row = self.rows.get(tuple(sequence[:length]))
            if row is not None:
                return row, list(sequence[length:])
        raise ValueError(
            "a sequence begins with no known prompt: prompts must equal the trainer's input_ids, without truncation or "
            "added tokens"
        )

    def _scored(self, value: float | None, reward: Reward, row: int) -> float:
        if value is not None:
            return value
        if self.unscorable is None:
            raise ValueError(
                f"reward {reward.__name__!r} cannot score the completion of row {row}, and PPO requires a number: "
                "remove rows without a reference, or set unscorable to the reward of unscorable completions"
            )
        return self.unscorable


def _checked_columns(
    columns: Mapping[str, Sequence[Any]], rewards: Sequence[Reward], length: int
) -> dict[str, Sequence[Any]]:
    for reward in rewards:
        reward.warn_of_unread(columns)
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
                f"rows {rows[key]} and {row} have the same prompt, but PPO finds rows by their prompts: keep one row"
            )
        rows[key] = row
    ordered = sorted(rows)
    # In sorted order, a prompt directly precedes the first prompt that begins with it.
    for shorter, longer in pairwise(ordered):
        if longer[: len(shorter)] == shorter:
            raise ValueError(
                f"the prompt of row {rows[longer]} begins with that of row {rows[shorter]}, but PPO finds rows by "
                "their prompts: end all prompts with the same text, such as 'Impression:'"
            )
    return rows
