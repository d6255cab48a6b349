"""F1 of the labels of reports, as CheXbert F1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from rrg_rewards.functional.label_counts import (
    LabelCounts,
    label_averages,
    label_f1,
    label_statistics,
    macro_statistics,
)
from rrg_rewards.labelers.registry import LabelerSetting
from rrg_rewards.metrics.labelled import LabelledMetric, LabelledScores, label_details
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.signature import format_signature

F1Average = Literal["micro", "macro"]

CHEXBERT_5 = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""The five labels of CheXbert F1-5."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelF1Scores(LabelledScores):
    """F1 of the labels of each report pair, with the labels.

    Args:
        value: F1, float64 tensor ``(N,)``; 1 if neither report has a label; NaN if a pair is unscorable.
        details: ``tp``, ``fn``, ``fp``, ``precision`` and ``recall``, each ``(N,)``.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        average: Average over labels of the corpus value.
    """

    average: F1Average = "micro"

    @property
    def corpus_rule(self) -> str:
        """Which counts the corpus value is computed of."""
        return f"The {self.average} F1 is that of the label counts of all reports, not the mean of the reports' F1."

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Which labels of each scored pair are true positives, false negatives or false positives: ``(N, L)``."""
        return self.outcomes_by_label

    def corpus_value(self, num_scored: Tensor, *sums: Tensor) -> Tensor:
        """F1 of the counts, summed over pairs."""
        tp, fn, fp = sums
        return label_f1(LabelCounts(tp, fn, fp, num_scored[..., None] - tp - fn - fp), self.average)


class LabelF1(LabelledMetric):
    r"""F1 of the labels of report text, such as CheXbert F1.

    The corpus value is

    .. math::
        F_1^{micro} = \frac{2 \sum_l TP_l}{\sum_l 2 TP_l + FP_l + FN_l}, \qquad
        F_1^{macro} = \frac{1}{L} \sum_l \frac{2 TP_l}{2 TP_l + FP_l + FN_l}

    with the counts of each of :math:`L` labels over all pairs. In [0, 1], higher is better. In the macro average, a
    label that occurs in no report counts 0, as scikit-learn and RadEval compute it. The micro average is NaN if no
    report has a label. The score of a pair is the F1 of its own labels, 1 if neither report has one; the corpus value
    is not their mean.

    With ``labeler="rules:chexbert"``, the labels are those of this package's rules. CheXbert's published weights are a
    labeler of your own; the page "Metrics of your own" has it.

    Source: Smit et al., "CheXbert", EMNLP 2020; for five labels, Irvin et al., "CheXpert", AAAI 2019.

    Args:
        labeler: A labeler, or its name as :func:`rrg_rewards.labelers.get_labeler` accepts it.
        labels: ``"all"`` labels of the labeler, as CheXbert F1-14, also "No Finding"; ``"chexbert_5"``, the five labels
            of CheXbert F1-5; or a list of names.
        average: ``"micro"`` or ``"macro"``.
        reference_labeler: Who made the labels of ``target_labels``, for the signature: a text, such as the name or the
            signature of a labeler. A warning says if it is not ``labeler``.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the labeler, a label or the average is unknown.

    Example:
        >>> from rrg_rewards.metrics import LabelF1
        >>> metric = LabelF1("rules:chexbert", labels="chexbert_5")
        >>> metric.update(["Cardiomegaly. Edema.", "Clear lungs."], ["Cardiomegaly.", "Atelectasis."])
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "label_f1"
    main_details = ("precision", "recall")
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def __init__(
        self,
        labeler: LabelerSetting = "rules:ct_rate",
        *,
        labels: str | Sequence[str] = "all",
        average: F1Average = "micro",
        reference_labeler: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(parts=None, **kwargs)
        if average not in get_args(F1Average):
            raise ValueError(f"average must be 'micro' or 'macro', got {shown(average)}")
        self._set_labeler(labeler, reference_labeler)
        self.average = average
        self.labels = _chosen_labels(labels, self.labeler.labels)
        self._columns = [self.labeler.labels.index(label) for label in self.labels]
        self._add_count_states((len(self.labels),))

    @property
    def signature(self) -> str:
        """Metric, version, labeler, labels and average in one line."""
        labels = {} if self.labels == self.labeler.labels else {"labels": ",".join(self.labels)}
        return format_signature("label_f1", **self.labeler_fields, **labels, average=self.average)

    def extra_repr(self) -> str:
        """Labeler and average."""
        return f"labeler={self.labeler!r}, average={self.average!r}"

    def _score_labels(
        self,
        preds: Tensor,
        target: Tensor,
        texts: tuple[Sequence[str], Sequence[str]],  # noqa: ARG002 (for other metrics)
    ) -> LabelF1Scores:
        ours, theirs = preds[:, self._columns], target[:, self._columns]
        details, statistics = label_details(ours, theirs)
        # Neither report has a label: they agree.
        value = statistics["f1"].nan_to_num(1.0)
        return LabelF1Scores(value, details, preds=ours, target=theirs, labels=self.labels, average=self.average)

    def compute(self) -> Tensor:
        """F1 of all counts so far: float64 scalar; NaN if no pair is scored, or no report has a label ("micro")."""
        return label_f1(self._counts(), self.average)

    def statistics(self) -> dict[str, Tensor]:
        """Both averages of precision, recall, F1 and accuracy, synced over processes as in ``compute``.

        Returns:
            float64 scalars: the pooled ``precision``, ``recall`` and ``accuracy``, ``micro_f1``, and
            ``macro_precision``, ``macro_recall``, ``macro_f1`` and ``macro_accuracy``; see
            :func:`rrg_rewards.functional.label_averages`.
        """
        counts = self._synced_counts()
        pooled = label_averages(counts, "micro")
        pooled["micro_f1"] = pooled.pop("f1")
        return {**pooled, **macro_statistics(counts)}

    def label_statistics(self) -> dict[str, Tensor]:
        """Precision, recall, F1, accuracy and Youden's J of each label: float64 tensors ``(L,)``, synced."""
        return label_statistics(self._synced_counts())


def _chosen_labels(labels: str | Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    if labels == "all":
        return known
    if labels is None or (isinstance(labels, str) and labels != "chexbert_5"):
        raise ValueError(
            f"labels must be 'all', 'chexbert_5' or a list of names, got {shown(labels)}; known: {', '.join(known)}"
        )
    chosen = CHEXBERT_5 if labels == "chexbert_5" else tuple(labels)
    for label in chosen:
        if label not in known:
            raise ValueError(unknown_name_message("label of the labeler", label, known))
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"labels must be one or more different names, got {list(chosen)}")
    return chosen
