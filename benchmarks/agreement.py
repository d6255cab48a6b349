"""What benchmarks of agreement with radiologists share: RadPref, metrics of wording, taus with intervals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor
from torchmetrics.functional.text import rouge_score
from transformers import AutoModel, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
RADPREF = SHARED / "radpref" / "pairs.json"
RESULTS = ROOT / "benchmarks" / "results"
CANDIDATES = ("C1", "C2")

Array = np.ndarray[Any, Any]


class Preference(NamedTuple):
    """A case of RadPref: two candidates, and how much better the first was rated.

    Args:
        reference: Reference report.
        candidates: The two candidates.
        context: Age and indication, as metrics take them.
        ratings: Difference of the two ratings by each radiologist, above 0 where the first is better.
    """

    reference: str
    candidates: tuple[str, str]
    context: dict[str, str]
    ratings: tuple[int, ...]


def read_preferences(path: Path) -> list[Preference]:
    """Cases of RadPref's ``pairs.json``."""
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
    """ROUGE-L F1 of a candidate."""
    return float(rouge_score(candidate, reference, rouge_keys="rougeL")["rougeL_fmeasure"])


def bert_score(encoder: Path) -> Callable[[str, str], float]:
    """BERTScore F1 of a candidate: each token with its most similar one on the other side.

    It is the greedy matching of Zhang et al. (2020) on the encoder's last layer, without idf weights.
    """
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()

    def embed(text: str) -> Tensor:
        with torch.no_grad():
            hidden = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=512)).last_hidden_state[0]
        # Without [CLS] and [SEP], as in the original.
        return torch.nn.functional.normalize(hidden[1:-1], dim=1)

    def score(reference: str, candidate: str) -> float:
        similarity = embed(candidate) @ embed(reference).T
        precision, recall = similarity.amax(1).mean(), similarity.amax(0).mean()
        return float(2 * precision * recall / (precision + recall))

    return score


def bootstrap_draws(cases: int, resamples: int) -> Array:
    """Cases drawn with replacement, ``(resamples, cases)``: the same for all metrics, so that they can be compared."""
    return np.random.default_rng(0).integers(cases, size=(resamples, cases))


def interval(statistic: Callable[[Array], float], draws: Array) -> dict[str, float]:
    """The 95 % bootstrap interval of a statistic of drawn cases."""
    low, high = np.nanquantile([statistic(cases) for cases in draws], (0.025, 0.975))
    return {"low": float(low), "high": float(high)}


def tau_with_interval(scores: Array, target: Array, draws: Array) -> dict[str, float]:
    """Kendall's tau with its interval; a case may have several rows, which lie together and are drawn together."""
    rows = len(scores) // draws.shape[1]

    def tau(cases: Array) -> float:
        drawn = (rows * cases[:, None] + np.arange(rows)).ravel()
        return float(kendalltau(scores[drawn], target[drawn]).statistic)

    return {"tau": float(kendalltau(scores, target).statistic), **interval(tau, draws)}
