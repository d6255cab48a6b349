"""The CRG score as a reward."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rrg_rewards.functional.label_counts import label_statistics
from rrg_rewards.labelers.registry import LabelerSetting
from rrg_rewards.metrics.crg import CRGPrior, LabelScores, ReportCRG, prior_text
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import MetricReward
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.signature import format_signature


class CRGReward(MetricReward):
    r"""The contribution of a completion to the corpus CRG score. CRG is a monotone function of the mean reward.

    .. math::
        \rho_i = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}

    where :math:`p` is the prevalence of positive labels in the references and :math:`L` the number of labels; see
    :func:`rrg_rewards.functional.crg_contributions`. Higher is better, at most :math:`1/p`. The reward is 0 if neither
    the reference nor the completion has a positive label.

    With ``average="micro"``, as published, a constant text with the labels of high prevalence earns more than many
    systems (:func:`rrg_rewards.functional.crg_best_constant`). Use ``average="macro"`` for training: each label has its
    own prevalence :math:`p_l`,

    .. math::
        \rho_i = \frac{1}{\sum_l w_l} \sum_l w_l
        \left(\frac{TP_{il} - FN_{il}}{p_l} - \frac{2 FP_{il}}{1 - p_l}\right)

    and every text that is the same for all studies, also an empty one, has the mean reward -1, that is CRG 1/3.
    Decisions on rare labels weigh up to :math:`1/p_l`; ``min_prevalence`` bounds this. It reduces the weights
    :math:`w_l` of rarer labels, changes the corpus value accordingly, and leaves constant texts at -1. Labels that all
    or no references have are left out.

    The prior :math:`p` sets the cost of a false negative relative to a false positive. :meth:`fit` computes it from the
    training references unless it is given, so that the objective is the same in all steps and processes. If :math:`p`
    is the prevalence of the corpus, :math:`CRG = 1/(2 - \overline{\rho})` with the mean reward
    :math:`\overline{\rho}`.

    CRG sees labels only: a wrong side, size or severity costs nothing, nor does a missed finding that is no label, such
    as a pulmonary embolism. On 175 cases of chest CT on which metrics disagree, clinicians' ratings
    correlate negatively with CRG, and best with GREEN among eight metrics (Sharma et al., "CTest-Metric",
    arXiv:2601.11488). Do not train with this reward alone: the reward
    ``recommended`` compares findings, and CRG may be a part beside it.

    For each batch, the reward logs the means of ``tp``, ``fn``, ``fp`` and ``predicted_positives`` over the scored
    reports; ``precision`` and ``recall`` of the batch (not without a predicted or a reference positive, respectively);
    ``unscorable``; and ``prior``, with ``"macro"`` the mean prevalence of the labels. To compute precision or recall
    over several steps, sum ``tp``, ``fn`` and ``fp``.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name; see :func:`rrg_rewards.labelers.get_labeler`.
        prior: ``"dataset"``, or the prevalence in (0, 1); with ``average="macro"`` the prevalences of the labels.
        label_column: Column of known reference labels: lists of ``L`` values 0 or 1 in the order of the labeler. If
            given, the labeler is not applied to references, and the signature says so. A metric would warn of two
            labelers; the reward does not, because the column is named on purpose.
        reference_column: Column of reference reports; may be ``None`` if ``label_column`` is given and there are no
            levels.
        name: Name under which trainers log the reward.
        log_explanations: Add the missed and invented labels to the trainer's table of completions.
        options: Further options of :class:`rrg_rewards.metrics.ReportCRG`: ``average``, ``min_prevalence``, ``levels``
            (the reward is then the mean of the contributions to the levels, and a prior has one prevalence for each
            level), ``level_schema`` and ``reference_labeler``.

    Raises:
        ValueError: If the prior or the labeler is unknown, or neither column is given; when called, if a column is
            missing or the prior is not fitted; when fitted, if the references have no positive or no negative label.

    Example:
        >>> from rrg_rewards.rewards import CRGReward
        >>> reward = CRGReward(reference_column="report").fit(report=["Cardiomegaly.", "Hiatal hernia.", "Normal."])
        >>> round(reward.prior, 4)
        0.037
        >>> reward(completions=["Cardiomegaly.", "Normal."], report=["Cardiomegaly.", "Hiatal hernia."])
        [1.5, -1.5]
        >>> reports = ["Cardiomegaly.", "Hiatal hernia.", "Normal."]
        >>> reward = CRGReward(reference_column="report", average="macro").fit(report=reports)
        >>> [round(value, 6) for value in reward(["Cardiomegaly."] * 3, report=reports)]
        [1.5, -3.0, -1.5]
    """

    metric: ReportCRG
    metric_class = ReportCRG
    _compares_across_batches = True

    def __init__(
        self,
        labeler: LabelerSetting = "rules:ct_rate",
        *,
        prior: float | Sequence[float] | Literal["dataset"] = "dataset",
        label_column: str | None = None,
        reference_column: str | None = "reference",
        name: str | None = None,
        log_explanations: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(prior, str) and prior != "dataset":
            raise ValueError(f"prior must be 'dataset' or a number in (0, 1), got {shown(prior)}")
        if reference_column is None and label_column is None:
            raise ValueError("crg needs a reference_column or a label_column")
        if reference_column is None and options.get("levels") is not None:
            raise ValueError("crg with levels needs a reference_column, from whose reports the levels are read")
        super().__init__(
            ReportCRG(labeler, prior=None if isinstance(prior, str) else prior, **options),
            name=name,
            reference_column=reference_column,
            context_columns={} if label_column is None else {"target_labels": label_column},
            log_explanations=log_explanations,
        )
        if label_column is not None:
            self.metric.expect_given_labels()
        self._is_fitted = isinstance(prior, str)

    @property
    def prior(self) -> CRGPrior | None:
        """The prevalence; ``None`` if it is not fitted."""
        return self.metric.prior

    @property
    def signature(self) -> str:
        """Labeler, prior and sign of the reward."""
        prior = None if self.prior is None else prior_text(self.prior)
        own = format_signature("crg", **self.metric.settings, prior=prior, sign=f"{self.sign:+d}")
        return own + self.suffix

    @property
    def estimated(self) -> tuple[str, ...]:
        """``("prior",)`` before the prior is fitted."""
        return ("prior",) if self.prior is None else ()

    def fitted_options(self) -> dict[str, Any]:
        """Return the prior that :meth:`fit` has computed."""
        if not self._is_fitted or self.prior is None:
            return {}
        return {"prior": list(self.prior) if isinstance(self.prior, tuple) else self.prior}

    def _fit_references(self, references: Sequence[str | None], context: Mapping[str, Sequence[Any]]) -> None:
        """Compute the prior if the references have a positive and a negative label."""
        prior = self.metric.prevalence(references, **context)
        if not isinstance(prior, tuple) and not 0 < prior < 1:
            missing = "positive" if prior == 0 else "negative"
            raise ValueError(f"CRG is undefined on the training set: its references have no {missing} label")
        if isinstance(prior, tuple) and not any(0 < share < 1 for share in prior):
            setting = "average='macro'" if self.metric.average == "macro" else "levels"
            raise ValueError(
                f"CRG with {setting} is undefined on the training set: no label has both a positive and a negative "
                "reference"
            )
        self.metric.prior = prior

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        assert isinstance(scores, LabelScores)
        assert self.prior is not None
        pooled = label_statistics(scores.counts())
        return {
            **super()._sub_scores(scores),
            **{name: float(pooled[name]) for name in ("precision", "recall")},
            "prior": sum(self.prior) / len(self.prior) if isinstance(self.prior, tuple) else self.prior,
        }
