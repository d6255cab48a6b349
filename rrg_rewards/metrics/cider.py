"""CIDEr as the COCO caption evaluation and the VLM3D challenge compute it."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat
from typing_extensions import Self

from rrg_rewards.functional.captions import N_GRAMS, DocumentFrequencies, cider, n_gram_counts
from rrg_rewards.metrics.coco import CocoMetric, Preparation, prepare_texts
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_reports
from rrg_rewards.utilities.signature import format_signature
from rrg_rewards.utilities.texts import without_placeholders

_Counts = Sequence[Mapping[Hashable, int]]

# Parts of a hash of an n-gram, small enough for float32.
_PARTS, _BITS = 3, 21
_ROW = 2 + _PARTS
# Number of n-gram lengths and a mark of a text, for the kinds of rows.
_KINDS = N_GRAMS + 1


class Documents(Backend):
    """Document frequencies of n-grams in reports, counted at the first use and shared by copies of a metric.

    Args:
        reports: Reports, each of which is a document, or the path of a table; ``None`` for those of the corpus.
        column: Column of the reports in the table.
        text: How texts are prepared.
        corpus: Frequencies in the references of the corpus, which take the place of reports.
    """

    def __init__(
        self,
        reports: Sequence[str] | str | Path | None,
        column: str = "reference",
        text: Preparation = "vlm3d",
        corpus: DocumentFrequencies | None = None,
    ) -> None:
        # Absolute, because worker processes may have another working folder.
        self.reports = str(Path(reports).resolve()) if isinstance(reports, str | Path) else reports and list(reports)
        self.column = column
        self.text: Preparation = text
        self._found = self._corpus = corpus

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this object."""
        return {"reports": self.reports, "column": self.column, "text": self.text, "corpus": self._corpus}

    @property
    def frequencies(self) -> DocumentFrequencies:
        """The frequencies.

        Raises:
            ValueError: If there is no report.
        """
        if self._found is None:
            # Imported here, because few metrics read tables.
            from rrg_rewards.data.tables.readers import read_table
            from rrg_rewards.data.tables.table import Table

            given = self.reports
            table = read_table(given) if isinstance(given, str) else Table({self.column: given or ()}, "documents")
            # The table warns of texts that stand for a missing report.
            texts = without_placeholders(table.texts(self.column))
            present = [text for text in texts if text is not None and text.strip()]
            if not present:
                raise ValueError("documents contain no report")
            self._found = DocumentFrequencies()
            for text in prepare_texts(present, self.text, is_prediction=False):
                self._found.add(n_gram_counts(text.split()))
        return self._found

    @property
    def digest(self) -> str:
        """Number of documents, and the first eight hexadecimal digits of a hash of their n-grams; or ``corpus``."""
        if self._corpus is not None:
            return "corpus"
        found = self.frequencies
        content = sorted((repr(gram), count) for counts in found.counts for gram, count in counts.items())
        return f"{found.documents}@{hashlib.sha256(repr(content).encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CiderScores(Scores):
    """CIDEr of each report pair, with the prepared texts.

    Args:
        value: CIDEr, float64 tensor ``(N,)``.
        texts: The prediction and the reference of each pair, prepared; ``None`` if unscorable.
    """

    texts: tuple[Any, ...]

    _row_fields = ("texts",)


class CIDEr(CocoMetric):
    r"""CIDEr-D as pycocoevalcap computes it: similarity of n-grams, weighted by their rarity in the references.

    The formula is that of :func:`rrg_rewards.functional.captions.cider`. The corpus value is the mean over reports. At
    least 0, at most 10, higher is better. Words are separated by blanks.

    **The score of a report depends on the corpus**: the frequencies of n-grams are those of the references of all
    scored pairs. ``score`` uses the references of its call. ``compute`` uses those of all updates on all processes, and
    its value is that of one process: the state contains the hashed n-grams of each pair (20 bytes for each distinct
    n-gram of a report, about 40 KB for a CT report of 275 words), and is gathered. The commands read the table once
    more and count the frequencies in advance (:meth:`in_corpus`).

    With ``documents``, the frequencies are those of other reports, such as the references of the training set. The
    score of a report is then independent of the others. A reward needs this.

    Source: Vedantam et al., "CIDEr", CVPR 2015; the script of the challenge, github.com/forithmus/VLM3D-Dockers.

    Args:
        documents: Reports whose n-grams are counted, or the path of a table of them. Default: the references.
        documents_column: Column of the reports in the table.
        text: How texts are prepared (:data:`Preparation`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> from rrg_rewards.metrics import CIDEr
        >>> metric = CIDEr()
        >>> references = ["Small left pleural effusion.", "No acute abnormality."]
        >>> metric.update(["Small left effusion.", "No acute abnormality."], references)
        >>> metric.compute()
        tensor(5.3209, dtype=torch.float64)
        >>> fixed = CIDEr(documents=references)
        >>> fixed.score(["Small left effusion."], references[:1]).value
        tensor([3.1417], dtype=torch.float64)
    """

    name = "cider"
    plot_upper_bound = 10.0

    # torchmetrics replaces the list by one tensor while the state is synced.
    rows: list[Tensor]

    def __init__(
        self,
        documents: Sequence[str] | str | Path | None = None,
        documents_column: str = "reference",
        text: Preparation = "vlm3d",
        **kwargs: Any,
    ) -> None:
        super().__init__(text, **kwargs)
        if documents is not None and not isinstance(documents, str | Path):
            check_reports("documents", documents)
        self.documents: Documents | None = None
        if documents is not None:
            self.documents = Documents(documents, documents_column, text)
        # Flat float32, because torchmetrics gathers such a placeholder from a process without data.
        self.add_state("rows", [], dist_reduce_fx="cat")

    @property
    def signature(self) -> str:
        """Metric, version, settings and documents in one line."""
        source = "corpus" if self.documents is None else self.documents.digest
        return format_signature("cider", n_gram=N_GRAMS, sigma=6.0, documents=source, text=self.text)

    @property
    def compares_across_batches(self) -> bool:
        """Whether the frequencies are fixed."""
        return self.documents is not None

    def in_corpus(self, pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> Self:
        """Return a copy with the frequencies of n-grams in the references of all scorable pairs.

        Args:
            pairs: Predictions and references in batches.
        """
        found = DocumentFrequencies()
        for preds, target in pairs:
            texts = zip(preds, without_placeholders(target), strict=True)
            present = [text for pred, text in texts if pred is not None and text is not None and text.strip()]
            for text in prepare_texts(present, self.text, is_prediction=False):
                found.add(n_gram_counts(text.split()))
        fixed = deepcopy(self)
        fixed.documents = Documents(None, text=self.text, corpus=found)
        return fixed

    def _score_prepared(self, preds: Sequence[str], target: Sequence[str]) -> CiderScores:
        ours, theirs = ([n_gram_counts(text.split()) for text in texts] for texts in (preds, target))
        values = _values(ours, theirs, None if self.documents is None else self.documents.frequencies)
        return CiderScores(values, texts=tuple(zip(preds, target, strict=True)))

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        assert isinstance(scores, CiderScores)
        if self.documents is None:
            hashed_rows = [row for texts in scores.texts if texts is not None for row in _hashed(*texts)]
            if hashed_rows:
                self.rows.append(torch.tensor(hashed_rows, dtype=torch.float32, device=self.device).flatten())

    def compute(self) -> Tensor:
        """Mean CIDEr of the pairs so far, over all processes: float64 scalar; NaN if no pair is scored."""
        if self.documents is not None or not self.num_scored:
            return super().compute()
        candidates, references = zip(*_unhashed(dim_zero_cat(self.rows)), strict=True)
        return _values(candidates, references, None).to(self.device).mean()


def _values(
    candidates: Sequence[_Counts], references: Sequence[_Counts], frequencies: DocumentFrequencies | None
) -> Tensor:
    """Return CIDEr of each pair, with the frequencies of n-grams in the references unless others are given."""
    if frequencies is None:
        frequencies = DocumentFrequencies()
        for reference in references:
            frequencies.add(reference)
    values = [cider(ours, theirs, frequencies) for ours, theirs in zip(candidates, references, strict=True)]
    return torch.tensor(values, dtype=torch.float64)


def _hashed(pred: str, reference: str) -> list[list[float]]:
    """Return the n-grams of a pair as rows: a mark of the pair, then kind, count and three parts of a hash.

    The kind is the length of the n-gram, plus 5 for the reference.
    """
    rows = [[0.0] * _ROW]
    for side, text in enumerate((pred, reference)):
        # A text without words has a row, too, so that no text is lost.
        rows.append([float(side * _KINDS + 1), 0.0, 0.0, 0.0, 0.0])
        for order, counts in enumerate(n_gram_counts(text.split())):
            for gram, count in counts.items():
                digest = hashlib.blake2b(repr(gram).encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "big")
                parts = [float(number >> _BITS * part & (1 << _BITS) - 1) for part in range(_PARTS)]
                rows.append([float(side * _KINDS + order + 1), float(count), *parts])
    return rows


def _unhashed(flat: Tensor) -> Iterator[tuple[_Counts, _Counts]]:
    """Yield the counts of the hashed n-grams of each pair: of the candidate, and of the reference."""
    rows = flat.reshape(-1, _ROW).long().tolist()
    sides: list[tuple[Counter[Hashable], ...]] = []
    for kind, count, *parts in rows:
        if kind == 0:
            if sides:
                yield sides[0], sides[1]
            sides = []
            continue
        side, order = divmod(kind, _KINDS)
        if side == len(sides):
            sides.append(tuple(Counter() for _ in range(N_GRAMS)))
        if count:
            sides[side][order - 1][tuple(parts)] = count
    if sides:
        yield sides[0], sides[1]
