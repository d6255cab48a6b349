"""What a policy wrote in one go and what it was worth: the data of the next optimisation steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.training.generators import Completions, take_rows

__all__ = ["Rollout"]


@dataclass
class Rollout:
    """Completions with all that the optimisation steps on them need; tensors by row ``(N, ...)``.

    Args:
        batch: The rows, each as often as it was completed.
        completions: What was written.
        texts: The same as texts.
        rewards: What it was worth, by reward function ``(N, F)``; NaN where unscorable.
        total: ``(N,)``, the rewards' weighted sum.
        mask: ``(N, T)``, 1 at the tokens that the policy learns from.
        advantages: ``(N,)``, or ``(N, T)`` with a value head.
        old_log_probs: Log-probabilities ``(N, T)`` that the tokens were drawn with; ``None`` where they are those of
            the one step to come.
        reference_log_probs: Log-probabilities ``(N, T)`` under the reference.
        values: What the value head predicted, ``(N, T)``.
        returns: What it is to predict, ``(N, T)``.
        tokens_per_step: Tokens of one process in one optimisation step, on average over processes and steps.
        statistics: What is logged of it; the same on all processes.
        extras: What the reward functions added for a table of completions.
    """

    batch: dict[str, Any]
    completions: Completions
    texts: list[str]
    rewards: Tensor
    total: Tensor
    mask: Tensor
    advantages: Tensor
    old_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    tokens_per_step: float = 1.0
    statistics: dict[str, float] = field(default_factory=dict)
    extras: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, rows: Tensor) -> "Rollout":
        """Some of its rows, cut to their longest completion."""
        completions = self.completions.rows(rows)
        tokens = {"mask", "advantages", "old_log_probs", "reference_log_probs", "values", "returns"}
        width = completions.tokens.shape[1]
        parts: dict[str, Any] = {}
        for name, value in self._tensors().items():
            part = value[rows.to(value.device)]
            parts[name] = part[:, :width] if name in tokens and part.ndim == 2 else part
        extras = {name: [values[row] for row in rows.tolist()] for name, values in self.extras.items()}
        texts = [self.texts[row] for row in rows.tolist()]
        return replace(
            self, batch=take_rows(self.batch, rows), completions=completions, texts=texts, extras=extras, **parts
        )

    def state_dict(self) -> dict[str, Any]:
        """Itself as tensors on the CPU, lists and numbers, which load without unpickling code."""
        completions = {name: getattr(self.completions, name) for name in ("tokens", "mask", "finished")}
        state = {name: getattr(self, name) for name in _PLAIN} | self._tensors()
        moved: dict[str, Any] = _moved(
            {**state, "batch": dict(self.batch), "completions": completions}, torch.device("cpu")
        )
        return moved

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Rollout":
        """The rollout of a :meth:`state_dict`."""
        return cls(**{**state, "completions": Completions(**state["completions"])})

    def to(self, device: torch.device) -> "Rollout":
        """Itself on a device."""
        return Rollout.from_state_dict(_moved(self.state_dict(), device))

    def _tensors(self) -> dict[str, Tensor]:
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


_PLAIN = ("texts", "tokens_per_step", "statistics", "extras")


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(item, device) for key, item in value.items()}
    return value
