"""Counts of the calls, tokens and failures of judges, and their cost."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import add, sub
from typing import Any

from rrg_rewards.judges.base import FailureKind, Judge


@dataclass(frozen=True)
class Usage:
    """Counts since a judge was made, or in a part of that time.

    Args:
        calls: Requests sent, including retries.
        cached: Items answered by the cache or by another evaluation's request.
        retries: Requests repeated after an error or after a rejected answer.
        failures: Items without a result, by kind of failure.
        prompt_tokens: Tokens of prompts, as counted by the server.
        cached_prompt_tokens: Those of them that the server took from its prefix cache; ``None`` if no reply has said.
        completion_tokens: Tokens of answers, as counted by the server, including those of rejected answers.
        cost: Cost of the tokens; ``None`` without a price.
    """

    calls: int = 0
    cached: int = 0
    retries: int = 0
    failures: Mapping[FailureKind, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_prompt_tokens: int | None = None
    completion_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of the counts of two judges."""
        return self._joined(other, add)

    def __sub__(self, other: "Usage") -> "Usage":
        """Return what was counted after ``other``, earlier counts of the same judge."""
        return self._joined(other, sub)

    def _joined(self, other: "Usage", join: Callable[[Any, Any], Any]) -> "Usage":
        failures = {
            kind: count
            for kind in dict.fromkeys((*self.failures, *other.failures))
            if (count := join(self.failures.get(kind, 0), other.failures.get(kind, 0)))
        }
        return Usage(
            join(self.calls, other.calls),
            join(self.cached, other.cached),
            join(self.retries, other.retries),
            failures,
            join(self.prompt_tokens, other.prompt_tokens),
            _joined_known(self.cached_prompt_tokens, other.cached_prompt_tokens, join),
            join(self.completion_tokens, other.completion_tokens),
            _joined_known(self.cost, other.cost, join),
        )

    def numbers(self) -> dict[str, float]:
        """Return the numbers of calls, retries and tokens, and the cost, by name; without those that are unknown.

        Example:
            >>> Usage(calls=2, prompt_tokens=90).numbers()
            {'calls': 2, 'retries': 0, 'prompt_tokens': 90, 'completion_tokens': 0}
        """
        names = ("calls", "retries", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "cost")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        """Return calls, tokens and cost as a line of text.

        Example:
            >>> print(Usage(calls=2, prompt_tokens=4_000, cached_prompt_tokens=3_000, cost=0.25))
            2 calls (0 retries), 0 answers from the cache, 4,000 prompt tokens (3,000 from the server's prefix cache), 0
            completion tokens, cost 0.2500
        """
        cached = self.cached_prompt_tokens
        prefix = "" if cached is None else f" ({cached:,} from the server's prefix cache)"
        cost = "" if self.cost is None else f", cost {money(self.cost)}"
        return (
            f"{self.calls} calls ({self.retries} retries), {self.cached} answers from the cache, "
            f"{self.prompt_tokens:,} prompt tokens{prefix}, {self.completion_tokens:,} completion tokens{cost}"
        )


def _joined_known(ours: Any, theirs: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Return the sum or the difference of two numbers, of which an unknown one counts as 0; ``None`` if both are."""
    return None if ours is None and theirs is None else join(ours or 0, theirs or 0)


def money(amount: float) -> str:
    """Return an amount of money as text.

    Example:
        >>> money(1234.5), money(0.0123)
        ('1,234.50', '0.0123')
    """
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"


def token_cost(
    prompt: int, completion: int, cached: int, price: tuple[float, float], price_cached: float | None = None
) -> float:
    """Return the cost of tokens.

    Args:
        prompt: Number of prompt tokens, with the cached ones.
        completion: Number of completion tokens.
        cached: Number of prompt tokens from the server's prefix cache.
        price: Price of a million prompt tokens and of a million completion tokens.
        price_cached: Price of a million cached prompt tokens; ``None`` for that of the other prompt tokens.

    Example:
        >>> token_cost(1_000_000, 250_000, 800_000, price=(1.0, 4.0), price_cached=0.25)
        1.4
    """
    price_cached = price[0] if price_cached is None else price_cached
    return (price[0] * (prompt - cached) + price_cached * cached + price[1] * completion) / 1e6


class UsageCounter:
    """Counts calls, tokens and failures; may be used from several threads.

    Args:
        price: Price of a million prompt tokens and of a million completion tokens, in any currency.
        price_cached: Price of a million prompt tokens from the server's prefix cache; ``None`` for that of the others.

    Example:
        >>> counter = UsageCounter(price=(1.0, 4.0))
        >>> counter.add(calls=1, prompt_tokens=500_000, completion_tokens=250_000)
        >>> counter.fail("deadline")
        >>> counter.usage().cost, counter.usage().failures
        (1.5, {'deadline': 1})
    """

    def __init__(self, price: tuple[float, float] | None = None, price_cached: float | None = None) -> None:
        self._price = price
        self._price_cached = price_cached
        self._counts: Counter[str] = Counter()
        self._failures: Counter[FailureKind] = Counter()
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Add to the counts, which are named as in :class:`Usage`."""
        with self._lock:
            self._counts.update(counts)

    def fail(self, kind: FailureKind) -> None:
        """Count a failed item."""
        with self._lock:
            self._failures[kind] += 1

    def usage(self) -> Usage:
        """Return the current counts."""
        with self._lock:
            counts, failures = dict(self._counts), dict(self._failures)
        cost = None
        if self._price is not None:
            cost = token_cost(
                counts.get("prompt_tokens", 0),
                counts.get("completion_tokens", 0),
                counts.get("cached_prompt_tokens", 0),
                self._price,
                self._price_cached,
            )
        return Usage(**counts, failures=failures, cost=cost)


def judge_usage(judge: Judge | None) -> Usage | None:
    """Return what a judge has counted since it was made; ``None`` for a judge that counts nothing, such as rules.

    Example:
        >>> from rrg_rewards.judges import OpenAIJudge, RuleJudge
        >>> judge_usage(RuleJudge()), judge_usage(OpenAIJudge("m")).calls
        (None, 0)
    """
    usage = getattr(judge, "usage", None)
    return usage if isinstance(usage, Usage) else None


class UsageMeter:
    """Counts what judges use from now on.

    A copy, also in another process, begins anew.

    Args:
        judges: Judges by what they do. Those that count nothing are left out, and a judge that does several things is
            counted once, under all of their names.

    Example:
        >>> from rrg_rewards.judges import OpenAIJudge, RuleJudge
        >>> meter = UsageMeter({"judge": OpenAIJudge("m"), "rules": RuleJudge()})
        >>> {role: usage.calls for role, usage in meter.usage().items()}
        {'judge': 0}
    """

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        self._judges = dict(judges)
        roles: dict[int, list[str]] = {}
        for role, judge in judges.items():
            if judge_usage(judge) is not None:
                roles.setdefault(id(judge), []).append(role)
        self._counted = {" and ".join(names): judges[names[0]] for names in roles.values()}
        self._before = self._now()
        self._taken = self._before

    def __reduce__(self) -> tuple[Any, ...]:
        # The counters of an unpickled judge begin at 0.
        return type(self), (self._judges,)

    def usage(self) -> dict[str, Usage]:
        """Return the usage of each judge since the meter was made, by what the judge does."""
        return {role: now - self._before[role] for role, now in self._now().items()}

    def take(self) -> dict[str, Usage]:
        """Return the usage of each judge since the last call of this method."""
        now, before = self._now(), self._taken
        self._taken = now
        return {role: usage - before[role] for role, usage in now.items()}

    def _now(self) -> dict[str, Usage]:
        found = {role: judge_usage(judge) for role, judge in self._counted.items()}
        return {role: usage for role, usage in found.items() if usage is not None}
