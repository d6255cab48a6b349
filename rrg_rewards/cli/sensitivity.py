"""How metrics take reports in other words and reports with wrong details: the table of ``finebench sensitivity``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rrg_rewards.findings.corrupt import corrupt_report
from rrg_rewards.findings.paraphrase import paraphrase_report
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

if TYPE_CHECKING:
    from rrg_rewards.findings.rewriting import RewrittenReport

__all__ = ["TEXT_METRICS", "VERSIONS", "Scorer", "make_scorer", "markdown_table", "sensitivity", "versions_of"]

VERSIONS = ("paraphrased", "adversarial")
"""What a report is told as: in other words, and with wrong details."""

TEXT_METRICS = ("bleu2", "bertscore", "rougeL")
"""Metrics of words that are compared besides those of this package."""

_REWRITERS = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}

_Score = Callable[[Sequence[str], Sequence[str]], tuple[list[float], dict[str, list[float]]]]


@dataclass(frozen=True)
class Scorer:
    """A metric as the table takes it.

    Args:
        name: Its name.
        score: Scores of predictions against references, NaN where unscorable, and what they are made of by name.
        signature: What exactly scores.
        higher_is_better: Whether more is better.
    """

    name: str
    score: _Score
    signature: str
    higher_is_better: bool = True


def make_scorer(name: str, **settings: Any) -> Scorer:
    """Make a metric of words or one of this package.

    Args:
        name: ``bleu2``, ``rougeL``, ``bertscore``, or a name that :func:`rrg_rewards.metrics.registry.make_metric`
            takes.
        **settings: Options of the metric; ``bertscore`` needs ``encoder``, a folder or Hub id.

    Raises:
        ValueError: For an unknown metric, with the nearest known one; if it does not take a setting.
        TypeError: If a setting is missing or unknown.

    Example:
        >>> scores, _ = make_scorer("rougeL").score(["Small left effusion."], ["Small right effusion."])
        >>> round(scores[0], 3)
        0.667
    """
    from rrg_rewards.metrics.registry import available_metrics, make_metric

    if name == "bertscore":
        return _bert_score(**settings)
    if name in _WORD_SCORES:
        if settings:
            raise TypeError(f"{name} takes no settings, got {', '.join(settings)}")
        return _WORD_SCORES[name]
    if name not in available_metrics():
        raise ValueError(unknown_name_message("metric", name, sorted({*TEXT_METRICS, *available_metrics()})))
    metric = make_metric(name, **settings)

    def score(preds: Sequence[str], target: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
        scores = metric.score(list(preds), list(target))
        return scores.value.tolist(), {part: values.tolist() for part, values in scores.details.items()}

    return Scorer(name, score, metric.signature, bool(metric.higher_is_better))


def _bleu2(preds: Sequence[str], target: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
    from torchmetrics.functional.text import sacre_bleu_score

    return [
        float(sacre_bleu_score([pred], [[reference]], n_gram=2, tokenize="13a", lowercase=True))
        for pred, reference in zip(preds, target, strict=True)
    ], {}


def _rouge_l(preds: Sequence[str], target: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
    from torchmetrics.functional.text import rouge_score

    return [
        float(rouge_score(pred, reference, rouge_keys="rougeL")["rougeL_fmeasure"])
        for pred, reference in zip(preds, target, strict=True)
    ], {}


_WORD_SCORES = {
    "bleu2": Scorer("bleu2", _bleu2, "torchmetrics sacre_bleu_score|n_gram:2|tokenize:13a|lowercase|mean of reports"),
    "rougeL": Scorer("rougeL", _rouge_l, "torchmetrics rouge_score|rougeL F|mean of reports"),
}


def _bert_score(encoder: str | None = None, max_length: int = 512) -> Scorer:
    if encoder is None:
        raise TypeError("bertscore needs an encoder, as in --set bertscore.encoder=FOLDER")
    require("transformers", extra="models")

    def score(preds: Sequence[str], target: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
        from torchmetrics.functional.text.bert import bert_score

        found = bert_score(
            list(preds), list(target), model_name_or_path=str(encoder), max_length=max_length, truncation=True
        )
        return [float(value) for value in found["f1"]], {}

    return Scorer("bertscore", score, f"torchmetrics bert_score F1|encoder:{encoder}|max_length:{max_length}")


def versions_of(reports: Sequence[str], seed: int) -> "dict[str, list[RewrittenReport]]":
    """Each report in other words, and with wrong details.

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
) -> dict[str, Any]:
    """Score each report's two versions against the report by several metrics.

    A report counts for a metric if both of its versions are scorable.

    Args:
        reports: Reference reports.
        scorers: The metrics.
        seed: Of the versions, not negative.
        report_progress: Told how many columns of scores are done and how many have been added.

    Returns:
        ``reports``; ``seed``; ``changes``, what was changed in a report on average, by version and kind; and by metric
        its mean of each version, the share of reports whose version in other words is the better one, parts of the
        scores, how many reports count, and its signature.

    Raises:
        TypeError: If a report is no text.
    """
    told = report_progress or (lambda _done, _added: None)
    told(0, len(scorers) * len(VERSIONS))
    made = versions_of(reports, seed)
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
            told(1, 0)
        result["metrics"][scorer.name] = _summary(scorer, columns)
    return result


def _mean_changes(rewritten: "Sequence[RewrittenReport]") -> dict[str, float]:
    total: dict[str, int] = {}
    for report in rewritten:
        for kind, count in report.counts.items():
            total[kind] = total.get(kind, 0) + count
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
    """Mean of what is known; None where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def markdown_table(result: Mapping[str, Any]) -> str:
    """The table of :func:`sensitivity` as Markdown.

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
