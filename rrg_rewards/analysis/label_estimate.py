"""Cost of labels by a language model, estimated without a request."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rrg_rewards.analysis.answers import Estimate, estimate_requests
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, Result, in_request_order
from rrg_rewards.judges.tasks.labels import LabelsTask, StatedLabel
from rrg_rewards.labelers.judge import JudgeLabeler


def estimate_labels(labeler: JudgeLabeler, batches: Iterable[Sequence[str]]) -> Estimate:
    """Estimate the cost of the labels of reports; nothing is sent.

    The length of an answer is that of one in which each label has its name as quote. The answers of a model may be
    shorter, with ``null`` for labels that a report does not mention, or longer, with longer quotes.

    Args:
        labeler: The labeler with its judge. Answers in the cache of the judge, and reports that the labeler remembers
            from earlier calls, are not subtracted.
        batches: The reports, in batches as they will be labelled. Blank reports, and equal ones that the labeler will
            remember, are not requested.

    Example:
        >>> labeler = JudgeLabeler("ct_rate", {"name": "openai", "model": "m", "price": (1.0, 4.0)})
        >>> found = estimate_labels(labeler, [["Hiatal hernia.", ""], ["Hiatal hernia.", "Normal."]])
        >>> found.requests, found.cacheable_tokens > found.prompt_tokens / 3
        (2, True)
    """
    asked = _AskedReports()
    stand_in = JudgeLabeler(**{**labeler.arguments(), "judge": asked})
    for batch in batches:
        stand_in.states(batch)
    task = labeler.task
    prompts = (task.messages(report) for report in asked.reports)
    answers = (_expected_answer(task) for _ in asked.reports)
    return estimate_requests(prompts, answers, labeler.judge.arguments())


class _AskedReports(Judge):
    """Keeps the reports of all requests, in their order, and states that no label is positive."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def arguments(self) -> dict[str, Any]:
        """No argument."""
        return {}

    @property
    def signature(self) -> str:
        """Name of the class."""
        return type(self).__name__

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Keep the reports."""
        assert isinstance(task, LabelsTask)
        self.reports += in_request_order(task, dict.fromkeys(map(str, items)))
        stated: Any = (StatedLabel("negative", None),) * len(task.labels)
        return [stated] * len(items)


def _expected_answer(task: LabelsTask) -> str:
    """Return a text about as long as a judge's answer."""
    return json.dumps({"labels": {label: {"quote": label, "state": "negative"} for label in task.labels}})
