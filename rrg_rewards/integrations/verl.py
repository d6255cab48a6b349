"""Rewards for verl: ``custom_reward_function.path=pkg://rrg_rewards.integrations.verl``.

The settings (:class:`rrg_rewards.integrations.common.settings.TrainerSettings`) are ``reward_kwargs``, or are read from
the file that ``reward_kwargs.config`` or the environment variable ``RRG_REWARDS_CONFIG`` names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.integrations.common.scoring import TrainerReward, get_trainer_reward

__all__ = ["compute_score", "compute_score_batch", "compute_score_sync"]


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    reward_router_address: str | None = None,  # noqa: ARG001 (verl passes it beside a reward model)
    reward_model_tokenizer: Any = None,  # noqa: ARG001
    **settings: Any,
) -> dict[str, float]:
    """Reward one completion, for verl's reward managers.

    Args:
        data_source: Name of the data set, available as a column.
        solution_str: The completion.
        ground_truth: The reference report, or a mapping of columns, or this mapping as JSON.
        extra_info: Further columns.
        reward_router_address: Ignored.
        reward_model_tokenizer: Ignored.
        settings: Settings of the reward.

    Returns:
        ``score``, the reward; ``scorable``, 1 or 0; and sub-scores, with the same keys for each completion. The parts
        of a composed reward are keys for ``gdpo_reward_keys``.

    Raises:
        ValueError: If the settings are invalid, or a column is missing.

    Example:
        >>> import asyncio
        >>> settings = {"reward": {"name": "crg", "prior": 0.2}, "missing": -1.0}
        >>> scores = asyncio.run(compute_score("ct_rate", "Cardiomegaly.", "Cardiomegaly.", {}, **settings))
        >>> round(scores["score"], 4), scores["scorable"], scores["tp"]
        (0.2778, 1.0, 1.0)
        >>> asyncio.run(compute_score("ct_rate", "Cardiomegaly.", None, {}, **settings))["score"]
        -1.0
    """
    reward = get_trainer_reward(settings)
    row = _row(reward, data_source, ground_truth, extra_info)
    return (await reward.reward_one_async(solution_str, row)).numbers()


def compute_score_sync(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, float]:
    """Do the same as :func:`compute_score` for managers that await nothing: ``remote``, and those of older versions.

    Example:
        >>> settings = {"reward": {"name": "crg", "prior": 0.2}, "missing": -1.0}
        >>> compute_score_sync("ct_rate", "Cardiomegaly.", None, {}, **settings)["score"]
        -1.0
    """
    reward = get_trainer_reward(settings)
    return reward.reward_one(solution_str, _row(reward, data_source, ground_truth, extra_info)).numbers()


def compute_score_batch(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    **settings: Any,
) -> list[dict[str, float]]:
    """Reward ``N`` completions, for the manager ``batch`` of older versions; see :func:`compute_score`.

    Example:
        >>> settings = {"reward": {"name": "crg", "prior": 0.2}, "missing": "mean"}
        >>> scores = compute_score_batch(["ct_rate"] * 2, ["Edema."] * 2, ["Normal.", None], [{}, {}], **settings)
        >>> [(one["score"], one["scorable"]) for one in scores]
        [(0.0, 1.0), (0.0, 0.0)]
    """
    reward = get_trainer_reward(settings)
    rows = [_row(reward, *values) for values in zip(data_sources, ground_truths, extra_infos, strict=True)]
    return [one.numbers() for one in reward.reward_batch(solution_strs, rows)]


def _row(
    reward: TrainerReward, data_source: str, ground_truth: Any, extra_info: Mapping[str, Any] | None
) -> dict[str, Any]:
    return reward.read_row(ground_truth, {"data_source": data_source, **(extra_info or {})})
