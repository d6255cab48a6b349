"""The plan of ``rrg-rewards grade``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.appending import read_whole_lines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, quality_tiers, tier_name

__all__ = ["Plan", "describe_plan", "expected_answer", "make_plan"]

_HELD_COLUMNS = ("reference", "tier", "draw", "in_tier", "system", "judge", "prompt_hash")

Key = tuple[str, str, str]
"""Reference, tier and draw, which identify a report in the output."""


@dataclass(frozen=True)
class Plan:
    """The reports to request, and those that the output already contains.

    Args:
        task: The task.
        items: Reports to request, grouped by reference.
        wanted: Number of reports of each tier after the run.
        held: Number of these reports that the output contains, by tier.
        held_in_tier: Number of held reports with a total in the requested tier, by tier.
        judges: Signatures of the judges in the output.
        prompts: Hashes of the prompts in the output.
    """

    task: GradingTask
    items: tuple[GradingItem, ...]
    wanted: Counter[str]
    held: Counter[str] = field(default_factory=Counter)
    held_in_tier: Counter[str] = field(default_factory=Counter)
    judges: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()

    def summary(self) -> dict[str, Any]:
        """Return the counts for ``--json``."""
        return {
            "system": self.task.system.name,
            "prompt_hash": self.task.prompt_hash,
            "wanted": dict(self.wanted),
            "held": {name: self.held[name] for name in self.wanted},
            "to_ask": len(self.items),
        }


def make_plan(task: GradingTask, references: Sequence[str], per_tier: int, output: str | Path) -> Plan:
    """Plan the reports of all tiers for each reference, without those that the output contains.

    Args:
        task: The task.
        references: Reference reports. Duplicates count once.
        per_tier: Number of reports for each reference and tier.
        output: File of reports, which is only read and need not exist.

    Raises:
        TableError: If the output is not a file of graded reports, or was graded under another scoring system.
        ValueError: If the system has no tiers.
    """
    wanted = [
        GradingItem(reference, tier, draw)
        for reference in dict.fromkeys(references)
        for tier in quality_tiers(task.system)
        for draw in range(1, per_tier + 1)
    ]
    counts = Counter(tier_name(item.tier) for item in wanted)
    table = read_whole_lines(output)
    if table is None:
        return Plan(task, tuple(wanted), counts)
    if missing := [name for name in _HELD_COLUMNS if name not in table.columns]:
        raise TableError(f"{output}: exists, but is not an output of this command: it lacks {', '.join(missing)}")
    columns = {name: table.columns[name] for name in _HELD_COLUMNS}
    if others := sorted({str(name) for name in columns["system"]} - {task.system.name}):
        raise TableError(
            f"{output}: contains reports graded under {others[0]}, not {task.system.name}; choose another --output"
        )
    texts = (map(str, columns[name]) for name in ("reference", "tier", "draw"))
    keys: list[Key] = list(zip(*texts, strict=True))
    in_tier = dict(zip(keys, columns["in_tier"], strict=True))
    held = [item for item in wanted if _key(item) in in_tier]
    return Plan(
        task,
        tuple(item for item in wanted if _key(item) not in in_tier),
        counts,
        Counter(tier_name(item.tier) for item in held),
        Counter(tier_name(item.tier) for item in held if in_tier[_key(item)]),
        frozenset(map(str, columns["judge"])),
        frozenset(map(str, columns["prompt_hash"])),
    )


def _key(item: GradingItem) -> Key:
    return item.reference, tier_name(item.tier), str(item.draw)


def expected_answer(task: GradingTask, item: GradingItem) -> str:
    """Return a text as long as an answer whose report is as long as the reference."""
    # About two characters for each number.
    return "".join(f'"{name}": 0, ' for name in ("report", "scores", *task.system.names)) + item.reference


def describe_plan(plan: Plan) -> str:
    """Describe the reports of a plan in a line of text."""
    tiers = ", ".join(f"{count} of {name}" for name, count in plan.wanted.items())
    held = sum(plan.held.values())
    return f"reports: {plan.wanted.total()} ({tiers}); in the output: {held}; to request: {len(plan.items)}"
