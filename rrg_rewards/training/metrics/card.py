"""Model cards of learned metrics, from their training reports."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrg_rewards.models.model_card import base_model, card_table, number, write_model_card

__all__ = ["write_metric_card"]

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
        f"## Data\n\n{_data(report['data'])}",
        f"## Agreement\n\n{_agreement(report)}",
        f"## Limits\n\n{_limits(report)}",
    ]
    return write_model_card(folder, metadata, _results(report), "\n\n".join(parts))


def _data(data: Mapping[str, Any]) -> str:
    names = sorted({source for side in _SIDES for source in data[side]["by_source"]})
    rows = [(source, *(str(data[side]["by_source"].get(source, 0)) for side in _SIDES)) for source in names]
    return card_table(("Source", *(f"{side.capitalize()} rows" for side in _SIDES.values())), rows)


def _headline(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return key and name of each statistic in the card."""
    if report["task"] == "crepe":
        return (("tau", "Kendall's tau of total counts"), ("mae", "Mean absolute error of the total count"))
    return (("accuracy", "Pairwise accuracy"), ("kendall", "Kendall's tau"), ("spearman", "Spearman's rho"))


def _agreement(report: Mapping[str, Any]) -> str:
    statistics = _headline(report)
    test = report["test"]
    rows = [("all", str(test["pairs"]), *(number(test[key], test.get(f"{key}_interval")) for key, _ in statistics))]
    rows += [
        (source, str(own["pairs"]), *(number(own[key]) for key, _ in statistics))
        for source, own in report["test_by_source"].items()
    ]
    return (
        "Agreement with the annotations of held-out pairs. In parentheses: percentile bootstrap interval, 95 %.\n\n"
        + card_table(("Source", "Pairs", *(name for _, name in statistics)), rows)
    )


def _limits(report: Mapping[str, Any]) -> str:
    sources = ", ".join(f"`{source}`" for source in report["test_by_source"])
    return (
        f"- The agreement was measured on held-out rows of the sources of the training data ({sources}). Agreement "
        "with radiologists on other reports may be lower; `rrg-rewards agreement` measures it.\n"
        "- Before you use the model as a reward, search for texts that it overrates: `rrg-rewards attack`. No result "
        "is part of this card.\n"
        "- Not a medical device. Do not use the scores for decisions about patients."
    )


def _results(report: Mapping[str, Any]) -> list[dict[str, Any]]:
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
