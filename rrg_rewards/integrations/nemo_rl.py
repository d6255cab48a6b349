"""An environment for NeMo RL, registered in the launch script by :func:`register_env`.

``env.rrg`` of the trainer's configuration contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`), or its key ``config`` names a file of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.integrations.common.scoring import RewardedCompletion, get_trainer_reward

# ReportEnvironment is made when NeMo RL asks for it.
__all__ = ["register_env"]

_ENVIRONMENT = f"{__name__}.ReportEnvironment"


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
        rows = [{"prompts": log[:-1], **self._row(own)} for log, own in zip(completions, metadata, strict=True)]
        rewarded = self.reward.reward_batch(completions, rows)
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
        if "ground_truth" in metadata and self.reward.settings.reference_column not in metadata:
            return self.reward.read_row(metadata["ground_truth"], metadata)
        return self.reward.read_row(metadata)

    def _rewards(self, rewarded: Sequence[RewardedCompletion]) -> Tensor | dict[str, Tensor]:
        numbers = [one.numbers() for one in rewarded]
        names = self.reward.parts if self.per_part else ["score"]
        rewards = {name: torch.tensor([one[name] for one in numbers], dtype=torch.float32) for name in names}
        return rewards if self.per_part else rewards["score"]


def register_env(name: str = "rrg") -> None:
    """Register the environment in NeMo RL, before its training script is started.

    NeMo RL needs to know the class of the environment and the Python in which its actor runs, which is that of the
    launch script.

    Args:
        name: Name of the environment: ``env.NAME`` of the configuration contains its settings.

    Raises:
        ValueError: If NeMo RL has an environment of this name.
    """
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments import utils

    utils.register_env(name, _ENVIRONMENT)
    ACTOR_ENVIRONMENT_REGISTRY[_ENVIRONMENT] = PY_EXECUTABLES.SYSTEM


def __getattr__(name: str) -> Any:
    if name != "ReportEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import ray
    from nemo_rl.environments.interfaces import EnvironmentInterface

    # Made when NeMo RL asks for it, because it is an actor of Ray with a base class of NeMo RL.
    return ray.remote(type(name, (_Environment, EnvironmentInterface), {"__module__": __name__}))
