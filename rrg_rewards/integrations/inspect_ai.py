"""A scorer for Inspect AI: ``Task(dataset=..., solver=generate(), scorer=report_scorer(reward="crimson"))``.

Its arguments are the settings (:class:`rrg_rewards.integrations.common.settings.TrainerSettings`), or ``config``, a
file of them. The target of a sample is the reference report, and its metadata are the further columns. The value of a
sample is the reward, with the sub-scores as its metadata; an unscorable completion is unscored.
"""

from functools import cache
from typing import Any

from rrg_rewards.integrations.common.scoring import TrainerReward
from rrg_rewards.integrations.common.settings import read_settings

# `report_scorer` is made when it is imported, because Inspect AI registers it.
__all__: list[str] = []


@cache
def _make_report_scorer() -> Any:
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState

    def report_scorer(**settings: Any) -> Scorer:
        reward = TrainerReward(read_settings(settings))

        async def score(state: TaskState, target: Target) -> Score:
            row = reward.read_row(target.text, state.metadata)
            scored = await reward.reward_one_async(state.output.completion, row)
            details = {"signature": reward.reward.signature, "scorable": scored.is_scorable, **scored.details}
            if scored.reward is None:
                return Score.unscored(answer=state.output.completion, reason="unscorable", metadata=details)
            return Score(value=scored.reward, answer=state.output.completion, metadata=details)

        return score

    return scorer(metrics=[mean(), stderr()])(report_scorer)


def __getattr__(name: str) -> Any:
    if name == "report_scorer":
        return _make_report_scorer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
