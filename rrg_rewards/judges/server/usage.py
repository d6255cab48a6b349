"""Counts of the calls, tokens and failures of judges, and their cost."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import add, sub
from typing import Any

from rrg_rewards.judges.base import FailureKind, Judge

# For English reports and instructions in the vocabularies of current models.
CHARACTERS_PER_TOKEN = 4
# Tokens that a chat format adds to a message.
_TOKENS_PER_MESSAGE = 4
_TOKEN_COUNTS = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens")


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
        kinds = dict.fromkeys((*self.failures, *other.failures))
        failures = {kind: join(self.failures.get(kind, 0), other.failures.get(kind, 0)) for kind in kinds}
        counts: dict[str, Any] = {}
        for name in (one.name for one in fields(self) if one.name != "failures"):
            ours, theirs = getattr(self, name), getattr(other, name)
            # Only what both do not know stays unknown.
            if ours is not None or theirs is not None:
                counts[name] = join(ours or 0, theirs or 0)
        return Usage(**counts, failures={kind: count for kind, count in failures.items() if count})

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


def money(amount: float) -> str:
    """Return an amount of money as text.

    Example:
        >>> money(1234.5), money(0.0123)
        ('1,234.50', '0.0123')
    """
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"


def estimated_tokens(texts: Iterable[str]) -> int:
    """Estimate the number of tokens of messages: one for four characters, and four for each message.

    Example:
        >>> estimated_tokens(["No pleural effusion or pneumothorax."])
        13
    """
    return sum(_TOKENS_PER_MESSAGE + math.ceil(len(text) / CHARACTERS_PER_TOKEN) for text in texts)


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
            counts, failures = self._counts.copy(), dict(self._failures)
        cost = None
        if self._price is not None:
            prompt, completion, cached = map(counts.__getitem__, _TOKEN_COUNTS)
            cost = token_cost(prompt, completion, cached, self._price, self._price_cached)
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
        self._before = self._taken = self._now()

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
        roles: dict[int, list[str]] = {}
        for role, judge in self._judges.items():
            roles.setdefault(id(judge), []).append(role)
        usages = {" and ".join(names): judge_usage(self._judges[names[0]]) for names in roles.values()}
        return {role: usage for role, usage in usages.items() if usage is not None}
