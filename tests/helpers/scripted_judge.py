"""A judge with answers that can be computed by hand, and scripted failures."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from failing_judge import FailingJudge

from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import FailureKind, JudgeTask, ReportPair

LEVELS = {
    "pneumothorax": "urgent",
    "edema": "actionable_not_urgent",
    "effusion": "actionable_not_urgent",
    "nodule": "not_actionable_not_urgent",
    "scar": "benign_expected",
}
_FINDING = re.compile(rf"(?:(left|right) )?({'|'.join(LEVELS)})")


def words_found(report: str) -> dict[str, str]:
    """Return the side of each word that is a finding, empty if none is stated."""
    return {word: side for side, word in _FINDING.findall(report.lower())}


def evaluate_words(pair: ReportPair) -> CrimsonEvaluation:
    """A word is a finding; the same word in both reports is a match, with a location error if the sides differ."""
    reference, predicted = words_found(pair.reference), words_found(pair.candidate)
    both = [word for word in reference if word in predicted]
    return CrimsonEvaluation(
        _findings("R", reference),
        _findings("P", predicted),
        tuple((f"R {word}", f"P {word}") for word in both),
        tuple(f"P {word}" for word in predicted if word not in reference),
        tuple(f"R {word}" for word in reference if word not in predicted),
        tuple(
            CrimsonAttributeError(f"R {word}", f"P {word}", "significant", ("location",))
            for word in both
            if reference[word] != predicted[word]
        ),
    )


def _findings(letter: str, words: Mapping[str, str]) -> tuple[CrimsonFinding, ...]:
    return tuple(
        CrimsonFinding(f"{letter} {word}", f"{side} {word}".strip(), LEVELS[word]) for word, side in words.items()
    )


class ScriptedJudge(FailingJudge):
    """Finds words, synchronously unless it ``waits``."""

    name = "scripted"

    def __init__(
        self, waits: bool = False, fail_on: Mapping[str, FailureKind] | None = None, failing_rank: int | None = None
    ) -> None:
        super().__init__(waits, fail_on, failing_rank)

    def evaluate_now(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        return super().evaluate_now(task, items) if self.waits else self.answers(task, items)

    def report(self, task: JudgeTask[Any, Any], item: ReportPair) -> str:
        return item.candidate

    def answer(self, task: JudgeTask[Any, Any], item: ReportPair) -> CrimsonEvaluation:
        return evaluate_words(item)
