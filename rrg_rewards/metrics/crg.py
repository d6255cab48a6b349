"""CRG on report text, through a labeler, and its scores of report pairs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.crg import (
    CRGAverage,
    contributions_of_counts,
    crg_best_constant,
    crg_contributions,
    crg_score_from_counts,
    label_priors,
    macro_contributions,
    mean_positives,
    pooled_prior,
)
from rrg_rewards.functional.crg_levels import (
    best_constant_of_levels,
    crg_level_contributions,
    crg_level_scores,
    level_counts,
    split_levels,
)
from rrg_rewards.functional.label_counts import LabelCounts, label_counts
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.levels import LevelReader
from rrg_rewards.labelers.registry import LabelerSetting, get_labeler
from rrg_rewards.metrics.base import Column
from rrg_rewards.metrics.crg_labels import CRGMetric, average_fields
from rrg_rewards.metrics.labelled import LabelledMetric, LabelledScores, label_details
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.questions.schema import QuestionSchema
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.signature import format_signature

# The first level: the labels of the labeler.
_ABNORMALITY = "abnormality"


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelScores(LabelledScores):
    """Per-report CRG contributions with the labels of both reports.

    Args:
        value: Contributions, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: ``tp``, ``fn``, ``fp``, ``precision``, ``recall``, ``predicted_positives``, each ``(N,)``; with levels,
            also the contribution to each level by its name.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        average: Average over labels, as in :class:`ReportCRG`.
        min_prevalence: As in :class:`ReportCRG`.
        levels: Names of the levels, in the order of the columns; empty for one set of labels.
        widths: Number of labels of each level.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> scores = ReportCRG().score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
        >>> scores.explanations
        {'missed': ['Hiatal hernia'], 'invented': ['']}
    """

    average: CRGAverage = "micro"
    min_prevalence: float = 0.0
    levels: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()

    report_value = "contribution"

    def counts(self, dim: int | None = None) -> LabelCounts:
        """Return the confusion counts of the scored pairs; see :func:`rrg_rewards.functional.label_counts`."""
        return label_counts(self.preds[self.scored], self.target[self.scored], dim=dim)

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """True positives, false negatives and false positives of each scored pair.

        They are counts of the pair, ``(N,)``, or of its levels, ``(N, K)``; with ``average="macro"``, they tell whether
        each label is one, ``(N, L)``. The types are small (int16 and bool), because there may be millions of pairs.
        """
        if self.average == "macro":
            return self.outcomes_by_label
        preds, target = self.preds[self.scored], self.target[self.scored]
        counts = level_counts(preds, target, self.widths) if self.levels else label_counts(preds, target, dim=1)
        return tuple(count.to(torch.int16) for count in counts[:3])

    def corpus_value(self, num_scored: Tensor, *sums: Tensor) -> Tensor:
        """CRG of the counts, summed over pairs; with levels the mean of their CRG."""
        macro = self.average == "macro"
        tp, fn, fp = sums if macro or self.levels else (count[..., None] for count in sums)
        labels = num_scored[..., None] * (1 if macro else tp.new_tensor(self._widths))
        counts = LabelCounts(tp, fn, fp, labels - tp - fn - fp)
        return (self.level_scores(counts) if macro else crg_score_from_counts(*counts)).mean(-1)

    def level_scores(self, counts: LabelCounts) -> Tensor:
        """Return the CRG of each level, ``(..., K)``, from counts of each label, ``(..., L)``."""
        levels = split_levels(counts, self._widths)
        return crg_level_scores(levels, self.average, self.min_prevalence, warn=False)

    @property
    def corpus_rule(self) -> str:
        """How CRG follows from the contributions of the reports."""
        rule = "CRG = 1 / (2 - m), where m is the mean contribution of a report for the prevalence in these references"
        if self.average == "macro":
            rule += ", for each label; the corpus value is the mean over labels"
        elif self.levels:
            rule += ", for each level; the corpus value is the mean over levels"
        return (
            f"A report has no CRG of its own, but a contribution: 0 for a correct normal report, below 0 if its errors "
            f"outweigh what it found. {rule}."
        )

    @property
    def _widths(self) -> tuple[int, ...]:
        return self.widths or (len(self.labels),)

    @property
    def best_constant(self) -> tuple[float, tuple[str, ...]]:
        """Best corpus value of all texts that are the same for every study, and the labels of this text.

        With ``average="macro"`` all such texts have the same value, and no labels are returned.

        Example:
            >>> from rrg_rewards.metrics import ReportCRG
            >>> scores = ReportCRG().score([""] * 3, ["Cardiomegaly.", "Cardiomegaly. Hiatal hernia.", "Normal."])
            >>> value, labels = scores.best_constant
            >>> round(value, 3), labels
            (0.895, ('Cardiomegaly', 'Hiatal hernia'))
        """
        return self.best_constant_for(self.counts(dim=0))

    def best_constant_for(self, counts: LabelCounts) -> tuple[float, tuple[str, ...]]:
        """Return :attr:`best_constant` for other counts of each label, ``(L,)``."""
        value = float(best_constant_of_levels(counts, self._widths, self.average, self.min_prevalence))
        if self.average == "macro":
            return value, ()
        best = [crg_best_constant(level) for level in split_levels(counts, self._widths)]
        chosen = torch.cat([level.tp + level.fp > 0 for level in best]).tolist()
        return value, tuple(label for label, on in zip(self.labels, chosen, strict=True) if on)

    def with_prior(self, prior: float | Sequence[float] | None) -> "LabelScores":
        """Return the contributions of the same labels for another prior.

        Args:
            prior: Prevalence of positive labels in (0, 1), or of each level, or of each label with
                ``average="macro"``; ``None`` for the prevalence in these references.

        Raises:
            ValueError: If the prior is out of range or does not fit the average or the levels.
        """
        preds, target = self.preds[self.scored], self.target[self.scored]
        if not self.levels:
            return self._with_value(crg_contributions(preds, target, prior, self.average, self.min_prevalence))
        return self._with_levels(None if prior is None else self._level_priors(prior))

    def in_corpus(self, positives: Tensor) -> "LabelScores":
        """Return the contributions of the same labels for the references of a corpus.

        Args:
            positives: :func:`rrg_rewards.functional.crg.mean_positives` of the corpus' sufficient statistics.
        """
        rows, labels = self.scored, self.preds.shape[1]
        if self.levels:
            of_labels = torch.ones_like(positives) if self.average == "macro" else torch.tensor(self.widths)
            return self._with_levels(positives / of_labels)
        if self.average == "micro":
            return self._with_value(contributions_of_counts(self.counts(dim=1), positives, labels - positives))
        return self._with_value(
            macro_contributions(self.preds[rows], self.target[rows], positives, self.min_prevalence)
        )

    def _level_priors(self, prior: float | Sequence[float]) -> Tensor:
        if self.average == "macro":
            return label_priors(prior, len(self.labels))
        return label_priors(prior, len(self.widths), "level")

    def _with_levels(self, prior: Tensor | None) -> "LabelScores":
        """Return the contributions of the scored pairs for prevalences of levels or labels."""
        preds, target = self.preds[self.scored], self.target[self.scored]
        by_level = crg_level_contributions(preds, target, self.widths, prior, self.average, self.min_prevalence)
        details = {
            name: self.value.new_full((len(self),), torch.nan).masked_scatter(self.scored, column)
            for name, column in zip(self.levels, by_level.T, strict=True)
        }
        return replace(self._with_value(by_level.mean(1)), details={**self.details, **details})

    def _with_value(self, scored: Tensor) -> "LabelScores":
        """Return these scores with other values of the scored pairs."""
        value = self.value.clone()
        value[self.scored] = scored
        return replace(self, value=value)


CRGPrior = float | tuple[float, ...]
"""Prevalence of positive labels (``average="micro"``), of each level, or of each label (``average="macro"``)."""


class ReportCRG(CRGMetric, LabelledMetric):
    r"""CRG score of report text: a labeler labels both reports, and the labels are counted as in :class:`CRGScore`.

    The corpus value is

    .. math::
        CRG = \frac{1}{2 - \overline{\rho}}, \qquad
        \rho_i = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}

    with :math:`L` labels, the prevalence :math:`p` of positive reference labels and the contributions :math:`\rho_i` of
    report pairs, which :meth:`score` returns (:func:`rrg_rewards.functional.crg_contributions`). float64 in [1/5, 1],
    higher is better. With ``average="macro"``, each label has its own prevalence, and every text that is the same for
    all studies scores 1/3; see :class:`CRGScore`.

    A label that means "no abnormality" by its name, such as CheXbert's "No Finding", is left out. It would give a text
    about nothing the label of the commonest reference.

    With ``levels``, the corpus value is the mean of the CRG of several sets of labels (paper, Section 2.2),

    .. math::
        CRG_{final} = \frac{1}{K} \sum_{k=1}^{K} CRG_k, \qquad CRG_k = \frac{1}{2 - \overline{\rho_k}}

    The first level, ``abnormality``, has the labels of the labeler. The levels ``type``, ``side``, ``lobe``,
    ``severity``, ``count`` and crossed ones, such as ``type*side``, have structured labels such as "Lung nodule: right
    upper lobe", which the finding engine reads from both texts (:class:`rrg_rewards.labelers.levels.LevelReader`).
    Another level has the labels of a further labeler, such as a language model that reads structured labels from a
    label schema; a pair on whose reports it fails is unscorable. The score of a pair is the mean of its contributions
    :math:`\rho_{ik}` to the levels. :math:`CRG_{final}` increases with the mean contribution to each level, but is no
    function of the mean over levels.

    CRG sees labels only: a wrong side, size or severity costs nothing, nor does a missed finding that is no label, such
    as a pulmonary embolism. On 175 cases of chest CT on which metrics disagree, clinicians' ratings
    correlate negatively with CRG, and best with GREEN among eight metrics (Sharma et al., "CTest-Metric",
    arXiv:2601.11488). Report it beside a metric of findings, such as :class:`CRIMSON`.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name or settings as :func:`rrg_rewards.labelers.get_labeler` accepts it.
        prior: Prevalence of positive labels for :meth:`score`, in (0, 1); with ``average="macro"`` a sequence of
            the prevalence of each label in ``labels``. Default: the prevalence in the references of the same call. The
            corpus value always uses the prevalence in all references.
        average: ``"micro"``, as published, or ``"macro"``.
        min_prevalence: With ``"macro"``, the prevalence below which labels weigh less
            (:func:`rrg_rewards.functional.crg_label_weights`).
        levels: ``abnormality``, and then names of levels or labelers, in any order; a labeler as in ``labeler``, and
            ``judge:SCHEMA`` with its judge as a mapping. A mapping names the levels: ``{"abnormality": "abnormality",
            "stage": "rules:stage.yaml"}``. Default: the labels of the labeler, without levels. The prior then has one
            prevalence for each level, or with ``average="macro"`` for each label in ``labels``. References need a text,
            also with ``target_labels``, which replace the first level only.
        level_schema: Name or YAML file of a question schema whose findings are labels of the labeler; determines the
            structured labels.
        reference_labeler: Who made the labels of ``target_labels``, for the signature: a text, such as the name or the
            signature of a labeler. A warning says if it is not ``labeler``, because two labelers differ on the same
            text.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the labeler is unknown or has no label of an abnormality, the average is unknown, the prior is
            out of range or of the wrong length, ``min_prevalence`` lies outside [0, 0.5] or is given with ``"micro"``,
            or a level is unknown, is named twice or does not fit the labeler.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> metric = ReportCRG()
        >>> preds = ["The heart is enlarged.", "No pleural effusion."]
        >>> target = ["Cardiomegaly. Hiatal hernia.", "Normal chest CT."]
        >>> metric.update(preds, target)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> 1 / (2 - metric.score(preds, target).value.mean())
        tensor(0.5000, dtype=torch.float64)
    """

    name = "crg"

    def __init__(
        self,
        labeler: LabelerSetting = "rules:ct_rate",
        prior: float | Sequence[float] | None = None,
        *,
        average: CRGAverage = "micro",
        min_prevalence: float = 0.0,
        levels: Sequence[str | LabelerSetting] | Mapping[str, str | LabelerSetting] | None = None,
        level_schema: str | Path | QuestionSchema = "ct_rate",
        reference_labeler: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(parts=None, **kwargs)
        entries = _named_levels(levels)
        self.levels: tuple[str, ...] = tuple(entries)
        self._set_labeler(labeler, reference_labeler, _level_labelers(list(entries.values())[1:], level_schema))
        for reader in self.labelers[1:]:
            if isinstance(reader, LevelReader) and (missing := set(reader.findings) - set(self.labeler.labels)):
                name = next(finding for finding in reader.findings if finding in missing)
                raise ValueError(
                    f"levels: the labeler has no label {name!r} of question schema {reader.schema.name!r}; use a "
                    "labeler with the labels of the schema, or set level_schema"
                )
        self._set_average(average, min_prevalence, self._set_columns())
        self._add_count_states((sum(self.widths),))
        self.prior = None if prior is None else self._checked_prior(prior)

    def _set_columns(self) -> list[int]:
        """Set the columns of all labelers that are counted, and their names; return the number of each level."""
        self._columns: list[int] = []
        names, widths, start = list[str](), list[int](), 0
        for place, labeler in enumerate(self.labelers):
            kept = [column for column, label in enumerate(labeler.labels) if not is_no_abnormality(label)]
            if not kept:
                raise ValueError(f"labeler has no label of an abnormality, only {', '.join(labeler.labels)}")
            own = isinstance(labeler, LevelReader) or place == 0
            names += [f"{'' if own else f'{self.levels[len(widths)]}: '}{labeler.labels[column]}" for column in kept]
            self._columns += [start + column for column in kept]
            widths += labeler.widths if isinstance(labeler, LevelReader) else [len(kept)]
            start += len(labeler.labels)
        self._names = tuple(names)
        return widths

    def needs_references(self, context: Collection[str]) -> bool:
        """Whether pairs without a reference report are unscorable: with levels also if the labels are given."""
        return len(self.labelers) > 1 or super().needs_references(context)

    def _checked_prior(self, prior: float | Sequence[float] | str) -> CRGPrior:
        if isinstance(prior, str):
            raise ValueError(
                f"prior must be a number in (0, 1), got {shown(prior)}; only rewards accept names of priors"
            )
        if self.average == "macro":
            return tuple(label_priors(prior, sum(self.widths)).tolist())
        if self.levels:
            return tuple(label_priors(prior, len(self.widths), "level").tolist())
        return pooled_prior(prior)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels that are counted: those of the labeler without "no abnormality", then of the levels."""
        return self._names

    @property
    def settings(self) -> dict[str, object]:
        """Labeler of each side, labels left out and average, as fields of a signature."""
        left_out = ",".join(label for label in self.labeler.labels if is_no_abnormality(label))
        further = [
            one.signature if isinstance(one, LevelReader) else f"{{{one.signature}}}" for one in self.labelers[1:]
        ]
        return {
            **self.labeler_fields,
            **({"left_out": left_out} if left_out else {}),
            **({"levels": ",".join((_ABNORMALITY, *further))} if further else {}),
            **average_fields(self.average, self.min_prevalence),
        }

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("crg", **self.settings, prior="batch" if self.prior is None else prior_text(self.prior))

    def extra_repr(self) -> str:
        """Labeler, prior and average."""
        average = "" if self.average == "micro" else f", average={self.average!r}"
        levels = f", levels={self.levels}" if self.levels else ""
        return f"labeler={self.labeler!r}, prior={self.prior}{average}{levels}"

    def _label_names(self) -> tuple[str, ...]:
        return self.labels

    @property
    def compares_across_batches(self) -> bool:
        """Whether a prior is set. Without a prior, each call of :meth:`score` uses the prevalence in its references."""
        return self.prior is not None

    def rescaling(self, sufficient_statistics: Sequence[Tensor]) -> Callable[[Scores], Scores]:
        """Return a function that computes contributions for the prevalence in all references, unless a prior is set."""
        if self.prior is not None:
            return super().rescaling(sufficient_statistics)
        positives = mean_positives(sufficient_statistics)

        def rescaled(scores: Scores) -> Scores:
            assert isinstance(scores, LabelScores)
            return scores.in_corpus(positives)

        return rescaled

    def statistics(self) -> dict[str, Tensor]:
        """Statistics of :meth:`CRGScore.statistics`; with levels, also the CRG of each level as ``level/NAME``."""
        if not self.levels:
            return super().statistics()
        scores = self.level_scores()
        return {**super().statistics(), **{f"level/{name}": one for name, one in zip(self.levels, scores, strict=True)}}

    def prevalence(
        self, target: Sequence[str | None], target_labels: Sequence[Sequence[int] | None] | None = None
    ) -> CRGPrior:
        """Return the fraction of positive labels in references, for use as ``prior``.

        With ``average="macro"`` there is one fraction for each label, and with levels one for each level.

        Args:
            target: Reference reports; ``None`` and blank reports are ignored.
            target_labels: Known labels of the references, ``L`` values of 0 or 1 each.

        Raises:
            ValueError: If no reference can be labelled.
        """
        context = {} if target_labels is None else {"target_labels": target_labels}
        scores = self.score([""] * len(target), target, **context)
        if not scores.scored.any():
            raise ValueError("target contains no reference with text or labels, so it has no prevalence")
        labels = scores.target[scores.scored].double()
        if self.average == "macro":
            return tuple(labels.mean(0).tolist())
        if self.levels:
            return tuple(float(level.mean()) for level in torch.split(labels, list(self.widths), dim=1))
        return float(labels.mean())

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> LabelScores:
        """Compute the contribution of each report pair to the corpus CRG.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: ``target_labels``, optional: known labels of the references, ``L`` values of 0 or 1 each, in the
                labeler's order, as rows, as a tensor ``(N, L)``, or as ``L`` tensors ``(N,)``, which the default
                collation of data loaders makes. They replace the labels of the reference text, which may then be
                ``None``.

        Returns:
            ``value``: contributions; ``details``: ``tp``, ``fn``, ``fp``, ``precision`` (NaN if no label is predicted),
            ``recall`` (NaN if the reference has no positive label), ``predicted_positives``, each ``(N,)``.

        Raises:
            TypeError: If a report is not a text, naming argument and row, or a context column is unknown.
            ValueError: If lengths differ or ``target_labels`` is malformed.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, LabelScores)
        return scores

    def _score_labels(self, preds: Tensor, target: Tensor, texts: tuple[Sequence[str], Sequence[str]]) -> LabelScores:  # noqa: ARG002 (as the base class)
        ours, theirs = preds[:, self._columns], target[:, self._columns]
        details, _ = label_details(ours, theirs)
        details["predicted_positives"] = details["tp"] + details["fp"]
        if self.levels:
            value = torch.zeros(len(ours), dtype=torch.float64)
        else:
            value = crg_contributions(ours, theirs, self.prior, self.average, self.min_prevalence)
        scores = LabelScores(
            value,
            details,
            preds=ours,
            target=theirs,
            labels=self.labels,
            average=self.average,
            min_prevalence=self.min_prevalence,
            levels=self.levels,
            widths=self.widths if self.levels else (),
        )
        return scores.with_prior(self.prior) if self.levels else scores


def _named_levels(levels: Any) -> dict[str, Any]:
    """Return what makes the labels of each level, by its name."""
    pairs = levels.items() if isinstance(levels, Mapping) else ((one, one) for one in levels or ())
    entries = [
        (name if isinstance(name, str) else f"level {place}", one) for place, (name, one) in enumerate(pairs, start=1)
    ]
    names = [name for name, _ in entries]
    if entries and entries[0][1] != _ABNORMALITY:
        raise ValueError(f"levels must be a list that begins with {_ABNORMALITY!r}, got {', '.join(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"levels must be different names, got {', '.join(names)}")
    return dict(entries)


def _level_labelers(entries: Sequence[Any], schema: str | Path | QuestionSchema) -> list[Labeler]:
    """Return what makes the labels of the levels after the first: one reader for names that follow each other."""
    labelers: list[Labeler] = []
    for is_name, group in groupby(entries, lambda one: isinstance(one, str) and ":" not in one):
        several = list(group)
        labelers += [LevelReader(several, schema)] if is_name else map(get_labeler, several)
    return labelers


def prior_text(prior: CRGPrior) -> str:
    """Return a prior as text for a signature."""
    return str(prior) if isinstance(prior, (int, float)) else ",".join(map(str, prior))
