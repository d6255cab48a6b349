"""Results of a training: ``report.json``, its tables as a Markdown page, plots, and a model card."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor

from rrg_rewards.data.tables.writers import open_output, write_json
from rrg_rewards.functional.agreement import AgreementStatistic, agreement_interval
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.correlation import kendall_tau
from rrg_rewards.metrics.preference_accuracy import GradedRewards, annotated_totals, preference_pairs, rows_with_totals
from rrg_rewards.models.model_card import base_model, number, write_model_card
from rrg_rewards.schemas.scoring import ScoringSystem
from rrg_rewards.training.metrics.crepe import CrepeModule
from rrg_rewards.training.metrics.data import CrepeDataModule, ER2ScoreDataModule
from rrg_rewards.training.metrics.er2score import ER2ScoreModule
from rrg_rewards.utilities.charts import Chart, Curves, Histogram, Scatter, svg_file
from rrg_rewards.utilities.markup import markdown_table

_CORRELATIONS: tuple[AgreementStatistic, ...] = ("kendall", "spearman")


def _curve(history: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> Curves:
    """Return logged values over epochs."""
    lines = {
        name: [(row["epoch"] or 0.0, value) for row in history if (value := row.get(name)) is not None]
        for name in names
    }
    return Curves("learning curve, by epoch", lines)


def _counts(counts: Mapping[str, tuple[Tensor, Tensor]]) -> Scatter:
    """Return predicted and true total error counts, by source."""
    noise = torch.Generator().manual_seed(0)
    points = {}
    for name, (preds, target) in counts.items():
        annotated = ~target.isnan().any(1)
        true, predicted = target[annotated].sum(1), preds[annotated].sum(1)
        # True counts are integers, and their points would overlap.
        jitter = (torch.rand(len(true), generator=noise) - 0.5) * 0.5
        points[name] = list(zip((true + jitter).tolist(), predicted.tolist(), strict=True))
    return Scatter("held-out pairs", "true errors", "predicted errors", points, diagonal=True)


def _totals(rewards: Mapping[str, GradedRewards], base: float) -> Scatter:
    """Return predicted and true totals, by source."""
    points = {}
    for name, graded in rewards.items():
        predicted, true = annotated_totals(graded.rewards, graded.contributions)
        points[name] = list(zip((base + true).tolist(), (base + predicted).tolist(), strict=True))
    return Scatter("held-out reports", "true total", "predicted total", points, diagonal=True)


History = Sequence[Mapping[str, float | None]]
Report = Mapping[str, Any]

_RANKINGS = ("accuracy", "kendall", "spearman")


@dataclass(frozen=True)
class Section:
    """A table of a training report, and the text before it.

    Args:
        text: Markdown; may be empty.
        headings: Column headings.
        rows: Rows of the table: text in the first column, and numbers in the others.
    """

    text: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def crepe_report(
    folder: Path, module: CrepeModule, data: CrepeDataModule, history: History, about: Report
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md``, ``counts.svg``, ``curve.svg`` and ``training_<head>.svg``.

    The last ones are histograms of the counts in the training data (Cho et al., "CREPE", Figure 4).

    Args:
        folder: Output folder.
        module: The trained and tested module.
        data: Data of the module.
        history: Logged values of each validation.
        about: Further content of the report, such as the configuration and the best validation.

    Returns:
        The content of ``report.json``.
    """
    counts, mean_counts = module.test_counts, data.mean_counts()
    categories = module.model.config.error_categories
    columns = zip(categories, data.training_counts.T, strict=True)
    trained = {name: column[~column.isnan()].tolist() for name, column in columns}
    report = {
        **about,
        **agreement_by_source(counts, lambda preds, target: count_agreement(preds, target, mean_counts, categories)),
        "mean_counts_of_training": dict(zip(categories, mean_counts.tolist(), strict=True)),
        "counts_of_training": {name: dict(sorted(Counter(known).items())) for name, known in trained.items()},
        **_end(history),
    }
    report["test"]["tau_interval"] = tau_interval(counts)
    plots: dict[str, Chart] = {
        "counts.svg": _counts(counts),
        "curve.svg": _curve(history, ("train/loss", "val/loss", "val/tau")),
        **{
            # A name may contain a slash.
            f"training_{quote(name, safe='')}.svg": Histogram(
                f"training pairs by number of errors: {name.replace('_', ' ')}", known
            )
            for name, known in trained.items()
            if known
        },
    }
    return _write(folder, report, plots)


def er2score_report(
    folder: Path, module: ER2ScoreModule, data: ER2ScoreDataModule, history: History, about: Report
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md``, and charts of totals and curves.

    The arguments and the return value are those of :func:`crepe_report`.
    """
    rewards, system = module.test_rewards, data.system
    curves = ("train/loss", "val/loss", "val/accuracy", "val/kendall", "val/spearman")
    report = {
        **about,
        "scoring_system": system.to_dict(),
        **agreement_by_source(rewards, lambda *parts: preference_agreement(GradedRewards(*parts), system)),
        **_end(history),
    }
    pooled = GradedRewards(*(torch.cat(parts) for parts in zip(*rewards.values(), strict=True)))
    report["test"] |= preference_intervals(pooled)
    plots: dict[str, Chart] = {
        "totals.svg": _totals(rewards, system.base),
        "curve.svg": _curve(history, curves),
    }
    return _write(folder, report, plots)


def sections(report: Report) -> list[Section]:
    """Return the tables of a report, for ``report.md`` and the terminal."""
    return _crepe_sections(report) if report["task"] == "crepe" else _er2score_sections(report)


def _crepe_sections(report: Report) -> list[Section]:
    test = report["test"]
    sources = [
        (name, str(own["pairs"]), *_numbers(own, ("tau", "mae"))) for name, own in report["test_by_source"].items()
    ]
    categories = []
    for name, row in test["categories"].items():
        below = row["mae"] is not None and row["mae"] < row["mae_of_mean"]
        numbers = _numbers(row, ("mean_true", "mae", "mae_of_mean"))
        categories.append((name, *numbers, "yes" if below else "no"))
    text = (
        f"Kendall's tau of predicted and true total counts on {test['pairs_with_total']} held-out pairs (in "
        f"parentheses: bootstrap interval, 95 %): **{number(test['tau'], test.get('tau_interval'))}**; mean absolute "
        f"error of the total: {number(test['mae'])}."
    )
    headings = ("Category", "Mean true count", "MAE", "MAE of always predicting the mean", "Below it")
    return [Section(text, ("Source", "Pairs", "Tau", "MAE of the total"), sources), Section("", headings, categories)]


def _er2score_sections(report: Report) -> list[Section]:
    test = report["test"]
    sources = [
        (name, str(own["reports"]), str(own["pairs"]), *_numbers(own, _RANKINGS))
        for name, own in report["test_by_source"].items()
    ]
    criteria = [
        (name, str(row["pairs"]), *_numbers(row, ("accuracy", "mean_true", "mae")))
        for name, row in test["criteria"].items()
    ]
    return [
        Section(
            f"Of {test['pairs']} held-out pairs of a better and a worse report on the same reference, the total orders "
            f"**{number(test['accuracy'], test.get('accuracy_interval'))}** correctly (in parentheses: bootstrap "
            f"interval, 95 %). Over {test['reports']} reports, Kendall's tau of predicted and true totals under "
            f"{report['scoring_system']['name']} is {number(test['kendall'], test.get('kendall_interval'))}, "
            f"Spearman's rho {number(test['spearman'], test.get('spearman_interval'))}.",
            ("Source", "Reports", "Pairs", "Accuracy", "Kendall", "Spearman"),
            sources,
        ),
        Section(
            "By criterion: the share of the pairs that differ in it which its own reward orders correctly, and the "
            "mean absolute error of its sub-score.",
            ("Criterion", "Pairs that differ", "Accuracy", "Mean sub-score", "MAE"),
            criteria,
        ),
    ]


def _end(history: History) -> dict[str, Any]:
    names = ("rrg-rewards", "torch", "transformers", "lightning")
    return {"history": list(history), "versions": {name: version(name) for name in names}}


def _write(folder: Path, report: dict[str, Any], plots: Mapping[str, Chart]) -> dict[str, Any]:
    write_json(report, folder / "report.json", overwrite=True)
    parts = [f"# {report['task']}: training report", _tables(report)]
    for name, chart in plots.items():
        with open_output(folder / name, overwrite=True) as file:
            file.write(svg_file(chart))
        parts.append(f"![{chart.title}]({quote(name)})")
    with open_output(folder / "report.md", overwrite=True) as file:
        file.write(("\n\n".join(parts) + "\n").encode("utf-8"))
    return report


def _tables(report: Report) -> str:
    """Return the sections of a report as Markdown."""
    parts = ((section.text, markdown_table(section.headings, section.rows)) for section in sections(report))
    return "\n\n".join(part for section in parts for part in section if part)


def _numbers(row: Report, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(number(row[name]) for name in names)


_NAMES = {"crepe": "CREPE", "er2score": "ER2Score"}
_ABOUT = {
    "crepe": "predicts the number of errors of a candidate radiology report by category, given its reference report",
    "er2score": "scores a candidate radiology report by the criteria of a scoring system, given its reference report",
}
_SIDES = {"train": "training", "validation": "validation", "test": "held out"}


def write_metric_card(folder: Path, report: Mapping[str, Any], pretrained: str) -> bool:
    """Write the model card of a learned metric beside its checkpoint.

    Args:
        folder: Folder of the exported model.
        report: Content of ``report.json``.
        pretrained: Folder or Hub id of the pretrained model.

    Returns:
        Whether the card was written; see :func:`~rrg_rewards.models.model_card.write_model_card`.
    """
    task = report["task"]
    name = _NAMES[task]
    metadata = {
        "model_name": f"{name} trained with rrg-rewards",
        "language": "en",
        "library_name": "rrg-rewards",
        "tags": ["radiology", "report-evaluation", task, "rrg-rewards"],
        **base_model(pretrained),
    }
    parts = [
        f"# {name} trained with rrg-rewards",
        f"This model {_ABOUT[task]}. Trained from `{Path(pretrained).name}` with rrg-rewards "
        f"{report['versions']['rrg-rewards']}.",
        "## Use\n\n```python\n"
        f"from rrg_rewards.metrics import {name}\n\n"
        f'metric = {name}("PATH_OF_THIS_FOLDER")\n'
        f'metric.score(["Small left effusion."], ["Large left effusion."]).value\n```',
        f"Signature, which identifies the weights and the settings of a score:\n\n```\n{report['signature']}\n```",
        f"## Data\n\n{_data_section(report['data'])}",
        f"## Agreement with the annotations of held-out pairs\n\n{_tables(report)}",
        f"## Limits\n\n{_limits_section(report)}",
    ]
    return write_model_card(folder, metadata, _card_results(report), "\n\n".join(parts))


def _data_section(data: Mapping[str, Any]) -> str:
    names = sorted({source for side in _SIDES for source in data[side]["by_source"]})
    rows = [(source, *(str(data[side]["by_source"].get(source, 0)) for side in _SIDES)) for source in names]
    return markdown_table(("Source", *(f"{side.capitalize()} rows" for side in _SIDES.values())), rows)


def _headline(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return key and name of each statistic in the card."""
    if report["task"] == "crepe":
        return (("tau", "Kendall's tau of total counts"), ("mae", "Mean absolute error of the total count"))
    return (("accuracy", "Pairwise accuracy"), ("kendall", "Kendall's tau"), ("spearman", "Spearman's rho"))


def _limits_section(report: Mapping[str, Any]) -> str:
    sources = ", ".join(f"`{source}`" for source in report["test_by_source"])
    return (
        f"- The agreement was measured on held-out rows of the sources of the training data ({sources}). Agreement "
        "with radiologists on other reports may be lower; `rrg-rewards agreement` measures it.\n"
        "- Before you use the model as a reward, search for texts that it overrates: `rrg-rewards attack`. No result "
        "is part of this card.\n"
        "- Not a medical device. Do not use the scores for decisions about patients."
    )


def _card_results(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "task_type": "text-classification",
            "task_name": "evaluation of radiology reports",
            "dataset_type": "held-out",
            "dataset_name": "held-out rows of the training sources",
            "metric_type": key,
            "metric_name": name,
            "metric_value": report["test"][key],
        }
        for key, name in _headline(report)
        if report["test"][key] is not None
    ]


def count_agreement(preds: Tensor, target: Tensor, mean_counts: Tensor, categories: Sequence[str]) -> dict[str, Any]:
    """Compare predicted error counts with true counts, and with the mean counts of the training data.

    Args:
        preds: Predicted counts ``(N, C)``.
        target: True counts ``(N, C)``; NaN for a category that is not annotated.
        mean_counts: Mean counts of the training data, ``(C,)``.
        categories: Names of the categories.

    Returns:
        ``pairs``, ``pairs_with_total``, ``tau`` (``None`` if it is undefined), ``mae`` of the total, and for each
        category ``mae``, ``mae_of_mean`` (the error of always predicting the mean) and ``mean_true`` (``None`` if the
        category is not annotated).

    Example:
        >>> preds, target = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [2.0]])
        >>> found = count_agreement(preds, target, torch.tensor([1.5]), ["A"])
        >>> found["tau"], found["mae"], found["categories"]["A"]
        (1.0, 0.5, {'mae': 0.5, 'mae_of_mean': 0.5, 'mean_true': 1.5})
    """
    annotated = ~target.isnan().any(1)
    predicted_total, true_total = preds[annotated].sum(1), target[annotated].sum(1)
    by_category = {
        "mae": (preds - target).abs().nanmean(0),
        "mae_of_mean": (mean_counts.to(target) - target).abs().nanmean(0),
        "mean_true": target.nanmean(0),
    }
    return {
        "pairs": len(preds),
        "pairs_with_total": int(annotated.sum()),
        "tau": _finite(kendall_tau(predicted_total, true_total)),
        "mae": _finite((predicted_total - true_total).abs().mean()),
        "categories": {
            name: {statistic: _finite(values[index]) for statistic, values in by_category.items()}
            for index, name in enumerate(categories)
        },
    }


def preference_agreement(graded: GradedRewards, system: ScoringSystem) -> dict[str, Any]:
    """Compare the order of predicted rewards with the true order, and predicted sub-scores with true sub-scores.

    Args:
        graded: Rewards and contributions of reports.
        system: Scoring system of the contributions.

    Returns:
        ``reports``, ``pairs``, ``accuracy``, ``kendall``, ``spearman``, and for each criterion the number of ``pairs``
        that differ in it, ``accuracy`` over these pairs, and ``mae`` and ``mean_true`` of the sub-score. Undefined
        values are ``None``.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> contributions = torch.tensor([[0.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 0]], dtype=torch.float64)
        >>> found = preference_agreement(
        ...     GradedRewards(contributions / 2, contributions, torch.tensor([0, 0])), get_scoring_system("radcliq")
        ... )
        >>> found["criteria"]["false_finding"]
        {'pairs': 1, 'accuracy': 1.0, 'mae': 0.5, 'mean_true': 1.0}
    """
    # Do not use the metric, because it would synchronise with processes that have ended.
    statistics = {name: _finite(value) for name, value in graded.statistics(system.names).items()}
    accepted, rejected = preference_pairs(graded.contributions, graded.reference)
    differ = (graded.contributions[accepted] - graded.contributions[rejected]).nan_to_num() != 0
    factors = torch.tensor(system.factors, dtype=torch.float64)
    mae = ((graded.rewards - graded.contributions) / factors).abs().nanmean(0)
    mean_true = (graded.contributions / factors).nanmean(0)
    return {
        "reports": len(graded.rewards),
        "pairs": len(accepted),
        "accuracy": _finite(graded.accuracy()),
        "kendall": statistics["kendall"],
        "spearman": statistics["spearman"],
        "criteria": {
            name: {
                "pairs": int(differ[:, index].sum()),
                "accuracy": statistics[f"accuracy_{name}"],
                "mae": _finite(mae[index]),
                "mean_true": _finite(mean_true[index]),
            }
            for index, name in enumerate(system.names)
        },
    }


def preference_intervals(graded: GradedRewards, num_resamples: int = 1000) -> dict[str, list[float | None]]:
    """Return the bootstrap 95 % intervals of the totals of :func:`preference_agreement`.

    All reports on a reference are drawn together.

    Args:
        graded: Rewards and contributions of reports.
        num_resamples: Number of draws.

    Returns:
        ``accuracy_interval``, ``kendall_interval`` and ``spearman_interval``: lower and upper end, ``None`` if
        undefined.

    Example:
        >>> contributions = -torch.arange(24.0).double().reshape(4, 6)
        >>> preference_intervals(GradedRewards(contributions / 2, contributions, torch.tensor([0, 0, 1, 1])))
        {'accuracy_interval': [1.0, 1.0], 'kendall_interval': [1.0, 1.0], 'spearman_interval': [1.0, 1.0]}
    """
    whole, _ = rows_with_totals(graded.contributions)
    totals = annotated_totals(graded.rewards, graded.contributions)
    intervals = {"accuracy_interval": accuracy_interval(graded, num_resamples)}
    for name in _CORRELATIONS:
        ends = (float("nan"),) * 2
        if len(totals[0]):
            ends = agreement_interval(*totals, name, graded.reference[whole], num_resamples=num_resamples)
        intervals[f"{name}_interval"] = _finite_ends(ends)
    return intervals


def agreement_by_source(
    results: Mapping[str, Sequence[Tensor]], agreement: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Compute the agreement over all sources (``test``) and for each source with rows (``test_by_source``).

    Args:
        results: Tensors of predictions and true scores by source, with one row per report.
        agreement: Function that computes the agreement from these tensors.
    """
    pooled = (torch.cat(parts) for parts in zip(*results.values(), strict=True))
    return {
        "test": agreement(*pooled),
        "test_by_source": {name: agreement(*tensors) for name, tensors in results.items() if len(tensors[0])},
    }


def tau_interval(results: Mapping[str, Sequence[Tensor]]) -> list[float | None]:
    """Return the bootstrap interval over pairs of ``tau``, as :func:`count_agreement` computes it over all sources.

    Args:
        results: Predicted and true counts ``(N, C)`` by source.
    """
    preds, target = (torch.cat(parts) for parts in zip(*results.values(), strict=True))
    annotated = ~target.isnan().any(1)
    if not annotated.any():
        return [None, None]
    ends = agreement_interval(preds[annotated].sum(1).double(), target[annotated].sum(1).double(), "kendall")
    return _finite_ends(ends)


def accuracy_interval(graded: GradedRewards, num_resamples: int = 1000) -> list[float | None]:
    """Return the bootstrap interval over references of :meth:`GradedRewards.accuracy`."""
    accepted, rejected = preference_pairs(graded.contributions, graded.reference)
    owner = graded.reference[accepted]
    known = ~(graded.contributions[accepted] - graded.contributions[rejected]).isnan()
    right = ((graded.rewards[accepted] - graded.rewards[rejected]) * known).sum(1) > 0
    references = int(graded.reference.max()) + 1 if len(graded.reference) else 0
    pairs = torch.bincount(owner, minlength=references).double()
    correct = torch.bincount(owner, weights=right.double(), minlength=references)
    ends = bootstrap_interval(lambda hits, all_pairs: hits.sum() / all_pairs.sum(), (correct, pairs), num_resamples)
    return _finite_ends(ends)


def _finite(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def _finite_ends(ends: tuple[float, float]) -> list[float | None]:
    return [_finite(torch.tensor(end)) for end in ends]
