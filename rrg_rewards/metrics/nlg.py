"""Metrics of natural language generation as report metrics. They compare words, not findings."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from string import punctuation
from typing import Any, Literal, get_args
from unicodedata import category

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.text import bleu_score

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.models.loading import PretrainedModel
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.signature import format_signature

RougeVariant = Literal["rouge1", "rouge2", "rougeL"]

_WORD = re.compile(r"\w+|[^\w\s]")
# Limit of encoders of the BERT family. RoBERTa accepts two tokens fewer than it has positions.
_MOST_TOKENS = 510
# Number of occurrences from which the mask of a word is kept.
_FREQUENT = 64
# What an n-gram precision of ReXrank counts instead of no match, if a shorter n-gram matches.
_EPSILON = 0.1
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")
# A letter of another alphabet than the Latin one.
_OTHER_LETTER = re.compile(r"[^\W\d_A-Za-z\u00aa\u00ba\u00c0-\u024f]")


class TextMetric(ReportMetric):
    """A metric that compares the words of a candidate and its reference: values in [0, 1], and their mean."""

    context = ()
    has_independent_rows = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        return _scores(self._value(*pair) for pair in zip(preds, target, strict=True))

    def _value(self, candidate: str, reference: str) -> float:
        """Return the value of a pair; used by the default :meth:`_score`."""
        raise NotImplementedError


def _scores(values: Iterable[float]) -> Scores:
    return Scores(torch.tensor([*values], dtype=torch.float64))


class BLEU(TextMetric):
    r"""BLEU of each candidate report against its reference, as torchmetrics computes it.

    .. math::
        \mathrm{BLEU} = \min(1, e^{1 - |r| / |c|}) \Bigl(\prod_{n=1}^{N} p_n\Bigr)^{1/N}

    with the candidate :math:`c`, the reference :math:`r`, and the precisions :math:`p_n` of n-grams of lower-case words
    and punctuation marks. In [0, 1], higher is better. The corpus value is the mean over reports, which differs from
    corpus BLEU. BLEU counts words, not findings: a fixed normal report scores well on mostly normal reports.

    Source: Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002.

    Args:
        n_gram: :math:`N`, 1 to 4.
        smooth: Whether to add one match to the precisions for :math:`n \ge 2` (Lin and Och, 2004), so that a report
            without a common 4-gram does not score 0.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If ``n_gram`` is out of range.

    Example:
        >>> from rrg_rewards.metrics import BLEU
        >>> metric = BLEU(n_gram=2)
        >>> metric.update(["Small pleural effusion."], ["Small left pleural effusion."])
        >>> metric.compute()
        tensor(0.6359, dtype=torch.float64)
    """

    name = "bleu"

    def __init__(self, n_gram: int = 4, smooth: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if n_gram not in (1, 2, 3, 4):
            raise ValueError(f"n_gram must be 1, 2, 3 or 4, got {shown(n_gram)}")
        self.n_gram = n_gram
        self.smooth = smooth

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("bleu", n_gram=self.n_gram, smooth=self.smooth, case="lower", of="report")

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        pairs = zip(map(_words, preds), map(_words, target), strict=True)
        return _scores(float(bleu_score([pred], [[reference]], self.n_gram, self.smooth)) for pred, reference in pairs)


def _words(report: str) -> str:
    return " ".join(_WORD.findall(report.lower()))


class ReXrankBLEU(TextMetric):
    r"""BLEU of each candidate report against its reference, as ReXrank and RadCliQ compute it.

    .. math::
        \mathrm{BLEU} = \min(1, e^{1 - |r| / |c|}) \sqrt{p_1 p_2}

    with the precisions :math:`p_1` of words and :math:`p_2` of pairs of words. Reports without a common pair of words
    count 0.1 of one; those without a common word score 0. Words are lower-case and separated by spaces; a full stop is
    a word, and other punctuation belongs to its word. In [0, 1], higher is better. The corpus value is the mean over
    reports.

    Source: CXR-Report-Metric (``CXRMetric/run_eval.py``, ``add_bleu_col``) with ``fast_bleu``, as used by ReXrank.

    Args:
        kwargs: Arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> from rrg_rewards.metrics import ReXrankBLEU
        >>> metric = ReXrankBLEU()
        >>> metric.update(["Small effusion."], ["Small left effusion."])
        >>> metric.compute()
        tensor(0.5067, dtype=torch.float64)
    """

    name = "rexrank_bleu"

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("rexrank_bleu", n_gram=2, epsilon=_EPSILON, case="lower", of="report")

    def _value(self, candidate: str, reference: str) -> float:
        ours, theirs = (text.lower().replace(".", " .").split(" ") for text in (candidate, reference))
        return _rexrank_bleu([word for word in ours if word], [word for word in theirs if word])


def _rexrank_bleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    precisions = []
    for size in (1, 2):
        ours, theirs = _n_grams(candidate, size), _n_grams(reference, size)
        matches = (ours & theirs).total() or (_EPSILON if size > 1 else 0)
        precisions.append(matches / max(1, ours.total()))
    if not precisions[0]:
        return 0.0
    brevity = min(1.0, math.exp(1 - len(reference) / len(candidate)))
    return brevity * math.sqrt(precisions[0] * precisions[1])


class ROUGE(TextMetric):
    r"""ROUGE of each candidate report against its reference, as torchmetrics computes it.

    ``rougeL`` is the F measure of the longest common subsequence (LCS) of words. ``rouge1`` and ``rouge2`` replace its
    length by the number of common words or of common word pairs.

    .. math::
        F = \frac{2 P R}{P + R}, \qquad P = \frac{\mathrm{LCS}(c, r)}{|c|}, \qquad R = \frac{\mathrm{LCS}(c, r)}{|r|}

    In [0, 1], higher is better. The corpus value is the mean over reports. ROUGE counts words, not findings. The values
    are those of torchmetrics in float64. The LCS is exact at any length; reports of 10,000 words take milliseconds.

    Source: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004.

    Args:
        variant: ``"rougeL"``, ``"rouge1"`` or ``"rouge2"``.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the variant is unknown.

    Example:
        >>> from rrg_rewards.metrics import ROUGE
        >>> metric = ROUGE()
        >>> metric.update(["Small pleural effusion."], ["Small left pleural effusion."])
        >>> metric.compute()
        tensor(0.8571, dtype=torch.float64)
    """

    name = "rouge"

    def __init__(self, variant: RougeVariant = "rougeL", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if variant not in get_args(RougeVariant):
            raise ValueError(f"variant must be one of {', '.join(get_args(RougeVariant))}, got {shown(variant)}")
        self.variant: RougeVariant = variant

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("rouge", variant=self.variant, measure="f", of="report")

    def _value(self, candidate: str, reference: str) -> float:
        return rouge_f(candidate, reference, self.variant)


def rouge_f(candidate: str, reference: str, variant: str) -> float:
    r"""Return the F measure of ROUGE, :math:`2 m / (|c| + |r|)` with :math:`m` common units; 0 without a common unit.

    The units are words for ``rouge1`` and ``rougeL``, and pairs of adjacent words for ``rouge2``. Words are lower-case
    and contain only Latin letters and digits, as in ``rouge_score``, or letters of all alphabets with their marks if
    one of the texts contains a letter of another one.

    Example:
        >>> rouge_f("Small pleural effusion.", "Small left pleural effusion.", "rouge2")
        0.4
    """
    is_latin = not (_OTHER_LETTER.search(candidate) or _OTHER_LETTER.search(reference))
    ours, theirs = (_rouge_words(text.lower(), is_latin) for text in (candidate, reference))
    if variant == "rougeL":
        size, common = len(ours) + len(theirs), longest_common_subsequence(ours, theirs)
    else:
        length = 1 if variant == "rouge1" else 2
        first, second = _n_grams(ours, length), _n_grams(theirs, length)
        size, common = first.total() + second.total(), (first & second).total()
    return 2 * common / size if common else 0.0


def _rouge_words(text: str, is_latin: bool) -> list[str]:
    if is_latin:
        return _NOT_A_WORD.sub(" ", text).split()
    # Vowels of Hindi and others are marks, which `\w` does not match.
    return "".join(char if char.isalnum() or category(char)[0] == "M" else " " for char in text).split()


def longest_common_subsequence(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    A row of the dynamic program is one integer with a bit for each item of ``first`` (Hyyrö, "Bit-Parallel LCS-length
    Computation Revisited", 2004). The result is exact. The number of operations is linear in the length of ``second``;
    each is on integers of as many bits as ``first`` has items. Equal ends and items of one sequence alone cost nothing.

    Example:
        >>> longest_common_subsequence("small left effusion".split(), "left basal effusion".split())
        2
    """
    start, stop = 0, min(len(first), len(second))
    while start < stop and first[start] == second[start]:
        start += 1
    end = 0
    while end < stop - start and first[-1 - end] == second[-1 - end]:
        end += 1
    shared = {*first[start : len(first) - end]} & {*second[start : len(second) - end]}
    ours = [item for item in first[start : len(first) - end] if item in shared]
    theirs = [item for item in second[start : len(second) - end] if item in shared]
    places: dict[Hashable, list[int]] = {}
    for i, item in enumerate(ours):
        places.setdefault(item, []).append(i)
    # Not of all items, because the masks of many distinct words would take memory of the square of their number.
    masks = {item: _mask(found) for item, found in places.items() if len(found) >= _FREQUENT}
    full = (1 << len(ours)) - 1
    # A bit is 0 where the length grows by 1.
    row = full
    for item in theirs:
        matched = row & (masks[item] if item in masks else _mask(places[item]))
        row = ((row + matched) | (row - matched)) & full
    return start + end + len(ours) - row.bit_count()


def _mask(places: Sequence[int]) -> int:
    """Return the integer with the bits of ascending indices, built from bytes, because shifts would copy it."""
    bits = bytearray(places[-1] // 8 + 1)
    for i in places:
        bits[i // 8] |= 1 << i % 8
    return int.from_bytes(bits, "little")


class ChrF(TextMetric):
    r"""chrF of each candidate report against its reference.

    .. math::
        \mathrm{chrF}_\beta = \frac{1}{N} \sum_n (1 + \beta^2) \frac{P_n R_n}{\beta^2 P_n + R_n}

    with the precision :math:`P_n` and recall :math:`R_n` of :math:`N` kinds of n-grams: of 1 to ``char_order``
    characters without spaces, and of 1 to ``word_order`` words. In [0, 1], higher is better. The corpus value is the
    mean over reports. chrF compares wording, not findings. The values are those of torchmetrics in float64, except that
    lengths of which neither report has an n-gram do not count.

    Source: Popović, "chrF: character n-gram F-score for automatic MT evaluation", WMT 2015; "chrF++", WMT 2017.

    Args:
        char_order: Maximum length of n-grams of characters.
        word_order: Maximum length of n-grams of words: 0 for chrF, 2 for chrF++.
        beta: Weight of the recall.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If an order or the weight is out of range.

    Example:
        >>> from rrg_rewards.metrics import ChrF
        >>> metric = ChrF()
        >>> metric.update(["Small pleural effusion."], ["Small left pleural effusion."])
        >>> round(float(metric.compute()), 3)
        0.729
    """

    name = "chrf"

    def __init__(self, char_order: int = 6, word_order: int = 0, beta: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if char_order < 1 or word_order < 0 or beta <= 0:
            raise ValueError(
                f"char_order must be at least 1, word_order at least 0 and beta positive, got {shown(char_order)}, "
                f"{word_order!r} and {beta!r}"
            )
        self.char_order = char_order
        self.word_order = word_order
        self.beta = float(beta)

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        orders = {"char_order": self.char_order, "word_order": self.word_order}
        return format_signature("chrf", **orders, beta=self.beta, case="mixed", of="report")

    def _value(self, candidate: str, reference: str) -> float:
        return _chrf(candidate, reference, self.char_order, self.word_order, self.beta)


def _chrf(candidate: str, reference: str, char_order: int = 6, word_order: int = 0, beta: float = 2.0) -> float:
    r"""Return chrF: the mean F of n-grams of characters without spaces and, up to ``word_order``, of words.

    .. math::
        \mathrm{chrF}_\beta = \frac{1}{N} \sum_n \frac{(1 + \beta^2) m_n}{|c|_n + \beta^2 |r|_n}

    with :math:`m_n` common n-grams of :math:`|c|_n` in the candidate and :math:`|r|_n` in the reference; 0 for a length
    without a common n-gram. Lengths of which neither text has an n-gram are left out. A punctuation mark at the end or
    start of a word is a word of its own.

    Example:
        >>> round(_chrf("Small pleural effusion.", "Small left pleural effusion."), 3)
        0.729
    """
    texts = (candidate, reference)
    units: list[tuple[int, list[Sequence[str]]]] = [
        (char_order, [text.strip().replace(" ", "") for text in texts]),
        (word_order, [_words_and_marks(text) for text in texts]),
    ]
    scores = []
    for order, (ours, theirs) in units:
        for length in range(1, order + 1):
            first, second = _n_grams(ours, length), _n_grams(theirs, length)
            size = first.total() + beta**2 * second.total()
            if size:
                scores.append((1 + beta**2) * (first & second).total() / size)
    return sum(scores) / len(scores)


def _words_and_marks(text: str) -> list[str]:
    words: list[str] = []
    for word in text.split():
        if len(word) > 1 and word[-1] in punctuation:
            words += [word[:-1], word[-1]]
        elif len(word) > 1 and word[0] in punctuation:
            words += [word[0], word[1:]]
        else:
            words.append(word)
    return words


def _n_grams(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(length)), strict=False))


class BERTScore(ReportMetric):
    r"""BERTScore F of each candidate report against its reference, without idf weights and rescaling.

    With the contextual embeddings :math:`x` of the reference's tokens and :math:`\hat x` of the candidate's tokens,
    normalised to length 1 and without special tokens,

    .. math::
        P = \frac{1}{|\hat x|} \sum_j \max_i x_i^\top \hat x_j, \qquad
        R = \frac{1}{|x|} \sum_i \max_j x_i^\top \hat x_j, \qquad F = \frac{2 P R}{P + R}

    At most 1, in practice above 0, higher is better. The corpus value is the mean over reports. No data leave the
    process, and code that comes with a model is never executed.

    The value equals torchmetrics' ``bert_score`` for one pair at a time. For several pairs, torchmetrics 1.9 compares
    reports from different rows, because it sorts by length a second time instead of restoring the order.

    Source: Zhang et al., "BERTScore: Evaluating Text Generation with BERT", 2020.

    Args:
        model: Folder or Hub id of an encoder that ``AutoModel`` supports, with its tokenizer.
        num_layers: Layer whose embeddings are compared; default: the last one.
        batch_size: Number of pairs per batch.
        device: Device of the model; default: the CUDA device of this process if there is one, else the CPU.
        revision: Revision of a Hub id.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        FileNotFoundError: If there is no such folder.

    Example:
        >>> from rrg_rewards.metrics import BERTScore
        >>> metric = BERTScore("FacebookAI/roberta-large", num_layers=17)           # doctest: +SKIP
        >>> metric.update(["Small effusion."], ["Small pleural effusion."])         # doctest: +SKIP
        >>> metric.compute()                                                        # doctest: +SKIP
        tensor(0.9531, dtype=torch.float64)
    """

    name = "bertscore"
    context = ()
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def __init__(
        self,
        model: str,
        num_layers: int | None = None,
        batch_size: int = 64,
        device: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = PretrainedModel(model, revision=revision, device=device)
        self.num_layers = num_layers
        self.batch_size = batch_size

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        layer = "last" if self.num_layers is None else self.num_layers
        settings = {"model": self.encoder.source, "layer": layer, "measure": "f", "idf": False}
        return format_signature("bertscore", **settings, dtype=self.encoder.dtype)

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        values = [
            _greedy_f(*self._embed(preds[start:end]), *self._embed(target[start:end]))
            for start in range(0, len(preds), self.batch_size)
            for end in [start + self.batch_size]
        ]
        return Scores(torch.cat(values) if values else torch.empty(0, dtype=torch.float64))

    @torch.no_grad()
    def _embed(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return normalised embeddings ``(N, T, D)``, and a mask of the tokens that are not special ``(N, T)``."""
        model = self.encoder.model
        # The limit of the model, but at most that of the BERT family.
        positions = getattr(model.config, "max_position_embeddings", _MOST_TOKENS)
        tokens = self.encoder.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=min(int(positions), _MOST_TOKENS),
            return_special_tokens_mask=True,
            return_tensors="pt",
        ).to(model.device)
        special = tokens.pop("special_tokens_mask")
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        hidden = model(**inputs, output_hidden_states=True).hidden_states
        layer = hidden[-1 if self.num_layers is None else self.num_layers]
        return functional.normalize(layer.float(), dim=-1), tokens["attention_mask"].bool() & ~special.bool()


def _greedy_f(preds: Tensor, preds_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
    """Return F of each token's maximum similarity to a token of the other report; 0 if a report has no token."""
    both = preds_mask.unsqueeze(2) & target_mask.unsqueeze(1)
    similarity = (preds @ target.transpose(1, 2)).masked_fill(~both, -1.0)
    precision = (similarity.amax(2) * preds_mask).sum(1) / preds_mask.sum(1)
    recall = (similarity.amax(1) * target_mask).sum(1) / target_mask.sum(1)
    scored = (2 * precision * recall / (precision + recall)).double().cpu()
    return scored.masked_fill(~both.flatten(1).any(1).cpu(), 0.0)
