"""Values of metrics for one text that is given to every study, which a system should exceed."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rrg_rewards.analysis.corpus_statistics import StatisticRows
from rrg_rewards.analysis.distinct import NORMAL_REPORTS, DistinctTexts
from rrg_rewards.analysis.report_pairs import PairBatch
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import RunLog

ConstantChoice = Literal["rules", "all", "none"]
"""Metrics that score texts which are the same for every study."""

ConstantEntry = dict[str, float | None]
"""``value`` of a metric for a text, ``None`` if it is undefined, and ``scored``, the number of studies with a score."""


@dataclass(frozen=True)
class ConstantText:
    """A text that is given to every study.

    Args:
        name: What it is, such as ``commonest_text``.
        text: The text.
    """

    name: str
    text: str


def chosen_metrics(metrics: Mapping[str, ReportMetric], choice: ConstantChoice) -> dict[str, ReportMetric]:
    """Return the metrics that score constant texts: with ``rules`` those that are not costly.

    Example:
        >>> from rrg_rewards.metrics import BLEU, CRIMSON, CallableMetric
        >>> def length(predictions, references):
        ...     return [len(text) for text in predictions]
        >>> metrics = {"bleu": BLEU(), "crimson": CRIMSON(judge="rules"), "length": CallableMetric(length)}
        >>> list(chosen_metrics(metrics, "rules"))
        ['bleu', 'crimson']
    """
    if choice == "none":
        return {}
    return {name: metric for name, metric in metrics.items() if choice == "all" or not metric.is_costly}


def note_left_out(metrics: Mapping[str, ReportMetric], choice: ConstantChoice, log: RunLog) -> None:
    """Say which metrics do not score constant texts because they are costly."""
    left_out = [name for name in metrics if name not in chosen_metrics(metrics, choice)]
    if left_out and choice == "rules":
        log.note(
            f"{', '.join(left_out)}: no value of a text that is the same for every study, because a model, a language "
            "model or a function would score all studies once more; `constant_text=all` computes it"
        )


def constant_entries(metric: str, found: Mapping[str, Mapping[str, ConstantEntry]]) -> dict[str, Any]:
    """Return the entry ``constant_texts`` of a metric in a summary: its values by text; empty without values.

    Example:
        >>> constant_entries("crg", {"normal_report": {"crg": {"value": 0.25, "scored": 7}}})
        {'constant_texts': {'normal_report': {'value': 0.25, 'scored': 7}}}
        >>> constant_entries("bleu", {})
        {}
    """
    values = {text: own[metric] for text, own in found.items() if metric in own}
    return {"constant_texts": values} if values else {}


def constant_texts(found: DistinctTexts, batches: Iterable[PairBatch]) -> list[ConstantText]:
    """Return the commonest text of a system, if it occurs twice, and a normal report of the references' modality.

    Args:
        found: The distinct texts of the system.
        batches: Its reports, of which those up to the commonest text are read.
    """
    texts = []
    if found.commonest_row is not None and found.commonest > 1:
        texts.append(ConstantText("commonest_text", _text_of_row(batches, found.commonest_row)))
    if found.modality is not None:
        texts.append(ConstantText("normal_report", NORMAL_REPORTS[found.modality]))
    return texts


def _text_of_row(batches: Iterable[PairBatch], row: int) -> str:
    for batch in batches:
        if row < len(batch.predictions):
            text = batch.predictions[row]
            assert text is not None
            return text
        row -= len(batch.predictions)
    raise ValueError("the table has fewer rows than at first")


@dataclass(frozen=True)
class ConstantBatch(PairBatch):
    """Report pairs in which a constant text replaces each report."""

    text: ConstantText


def with_constant_texts(
    batches: Iterable[PairBatch], texts: Sequence[ConstantText], metrics: Collection[str]
) -> Iterator[PairBatch]:
    """Yield each batch, and after it, for some metrics, the same references with each text in place of the reports.

    They follow each other because metrics remember what they have read in the references. Missing reports stay missing.

    Args:
        batches: The report pairs.
        texts: The texts.
        metrics: Names of the metrics that score them.
    """
    for batch in batches:
        yield batch
        context = {name: batch.context[name] for name in metrics}
        for text in texts if metrics else ():
            predictions = [None if prediction is None else text.text for prediction in batch.predictions]
            yield ConstantBatch(batch.table, predictions, batch.references, context, text)


class ConstantTotals:
    """Values of metrics for constant texts, from the scores of batches."""

    def __init__(self) -> None:
        self._statistics: dict[str, dict[str, StatisticRows]] = {}

    def add(self, text: ConstantText, scores: Mapping[str, Scores]) -> None:
        """Add the scores of a batch by metric."""
        own = self._statistics.setdefault(text.name, {name: StatisticRows() for name in scores})
        for name, one in scores.items():
            own[name].add(one)

    def values(self) -> dict[str, dict[str, ConstantEntry]]:
        """Return, for each text, the value of each metric if every study with a report has this text."""
        return {text: {name: _entry(rows) for name, rows in own.items()} for text, own in self._statistics.items()}


def _entry(statistics: StatisticRows) -> ConstantEntry:
    value = statistics.value()
    return {"value": None if math.isnan(value) else value, "scored": len(statistics)}
