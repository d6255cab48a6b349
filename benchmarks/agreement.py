"""Functions that the benchmarks of agreement with radiologists share: RadPref, text similarity, intervals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torchmetrics.functional.text import rouge_score

from rrg_rewards.functional.agreement import AgreementStatistic, agreement_interval, human_agreement
from rrg_rewards.metrics.nlg import BERTScore

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
RADPREF = SHARED / "radpref" / "pairs.json"
RESULTS = ROOT / "benchmarks" / "results"
CANDIDATES = ("C1", "C2")

Array = np.ndarray[Any, Any]


class Preference(NamedTuple):
    """A case of RadPref: a reference, two candidates and their ratings.

    Args:
        reference: Reference report.
        candidates: The two candidates.
        context: Age and indication, by the names of the metrics' context columns.
        ratings: Difference between each radiologist's ratings of the two, positive if the first is better.
    """

    reference: str
    candidates: tuple[str, str]
    context: dict[str, str]
    ratings: tuple[int, ...]


def read_preferences(path: Path) -> list[Preference]:
    """Read the cases of RadPref's ``pairs.json``."""
    first, second = CANDIDATES
    return [
        Preference(
            case["ground_truth_report"],
            (case[f"{first}_report"], case[f"{second}_report"]),
            {"age": case["PatientAge"], "indication": case["Indication"]},
            tuple(judged[first]["rating"] - judged[second]["rating"] for judged in case["radiologists"]),
        )
        for case in json.loads(path.read_text(encoding="utf-8"))
    ]


def rouge_l(reference: str, candidate: str) -> float:
    """Return the ROUGE-L F1 of a candidate."""
    return float(rouge_score(candidate, reference, rouge_keys="rougeL")["rougeL_fmeasure"])


def bert_score(encoder: Path) -> Callable[[str, str], float]:
    """Return a function that computes BERTScore F1 on the encoder's last layer."""
    metric = BERTScore(str(encoder), device="cpu")
    return lambda reference, candidate: float(metric.score([candidate], [reference]).value)


def bootstrap_draws(cases: int, resamples: int) -> Array:
    """Return indices of cases drawn with replacement ``(resamples, cases)``, equal in every call."""
    return np.random.default_rng(0).integers(cases, size=(resamples, cases))


def interval(statistic: Callable[[Array], float], draws: Array) -> dict[str, float]:
    """Return the 95 % bootstrap interval of a statistic of drawn cases."""
    low, high = np.nanquantile([statistic(cases) for cases in draws], (0.025, 0.975))
    return {"low": float(low), "high": float(high)}


def agreement_with_interval(
    scores: Array, target: Array, draws: Array, statistic: AgreementStatistic = "kendall", name: str = "tau"
) -> dict[str, float]:
    """Return the agreement with its interval. The rows of a case are adjacent and are drawn together."""
    columns = [torch.from_numpy(np.asarray(values, dtype=np.float64)) for values in (scores, target)]
    units = torch.arange(len(scores)) // (len(scores) // draws.shape[1])
    low, high = agreement_interval(*columns, statistic, units, draws=map(torch.from_numpy, draws))
    return {name: float(human_agreement(*columns, statistic)), "low": low, "high": high}
