"""Make the labeler of ``--labeler``, and label reports in batches with a progress bar."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rrg_rewards.cli.judge_options import judge_from_option
from rrg_rewards.cli.options import UsageError
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.labelers.base import Labeler, LabelledReports, label_reports
from rrg_rewards.labelers.registry import LabelerSetting, get_labeler, needs_judge

__all__ = ["label_in_batches", "labeler_from_option"]


def label_in_batches(
    labeler: Labeler, reports: Sequence[str], batch_size: int, report: Callable[[int, int], None]
) -> LabelledReports:
    """Label ``batch_size`` reports at a time, so that memory does not grow with the table.

    Args:
        labeler: The labeler.
        reports: ``N`` report texts.
        batch_size: Maximum number of reports in a batch.
        report: Function that :meth:`Terminal.progress` yields.
    """
    report(0, len(reports))
    labels = torch.zeros(len(reports), len(labeler.labels), dtype=torch.bool)
    failures: list[JudgeFailure | None] = []
    for start in range(0, len(reports), batch_size):
        batch = reports[start : start + batch_size]
        found = label_reports(labeler, batch)
        labels[start : start + len(batch)] = found.labels
        failures += found.failures or (None,) * len(batch)
        report(len(batch), 0)
    return LabelledReports(labels, tuple(failures))


def labeler_from_option(setting: LabelerSetting, judge: str | Mapping[str, Any] | None = None) -> Labeler:
    """Make a labeler from the value of ``--labeler`` or ``--set METRIC.labeler``.

    Args:
        setting: Name or settings of the labeler.
        judge: Value of ``--judge``, for a labeler with a judge.

    Raises:
        UsageError: For an unknown name, or a labeler that needs a judge and gets none.
    """
    further = {}
    if needs_judge(setting):
        if judge is None:
            raise UsageError(
                f"argument --labeler: {setting} needs a language model: --judge openai:MODEL or local:MODEL"
            )
        further["judge"] = judge_from_option(judge)
    try:
        return get_labeler(setting, **further)
    except (ValueError, TypeError) as error:
        raise UsageError(f"argument --labeler: {error}") from error
