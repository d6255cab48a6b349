"""Task set of verifiers: write the impression of a report from its findings."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from rrg_rewards.integrations.verifiers import reward_reply
from rrg_rewards.recipes.environments.studies import PHANTOM_SETTINGS, PROMPT, study_tasks

__all__ = ["ImpressionTaskset"]


class ImpressionData(vf.TaskData):
    """Data of one study; ``columns`` are those that the reward reads."""

    columns: dict[str, Any]


class ImpressionTaskConfig(vf.TaskConfig):
    """Settings of the reward."""

    settings: dict[str, Any] = Field(default_factory=lambda: dict(PHANTOM_SETTINGS))
    """The settings, or ``config``, the path of their file."""


class ImpressionTask(vf.Task[ImpressionData, vf.State, ImpressionTaskConfig]):
    """The task of one study."""

    @vf.reward(weight=1.0)
    async def report(self, trace: vf.Trace) -> float:
        """Reward the last reply."""
        return await reward_reply(trace, self.data.columns, self.config.settings)


class ImpressionConfig(vf.TasksetConfig):
    """Studies of the task set."""

    task: ImpressionTaskConfig = ImpressionTaskConfig()
    table: str | None = None
    """CSV, JSONL or Parquet file. Default: phantom studies."""
    prompt: str = PROMPT
    """Prompt with columns of the table in braces."""
    findings_column: str = "findings"
    """Column of the findings."""
    num_studies: int = 1000
    """Number of phantom studies."""
    seed: int = 0
    """Seed of the phantom studies."""


class ImpressionTaskset(vf.Taskset[ImpressionTask, ImpressionConfig]):
    """A task for each study of the table."""

    def load(self) -> Iterator[ImpressionTask]:
        """Yield the tasks in the order of the table."""
        own = self.config
        settings = own.task.settings
        for study in study_tasks(settings, own.table, own.prompt, own.findings_column, own.num_studies, own.seed):
            yield ImpressionTask(ImpressionData(prompt=study.prompt, columns=dict(study.columns)), own.task)
