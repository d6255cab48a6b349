"""Rewards for OpenRLHF, which loads this file: ``--reward.remote_url PATH`` or ``--train.agent_func_path PATH``.

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`).
They are checked when the trainer takes ``reward_func`` from this file, because OpenRLHF hides the errors of calls.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.integrations.common.scoring import RewardedCompletion, TrainerReward, get_trainer_reward
from rrg_rewards.integrations.common.transcripts import completion_after_prompt

# reward_func, AgentExecutor and AgentInstance are made when they are used: their settings are checked, and the base
# classes of the agent are OpenRLHF's.
__all__: list[str] = []

_LOGGER = logging.getLogger(__name__)


def _reward_func(
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any],
    **options: Any,  # noqa: ARG001 (OpenRLHF's)
) -> dict[str, Any]:
    """Reward completions.

    Args:
        queries: ``N`` texts of prompt and completion, with special tokens.
        prompts: The ``N`` prompts.
        labels: The reference reports, or JSON objects of all columns that the reward reads.
        options: Ignored.

    Returns:
        ``rewards``, ``scores`` (rewards mapped from ``score_range`` to [0, 1], by which OpenRLHF filters prompts), and
        ``extra_logs`` with ``scorable`` (1 or 0) and sub-scores; each a tensor ``(N,)``.

    Raises:
        ValueError: If a completion is not found in its text, or a column is missing.
    """
    reward = get_trainer_reward()
    try:
        completions = [completion_after_prompt(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
        given = zip(labels, prompts, strict=True)
        rows = [reward.read_row(label, {"prompts": prompt}) for label, prompt in given]
        if len(rows) == 1:
            # Other rollouts call at the same time from other threads.
            return _result(reward, [reward.reward_one(completions[0], rows[0])])
        return _result(reward, reward.reward_batch(completions, rows))
    except Exception:
        # OpenRLHF logs errors at a level that is not shown, and then fails for want of a reward model.
        _LOGGER.exception("the reward of OpenRLHF failed")
        raise


def _result(reward: TrainerReward, rewarded: Sequence[RewardedCompletion]) -> dict[str, Any]:
    columns: dict[str, Tensor] = {
        name: torch.tensor([one.numbers()[name] for one in rewarded]) for name in rewarded[0].numbers()
    }
    rewards = columns.pop("score")
    return {"rewards": rewards, "scores": _scores(rewards, reward.settings.score_range), "extra_logs": columns}


def _scores(rewards: Tensor, score_range: Sequence[float] | None) -> Tensor:
    if score_range is None:
        return rewards
    low, high = score_range
    return ((rewards - low) / (high - low)).clamp(0, 1)


def _make_agent_class(base: type[Any]) -> type[Any]:
    class AgentInstance(base):  # type: ignore[misc]
        """One conversation of a single turn."""

        def __init__(self, *args: Any, **options: Any) -> None:
            """Take no arguments."""

        async def reset(self, states: Mapping[str, Any], **options: Any) -> dict[str, Any]:  # noqa: ARG002
            """Begin with the prompt."""
            return {"observation": states["observation"]}

        async def step(self, states: Mapping[str, Any], **options: Any) -> dict[str, Any]:  # noqa: ARG002
            """Reward the action and end the conversation."""
            reward = get_trainer_reward()
            row = reward.read_row(states["label"], {"prompts": states.get("observation_text")})
            rewarded = await reward.reward_one_async(states["action_text"], row)
            return {**_result(reward, [rewarded]), "environment_feedback": "", "done": True}

    return AgentInstance


def __getattr__(name: str) -> Any:
    if name == "reward_func":
        get_trainer_reward()
        return _reward_func
    if name in ("AgentExecutor", "AgentInstance"):
        from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

        get_trainer_reward()
        instance = _make_agent_class(AgentInstanceBase)
        if name == "AgentInstance":
            return instance

        class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(instance)

        return AgentExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
