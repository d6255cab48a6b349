"""Scores of paraphrased reports and of reports with wrong details: the table of ``finebench sensitivity``."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.wrong_details import corrupt_report
from rrg_rewards.utilities.names import unknown_name_message

if TYPE_CHECKING:
    from rrg_rewards.findings.editing.rewrite_rules import RewrittenReport

__all__ = ["ALIASES", "VERSIONS", "Scorer", "make_scorer", "markdown_table", "sensitivity", "versions_of"]

VERSIONS = ("paraphrased", "adversarial")
"""The two versions of a report: a paraphrase, and a report with wrong details."""

ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bleu2": ("bleu", {"n_gram": 2}),
    "rougeL": ("rouge", {"variant": "rougeL"}),
}
"""Names and options of the paper's metrics in this package, by their name in the paper."""

_REWRITERS = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}

_Score = Callable[[Sequence[str], Sequence[str]], tuple[list[float], dict[str, list[float]]]]


@dataclass(frozen=True)
class Scorer:
    """A metric of the table.

    Args:
        name: Name of the metric.
        score: Function of predictions and references. It returns the scores, NaN if unscorable, and the sub-scores
            by name.
        signature: Signature of the metric.
        higher_is_better: Whether higher scores are better.
    """

    name: str
    score: _Score
    signature: str
    higher_is_better: bool = True


def make_scorer(name: str, **settings: Any) -> Scorer:
    """Make a metric from its name in this package or in the paper.

    Args:
        name: Name for :func:`rrg_rewards.metrics.registry.make_metric`, or one of :data:`ALIASES`.
        **settings: Options of the metric; ``bertscore`` needs ``model``, a folder or Hub id.

    Raises:
        ValueError: For an unknown metric, with the nearest known one; for an invalid option; for a metric that does not
            say whether higher scores are better.
        TypeError: If an option is missing or unknown.

    Example:
        >>> scores, _ = make_scorer("rougeL").score(["Small left effusion."], ["Small right effusion."])
        >>> round(scores[0], 3)
        0.667
    """
    from rrg_rewards.metrics.registry import available_metrics, make_metric

    if name not in {*available_metrics(), *ALIASES}:
        raise ValueError(unknown_name_message("metric", name, [*available_metrics(), *ALIASES]))
    known, own = ALIASES.get(name, (name, {}))
    metric = make_metric(known, **{**own, **settings})
    if metric.higher_is_better is None:
        raise ValueError(f"{name} does not say whether higher scores are better: set its higher_is_better")

    def score(preds: Sequence[str], target: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
        scores = metric.score(list(preds), list(target))
        return scores.value.tolist(), {part: values.tolist() for part, values in scores.details.items()}

    return Scorer(name, score, metric.signature, metric.higher_is_better)


def versions_of(reports: Sequence[str], seed: int) -> "dict[str, list[RewrittenReport]]":
    """Make both versions of each report.

    Example:
        >>> made = versions_of(["There is a nodule of 8 mm in the left lung."], seed=0)
        >>> [made[version][0].candidate for version in VERSIONS]
        ['A nodule of 0.8 cm is seen in the left lung.', 'There is a nodule of 24 mm in the right lung.']
    """
    return {version: [_REWRITERS[version](report, seed=seed) for report in reports] for version in VERSIONS}


def sensitivity(
    reports: Sequence[str],
    scorers: Sequence[Scorer],
    seed: int = 0,
    report_progress: Callable[[int, int], None] | None = None,
    made: "Mapping[str, Sequence[RewrittenReport]] | None" = None,
) -> dict[str, Any]:
    """Score both versions of each report against the report with several metrics.

    A metric leaves out a report if one of its versions is unscorable.

    Args:
        reports: Reference reports.
        scorers: The metrics.
        seed: Random seed of the versions, not negative.
        report_progress: Function that :meth:`Terminal.progress` yields; counts columns of scores.
        made: Both versions of each report, by the names in :data:`VERSIONS`; by default those of :func:`versions_of`.

    Returns:
        ``reports``; ``seed``; ``changes``, the mean number of changes per report, by version and kind; and for each
        metric the mean score of each version, the share of reports whose paraphrase scores better, the means of
        sub-scores, the number of scored reports, and the signature.

    Raises:
        TypeError: If a report is not a string.
    """
    progress = report_progress or (lambda _finished, _added: None)
    progress(0, len(scorers) * len(VERSIONS))
    made = versions_of(reports, seed) if made is None else made
    result: dict[str, Any] = {
        "reports": len(reports),
        "seed": seed,
        "changes": {version: _mean_changes(made[version]) for version in VERSIONS},
        "metrics": {},
    }
    for scorer in scorers:
        columns = {}
        for version in VERSIONS:
            columns[version] = scorer.score([rewritten.candidate for rewritten in made[version]], reports)
            progress(1, 0)
        result["metrics"][scorer.name] = _summary(scorer, columns)
    return result


def _mean_changes(rewritten: "Sequence[RewrittenReport]") -> dict[str, float]:
    total: Counter[str] = Counter()
    for report in rewritten:
        total.update(report.counts)
    return {kind: round(count / len(rewritten), 2) for kind, count in sorted(total.items())}


def _summary(scorer: Scorer, columns: Mapping[str, tuple[list[float], dict[str, list[float]]]]) -> dict[str, Any]:
    values = [columns[version][0] for version in VERSIONS]
    rows = [row for row, pair in enumerate(zip(*values, strict=True)) if not any(map(math.isnan, pair))]
    sign = 1 if scorer.higher_is_better else -1
    entry: dict[str, Any] = {
        version: _mean([column[row] for row in rows]) for version, column in zip(VERSIONS, values, strict=True)
    }
    better = [sign * (values[0][row] - values[1][row]) for row in rows]
    entry["paraphrase_better"] = _mean([float(difference > 0) for difference in better])
    entry["higher_is_better"] = scorer.higher_is_better
    entry["scored"], entry["unscorable"] = len(rows), len(values[0]) - len(rows)
    parts = columns[VERSIONS[0]][1]
    if parts:
        entry["parts"] = {
            part: {version: _mean([columns[version][1][part][row] for row in rows]) for version in VERSIONS}
            for part in parts
        }
    return {**entry, "signature": scorer.signature}


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that are not NaN, or ``None`` if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def markdown_table(result: Mapping[str, Any]) -> str:
    """Format the result of :func:`sensitivity` as a Markdown table.

    Example:
        >>> entry = {"paraphrased": 0.5, "adversarial": 0.9, "paraphrase_better": 0.0, "higher_is_better": True}
        >>> table = {"reports": 1, "seed": 0, "metrics": {"rougeL": {**entry, "scored": 1, "unscorable": 0}}}
        >>> print(markdown_table(table).splitlines()[-1])
        | rougeL | 0.500 | 0.900 | 0 % | 1 |
    """
    lines = [
        f"{result['reports']} reports, seed {result['seed']}; means of reports.",
        "",
        "| metric | paraphrased | adversarial | paraphrase is better | scored |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, entry in result["metrics"].items():
        label = name if entry["higher_is_better"] else f"{name} (lower is better)"
        share = "-" if entry["paraphrase_better"] is None else f"{100 * entry['paraphrase_better']:.0f} %"
        cells = [_short(entry[version]) for version in VERSIONS]
        lines.append(f"| {label} | {' | '.join(cells)} | {share} | {entry['scored']} |")
    return "\n".join(lines) + "\n"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
