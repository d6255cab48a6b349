"""Where ``rrg-rewards score`` scores report pairs: in this process, or on Ray."""

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

from rrg_rewards.cli.score_pairs import PairBatch, located
from rrg_rewards.judges.base import JudgeWarning
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch
from rrg_rewards.metrics.scores import Scores

__all__ = ["best_reference", "scored_batches"]

Report = Callable[[int, int], None]
Scored = Iterator[tuple[PairBatch, dict[str, Scores]]]


def scored_batches(
    args: argparse.Namespace, metrics: Mapping[str, ReportMetric], batches: Iterable[PairBatch], report: Report
) -> Scored:
    """Yield each batch with its scores by metric, in order.

    Args:
        args: Arguments of the command.
        metrics: The metrics by name.
        batches: The report pairs.
        report: Function that :meth:`Terminal.progress` yields.
    """
    if args.engine == "local":
        yield from _scored_here(metrics, batches, report, best_reference(args))
    else:
        yield from _scored_on_ray(args, metrics, batches, report)


def best_reference(args: argparse.Namespace) -> bool | None:
    """Return whether metrics take the best of several references; ``None`` if reports have one reference."""
    return bool(args.best_reference) if len(args.reference_column or ()) > 1 else None


def _scored_here(
    metrics: Mapping[str, ReportMetric], batches: Iterable[PairBatch], report: Report, best: bool | None
) -> Scored:
    for batch in batches:
        scores = {}
        for name, metric in metrics.items():
            with warnings.catch_warnings(), located(batch.table):
                # The command prints its own warning at the end.
                warnings.simplefilter("ignore", JudgeWarning)
                scores[name] = score_batch(metric, batch.predictions, batch.references, best, batch.context[name])
            report(len(batch.table), 0)
        yield batch, scores


def _scored_on_ray(
    args: argparse.Namespace, metrics: Mapping[str, ReportMetric], batches: Iterable[PairBatch], report: Report
) -> Scored:
    from rrg_rewards.integrations.ray_actors import RayScorers

    with RayScorers(metrics, args.workers, args.address, args.gpus_per_worker or 0, best_reference(args)) as scorers:
        for batch, scores in scorers.scored(batches):
            report(len(batch.table) * len(metrics), 0)
            yield batch, scores
