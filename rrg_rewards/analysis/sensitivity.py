"""Scores of paraphrased reports and of reports with wrong details, as in CT-FineBench's Table 3."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrg_rewards.analysis.question_items import ReportTexts
from rrg_rewards.analysis.settings import MetricChoice, SensitivitySettings
from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.rewrite_rules import RewrittenReport
from rrg_rewards.findings.editing.wrong_details import corrupt_report
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.registry import available_metrics, make_metric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

VERSIONS = ("paraphrased", "adversarial")
"""The two versions of a report: a paraphrase, and a report with wrong details."""

ALIASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bleu2": ("bleu", {"n_gram": 2}),
    "rougeL": ("rouge", {"variant": "rougeL"}),
}
"""Names and options of the paper's metrics in this package, by their name in the paper."""

_REWRITERS = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}


def make_paper_metric(name: str, **settings: Any) -> ReportMetric:
    """Make a metric from its name in this package or in the paper.

    Args:
        name: Name for :func:`~rrg_rewards.metrics.make_metric`, or one of :data:`ALIASES`.
        **settings: Options of the metric; ``bertscore`` needs ``model``, a folder or Hub id.

    Raises:
        ValueError: For an unknown metric, with the nearest known one; for an invalid option; for a metric that does not
            say whether higher scores are better.
        TypeError: If an option is missing or unknown.

    Example:
        >>> make_paper_metric("rougeL").score(["Small left effusion."], ["Small right effusion."]).value
        tensor([0.6667], dtype=torch.float64)
    """
    if name not in {*available_metrics(), *ALIASES}:
        raise ValueError(unknown_name_message("metric", name, [*available_metrics(), *ALIASES]))
    known, own = ALIASES.get(name, (name, {}))
    metric = make_metric(known, **{**own, **settings})
    if metric.higher_is_better is None:
        raise ValueError(f"{name} does not say whether higher scores are better: set its higher_is_better")
    return metric


def make_paper_metrics(choice: MetricChoice) -> dict[str, ReportMetric]:
    """Make the metrics of a choice, whose names may be those of the paper, by name.

    Raises:
        SettingError: If a metric is unknown, named twice or lacks an option, or an option belongs to no metric.

    Example:
        >>> list(make_paper_metrics(MetricChoice(metrics=["bleu2", "rougeL"])))
        ['bleu2', 'rougeL']
    """
    if twice := [name for name, count in Counter(choice.metrics).items() if count > 1]:
        raise SettingError("metrics", f"{twice[0]} is named more than once")
    options = choice.options()
    try:
        return {name: make_paper_metric(name, **options[name]) for name in choice.metrics}
    except (ValueError, TypeError) as error:
        raise SettingError("metrics", str(error)) from error


@dataclass(frozen=True)
class ReportVersions:
    """Reports with a paraphrase and a version with wrong details.

    Args:
        reports: The reports, by their id.
        versions: Both versions of each report, by the names in :data:`VERSIONS`.
        seed: Random seed.
    """

    reports: Mapping[str, str]
    versions: Mapping[str, Sequence[RewrittenReport]]
    seed: int = 0


def make_versions(reports: ReportTexts, settings: SensitivitySettings = SensitivitySettings()) -> ReportVersions:
    """Make a paraphrase of each report and a version with wrong details, by rules.

    Args:
        reports: The reports.
        settings: Seed, and the maximum number of reports.

    Raises:
        ValueError: If there is no report.

    Example:
        >>> made = make_versions(ReportTexts.of(["There is a nodule of 8 mm in the left lung."]))
        >>> [made.versions[version][0].candidate for version in VERSIONS]
        ['A nodule of 0.8 cm is seen in the left lung.', 'There is a nodule of 24 mm in the right lung.']
    """
    texts = dict(list(reports.texts.items())[: settings.limit])
    if not texts:
        raise ValueError(f"{reports.source}: contains no report")
    versions = {
        version: [rewrite(report, seed=settings.seed) for report in texts.values()]
        for version, rewrite in _REWRITERS.items()
    }
    return ReportVersions(texts, versions, settings.seed)


@dataclass(frozen=True)
class Sensitivity:
    """Result of :func:`measure_sensitivity`.

    Args:
        versions: The reports with both versions.
        metrics: For each metric the mean score of each version, the share of reports whose paraphrase scores better,
            the means of sub-scores, the number of scored reports, and the signature.
    """

    versions: ReportVersions
    metrics: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers; ``changes`` contains the mean number of changes per report, by version and kind."""
        made = self.versions
        return {
            "reports": len(made.reports),
            "seed": made.seed,
            "changes": {version: _mean_changes(made.versions[version]) for version in VERSIONS},
            "metrics": self.metrics,
        }

    def to_markdown(self) -> str:
        """Return the table in Markdown.

        Example:
            >>> entry = {"paraphrased": 0.5, "adversarial": 0.9, "paraphrase_better": 0.0, "higher_is_better": True}
            >>> versions = ReportVersions({"1": "Edema."}, {})
            >>> table = Sensitivity(versions, {"rougeL": {**entry, "scored": 1, "unscorable": 0}})
            >>> print(table.to_markdown().splitlines()[-1])
            | rougeL | 0.500 | 0.900 | 0 % | 1 |
        """
        lines = [
            f"{len(self.versions.reports)} reports, seed {self.versions.seed}; means of reports.",
            "",
            "| metric | paraphrased | adversarial | paraphrase is better | scored |",
            "|---|---:|---:|---:|---:|",
        ]
        for name, entry in self.metrics.items():
            label = name if entry["higher_is_better"] else f"{name} (lower is better)"
            share = "-" if entry["paraphrase_better"] is None else f"{100 * entry['paraphrase_better']:.0f} %"
            cells = ["-" if (value := entry[version]) is None else f"{value:.3f}" for version in VERSIONS]
            lines.append(f"| {label} | {' | '.join(cells)} | {share} | {entry['scored']} |")
        return "\n".join(lines) + "\n"


def measure_sensitivity(
    versions: ReportVersions, metrics: Mapping[str, ReportMetric], log: RunLog | None = None
) -> Sensitivity:
    """Score both versions of each report against the report with several metrics.

    A metric of clinical content gives the paraphrase the higher score; a metric of wording gives it the lower one. A
    metric leaves out a report if one of its versions is unscorable.

    Source: Yuan et al., "CT-FineBench", Table 3.

    Args:
        versions: The reports with both versions.
        metrics: The metrics by name, each with ``higher_is_better``.
        log: Receives the progress, in columns of scores.

    Raises:
        TypeError: If a report is not a string.

    Example:
        >>> made = make_versions(ReportTexts.of(["There is a nodule of 8 mm in the left lung."]))
        >>> found = measure_sensitivity(made, make_paper_metrics(MetricChoice(metrics=["rougeL", "ct_finebench"])))
        >>> {name: entry["paraphrase_better"] for name, entry in found.metrics.items()}
        {'rougeL': 0.0, 'ct_finebench': 1.0}
    """
    entries = {}
    target = list(versions.reports.values())
    with (log or RunLog()).progress("scoring") as progress:
        progress(0, len(metrics) * len(VERSIONS))
        for name, metric in metrics.items():
            scores = {}
            for version in VERSIONS:
                scores[version] = metric.score([made.candidate for made in versions.versions[version]], target)
                progress(1, 0)
            entries[name] = _entry(metric, scores)
    return Sensitivity(versions, entries)


def _mean_changes(rewritten: Sequence[RewrittenReport]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for report in rewritten:
        total.update(report.counts)
    return {kind: round(count / len(rewritten), 2) for kind, count in sorted(total.items())}


def _entry(metric: ReportMetric, scores: Mapping[str, Scores]) -> dict[str, Any]:
    values = [scores[version].value.tolist() for version in VERSIONS]
    rows = [row for row, pair in enumerate(zip(*values, strict=True)) if not any(map(math.isnan, pair))]
    sign = 1 if metric.higher_is_better else -1
    entry: dict[str, Any] = {
        version: _mean([column[row] for row in rows]) for version, column in zip(VERSIONS, values, strict=True)
    }
    better = [sign * (values[0][row] - values[1][row]) for row in rows]
    entry["paraphrase_better"] = _mean([float(difference > 0) for difference in better])
    entry["higher_is_better"] = metric.higher_is_better
    entry["scored"], entry["unscorable"] = len(rows), len(values[0]) - len(rows)
    if parts := scores[VERSIONS[0]].details:
        entry["parts"] = {
            part: {version: _mean(scores[version].details[part][rows].tolist()) for version in VERSIONS}
            for part in parts
        }
    return {**entry, "signature": metric.signature}


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that are not NaN, or ``None`` if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None
