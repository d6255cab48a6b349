"""Tasks of report environments: a prompt for each study, and the columns that its reward reads."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rrg_rewards.data.phantom.studies import phantom_rows
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.integrations.common.scoring import get_trainer_reward

logger = logging.getLogger(__name__)

PROMPT = "Write the impression of this radiology report, and nothing else.\n\nFindings: {findings}"
"""Default prompt; the names in braces are columns of the table."""

# The share of positive labels in the impressions of 2,000 phantom studies is 0.189.
PHANTOM_SETTINGS: Mapping[str, Any] = {
    "reward": {"name": "crg", "prior": 0.19},
    "reference_column": "impression",
    "missing": -1.0,
}
"""Default settings of the reward, for phantom studies."""


@dataclass(frozen=True)
class StudyTask:
    """The task of one study.

    Args:
        prompt: The prompt.
        columns: The columns that the reward reads, with the reference.
    """

    prompt: str
    columns: Mapping[str, Any]


def study_tasks(
    settings: Mapping[str, Any],
    table: str | None = None,
    prompt: str = PROMPT,
    findings_column: str = "findings",
    num_studies: int = 1000,
    seed: int = 0,
) -> list[StudyTask]:
    """Return the tasks of a table, or of phantom studies. Rows without findings or reference are left out and counted.

    Args:
        settings: Settings of the reward, see :func:`rrg_rewards.integrations.common.settings.read_settings`.
        table: CSV, JSONL or Parquet file. Default: phantom studies.
        prompt: Prompt with columns of the table in braces. A missing section is left out with the text before it.
        findings_column: Column of the findings.
        num_studies: Number of phantom studies.
        seed: Seed of the phantom studies.

    Raises:
        FileNotFoundError: If the table does not exist.
        ValueError: If the settings are invalid, the table lacks a column, or no row is usable.

    Example:
        >>> task = study_tasks(PHANTOM_SETTINGS, prompt="Findings: {findings}", num_studies=3)[0]
        >>> task.prompt[:20], list(task.columns)
        ('Findings: An earlier', ['impression'])
    """
    if table is None:
        rows = Table.from_records(phantom_rows(num_studies, seed), source="phantom studies")
    else:
        rows = read_table(table)
    reward = get_trainer_reward(settings)
    reference = reward.settings.reference_column
    prompts, findings, references = rows.texts(prompt), rows.texts(findings_column), rows.texts(reference)
    names = [reference, *(name for name in reward.reward.columns if name != reference)]
    columns = [dict(zip(names, cells, strict=True)) for cells in zip(*map(rows.values, names), strict=True)]
    tasks = [
        StudyTask(text, row)
        for text, row, *needed in zip(prompts, columns, findings, references, strict=True)
        if text is not None and all(one is not None and one.strip() for one in needed)
    ]
    if not tasks:
        raise TableError(f"{rows.source}: none of {len(rows)} rows has both {findings_column} and {reference}")
    if dropped := len(rows) - len(tasks):
        place = f"{rows.source}: left out {dropped} of {len(rows)} rows"
        logger.warning("%s without %s or %s", place, findings_column, reference)
    return tasks
