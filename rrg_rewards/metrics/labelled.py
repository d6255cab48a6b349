"""The base classes of metrics that compare the labels of both reports, and of their scores."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.functional.label_counts import LabelCounts, label_counts, label_statistics
from rrg_rewards.judges.base import Judge, JudgeFailure
from rrg_rewards.labelers.base import FallibleLabeler, Labeler, label_reports, labeler_judge
from rrg_rewards.labelers.registry import LabelerSetting, get_labeler
from rrg_rewards.metrics.base import ReportMetric, ScalarMetric
from rrg_rewards.metrics.judged import FAILURE_KINDS, failed_by_kind, failure_texts, warn_of_failures
from rrg_rewards.metrics.scores import Scores


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelledScores(Scores):
    """Scores of report pairs with the labels of both reports.

    Args:
        value: Scores, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: Sub-scores by name, each ``(N,)``.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        outcomes: For each of the ``N`` pairs the reason why the labeler failed on one of its reports, or ``None``;
            ``None`` alone for a labeler that never fails.
    """

    preds: Tensor
    target: Tensor
    labels: tuple[str, ...]
    outcomes: tuple[JudgeFailure | None, ...] | None = None

    _row_fields = ("preds", "target", "outcomes")

    @property
    def failures(self) -> dict[str, Tensor]:
        """Pairs on which the labeler failed, by kind of failure: bool tensors ``(N,)``; empty if it never fails."""
        return {} if self.outcomes is None else failed_by_kind(self.outcomes)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Columns ``missed`` and ``invented``: names of the missed and invented labels of each report.

        With a labeler that may fail, also ``failure``: kind and reason of the failure on each pair.
        """
        failure = {} if self.outcomes is None else {"failure": failure_texts(self.outcomes)}
        return {
            "missed": self._names(self.target & ~self.preds),
            "invented": self._names(self.preds & ~self.target),
            **failure,
        }

    @property
    def outcomes_by_label(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whether each label of each scored pair is a true positive, false negative or false positive: ``(N, L)``."""
        preds, target = self.preds[self.scored], self.target[self.scored]
        return (preds & target, ~preds & target, preds & ~target)

    def _names(self, chosen: Tensor) -> list[str]:
        return [", ".join(label for label, on in zip(self.labels, row, strict=True) if on) for row in chosen.tolist()]


def label_details(preds: Tensor, target: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the details of each pair that all scores of labels have, and the statistics of its labels."""
    counts = label_counts(preds, target, dim=1)
    statistics = label_statistics(counts)
    details = {name: getattr(counts, name).double() for name in ("tp", "fn", "fp")}
    return {**details, **{name: statistics[name] for name in ("precision", "recall")}}, statistics


class LabelerWarning(UserWarning):
    """The labels of references and of predictions come from different labelers."""


class LabelCountsMetric(ScalarMetric):
    """Base of metrics of labels, whose states are confusion counts: four int64 tensors of constant size."""

    tp: Tensor
    fn: Tensor
    fp: Tensor
    tn: Tensor

    def _add_count_states(self, shape: tuple[int, ...]) -> None:
        for name in LabelCounts._fields:
            self.add_state(name, torch.zeros(shape, dtype=torch.long), dist_reduce_fx="sum")

    def _add_counts(self, counts: LabelCounts) -> None:
        for name, count in counts._asdict().items():
            setattr(self, name, getattr(self, name) + count.to(self.device))

    def _counts(self) -> LabelCounts:
        return LabelCounts(self.tp, self.fn, self.fp, self.tn)

    def _synced_counts(self) -> LabelCounts:
        with self._synced():
            return self._counts()


class LabelledMetric(LabelCountsMetric, ReportMetric):
    """Base of metrics with a labeler, and with known labels of the references as an optional context column.

    A subclass calls :meth:`_set_labeler` and :meth:`_add_count_states` in its constructor, and implements
    :meth:`_score_labels`. Its states are the counts of each label. If the labeler fails on a report
    (:class:`rrg_rewards.labelers.FallibleLabeler`), its pair has no score. It is counted in ``num_unscorable`` and, by
    kind of failure, in ``num_failed``, and a :class:`~rrg_rewards.judges.base.JudgeWarning` reports the number of such
    pairs.

    The signature says where the labels of the references come from (:attr:`labeler_fields`). If they are given, and not
    made by the labeler that labels the predictions, a :class:`LabelerWarning` says so once.
    """

    context = required_context = ("target_labels",)

    if TYPE_CHECKING:
        # torch.jit.script would compile the annotated class.
        labeler: Labeler
        labelers: tuple[Labeler, ...]
    label_sources: Tensor
    num_failed: Tensor

    def _set_labeler(
        self, labeler: LabelerSetting, reference_labeler: str | None = None, further: Sequence[Labeler] = ()
    ) -> None:
        """Set the labeler, and further ones, whose labels follow as columns and are never given."""
        self.labeler = get_labeler(labeler)
        self.labelers = (self.labeler, *further)
        self.reference_labeler = reference_labeler
        # Where reference labels came from since the last reset: from the column (True), or from the labeler (False).
        self._given: set[bool] = set()
        self._is_given = self._is_new_corpus = self._has_warned_of_labelers = False
        # Number of scorable pairs with reference labels from the labeler, and of those with given ones.
        self.add_state("label_sources", torch.zeros(2, dtype=torch.long), dist_reduce_fx="sum")
        if self._can_fail:
            self.add_state("num_failed", torch.zeros(len(FAILURE_KINDS), dtype=torch.long), dist_reduce_fx="sum")

    @abstractmethod
    def _score_labels(
        self, preds: Tensor, target: Tensor, texts: tuple[Sequence[str], Sequence[str]]
    ) -> LabelledScores:
        """Score pairs with the labels ``(N, L)`` of all labelers; ``texts`` are predictions and references."""

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> LabelledScores:
        ours, theirs, failures = self._pair_labels(preds, target, context)
        if failures is None:
            return self._score_labels(ours, theirs, (preds, target))
        warn_of_failures(self.name, failures)
        rows = torch.tensor([failure is None for failure in failures], dtype=torch.bool)
        texts = tuple([text for text, chosen in zip(column, rows, strict=True) if chosen] for column in (preds, target))
        scores = self._score_labels(ours[rows], theirs[rows], (texts[0], texts[1])).expand(rows)
        return replace(scores, outcomes=failures)

    def judges(self) -> Mapping[str, Judge]:
        """Return the judge of the labeler, as ``"labels"``, and those of further ones, if they have one."""
        judges = enumerate(map(labeler_judge, self.labelers))
        return {f"labels {place + 1}" if place else "labels": judge for place, judge in judges if judge is not None}

    @property
    def has_independent_rows(self) -> bool:
        """Whether the labels of a report are the same in any batch: those of rules and of judges."""
        return all(getattr(labeler, "has_independent_rows", False) for labeler in self.labelers)

    @property
    def _can_fail(self) -> bool:
        return any(isinstance(labeler, FallibleLabeler) for labeler in self.labelers)

    def needs_references(self, context: Collection[str]) -> bool:
        """Whether pairs without a reference report are unscorable: unless their labels are given."""
        return "target_labels" not in context

    def reset(self) -> None:
        """Reset the states to their defaults. The signature stays that of the last scores until there are new ones."""
        super().reset()
        self._is_new_corpus = True

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Sync the states over processes. The signature is then that of the scores of all processes.

        A process without report pairs would otherwise name the labeler as the source of labels that were given.
        """
        super().sync(*args, **kwargs)
        if self._is_synced:
            self._given = {bool(given) for given in self.label_sources.nonzero().flatten()} or self._given

    @property
    def labeler_fields(self) -> dict[str, str]:
        """Where the labels come from, as fields of a signature.

        ``labeler`` if the labeler labels both sides. If the labels of references were given, in the column
        ``target_labels``, ``reference`` is ``given``, with ``reference_labeler`` if it is set, and ``prediction`` is
        the labeler. In several processes, the fields agree after ``compute``.
        """
        labeler = f"{{{self.labeler.signature}}}"
        if True not in self._given:
            return {"labeler": labeler}
        given = "given" if self.reference_labeler is None else f"given by {{{self.reference_labeler}}}"
        return {"reference": f"{given},{labeler}" if False in self._given else given, "prediction": labeler}

    def expect_given_labels(self) -> None:
        """Let the signature say that the labels of references are given, before the first scores, without a warning."""
        self._given.add(True)
        self._has_warned_of_labelers = True

    def note_scored(self, context: Collection[str], scores: Scores) -> None:
        """Note where the labels of the references came from, for the signature."""
        if _num_scorable(scores):
            self._add_given("target_labels" in context)

    def _add_given(self, given: bool) -> None:
        if self._is_new_corpus:
            self._given, self._is_new_corpus = set(), False
        self._given.add(given)
        self._is_given = given

    def _note_given(self, given: bool) -> None:
        """Remember where the labels of references come from, and warn once if two labelers made those of a pair."""
        self._add_given(given)
        if not given or self._has_warned_of_labelers:
            return
        self._has_warned_of_labelers = True
        other, own = self.reference_labeler, self.labeler.signature
        if other is None or not _names_labeler(other, own):
            rank_zero_warn(
                f"{self.name}: the labels of references are given{'' if other is None else f' by {other}'}, and those "
                f"of predictions made by {own}. Labelers differ on the same text: CT-RATE's published labels and "
                "RadBERT do so on 131 of 3,039 validation volumes. Use one labeler for both sides, unless "
                "people set the given labels; if it is the same, name it as reference_labeler",
                LabelerWarning,
            )

    def _pair_labels(
        self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, Tensor, tuple[JudgeFailure | None, ...] | None]:
        """Return the label matrices ``(N, L)`` of scorable predictions and references, and the failures by pair."""
        if preds:
            self._note_given("target_labels" in context)
        columns: list[tuple[Tensor, Tensor]] = []
        failures: list[JudgeFailure | None] = [None] * len(preds)
        for place, labeler in enumerate(self.labelers):
            if "target_labels" in context and place == 0:
                rows = [[bool(label) for label in labels] for labels in context["target_labels"]]
                theirs = torch.tensor(rows, dtype=torch.bool).view(len(rows), len(labeler.labels))
                ours, failed = label_reports(labeler, preds)
            elif isinstance(labeler, FallibleLabeler):
                # In one call, so that a judge answers about all reports concurrently.
                labels, both = labeler.label([*preds, *target])
                ours, theirs = labels[: len(preds)], labels[len(preds) :]
                failed = both and tuple(p or t for p, t in zip(both[: len(preds)], both[len(preds) :], strict=True))
            else:
                ours, theirs, failed = labeler(preds), labeler(target), None
            columns.append((ours, theirs))
            failures = [one or other for one, other in zip(failures, failed or failures, strict=True)]
        ours, theirs = (torch.cat(side, dim=1) for side in zip(*columns, strict=True))
        return ours, theirs, tuple(failures) if self._can_fail else None

    def _accumulate(self, scores: Scores) -> None:
        """Add the labels and the failures of the labeler to the counts."""
        assert isinstance(scores, LabelledScores)
        rows = scores.scored
        self._add_counts(label_counts(scores.preds[rows], scores.target[rows], dim=0))
        source = torch.tensor([not self._is_given, self._is_given], device=self.device)
        self.label_sources = self.label_sources + _num_scorable(scores) * source.long()
        if scores.failures:
            failed = torch.stack([pairs.sum() for pairs in scores.failures.values()])
            self.num_failed = self.num_failed + failed.to(self.device)

    def failure_counts(self) -> dict[str, Tensor]:
        """Number of pairs on which the labeler failed, by kind, synced over processes; empty if it never fails."""
        if not self._can_fail:
            return {}
        with self._synced():
            return dict(zip(FAILURE_KINDS, self.num_failed.clone(), strict=True))

    def _modality(self) -> tuple[Modality | None, str]:
        modality = getattr(self.labeler, "modality", None)
        other = "rules:chexbert" if modality == "ct" else "rules:ct_rate"
        return modality, f"use labeler={other!r}"

    def _read_context(self, context: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        width = len(self.labeler.labels)
        for row, labels in enumerate(context.get("target_labels", ())):
            if labels is not None and (len(labels) != width or any(label not in (0, 1) for label in labels)):
                raise ValueError(
                    f"target_labels[{row}] must be {width} values of 0 or 1, one for each of "
                    f"{', '.join(self.labeler.labels)}; got {list(labels)}"
                )
        return context


def _num_scorable(scores: Scores) -> int:
    """Return the number of pairs with a score, or on which a judge failed."""
    return int(scores.scored.sum()) + sum(int(pairs.sum()) for pairs in scores.failures.values())


def _names_labeler(text: str, signature: str) -> bool:
    """Whether a text is the signature of a labeler, or the name of a labeler with this signature."""
    if text == signature:
        return True
    # The signature of a RadBERT needs its weights, which other labelers do not.
    if text.startswith("radbert:") and not signature.startswith("radbert|"):
        return False
    try:
        return get_labeler(text).signature == signature
    except (ValueError, TypeError, ImportError, OSError):
        return False
