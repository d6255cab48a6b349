"""Counts and durations of a reward server, in Prometheus' format."""

import os
from collections import Counter as Tally
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from rrg_rewards.integrations.serve.scorer import ScoredSample

__all__ = ["CONTENT_TYPE", "SHARED_FOLDER", "ServerMetrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the folder in which workers share their metrics; prometheus_client reads it when imported."""

_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """The metrics of a worker, and their sums over all workers."""

    def __init__(self) -> None:
        _forget_dead_workers()
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "rrg_rewards_requests", "Requests by path and HTTP status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "rrg_rewards_request_seconds", "Duration of requests by path.", ["path"], registry=registry
        )
        self.completions = Counter(
            "rrg_rewards_completions",
            "Completions by outcome: scored, unscorable, or failed with the kind of failure of the judge.",
            ["outcome"],
            registry=registry,
        )
        self.batches = Histogram(
            "rrg_rewards_batch_completions", "Completions per batch.", buckets=_BATCH_SIZES, registry=registry
        )
        self.waiting = Gauge(
            "rrg_rewards_waiting_completions",
            "Completions that wait for a batch.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def count_batch(self, scored: Sequence[ScoredSample]) -> None:
        """Count the completions of a batch by outcome."""
        self.batches.observe(len(scored))
        for outcome, count in Tally(sample.outcome for sample in scored).items():
            self.completions.labels(outcome).inc(count)

    def render(self) -> bytes:
        """Return the metrics of all workers as text."""
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        text: bytes = generate_latest(registry)
        return text


def _forget_dead_workers() -> None:
    """Remove the gauges of workers that were killed. Their counts are kept."""
    for path in Path(os.environ.get(SHARED_FOLDER, os.devnull)).glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)
