"""A judge with answers that can be computed by hand, and scripted failures."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import FailureKind, Judge, JudgeFailure, JudgeTask, ReportPair

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


class ScriptedJudge(Judge):
    """Finds words, synchronously or after a turn of the event loop.

    Args:
        waits: Whether answers take a turn of the event loop.
        fail_on: Kind of failure by a word of the candidate report, ``""`` for every report.
        failing_rank: The only process on which the judge fails; default: all.
    """

    def __init__(
        self, waits: bool = False, fail_on: Mapping[str, FailureKind] | None = None, failing_rank: int | None = None
    ) -> None:
        self.waits = waits
        self.fail_on = dict(fail_on or {})
        self.failing_rank = failing_rank
        self.is_immediate = not waits
        self.asked: list[list[Any]] = []

    def arguments(self) -> dict[str, Any]:
        return {"waits": self.waits, "fail_on": self.fail_on, "failing_rank": self.failing_rank}

    @property
    def signature(self) -> str:
        return "scripted"

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        if self.waits:
            await asyncio.sleep(0)
        return self.evaluate_now(task, items) if self.is_immediate else self._answers(items)

    def evaluate_now(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        return super().evaluate_now(task, items) if self.waits else self._answers(items)

    def _answers(self, items: Sequence[Any]) -> list[Any]:
        self.asked.append(list(items))
        return [self._answer(item) for item in items]

    def _answer(self, item: ReportPair) -> CrimsonEvaluation | JudgeFailure:
        rank = dist.get_rank() if dist.is_initialized() else 0
        here = self.failing_rank is None or rank == self.failing_rank
        for word, kind in self.fail_on.items():
            if here and word in item.candidate:
                return JudgeFailure(kind, "told to")
        return evaluate_words(item)
