"""What a training of ER²Score has come to: numbers, a page, plots and a summary, without a word of any report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.metrics.reward_agreement import GradedRewards, annotated_totals, preference_pairs
from rrg_rewards.schemas.scoring import ScoringSystem
from rrg_rewards.training.er2score import ER2ScoreModule
from rrg_rewards.training.er2score_data import ER2ScoreDataModule
from rrg_rewards.training.report import Summary, draw_curve, finite, number, table, versions, write_report

__all__ = ["er2score_report", "er2score_summary", "preference_agreement", "report_page"]


def preference_agreement(graded: GradedRewards, system: ScoringSystem) -> dict[str, Any]:
    """How well predicted rewards order reports of one reference, and how far sub-scores are from the true ones.

    Args:
        graded: Rewards and contributions of reports.
        system: The scoring system that they are of.

    Returns:
        ``reports``, ``pairs``, ``accuracy``, ``kendall``, ``spearman``, and for each criterion ``pairs`` that differ in
        it, ``accuracy`` over them, ``mae`` of the sub-score and its ``mean_true``; ``None`` where nothing is annotated
        or ranked.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> contributions = torch.tensor([[0.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 0]], dtype=torch.float64)
        >>> found = preference_agreement(
        ...     GradedRewards(contributions / 2, contributions, torch.tensor([0, 0])), get_scoring_system("radcliq")
        ... )
        >>> found["accuracy"], found["criteria"]["false_finding"]
        (1.0, {'pairs': 1, 'accuracy': 1.0, 'mae': 0.5, 'mean_true': 1.0})
    """
    # Not by the metric, which would wait for the other processes, and they have gone.
    statistics = {name: finite(value) for name, value in graded.statistics(system.names).items()}
    accepted, rejected = preference_pairs(graded.contributions, graded.reference)
    differ = (graded.contributions[accepted] - graded.contributions[rejected]).nan_to_num() != 0
    factors = torch.tensor(system.factors, dtype=torch.float64)
    mae = ((graded.rewards - graded.contributions) / factors).abs().nanmean(0)
    mean_true = (graded.contributions / factors).nanmean(0)
    return {
        "reports": len(graded.rewards),
        "pairs": len(accepted),
        "accuracy": finite(graded.accuracy()),
        "kendall": statistics["kendall"],
        "spearman": statistics["spearman"],
        "criteria": {
            name: {
                "pairs": int(differ[:, place].sum()),
                "accuracy": statistics[f"accuracy_{name}"],
                "mae": finite(mae[place]),
                "mean_true": finite(mean_true[place]),
            }
            for place, name in enumerate(system.names)
        },
    }


def pooled(rewards: Mapping[str, GradedRewards]) -> GradedRewards:
    """Rewards of all sources together."""
    return GradedRewards(*(torch.cat(parts) for parts in zip(*rewards.values(), strict=True)))


def er2score_report(
    folder: Path,
    module: ER2ScoreModule,
    data: ER2ScoreDataModule,
    history: Sequence[Mapping[str, float | None]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md`` and, with matplotlib, ``accuracy.png``, ``totals.png`` and ``curve.png``.

    Args:
        folder: Where to.
        module: What was trained, after its test.
        data: What it was trained and tested on.
        history: What was logged, validation by validation.
        about: What else the report is to say: configuration, data, best validation.

    Returns:
        What ``report.json`` holds.
    """
    rewards, system = module.test_rewards, data.system
    report = {
        **about,
        "scoring_system": system.to_dict(),
        "test": preference_agreement(pooled(rewards), system),
        "test_by_source": {
            name: preference_agreement(own, system) for name, own in rewards.items() if len(own.rewards)
        },
        "history": list(history),
        "versions": versions(),
    }
    drawings = {
        "accuracy.png": lambda axes: _draw_accuracy(axes, report["test"]),
        "totals.png": lambda axes: _draw_totals(axes, rewards, system.base),
        "curve.png": lambda axes: draw_curve(
            axes, history, ("train/loss", "val/loss", "val/accuracy", "val/kendall", "val/spearman")
        ),
    }
    write_report(folder, report, report_page, drawings)
    return report


def er2score_summary(report: Mapping[str, Any]) -> Summary:
    """What a terminal shows of a report."""
    test = report["test"]
    lines = [
        f"{name}: {own['pairs']} pairs, accuracy {number(own['accuracy'])}, Kendall's tau {number(own['kendall'])}"
        for name, own in report["test_by_source"].items()
    ]
    lines.append(
        f"all: accuracy {number(test['accuracy'])}, Kendall's tau {number(test['kendall'])}, Spearman's rho "
        f"{number(test['spearman'])}"
    )
    title = f"{test['pairs']} held-out pairs of {test['reports']} reports"
    return Summary(title, _HEADINGS, _criteria_rows(test), lines)


_STATISTICS = ("accuracy", "kendall", "spearman")
_HEADINGS = ("criterion", "pairs that differ", "accuracy", "mean sub-score", "MAE")


def _criteria_rows(test: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (name, str(row["pairs"]), *(number(row[key]) for key in ("accuracy", "mean_true", "mae")))
        for name, row in test["criteria"].items()
    ]


def report_page(report: Mapping[str, Any], plots: Sequence[str] = ()) -> str:
    """The report as a page of Markdown."""
    test = report["test"]
    sources = [
        (name, *(str(own[key]) for key in ("reports", "pairs")), *(number(own[key]) for key in _STATISTICS))
        for name, own in report["test_by_source"].items()
    ]
    lines = [
        f"# {report['task']}: training report",
        "",
        f"Of {test['pairs']} held-out pairs of a better and a worse report on the same reference, the total orders "
        f"**{number(test['accuracy'])}** rightly. Over {test['reports']} reports, Kendall's tau of predicted and true "
        f"totals under {report['scoring_system']['name']} is {number(test['kendall'])}, Spearman's rho "
        f"{number(test['spearman'])}.",
        "",
        *table(("Source", "Reports", "Pairs", "Accuracy", "Kendall", "Spearman"), sources),
        "",
        "By criterion: of the pairs that differ in it, how many its own reward orders rightly; and the mean absolute "
        "error of its sub-score.",
        "",
        *table([heading.capitalize() if heading != "MAE" else heading for heading in _HEADINGS], _criteria_rows(test)),
        "",
        *(f"![{name}]({name})" for name in plots),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _draw_accuracy(axes: Any, test: Mapping[str, Any]) -> None:
    bars = {"total": test, **test["criteria"]}
    told = {name: row for name, row in bars.items() if row["accuracy"] is not None}
    places = range(len(told))
    axes.bar(places, [row["accuracy"] for row in told.values()])
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks(
        list(places), [f"{name.replace('_', chr(10))}\n({row['pairs']})" for name, row in told.items()], fontsize=7
    )
    axes.set(ylim=(0, 1), ylabel="ordered rightly", title="held-out pairs (number that differ)")


def _draw_totals(axes: Any, rewards: Mapping[str, GradedRewards], base: float) -> None:
    ends: list[Tensor] = []
    for name, graded in rewards.items():
        predicted, true = annotated_totals(graded.rewards, graded.contributions)
        if len(true):
            axes.scatter((base + true).tolist(), (base + predicted).tolist(), s=8, alpha=0.4, label=name)
            ends += [base + true, base + predicted]
    if ends:
        low, high = float(torch.cat(ends).min()), float(torch.cat(ends).max())
        axes.plot([low, high], [low, high], color="black", linewidth=0.8)
        axes.legend(frameon=False)
    axes.set(xlabel="true total", ylabel="predicted total", title="held-out reports")
