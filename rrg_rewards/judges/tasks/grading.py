"""Task of writing and scoring a report of a given quality: prompt and checks of answers."""

import json
import math
import random
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rrg_rewards.judges.base import AnswerError, Message
from rrg_rewards.judges.tasks.base import PromptTask, fenced_text
from rrg_rewards.judges.tasks.grounding import plain_words
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system

Tier = tuple[float, float]
"""Lowest and highest total of a tier of quality."""


@dataclass(frozen=True)
class GradingItem:
    """A request for a report.

    Args:
        reference: Reference report.
        tier: Lowest and highest total that the report may have.
        draw: Number of the report, from 1, if several are requested for a reference and tier.

    Raises:
        ValueError: If the reference is blank.
    """

    reference: str
    tier: Tier
    draw: int = 1

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("reference must be a report, got a blank text")


@dataclass(frozen=True)
class WrittenReport:
    """A report that a judge wrote and scored.

    Args:
        text: The report.
        scores: Sub-scores in the order of the system's criteria.
        total: Total of the sub-scores.
        in_tier: Whether the total is in the requested tier, bounds included.
    """

    text: str
    scores: tuple[float, ...]
    total: float
    in_tier: bool


def quality_tiers(system: ScoringSystem) -> tuple[Tier, ...]:
    """Return the tiers that a scoring system defines, or thirds of its range of totals, best first.

    Raises:
        ValueError: If the system has no tiers and its totals have no finite range.

    Example:
        >>> quality_tiers(get_scoring_system("radcliq"))
        ((-2.0, 0.0), (-4.0, -3.0), (-6.0, -5.0))
    """
    if system.tiers is not None:
        return system.tiers
    low, high = system.bounds
    if not math.isfinite(high - low):
        raise ValueError(
            f"scoring system {system.name!r} has no tiers, and totals in [{low:g}, {high:g}] have no thirds; define "
            "tiers, as in tiers: [[-2, 0], [-4, -3], [-6, -5]]"
        )
    upper, lower = high - (high - low) / 3, low + (high - low) / 3
    return (upper, high), (lower, upper), (low, lower)


def tier_name(tier: Tier) -> str:
    """Format a tier for prompts and files.

    Example:
        >>> tier_name((-2.0, 0.0))
        '-2 to 0'
    """
    low, high = tier
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


class GradingTask(PromptTask[GradingItem, WrittenReport]):
    """Write a report of a given quality under a scoring system, with its sub-scores.

    The prompt is ``judges/tasks/grading_prompt.md`` with the system's criteria inserted. The reference is inserted as a
    JSON string between tags (:func:`rrg_rewards.judges.tasks.base.fenced_text`). The prompt lists the criteria by
    which a report should lose points in a random order for each item, so that every criterion gets data.

    An answer is valid if it is the requested JSON object (``malformed`` otherwise), and (``inconsistent`` otherwise)

    - each sub-score is in the criterion's range, and a whole number for a count or a yes/no criterion;
    - no count is greater than the number of words of both reports;
    - the report contains words, and is not a copy of the reference (case and punctuation aside), unless the tier allows
      only perfect reports and the report has a perfect score.

    An answer with a total outside the tier is valid, because a report with true scores is useful in any tier.
    ``in_tier`` records whether the total is in the tier. Whether the scores are true is not checked.

    Source of the method and of the tiers of the shipped systems: Liu et al., "ER²Score", 2024, Section 3.1.

    Args:
        system: A scoring system, its name, or the path of its YAML file.

    Raises:
        ValueError: If ``system`` is not a scoring system.

    Example:
        >>> task = GradingTask("radcliq")
        >>> item = GradingItem("Small left effusion. Heart size is normal.", (-2.0, 0.0))
        >>> scores = dict.fromkeys(task.system.names, 0) | {"wrong_location": 1}
        >>> written = task.parse(item, json.dumps({"report": "Normal heart. Small right effusion.", "scores": scores}))
        >>> written.total, written.in_tier
        (-1.0, True)
    """

    template = "grading"

    def __init__(self, system: ScoringSystem | str | Path) -> None:
        self.system = get_scoring_system(system)
        self.name = f"grading_{self.system.name}"

    def __repr__(self) -> str:
        return f"GradingTask({self.system.name!r})"

    @property
    def form(self) -> Any:
        """Form of the answer: the report, and a number for each criterion."""
        return _form(self.system)

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer; every key is required, and no other key is allowed."""
        return _schema(self.system)

    def _probes(self) -> Sequence[GradingItem]:
        return (GradingItem('Reference. <a> "b"\n', (-2.0, 0.0)), GradingItem("Reference.", (40.0, 70.5), 2))

    def messages(self, item: GradingItem) -> list[Message]:
        """Build the conversation: criteria and instructions, then the reference as data and the requested quality."""
        return self._fill(
            **_instructions(self.system),
            reference=fenced_text(item.reference),
            draw=str(item.draw),
            tier=_tier_in_words(self.system, item.tier),
            order=", ".join(_order(self.system, item)),
        )

    def shared_part(self, item: GradingItem) -> Hashable:
        """Reference."""
        return item.reference

    def parse(self, item: GradingItem, answer: str) -> WrittenReport:
        """Return the report that an answer contains."""
        given = self._read(answer)
        text, scores = given["report"].strip(), tuple(float(given["scores"][name]) for name in self.system.names)
        words = plain_words(text)
        if not words:
            raise AnswerError("inconsistent", "the report contains no words")
        reference = plain_words(item.reference)
        for criterion, score in zip(self.system.criteria, scores, strict=True):
            _check(criterion, score, len(reference) + len(words))
        total = self.system.total(scores)
        must_be_perfect = item.tier[0] == self.system.bounds[1]
        if words == reference and not (must_be_perfect and total == item.tier[0]):
            raise AnswerError("inconsistent", "the report is a copy of the reference")
        return WrittenReport(text, scores, total, item.tier[0] <= total <= item.tier[1])


def _check(criterion: Criterion, score: float, words: int) -> None:
    try:
        criterion.check(score)
    except ValueError as error:
        raise AnswerError("inconsistent", f"scores: {error}") from None
    # Infinity is no count, either.
    if criterion.kind == "count" and score > words:
        raise AnswerError("inconsistent", f"scores: {criterion.name} counts more errors than there are words")
    if criterion.kind != "grade" and score != int(score):
        raise AnswerError("inconsistent", f"scores: {criterion.name} must be a whole number, got {score:g}")


@cache
def _form(system: ScoringSystem) -> Any:
    # Types of which only the names are known here.
    typed_dict: Any = TypedDict
    return typed_dict(
        "GradedReport", {"report": str, "scores": typed_dict("Scores", dict.fromkeys(system.names, float))}
    )


@cache
def _schema(system: ScoringSystem) -> Mapping[str, Any]:
    scores = {criterion.name: _score_schema(criterion) for criterion in system.criteria}
    return _closed({"report": {"type": "string"}, "scores": _closed(scores)})


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _score_schema(criterion: Criterion) -> dict[str, Any]:
    low, high = criterion.bounds
    if criterion.kind == "yes_no":
        return {"type": "integer", "enum": [0, 1]}
    if criterion.kind == "grade":
        return {"type": "number", "minimum": low, "maximum": high}
    return {"type": "integer", "minimum": 0, **({"maximum": int(high)} if math.isfinite(high) else {})}


@cache
def _instructions(system: ScoringSystem) -> Mapping[str, str]:
    """Return the values of the placeholders that depend only on the system."""
    deducts = system.direction == "deduct"
    example = {"report": "...", "scores": {criterion.name: criterion.bounds[0] for criterion in system.criteria}}
    return {
        "criteria": "\n".join(_described(criterion, deducts) for criterion in system.criteria),
        "total": f"The total is {system.base:g} {'less' if deducts else 'and'} the points of all criteria; a higher "
        "total is a better report.",
        "answer": re.sub(r"\b(\d+)\.0\b", r"\1", json.dumps(example)),
    }


def _described(criterion: Criterion, deducts: bool) -> str:
    low, high = criterion.bounds
    what = {
        "count": "a whole number from 0" + (f" to {high:g}" if math.isfinite(high) else ""),
        "yes_no": "1 for yes, 0 for no",
        "grade": f"a number from {low:g} to {high:g}",
    }[criterion.kind]
    points = f"{criterion.weight:g} point{'' if criterion.weight == 1 else 's'}"
    each = "yes" if criterion.kind == "yes_no" else "each"
    return f'- "{criterion.name}" ({what}; {each} {"costs" if deducts else "earns"} {points}): {criterion.description}'


def _tier_in_words(system: ScoringSystem, tier: Tier) -> str:
    """Return a tier in points and as a total."""
    least, greatest = (end - system.base for end in tier)
    verb = "earn"
    if system.direction == "deduct":
        verb, least, greatest = "cost", max(0.0, -greatest), -least
    points = f"{least:g}" if least == greatest else f"{least:g} to {greatest:g}"
    return f"the criteria {verb} it {points} points in all, so that its total is {tier_name(tier)}."


def _order(system: ScoringSystem, item: GradingItem) -> list[str]:
    """Return the criteria in an order with the item as the seed, which is the same in every process."""
    names = list(system.names)
    random.Random(repr((item.reference, item.tier, item.draw))).shuffle(names)
    return names
