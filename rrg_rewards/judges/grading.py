"""Reports of graded quality as a task for language models: write one that earns a total, and score it."""

import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rrg_rewards.judges.base import AnswerError, JudgeTask, Message
from rrg_rewards.judges.escaping import fill, quote_text
from rrg_rewards.judges.templates import load_template, prompt_digest
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system
from rrg_rewards.utilities.imports import require

__all__ = ["GradingItem", "GradingTask", "WrittenReport", "quality_tiers", "tier_name"]

Tier = tuple[float, float]
"""Least and greatest total."""

_WORD = re.compile(r"\w+")
# From here on whole numbers are not what they seem to floating point.
_GREATEST = 2**53
# Everything that a prompt may do with an item shows in what it makes of these.
_PROBES = (('Reference. <a> "b"\n', (-2.0, 0.0), 1), ("Reference.", (40.0, 70.5), 2))


@dataclass(frozen=True)
class GradingItem:
    """A report to be written.

    Args:
        reference: Reference report.
        tier: Least and greatest total of the report that is asked for.
        draw: Which of several reports for the same reference and tier, from 1.

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
        total: Their total.
        in_tier: Whether the total lies in the tier that was asked for, its ends included.
    """

    text: str
    scores: tuple[float, ...]
    total: float
    in_tier: bool


def quality_tiers(system: ScoringSystem) -> tuple[Tier, ...]:
    """Tiers of quality of a scoring system: its own, or thirds of its totals, best first.

    Raises:
        ValueError: If it has none, and its totals have no least or greatest that could be divided.

    Example:
        >>> quality_tiers(get_scoring_system("radcliq"))
        ((-2.0, 0.0), (-4.0, -3.0), (-6.0, -5.0))
    """
    if system.tiers is not None:
        return system.tiers
    low, high = system.bounds
    if not math.isfinite(high - low):
        raise ValueError(
            f"scoring system {system.name!r} has no tiers, and totals in [{low:g}, {high:g}] have no thirds; give it "
            "tiers, as in tiers: [[-2, 0], [-4, -3], [-6, -5]]"
        )
    upper, lower = high - (high - low) / 3, low + (high - low) / 3
    return (upper, high), (lower, upper), (low, lower)


def tier_name(tier: Tier) -> str:
    """A tier in words.

    Example:
        >>> tier_name((-2.0, 0.0))
        '-2 to 0'
    """
    low, high = tier
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


class GradingTask(JudgeTask[GradingItem, WrittenReport]):
    """Ask for a report of a given quality under a scoring system, with its sub-scores.

    The instructions are this package's own (``judges/prompts/grading.md``), with the system's criteria in them. The
    reference goes in as a JSON string between tags (:func:`rrg_rewards.judges.escaping.quote_text`). In which order a
    report should lose points by the criteria is drawn by item, so that no criterion goes without data.

    An answer counts if it is the JSON object that was asked for (``malformed`` otherwise), and (``inconsistent``)

    - each sub-score is in the criterion's range, and a whole number where it is a count or a yes/no;
    - no count is greater than the number of words of both reports;
    - the report says something, and is no copy of the reference, whatever the case and punctuation, unless the tier
      asks for nothing but perfect reports and this one is scored as such.

    Whether the total lies in the tier is noted and not asked for again: a report with true scores is worth having,
    whichever tier it falls into. Whether the scores are true is the judge's word and is not checked.

    Source of the idea and of the shipped systems' tiers: Liu et al., "ER²Score", 2024, Section 3.1.

    Args:
        system: The scoring system, its name, or the path of its YAML file.

    Raises:
        ValueError: If ``system`` is no scoring system.

    Example:
        >>> task = GradingTask("radcliq")
        >>> item = GradingItem("Small left effusion. Heart size is normal.", (-2.0, 0.0))
        >>> scores = dict.fromkeys(task.system.names, 0) | {"wrong_location": 1}
        >>> written = task.parse(item, json.dumps({"report": "Normal heart. Small right effusion.", "scores": scores}))
        >>> written.total, written.in_tier
        (-1.0, True)
    """

    def __init__(self, system: ScoringSystem | str | Path) -> None:
        self.system = get_scoring_system(system)
        self.name = f"grading_{self.system.name}"

    def __eq__(self, other: object) -> bool:
        # Not those of a subclass, which may ask otherwise.
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.system))

    def __repr__(self) -> str:
        return f"GradingTask({self.system.name!r})"

    @property
    def prompt_hash(self) -> str:
        """First digits of the SHA-256 of messages and schema."""
        return _prompt_hash(self)

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer: every key required, no other allowed."""
        return _schema(self.system)

    def messages(self, item: GradingItem) -> list[Message]:
        """The conversation to answer: criteria and instructions, then the reference as data and what is wanted."""
        _, user = load_template("grading")
        filled = fill(
            user,
            reference=quote_text(item.reference),
            draw=str(item.draw),
            tier=_asked(self.system, item.tier),
            order=", ".join(_order(self.system, item)),
        )
        return [{"role": "system", "content": _instructions(self.system)}, {"role": "user", "content": filled}]

    def parse(self, item: GradingItem, answer: str) -> WrittenReport:
        """The report that an answer gives, if it stands all checks.

        Raises:
            AnswerError: ``malformed`` or ``inconsistent``, saying what is wrong without report text.
        """
        text, scores = _read(answer, self.system)
        if not _WORD.search(text):
            raise AnswerError("inconsistent", "the report says nothing")
        for criterion, score in zip(self.system.criteria, scores, strict=True):
            _check(criterion, score, len(_words(item.reference)) + len(_words(text)))
        total = self.system.total(scores)
        must_be_perfect = item.tier[0] == self.system.bounds[1]
        if _words(text) == _words(item.reference) and not (must_be_perfect and total == item.tier[0]):
            raise AnswerError("inconsistent", "the report is a copy of the reference")
        return WrittenReport(text, scores, total, item.tier[0] <= total <= item.tier[1])


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _check(criterion: Criterion, score: float, words: int) -> None:
    try:
        criterion.check(score)
    except ValueError as error:
        raise AnswerError("inconsistent", f"scores: {error}") from None
    if criterion.kind != "grade" and score != int(score):
        raise AnswerError("inconsistent", f"scores: {criterion.name} must be a whole number, got {score:g}")
    if criterion.kind == "count" and score > words:
        raise AnswerError("inconsistent", f"scores: {criterion.name} counts more errors than there are words")


def _answers() -> ModuleType:
    require("pydantic", extra="judge")
    return require("rrg_rewards.judges.answers", extra="judge")


def _read(answer: str, system: ScoringSystem) -> tuple[str, tuple[float, ...]]:
    """Report and sub-scores of an answer, which may be out of range."""
    content = _answers().read_json(answer)
    fields = _object(content, ("report", "scores"), "the answer")
    if not isinstance(fields["report"], str):
        raise AnswerError("malformed", "report must be a string")
    scores = _object(fields["scores"], system.names, "scores")
    for name, score in scores.items():
        # True is a number to Python.
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise AnswerError("malformed", f"scores: {name} must be a number")
        if abs(score) > _GREATEST:
            raise AnswerError("inconsistent", f"scores: {name} is beyond any range")
    return fields["report"].strip(), tuple(float(scores[name]) for name in system.names)


def _object(content: Any, names: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise AnswerError("malformed", f"{where} must be an object")
    if missing := [name for name in names if name not in content]:
        raise AnswerError("malformed", f"{where} lacks {', '.join(missing)}")
    # Not by their names, which the judge chose.
    if further := len(content) - len(names):
        raise AnswerError("malformed", f"{where} holds {further} keys too many")
    return content


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
def _instructions(system: ScoringSystem) -> str:
    template, _ = load_template("grading")
    deducts = system.direction == "deduct"
    example = {"report": "...", "scores": {criterion.name: criterion.bounds[0] for criterion in system.criteria}}
    return fill(
        template,
        criteria="\n".join(_told(criterion, deducts) for criterion in system.criteria),
        total=f"The total is {system.base:g} {'less' if deducts else 'and'} the points of all criteria; a higher total "
        "is a better report.",
        answer=re.sub(r"\b(\d+)\.0\b", r"\1", json.dumps(example)),
    )


def _told(criterion: Criterion, deducts: bool) -> str:
    low, high = criterion.bounds
    what = {
        "count": "a whole number from 0" + (f" to {high:g}" if math.isfinite(high) else ""),
        "yes_no": "1 for yes, 0 for no",
        "grade": f"a number from {low:g} to {high:g}",
    }[criterion.kind]
    points = f"{criterion.weight:g} point{'' if criterion.weight == 1 else 's'}"
    each = "yes" if criterion.kind == "yes_no" else "each"
    return f'- "{criterion.name}" ({what}; {each} {"costs" if deducts else "earns"} {points}): {criterion.description}'


def _asked(system: ScoringSystem, tier: Tier) -> str:
    """A tier as points and total."""
    least, greatest = (end - system.base for end in tier)
    verb = "earn"
    if system.direction == "deduct":
        verb, least, greatest = "cost", max(0.0, -greatest), -least
    points = f"{least:g}" if least == greatest else f"{least:g} to {greatest:g}"
    return f"the criteria {verb} it {points} points in all, so that its total is {tier_name(tier)}."


def _order(system: ScoringSystem, item: GradingItem) -> list[str]:
    """The criteria in an order of the item's own, the same in every process."""
    names = list(system.names)
    random.Random(repr((item.reference, item.tier, item.draw))).shuffle(names)
    return names


# Few, since a task may hold on to what it records to.
@lru_cache(maxsize=16)
def _prompt_hash(task: GradingTask) -> str:
    probes = [GradingItem(*probe) for probe in _PROBES]
    return prompt_digest([task.messages(probe) for probe in probes], task.schema)
