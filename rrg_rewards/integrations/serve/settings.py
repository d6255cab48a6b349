"""Settings of a reward server."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from rrg_rewards.integrations.common.transcripts import ReportExtractor
from rrg_rewards.rewards.base import Reward, is_asynchronous
from rrg_rewards.utilities.batching import BatchLimits

__all__ = ["ServerOptions"]

_MEBIBYTE = 2**20
_AT_LEAST_ONE = ("max_batch", "max_pending", "max_concurrent", "max_request_bytes", "max_connections")


@dataclass(frozen=True)
class ServerOptions:
    """A reward and the limits with which it is served.

    Args:
        reward: The reward. Nothing in it may be estimated while it is served.
        missing: Reward of an unscorable completion in the dialects that cannot carry null; these are refused without
            it.
        reference_column: Column of a label that is a plain text, and of the field ``reference`` of ``/rewards``.
        extractor: Extracts the report from a completion, except in ``/rewards``, which scores completions as they are.
        score_range: For ``/get_reward``, two rewards that become 0 and 1 in ``scores``. Default: the rewards.
        prompts: For ``/v1``, the columns of the reward by prompt; ``None`` refuses this dialect.
        token: Token that requests must carry; ``None`` for no check.
        max_batch: Maximum number of completions in a batch.
        max_wait: Maximum seconds that a completion waits for others.
        max_pending: Maximum number of waiting completions, and of completions in a request.
        max_concurrent: Maximum number of batches at a time if the reward is asynchronous. Other rewards score one batch
            at a time.
        timeout: Maximum seconds of a request, from its headers to the last reward.
        max_request_bytes: Maximum size of the body of a request.
        max_total_bytes: Maximum size of the bodies of all requests at a time.
        max_connections: Maximum number of connections of a worker.
        num_workers: Number of worker processes, each with a copy of the reward.

    Raises:
        ValueError: If a limit is out of its range, or the reward has settings that are estimated.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> ServerOptions(make_reward("crg", prior="running"))
        Traceback (most recent call last):
        ...
        ValueError: reward 'crg' estimates prior from data, but a server has no training set, and its workers ...
        >>> ServerOptions(make_reward("crg", prior=0.2)).batch_limits.max_batch
        64
    """

    reward: Reward = field(repr=False)
    _: KW_ONLY
    missing: float | None = None
    reference_column: str = "reference"
    extractor: ReportExtractor = field(default_factory=ReportExtractor)
    score_range: Sequence[float] | None = None
    prompts: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    max_batch: int = 64
    max_wait: float = 0.005
    max_pending: int = 4096
    max_concurrent: int = 8
    timeout: float = 60.0
    max_request_bytes: int = 16 * _MEBIBYTE
    max_total_bytes: int = 256 * _MEBIBYTE
    max_connections: int = 1024
    num_workers: int = 1

    def __post_init__(self) -> None:
        for name in (*_AT_LEAST_ONE, "num_workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"timeout must be positive and finite, got {self.timeout}")
        if self.max_total_bytes < self.max_request_bytes:
            raise ValueError(
                f"max_total_bytes must be at least max_request_bytes {self.max_request_bytes}, got "
                f"{self.max_total_bytes}"
            )
        if self.missing is not None and not math.isfinite(self.missing):
            raise ValueError(f"missing must be a finite number, got {self.missing}")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ValueError("token must be printable ASCII characters and not empty")
        if estimated := self.reward.estimated:
            raise ValueError(
                f"reward {self.reward.__name__!r} estimates {', '.join(estimated)} from data, but a server has no "
                "training set, and its workers share no statistics. Run: rrg-rewards fit TABLE ... --output FILE, "
                "and serve with --config FILE; or give numbers"
            )
        self.batch_limits  # noqa: B018 (checks the limits)

    @property
    def batch_limits(self) -> BatchLimits:
        """Limits of the queue. A reward that blocks its thread scores one batch at a time."""
        concurrent = self.max_concurrent if is_asynchronous(self.reward) else 1
        return BatchLimits(self.max_batch, self.max_wait, self.max_pending, concurrent)
