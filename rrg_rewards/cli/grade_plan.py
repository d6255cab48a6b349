"""The plan of ``rrg-rewards grade`` and the estimate of its cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.appending import read_whole_lines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.judges.server.rate_limit import estimated_tokens
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, quality_tiers, tier_name

__all__ = ["Estimate", "Plan", "describe_estimate", "estimate", "format_money", "make_plan"]

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


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a run, without repeated requests.

    Args:
        requests: Number of calls.
        prompt_tokens: Tokens of prompts.
        completion_tokens: Tokens of answers, if reports are as long as their references.
        cost: Cost of the tokens; ``None`` without a price.
        minutes: Minimum time at the rate limits; ``None`` without limits.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    minutes: float | None


def estimate(
    task: GradingTask,
    items: Sequence[GradingItem],
    price: tuple[float, float] | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
) -> Estimate:
    """Estimate the cost of requesting reports; ``price`` and limits are those of ``ServerSettings``.

    Example:
        >>> item = GradingItem("Small left effusion.", (-2.0, 0.0))
        >>> found = estimate(GradingTask("radcliq"), [item] * 10, price=(1.0, 4.0), requests_per_minute=5)
        >>> found.requests, found.minutes
        (10, 2.0)
    """
    # The JSON of an answer without the report, with about two characters for each number.
    frame = "".join(f'"{name}": 0, ' for name in ("report", "scores", *task.system.names))
    prompt = sum(estimated_tokens(message["content"] for message in task.messages(item)) for item in items)
    completion = sum(estimated_tokens([frame + item.reference]) for item in items)
    cost = None if price is None else (price[0] * prompt + price[1] * completion) / 1_000_000
    times = [
        amount / limit
        for amount, limit in ((len(items), requests_per_minute), (prompt + completion, tokens_per_minute))
        if limit is not None
    ]
    return Estimate(len(items), prompt, completion, cost, max(times, default=None))


def describe_estimate(plan: Plan, expected: Estimate) -> list[str]:
    """Describe a plan and its estimate in lines of text."""
    held = sum(plan.held.values())
    tiers = ", ".join(f"{count} of {name}" for name, count in plan.wanted.items())
    lines = [
        f"reports: {plan.wanted.total()} ({tiers}); in the output: {held}; to request: {expected.requests}",
        f"estimated tokens: {expected.prompt_tokens:,} of prompts, {expected.completion_tokens:,} of answers (4 "
        "characters per token)",
    ]
    if expected.cost is None:
        lines.append("cost: unknown without --price-in and --price-out")
    else:
        lines.append(f"estimated cost: {format_money(expected.cost)}, without repeated requests")
    if expected.minutes is None:
        lines.append("time: unknown without a rate limit")
    else:
        lines.append(f"minimum time at the rate limits: {_duration(expected.minutes)}")
    return lines


def format_money(amount: float) -> str:
    """Format a cost.

    Example:
        >>> format_money(0.0213), format_money(1234.5)
        ('0.0213', '1,234.50')
    """
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"


def _duration(minutes: float) -> str:
    return f"{minutes:.1f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
