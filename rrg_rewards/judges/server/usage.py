"""Counts of a judge's calls, tokens, cost and failures."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rrg_rewards.judges.base import FailureKind

__all__ = ["Usage", "UsageCounter"]


@dataclass(frozen=True)
class Usage:
    """Counts since a judge was made.

    Args:
        calls: Requests sent, including retries.
        cached: Items answered by the cache or by another evaluation's request.
        retries: Requests repeated after an error or after a rejected answer.
        failures: Items without a result, by kind of failure.
        prompt_tokens: Tokens of prompts, as counted by the server.
        completion_tokens: Tokens of answers, as counted by the server, including those of rejected answers.
        cost: Cost of the tokens; ``None`` without a price.
    """

    calls: int = 0
    cached: int = 0
    retries: int = 0
    failures: Mapping[FailureKind, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class UsageCounter:
    """Counts calls, tokens and failures; may be used from several threads.

    Args:
        price: Price of a million prompt tokens and of a million completion tokens, in any currency.

    Example:
        >>> counter = UsageCounter(price=(1.0, 4.0))
        >>> counter.add(calls=1, prompt_tokens=500_000, completion_tokens=250_000)
        >>> counter.fail("deadline")
        >>> counter.usage().cost, counter.usage().failures
        (1.5, {'deadline': 1})
    """

    def __init__(self, price: tuple[float, float] | None = None) -> None:
        self._price = price
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
            prompt, completion = self._price
            cost = (prompt * counts.get("prompt_tokens", 0) + completion * counts.get("completion_tokens", 0)) / 1e6
        return Usage(**counts, failures=failures, cost=cost)
