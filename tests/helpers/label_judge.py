"""A judge that answers label tasks as the rules do, with scripted failures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from failing_judge import FailingJudge, parsed

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.judges.base import FailureKind

STATES = {"present": "positive", "uncertain": "uncertain", "absent": "negative"}


def rule_answer(report: str, labels: Sequence[str], lexicon: str = "chest_ct") -> dict[str, dict[str, Any]]:
    """Return the answer for a report that the rules give, in the form of the task."""
    members = load_lexicon(lexicon).labels
    answer: dict[str, dict[str, Any]] = {}
    for label in labels:
        found = [one for one in extract_findings(report, lexicon) if one.concept in members[label]]
        chosen = next((one for state in STATES for one in found if one.presence == state), None)
        state = "negative" if chosen is None else STATES[chosen.presence]
        answer[label] = {"quote": None if chosen is None or state == "negative" else chosen.text, "state": state}
    return answer


class LabelJudge(FailingJudge):
    """Answers from rules; fails on reports with a word of ``fail_on``."""

    name = "label-rules"

    def __init__(self, fail_on: Mapping[str, FailureKind] | None = None, lexicon: str = "chest_ct") -> None:
        super().__init__(fail_on=fail_on)
        self.lexicon = lexicon

    def arguments(self) -> dict[str, Any]:
        return {"fail_on": self.fail_on, "lexicon": self.lexicon}

    def answer(self, task: Any, report: str) -> Any:
        return parsed(task, report, json.dumps({"labels": rule_answer(report, task.labels, self.lexicon)}))
