"""An environment for NeMo RL: ``register_env("rrg", "rrg_rewards.integrations.nemo_rl.ReportEnvironment")``.

``env.rrg`` of the trainer's configuration contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`), or its key ``config`` names a file of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.integrations.common.columns import read_row
from rrg_rewards.integrations.common.scoring import RewardedCompletion, get_trainer_reward

__all__: list[str] = []


class _Environment:
    """Rewards the last reply of each conversation and ends it.

    Args:
        cfg: The settings, and ``per_part``: whether the rewards are those of each part of a composed reward, by name,
            instead of their sum.

    Raises:
        ValueError: If the settings are invalid, or ``per_part`` is set for a reward without parts.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        settings = dict(cfg or {})
        self.per_part = bool(settings.pop("per_part", False))
        self.reward = get_trainer_reward(settings)
        if self.per_part and not self.reward.parts:
            raise ValueError("per_part needs a composed reward: a list of rewards")

    def step(self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Any]) -> Any:
        """Return the rewards of ``N`` conversations.

        Args:
            message_log_batch: The conversations.
            metadata: The columns of each; or ``ground_truth``, the reference report or a JSON object of columns, with
                further columns beside it.

        Returns:
            NeMo RL's ``EnvironmentReturn``. The metadata also contain ``scorable``.
        """
        from nemo_rl.environments.interfaces import EnvironmentReturn

        completions = [
            [{"role": message["role"], "content": message["content"]} for message in log] for log in message_log_batch
        ]
        rewarded = self.reward.reward_batch(completions, [self._row(one) for one in metadata])
        length = len(rewarded)
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in rewarded],
            metadata=[{**own, "scorable": float(one.is_scorable)} for own, one in zip(metadata, rewarded, strict=True)],
            next_stop_strings=[None] * length,
            rewards=self._rewards(rewarded),
            terminateds=torch.ones(length, dtype=torch.bool),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """Return the batch unchanged, and the share of scorable completions and the mean reward."""
        shares = [own["scorable"] for own in batch.get("extra_env_info") or () if own and "scorable" in own]
        metrics = {"scorable": sum(shares) / len(shares)} if shares else {}
        if (total := batch.get("total_reward")) is not None:
            metrics["mean_reward"] = float(total.double().mean())
        return batch, metrics

    def shutdown(self) -> None:
        """Do nothing."""

    def _row(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        name = self.reward.settings.reference_column
        if "ground_truth" in metadata and name not in metadata:
            return read_row(metadata["ground_truth"], name, metadata)
        return read_row(metadata, name)

    def _rewards(self, rewarded: Sequence[RewardedCompletion]) -> Tensor | dict[str, Tensor]:
        numbers = [one.numbers() for one in rewarded]
        names = self.reward.parts if self.per_part else ["score"]
        rewards = {name: torch.tensor([one[name] for one in numbers], dtype=torch.float32) for name in names}
        return rewards if self.per_part else rewards["score"]


def __getattr__(name: str) -> Any:
    if name != "ReportEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import ray
    from nemo_rl.environments.interfaces import EnvironmentInterface

    # Made when NeMo RL asks for it, because it is an actor of Ray with a base class of NeMo RL.
    return ray.remote(type(name, (_Environment, EnvironmentInterface), {"__module__": __name__}))
