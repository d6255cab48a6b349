"""Formulas of the text metrics of the COCO caption evaluation, on counts of n-grams."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

N_GRAMS = 4
"""Greatest length of n-grams."""

# Added to counts in BLEU, so that nothing is divided by 0.
_SMALL, _TINY = 1e-9, 1e-15
# Weight of the recall in ROUGE-L.
_BETA = 1.2
# Width of the penalty for different lengths in CIDEr, in words.
_SIGMA = 6.0


def n_gram_counts(words: Sequence[str]) -> tuple[Counter[Hashable], ...]:
    """Return the counts of the n-grams of 1 to 4 words.

    Example:
        >>> [len(counts) for counts in n_gram_counts("no effusion no effusion".split())]
        [2, 2, 2, 1]
    """
    lengths = range(1, N_GRAMS + 1)
    return tuple(
        Counter[Hashable](zip(*(words[start:] for start in range(length)), strict=False)) for length in lengths
    )


class BleuCounts(NamedTuple):
    """Counts whose sums determine BLEU.

    Args:
        correct: Numbers of n-grams that the reference contains, by length, ``(..., 4)``.
        guessed: Numbers of n-grams of the candidate, by length, ``(..., 4)``.
        length: Number of words of the candidate, ``(...)``.
        reference_length: Number of words of the reference, ``(...)``.
    """

    correct: Tensor
    guessed: Tensor
    length: Tensor
    reference_length: Tensor


def bleu_counts(candidate: Sequence[str], reference: Sequence[str]) -> BleuCounts:
    """Count the n-grams of a candidate, clipped to their count in the reference: int64 tensors."""
    pairs = zip(n_gram_counts(candidate), n_gram_counts(reference), strict=True)
    correct = [(ours & theirs).total() for ours, theirs in pairs]
    guessed = [max(0, len(candidate) - order) for order in range(N_GRAMS)]
    return BleuCounts(*(torch.tensor(one) for one in (correct, guessed, len(candidate), len(reference))))


def caption_bleu(counts: BleuCounts) -> Tensor:
    r"""Return BLEU-1 to BLEU-4 as the COCO caption evaluation computes them from counts of a report or a corpus.

    .. math::
        \mathrm{BLEU}_N = \min(1, e^{1 - 1/q}) \Bigl(\prod_{n=1}^{N} \frac{m_n + 10^{-15}}{g_n + 10^{-9}}\Bigr)^{1/N},
        \qquad q = \frac{|c| + 10^{-15}}{|r| + 10^{-9}}

    with :math:`m_n` correct n-grams of :math:`g_n` in candidates of :math:`|c|` words and references of :math:`|r|`.

    Args:
        counts: Counts, or their sums over reports.

    Returns:
        float64 ``(..., 4)``, in [0, 1], higher is better.

    Source: Papineni et al., "BLEU", 2002; Chen et al., "Microsoft COCO Captions", arXiv:1504.00325.

    Example:
        >>> counts = bleu_counts("small left effusion".split(), "small pleural effusion on the left".split())
        >>> [round(value, 3) for value in caption_bleu(counts).tolist()]
        [0.368, 0.0, 0.0, 0.0]
    """
    precisions = (counts.correct.double() + _TINY) / (counts.guessed.double() + _SMALL)
    ratio = (counts.length.double() + _TINY) / (counts.reference_length.double() + _SMALL)
    orders = torch.arange(1, N_GRAMS + 1, dtype=torch.float64, device=precisions.device)
    penalty = (1 - 1 / ratio).clamp(max=0).exp()
    return precisions.cumprod(-1) ** (1 / orders) * penalty[..., None]


def combined_rouge(precision: float, recall: float) -> float:
    r"""Return ROUGE-L of the COCO caption evaluation, in which the recall weighs more.

    .. math::
        F = \frac{(1 + \beta^2) P R}{R + \beta^2 P}, \qquad \beta = 1.2

    Args:
        precision: Length of the longest common subsequence, divided by the number of words of the candidate.
        recall: The same, divided by the number of words of the reference.

    Source: Lin, "ROUGE", 2004; Chen et al., "Microsoft COCO Captions", arXiv:1504.00325.

    Example:
        >>> round(combined_rouge(2 / 3, 2 / 4), 4)
        0.5571
    """
    if not precision or not recall:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


@dataclass
class DocumentFrequencies:
    """Number of reports that contain each n-gram, by length.

    Example:
        >>> found = DocumentFrequencies()
        >>> found.add(n_gram_counts("no effusion".split()))
        >>> found.documents, found.counts[0]["no",], found.counts[0]["mass",]
        (1, 1, 0)
    """

    documents: int = 0
    counts: tuple[Counter[Hashable], ...] = field(default_factory=lambda: tuple(Counter() for _ in range(N_GRAMS)))

    def add(self, report: Sequence[Mapping[Hashable, int]]) -> None:
        """Add a report: the counts of its n-grams, by length."""
        self.documents += 1
        for counts, own in zip(self.counts, report, strict=True):
            counts.update(own.keys())


def cider(
    candidate: Sequence[Mapping[Hashable, int]],
    reference: Sequence[Mapping[Hashable, int]],
    frequencies: DocumentFrequencies,
) -> float:
    r"""Return CIDEr-D of a report, as the COCO caption evaluation computes it.

    .. math::
        \mathrm{CIDEr} = \frac{10}{4} \sum_{n=1}^{4} e^{-(l_c - l_r)^2 / (2 \cdot 6^2)}
        \frac{\min(g_n(c), g_n(r)) \cdot g_n(r)}{\lVert g_n(c)\rVert \lVert g_n(r)\rVert}

    with the vectors :math:`g_n` of the counts of n-grams, each multiplied by
    :math:`\log D - \log \max(1, d)` for an n-gram that occurs in :math:`d` of :math:`D` documents. The length :math:`l`
    is the number of bigrams. At least 0, at most 10 if no n-gram occurs in more documents than there are.

    Args:
        candidate: Counts of the n-grams of the candidate, by length.
        reference: The same of the reference.
        frequencies: Frequencies of n-grams in documents.

    Source: Vedantam et al., "CIDEr", CVPR 2015; Chen et al., "Microsoft COCO Captions", arXiv:1504.00325.

    Example:
        >>> reports = [n_gram_counts(text.split()) for text in ("small left effusion", "no acute abnormality")]
        >>> frequencies = DocumentFrequencies()
        >>> for report in reports:
        ...     frequencies.add(report)
        >>> round(cider(reports[0], reports[0], frequencies), 3)
        7.5
    """
    gap = sum(candidate[1].values()) - sum(reference[1].values())
    penalty = math.exp(-(gap**2) / (2 * _SIGMA**2))
    total = 0.0
    for order, pair in enumerate(zip(candidate, reference, strict=True)):
        total += penalty * _similarity(*(_weighted(counts, order, frequencies) for counts in pair))
    return 10 * total / N_GRAMS


def _weighted(counts: Mapping[Hashable, int], order: int, frequencies: DocumentFrequencies) -> dict[Hashable, float]:
    known, documents = frequencies.counts[order], math.log(frequencies.documents)
    return {gram: count * (documents - math.log(max(1, known[gram]))) for gram, count in counts.items()}


def _similarity(ours: Mapping[Hashable, float], theirs: Mapping[Hashable, float]) -> float:
    norm = math.sqrt(sum(one**2 for one in ours.values())) * math.sqrt(sum(one**2 for one in theirs.values()))
    if not norm:
        return 0.0
    return sum(min(one, theirs[gram]) * theirs[gram] for gram, one in ours.items() if gram in theirs) / norm
