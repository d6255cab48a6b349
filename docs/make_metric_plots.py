"""Make the plots of docs/measurements.md: each metric by the number of errors injected into synthetic reports."""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from rrg_rewards.data import phantom_studies
from rrg_rewards.findings import inject_errors
from rrg_rewards.functional import bootstrap_interval
from rrg_rewards.metrics import ReportMetric, make_metric

_ROOT = Path(__file__).parents[1]
_METRICS = {"crg": "CRG", "crimson": "CRIMSON", "ct_finebench": "CT-FineBench"}
_STUDIES = 200
_MOST_ERRORS = 5
# Categories of errors, in the order in which they are injected: false, missing, place and severity of a finding.
_CATEGORIES = "ABCD"


def pairs(errors: int) -> tuple[list[str], list[str]]:
    """Return synthetic candidates with this number of errors, and their references."""
    preds, target = [], []
    for number, study in enumerate(phantom_studies(_STUDIES, style="compact", seed=0)):
        counts = dict.fromkeys(_CATEGORIES, 0)
        for error in range(errors):
            counts[_CATEGORIES[(number + error) % len(_CATEGORIES)]] += 1
        injected = inject_errors(study.report, counts, seed=number, modality="ct")
        if injected is not None and sum(injected.counts) == errors:
            preds.append(injected.candidate)
            target.append(injected.reference)
    return preds, target


def plot(title: str, metric: ReportMetric, texts: dict[int, tuple[list[str], list[str]]]) -> Figure:
    """Plot the corpus value with its bootstrap interval, and ROUGE-L, by the number of errors."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for name, drawn, style in ((title, metric, "o-"), ("ROUGE-L", make_metric("rouge"), "s--")):
        values, low, high = [], [], []
        for preds, target in texts.values():
            scores = drawn.score(preds, target)
            columns = scores.sufficient_statistics
            ends = bootstrap_interval(scores.aggregate, columns)
            values.append(float(scores.aggregate(*columns)))
            low.append(values[-1] - ends[0])
            high.append(ends[1] - values[-1])
        axes.errorbar(list(texts), values, yerr=[low, high], fmt=style, capsize=3, label=name)
    axes.set_xticks(list(texts), [f"{errors}\n({len(preds)})" for errors, (preds, _) in texts.items()])
    axes.set(
        xlabel="errors injected into a report (number of reports)",
        ylabel="corpus value",
        title=f"{title} by number of errors",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=_ROOT / "docs/images", help="folder of the plots")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    texts = {errors: pairs(errors) for errors in range(_MOST_ERRORS + 1)}
    for name, title in _METRICS.items():
        plot(title, make_metric(name), texts).savefig(folder / f"{name}_errors.png", dpi=110)


if __name__ == "__main__":
    _main()
