"""What judging took: calls, tokens, money, and what failed."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rrg_rewards.judges.base import FailureKind

__all__ = ["Usage", "UsageCounter"]


@dataclass(frozen=True)
class Usage:
    """What a judge has used since it was made.

    Args:
        calls: Requests sent, each retry included.
        cached: Items whose answer was there already, in the cache or on its way to another evaluation.
        retries: Requests sent again after trouble on the way, or for a second answer after one that did not count.
        failures: Items without a result, by kind of failure.
        prompt_tokens: Tokens read, as the server counts them.
        completion_tokens: Tokens written, as the server counts them, those of rejected answers included.
        cost: What the tokens cost, where a price is known.
    """

    calls: int = 0
    cached: int = 0
    retries: int = 0
    failures: Mapping[FailureKind, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class UsageCounter:
    """Counts from any thread.

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

    def add(
        self, *, calls: int = 0, cached: int = 0, retries: int = 0, prompt_tokens: int = 0, completion_tokens: int = 0
    ) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts["calls"] += calls
            self._counts["cached"] += cached
            self._counts["retries"] += retries
            self._counts["prompt_tokens"] += prompt_tokens
            self._counts["completion_tokens"] += completion_tokens

    def fail(self, kind: FailureKind) -> None:
        """Count an item without a result."""
        with self._lock:
            self._failures[kind] += 1

    def usage(self) -> Usage:
        """The counts as they are now."""
        with self._lock:
            counts, failures = dict(self._counts), dict(self._failures)
        cost = None
        if self._price is not None:
            prompt, completion = self._price
            cost = (
                prompt * counts.get("prompt_tokens", 0) + completion * counts.get("completion_tokens", 0)
            ) / 1_000_000
        return Usage(**counts, failures=failures, cost=cost)
