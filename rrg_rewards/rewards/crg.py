"""The CRG score as a reward."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from typing_extensions import Self

from rrg_rewards.functional.crg import label_statistics
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.metrics.base import Scores
from rrg_rewards.metrics.crg import ReportCRG
from rrg_rewards.metrics.label_scores import LabelScores
from rrg_rewards.rewards.base import Completion, MetricReward
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CRGReward", "PriorMode"]

PriorMode = Literal["dataset", "running"]


class CRGReward(MetricReward):
    r"""The contribution of a completion to the corpus CRG score. CRG is a monotone function of the mean reward.

    .. math::
        \rho_i = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}

    where :math:`p` is the prevalence of positive labels in the references and :math:`L` the number of labels; see
    :func:`rrg_rewards.functional.crg_contributions`. Higher is better, at most :math:`1/p`. The reward is 0 if neither
    the reference nor the completion has a positive label. The prior :math:`p` sets the cost of a false negative
    relative to a false positive:

    - ``prior="dataset"`` or a number: :math:`p` is constant. :meth:`fit` computes it from the training references
      unless it is given. The objective is the same in all steps and processes. If :math:`p` is the prevalence of the
      corpus, :math:`CRG = 1/(2 - \overline{\rho})` with the mean reward :math:`\overline{\rho}`.
    - ``prior="running"``: :math:`p` is the prevalence in all references that this process has rewarded so far,
      including the current batch and evaluations. No pass over the data is needed, but :math:`p` is at first estimated
      from few reports, the reward of a given completion changes from step to step, and :math:`p` differs between
      processes, also within a group of completions. A resumed run continues the count only if the state of the reward
      was saved.

    Until a running prior has seen a positive label, the reward is the limit :math:`-2 FP_i / L`.

    For each batch, the reward logs the means of ``tp``, ``fn``, ``fp`` and ``predicted_positives`` over the scored
    reports; ``precision`` and ``recall`` of the batch (not without a predicted or a reference positive, respectively);
    ``unscorable``; and ``prior``. To compute precision or recall over several steps, sum ``tp``, ``fn`` and ``fp``.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name; see :func:`rrg_rewards.labelers.get_labeler`.
        prior: ``"dataset"``, ``"running"``, or the prevalence in (0, 1).
        label_column: Column of known reference labels: lists of ``L`` values 0 or 1 in the order of the labeler. If
            given, the labeler is not applied to references.
        reference_column: Column of reference reports; may be ``None`` if ``label_column`` is given.
        name: Name under which trainers log the reward.
        log_explanations: Add the missed and invented labels to the trainer's table of completions.

    Raises:
        ValueError: If the prior or the labeler is unknown, or neither column is given; when called, if a column is
            missing or the prior is not fitted.

    Example:
        >>> from rrg_rewards.rewards import CRGReward
        >>> reward = CRGReward(reference_column="report").fit(report=["Cardiomegaly.", "Hiatal hernia.", "Normal."])
        >>> round(reward.prior, 4)
        0.037
        >>> reward(completions=["Cardiomegaly.", "Normal."], report=["Cardiomegaly.", "Hiatal hernia."])
        [1.5, -1.5]
    """

    metric: ReportCRG

    def __init__(
        self,
        labeler: str | Labeler = "rules:ct_rate",
        *,
        prior: float | PriorMode = "dataset",
        label_column: str | None = None,
        reference_column: str | None = "reference",
        name: str | None = None,
        log_explanations: bool = False,
    ) -> None:
        if isinstance(prior, str) and prior not in get_args(PriorMode):
            raise ValueError(f"prior must be 'dataset', 'running' or a number in (0, 1), got {prior!r}")
        if reference_column is None and label_column is None:
            raise ValueError("crg needs a reference_column or a label_column")
        super().__init__(
            ReportCRG(labeler, prior=None if isinstance(prior, str) else prior),
            name=name,
            reference_column=reference_column,
            context_columns={} if label_column is None else {"target_labels": label_column},
            log_explanations=log_explanations,
        )
        self.prior_mode = prior if isinstance(prior, str) else "fixed"
        self._positives = 0
        self._labels = 0

    @property
    def prior(self) -> float | None:
        """The current prevalence; ``None`` if it is not fitted, or before the first reference."""
        if self.prior_mode != "running":
            return self.metric.prior
        return self._positives / self._labels if self._labels else None

    @property
    def signature(self) -> str:
        """Labeler, prior and sign of the reward."""
        prior = "running" if self.prior_mode == "running" else self.prior
        return format_signature(
            "crg", labeler=f"{{{self.metric.labeler.signature}}}", prior=prior, sign=f"{self.sign:+d}"
        )

    def fit(self, **columns: Sequence[Any]) -> Self:
        """Compute the prior from the training set if ``prior="dataset"``; otherwise do nothing.

        Args:
            columns: The complete reference column of the data set, and the complete label column if one is set.

        Raises:
            ValueError: If a column is missing, or the references contain no positive or no negative label.
        """
        if self.prior_mode == "dataset":
            name = self.columns[0]
            references, context = self._inputs(columns, len(self._column(columns, name)))
            prior = self.metric.prevalence(references, **context)
            if not 0 < prior < 1:
                missing = "positive" if prior == 0 else "negative"
                raise ValueError(f"CRG is undefined on the training set: its references have no {missing} label")
            self.metric.prior = prior
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the label counts of a running prior; empty for other priors."""
        return {"positives": self._positives, "labels": self._labels} if self.prior_mode == "running" else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned; see :meth:`Reward.load_state_dict`."""
        if state.keys() != self.state_dict().keys():
            raise ValueError(
                f"the state of reward {self.__name__!r} has {sorted(self.state_dict())}, got {sorted(state)}"
            )
        if state:
            self._positives, self._labels = int(state["positives"]), int(state["labels"])

    def score(self, completions: Sequence[Completion], **columns: Any) -> LabelScores:
        """Return the contributions of completions to the corpus CRG with the current prior.

        A running prior is not updated. If it has no reference yet, the prevalence of the given references is used.

        Raises:
            ValueError: If the prior is not fitted, a column is missing, or columns differ in length.
        """
        if self.prior_mode == "dataset" and self.prior is None:
            arguments = ", ".join(f"{column}=dataset[{column!r}]" for column in self.columns)
            raise ValueError(
                f"reward {self.__name__!r} has prior='dataset', which is computed from the training set: call "
                f"reward.fit({arguments}) before training, or give the prevalence as a number"
            )
        scores = super().score(completions, **columns)
        assert isinstance(scores, LabelScores)
        return self._with_running_prior(scores) if self.prior_mode == "running" else scores

    def _score(self, completions: Sequence[Completion], columns: Mapping[str, Any]) -> LabelScores:
        scores = self.score(completions, **columns)
        if self.prior_mode != "running":
            return scores
        seen = scores.target[scores.scored]
        self._positives += int(seen.sum())
        self._labels += seen.numel()
        return self._with_running_prior(scores)

    def _with_running_prior(self, scores: LabelScores) -> LabelScores:
        # For a prior of 0 or 1, the weights of CRG are undefined; `None` selects the limit of the contributions.
        prior = self.prior
        return scores.with_prior(prior if prior is not None and 0 < prior < 1 else None)

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        assert isinstance(scores, LabelScores)
        pooled = label_statistics(scores.counts())
        return {
            **super()._sub_scores(scores),
            **{name: float(pooled[name]) for name in ("precision", "recall")},
            "prior": float("nan") if self.prior is None else self.prior,
        }
