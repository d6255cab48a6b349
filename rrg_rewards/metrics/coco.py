"""BLEU, ROUGE-L and METEOR as the COCO caption evaluation and the VLM3D challenge compute them."""

import os
import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.captions import (
    N_GRAMS,
    BleuCounts,
    bleu_counts,
    caption_bleu,
    combined_rouge,
)
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.nlg import longest_common_subsequence
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.signature import format_signature

Preparation = Literal["vlm3d", "ptb", "none"]
"""``"vlm3d"``: replacements of the VLM3D challenge. ``"ptb"``: tokens of the Penn Treebank, as for COCO captions."""

_PACKAGE = "pycocoevalcap"
_EXTRA = "coco"
# What separates the parts of a line that the program reads.
_SEPARATOR = "|||"
# What the official script replaces before it scores: in both texts, and in predictions only before that.
_LINE, _PREDICTION_MARKS, _STOPS = "\n", ("<|eot_id|>", '"', "_"), (" . ", " .")


def package_version() -> str:
    """Return the name and version of the package with the programs; without a version if it is not installed."""
    try:
        return f"{_PACKAGE}=={version(_PACKAGE)}"
    except PackageNotFoundError:
        return _PACKAGE


def ptb_tokenize(texts: Sequence[str]) -> list[str]:
    """Return texts as pycocoevalcap's tokenizer separates them: lower-case words, without punctuation marks.

    Raises:
        ModuleNotFoundError: If pycocoevalcap is not installed, naming the pip command.
        FileNotFoundError: If there is no Java.
    """
    if not texts:
        return []
    tokenizer = require("pycocoevalcap.tokenizer.ptbtokenizer", extra=_EXTRA).PTBTokenizer()
    try:
        # Each text is on a line of its own.
        found = tokenizer.tokenize({row: [{"caption": _in_a_line(text)}] for row, text in enumerate(texts)})
    except FileNotFoundError as error:
        raise _no_java() from error
    return [found[row][0] for row in range(len(texts))]


class MeteorJar(Backend):
    """METEOR 1.5 as a program that runs beside this process and answers line by line.

    Copies share the program. Another process, such as a worker of a data loader, starts its own.
    """

    num_statistics = 23
    """Number of statistics of a pair."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._meteor: Any = None

    def statistics(self, preds: Sequence[str], target: Sequence[str]) -> list[list[float]]:
        """Return the statistics of each pair of a candidate and its reference.

        They are lengths, function words and matches, and at the end the number of chunks and of matched words of both
        texts. :func:`summable` changes them for sums.
        """
        lines = [
            f" {_SEPARATOR} ".join(("SCORE", _in_a_line(reference), _in_a_line(pred).replace("  ", " ")))
            for pred, reference in zip(preds, target, strict=True)
        ]
        with self._lock:
            return [[float(number) for number in self._ask(line).split()] for line in lines]

    def evaluate(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """Return METEOR of each row of statistics, or of their sums."""
        values = []
        with self._lock:
            for row in rows:
                values.append(float(self._ask(f"EVAL {_SEPARATOR} {' '.join(map(str, row))}")))
                # The program also answers with the value of all rows of the request.
                self._read()
        return values

    def _ask(self, line: str) -> str:
        if self._owner != os.getpid():
            self._meteor, self._owner = _start(), os.getpid()
        try:
            self._meteor.meteor_p.stdin.write(f"{line}\n".encode())
            self._meteor.meteor_p.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._read()

    def _read(self) -> str:
        answer = self._meteor.meteor_p.stdout.readline().decode().strip()
        if not answer:
            raise self._ended()
        return str(answer)

    def _ended(self) -> RuntimeError:
        """Return the error for a program that has ended; the next request starts another one."""
        self._owner = 0
        return RuntimeError("METEOR's program ended; does it have 2 GB of memory?")


def summable(statistics: Sequence[float]) -> list[float]:
    """Return the statistics of a pair as the program adds them up: a pair of equal texts has no chunk.

    Example:
        >>> summable([3.0, 3.0, *[0.0] * 18, 1.0, 3.0, 3.0])[-3:]
        [0.0, 3.0, 3.0]
    """
    length, reference_length, *_, chunks, matched, reference_matched = statistics
    is_equal = chunks == 1 and (matched, reference_matched) == (length, reference_length)
    return [*statistics[:-3], 0.0 if is_equal else chunks, matched, reference_matched]


def _start() -> Any:
    meteor = require("pycocoevalcap.meteor.meteor", extra=_EXTRA).Meteor
    try:
        return meteor()
    except FileNotFoundError as error:
        raise _no_java() from error


def _no_java() -> FileNotFoundError:
    return FileNotFoundError("there is no Java, which METEOR and the tokens of the Penn Treebank need; install a JRE")


def _in_a_line(text: str) -> str:
    """Return a text without line breaks and separators, which the programs would read as the end of a text."""
    return " ".join(text.replace(_SEPARATOR, "").splitlines())


class CocoMetric(ReportMetric):
    """A metric of prepared texts.

    Args:
        text: How texts are prepared.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    context = ()
    is_costly = False
    plot_lower_bound = 0.0
    plot_upper_bound: float = 1.0

    def __init__(self, text: Preparation = "vlm3d", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if text not in get_args(Preparation):
            raise ValueError(f"text must be one of {', '.join(get_args(Preparation))}, got {shown(text)}")
        self.text: Preparation = text

    def _score(self, preds: Sequence[str], target: Sequence[str], **_: Sequence[Any]) -> Scores:
        prepared = prepare_texts(preds, self.text, is_prediction=True)
        return self._score_prepared(prepared, prepare_texts(target, self.text, is_prediction=False))

    @abstractmethod
    def _score_prepared(self, preds: Sequence[str], target: Sequence[str]) -> Scores:
        """Score prepared texts."""


def prepare_texts(texts: Sequence[str], preparation: Preparation, is_prediction: bool) -> list[str]:
    r"""Return texts as a metric compares them.

    Example:
        >>> prepare_texts(["Small \"effusion\" .\nNo mass_ ."], "vlm3d", is_prediction=True)
        ['Small effusion.No mass.']
    """
    if preparation == "ptb":
        return ptb_tokenize(texts)
    return [_without_marks(text, is_prediction) if preparation == "vlm3d" else text for text in texts]


def _without_marks(text: str, is_prediction: bool) -> str:
    text = text.replace(_LINE, "")
    for mark in _PREDICTION_MARKS if is_prediction else ():
        text = text.replace(mark, "")
    for stop in _STOPS:
        text = text.replace(stop, ".")
    return text


@dataclass(frozen=True, kw_only=True, repr=False)
class CountedScores(Scores):
    """Scores of report pairs with counts, whose sums determine the corpus value.

    Args:
        value: Scores of the pairs, float64 tensor ``(N,)``.
        counts: Counts of each pair, tensor ``(N, K)``; 0 if unscorable.
    """

    counts: Tensor

    _row_fields = ("counts",)

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Counts of the scored pairs, ``(M, K)``."""
        return (self.counts[self.scored],)


class CountedMetric(CocoMetric):
    """A metric whose corpus value is that of the sums of its counts.

    Args:
        zeros: Counts of no report, in their type.
        text: How texts are prepared.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    counts: Tensor

    def __init__(self, zeros: Tensor, text: Preparation, **kwargs: Any) -> None:
        super().__init__(text, parts=None, **kwargs)
        self.add_state("counts", zeros, dist_reduce_fx="sum")
        self.add_state("num_scored", torch.tensor(0), dist_reduce_fx="sum")

    def _accumulate(self, scores: Scores) -> None:
        assert isinstance(scores, CountedScores)
        self.counts = self.counts + scores.counts.sum(0).to(self.device)
        self.num_scored = self.num_scored + int(scores.scored.sum())

    def compute(self) -> Tensor:
        """Value of the counts so far: float64 scalar; NaN, with a warning, if all pairs are unscorable."""
        self._warn_if_unscored()
        if not self.num_scored:
            return torch.tensor(torch.nan, dtype=torch.float64, device=self.device)
        return self._score_prepared((), ()).corpus_value(self.num_scored, self.counts).to(self.device)

    def statistics(self) -> dict[str, Tensor]:
        """Return no sub-scores."""
        return {}


@dataclass(frozen=True, kw_only=True, repr=False)
class CocoBLEUScores(CountedScores):
    """BLEU of each report pair, with the counts of n-grams.

    Args:
        value: BLEU of the pair, float64 tensor ``(N,)``.
        counts: For each pair the counts of :class:`~rrg_rewards.functional.captions.BleuCounts` in their order, int64
            tensor ``(N, 10)``; 0 if unscorable.
        n_gram: :math:`N`, or ``"mean"``.
    """

    n_gram: int | str

    def corpus_value(self, num_scored: Tensor, *sums: Tensor) -> Tensor:
        """BLEU of the summed counts; NaN without a pair."""
        value = _chosen_bleu(caption_bleu(_unpacked(sums[0])), self.n_gram)
        return value.masked_fill(num_scored == 0, float("nan"))

    def corpus_parts(self, *sufficient_statistics: Tensor) -> dict[str, Tensor]:
        """``bleu_1`` to ``bleu_4`` and ``bleu_mean`` of the corpus."""
        return _named_bleu(caption_bleu(_unpacked(sufficient_statistics[0].sum(0))))


def _unpacked(packed: Tensor) -> BleuCounts:
    lengths = packed[..., 2 * N_GRAMS :]
    return BleuCounts(packed[..., :N_GRAMS], packed[..., N_GRAMS : 2 * N_GRAMS], *lengths.unbind(-1))


def _named_bleu(bleu: Tensor) -> dict[str, Tensor]:
    return {**{f"bleu_{order + 1}": one for order, one in enumerate(bleu)}, "bleu_mean": bleu.mean()}


def _chosen_bleu(bleu: Tensor, n_gram: int | str) -> Tensor:
    return bleu.mean(-1) if isinstance(n_gram, str) else bleu[..., n_gram - 1]


class CocoBLEU(CountedMetric):
    r"""BLEU as pycocoevalcap computes it: of the counts of n-grams of the whole corpus.

    The formula is that of :func:`rrg_rewards.functional.captions.caption_bleu`. The corpus value is BLEU of the sums of
    the counts; it is not the mean of the reports' values, which are BLEU of their own counts. In [0, 1], higher is
    better. Words are separated by blanks.

    Source: Papineni et al., "BLEU", 2002; the script of the challenge, github.com/forithmus/VLM3D-Dockers.

    Args:
        n_gram: :math:`N`, 1 to 4, or ``"mean"`` for the mean of the four.
        text: How texts are prepared (:data:`Preparation`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> from rrg_rewards.metrics.coco import CocoBLEU
        >>> metric = CocoBLEU(n_gram=2)
        >>> metric.update(["small pleural effusion", "no mass"], ["small left pleural effusion", "no mass is seen"])
        >>> metric.compute()
        tensor(0.4481, dtype=torch.float64)
        >>> {name: round(float(value), 3) for name, value in metric.statistics().items()}
        {'bleu_1': 0.549, 'bleu_2': 0.448, 'bleu_3': 0.0, 'bleu_4': 0.0, 'bleu_mean': 0.249}
    """

    name = "coco_bleu"

    def __init__(self, n_gram: int | Literal["mean"] = 4, text: Preparation = "vlm3d", **kwargs: Any) -> None:
        super().__init__(torch.zeros(2 * N_GRAMS + 2, dtype=torch.long), text, **kwargs)
        if n_gram not in (*range(1, N_GRAMS + 1), "mean"):
            raise ValueError(f"n_gram must be 1, 2, 3, 4 or 'mean', got {shown(n_gram)}")
        self.n_gram = n_gram

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("coco_bleu", n_gram=self.n_gram, text=self.text, of="corpus")

    def _score_prepared(self, preds: Sequence[str], target: Sequence[str]) -> CocoBLEUScores:
        counted = [bleu_counts(*map(str.split, pair)) for pair in zip(preds, target, strict=True)]
        packed = [torch.cat([one.correct, one.guessed, torch.stack(one[2:])]) for one in counted]
        counts = torch.stack(packed) if packed else torch.zeros(0, 2 * N_GRAMS + 2, dtype=torch.long)
        value = _chosen_bleu(caption_bleu(_unpacked(counts)), self.n_gram)
        return CocoBLEUScores(value, counts=counts, n_gram=self.n_gram)

    def statistics(self) -> dict[str, Tensor]:
        """``bleu_1`` to ``bleu_4`` and ``bleu_mean`` of the corpus, synced over processes as in ``compute``."""
        with self._synced():
            found = self._score_prepared((), ()).corpus_parts(self.counts[None])
            return found if self.num_scored else {name: one * torch.nan for name, one in found.items()}


class CocoROUGE(CocoMetric):
    r"""ROUGE-L as pycocoevalcap computes it, with :math:`\beta = 1.2`.

    .. math::
        F = \frac{(1 + \beta^2) P R}{R + \beta^2 P}, \qquad P = \frac{\mathrm{LCS}(c, r)}{|c|}, \qquad
        R = \frac{\mathrm{LCS}(c, r)}{|r|}

    The corpus value is the mean over reports. In [0, 1], higher is better. Words are separated by single blanks: two
    blanks enclose an empty word.

    Source: Lin, "ROUGE", 2004; the script of the challenge, github.com/forithmus/VLM3D-Dockers.

    Args:
        text: How texts are prepared (:data:`Preparation`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> from rrg_rewards.metrics.coco import CocoROUGE
        >>> metric = CocoROUGE()
        >>> metric.update(["Small pleural effusion."], ["Small left pleural effusion."])
        >>> metric.compute()
        tensor(0.8356, dtype=torch.float64)
    """

    name = "coco_rouge"

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("coco_rouge", beta=1.2, text=self.text, of="report")

    def _score_prepared(self, preds: Sequence[str], target: Sequence[str]) -> Scores:
        values = []
        for ours, theirs in zip((pred.split(" ") for pred in preds), (text.split(" ") for text in target), strict=True):
            common = longest_common_subsequence(ours, theirs)
            values.append(combined_rouge(common / len(ours), common / len(theirs)))
        return Scores(torch.tensor(values, dtype=torch.float64))


@dataclass(frozen=True, kw_only=True, repr=False)
class MeteorScores(CountedScores):
    """METEOR of each report pair, with its statistics.

    Args:
        value: METEOR, float64 tensor ``(N,)``.
        counts: Statistics of METEOR 1.5, float64 tensor ``(N, 23)``; 0 if unscorable.
        jar: The program.
    """

    jar: MeteorJar

    def corpus_value(self, num_scored: Tensor, *sums: Tensor) -> Tensor:
        """METEOR of the summed statistics; NaN without a pair."""
        rows = sums[0].double().reshape(-1, sums[0].shape[-1])
        values = self.jar.evaluate(rows.tolist())
        found = torch.tensor(values, dtype=torch.float64).reshape(sums[0].shape[:-1])
        return found.masked_fill(num_scored.cpu() == 0, float("nan"))


class CocoMETEOR(CountedMetric):
    """METEOR 1.5 as pycocoevalcap computes it, by the authors' program in Java.

    Words are matched by form, stem, synonym and paraphrase; recall weighs more than precision, and matches that are not
    in the same order cost. The program separates words and punctuation itself. The corpus value is METEOR of the summed
    statistics; it is not the mean of the reports' values. In [0, 1], higher is better.

    Requires the extra ``coco`` and Java. The program starts at the first score, once for all copies of the metric in a
    process, takes about 5 s, and may use 2 GB of memory.

    Source: Denkowski and Lavie, "Meteor Universal", WMT 2014; the script of the challenge,
    github.com/forithmus/VLM3D-Dockers.

    Args:
        text: How texts are prepared (:data:`Preparation`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ModuleNotFoundError: When scoring, if pycocoevalcap is not installed, naming the pip command.
        FileNotFoundError: When scoring, if there is no Java.

    Example:
        >>> from rrg_rewards.metrics.coco import CocoMETEOR
        >>> metric = CocoMETEOR()
        >>> metric.update(["Small effusion."], ["Small pleural effusion."])          # doctest: +SKIP
        >>> metric.compute()                                                        # doctest: +SKIP
        tensor(0.4268, dtype=torch.float64)
    """

    name = "coco_meteor"

    def __init__(self, text: Preparation = "vlm3d", **kwargs: Any) -> None:
        jar = MeteorJar()
        super().__init__(torch.zeros(jar.num_statistics, dtype=torch.float64), text, **kwargs)
        self.jar = jar

    @property
    def signature(self) -> str:
        """Metric, version, program with its package, and settings in one line."""
        program = {"program": "meteor-1.5", "package": package_version()}
        return format_signature("coco_meteor", **program, text=self.text, of="corpus")

    def _score_prepared(self, preds: Sequence[str], target: Sequence[str]) -> MeteorScores:
        found = self.jar.statistics(preds, target)
        value = torch.tensor(self.jar.evaluate(found), dtype=torch.float64)
        counts = torch.tensor([summable(row) for row in found], dtype=torch.float64)
        return MeteorScores(value, counts=counts.reshape(len(preds), self.jar.num_statistics), jar=self.jar)
