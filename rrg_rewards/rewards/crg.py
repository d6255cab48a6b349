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
    r"""What a completion contributes to the corpus CRG score: a reward whose mean is CRG through a monotone map.

    With prevalence :math:`p` of positive labels in the references and :math:`L` labels,

    .. math::
        \rho_i = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}

    (see :func:`rrg_rewards.functional.crg_contributions`; at most :math:`1/p`, 0 for a report with nothing to find and
    nothing invented). The prior :math:`p` decides what a miss costs against an invention:

    - ``prior="dataset"`` or a number: one fixed :math:`p`, given, or measured once by :meth:`fit` on the training
      references. The objective is the same in every step and on every process, and where :math:`p` is the corpus'
      prevalence the mean reward is the corpus score, :math:`CRG = 1/(2 - \overline{\rho})`.
    - ``prior="running"``: :math:`p` is the prevalence among all references that this process has rewarded so far, this
      batch and those of evaluations included. It needs no pass over the data, but is biased early on: the first
      batches set :math:`p` by few reports, so the trade-off between misses and inventions drifts until it settles,
      rewards of one completion differ from step to step, and each process has its own :math:`p` even within a group
      that spans processes. A resumed run counts anew unless the reward was pickled.

    Before a running prior has seen any positive label, a reward is its limit :math:`-2 FP_i / L`.

    Logged for each batch, under the reward's name: ``tp``, ``fn``, ``fp`` and ``predicted_positives`` per scored
    report, ``precision`` and ``recall`` pooled over the batch (NaN where nothing was predicted, or nothing was to be
    found: the ratios of the logged ``tp``, ``fn`` and ``fp`` are exact over any stretch of steps), ``unscorable``, and
    ``prior``.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name as :func:`rrg_rewards.labelers.get_labeler` takes it.
        prior: ``"dataset"``, ``"running"``, or the prevalence in (0, 1).
        label_column: Column of known reference labels, ``L`` values of 0 or 1 each in the labeler's order, used in
            place of labels read off the reference text.
        reference_column: Column of reference reports; may be ``None`` where ``label_column`` is given.
        name: ``__name__`` of the reward.
        log_explanations: Add the labels missed and invented to the trainer's table of completions.

    Raises:
        ValueError: For an unknown prior or labeler, or if neither column is given; when called, if a column is missing
            or the prior has yet to be fitted.

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
        """Prevalence in use; ``None`` where it is not fitted, or no reference has been seen."""
        if self.prior_mode != "running":
            return self.metric.prior
        return self._positives / self._labels if self._labels else None

    @property
    def signature(self) -> str:
        """What exactly is rewarded."""
        prior = "running" if self.prior_mode == "running" else self.prior
        return format_signature(
            "crg", labeler=f"{{{self.metric.labeler.signature}}}", prior=prior, sign=f"{self.sign:+d}"
        )

    def fit(self, **columns: Sequence[Any]) -> Self:
        """Measure the prior on the training set, with ``prior="dataset"``; otherwise do nothing.

        Args:
            columns: The data set's whole reference column, and its label column where one is set.

        Raises:
            ValueError: If a column is missing, or the references hold no positive or no negative label.
        """
        if self.prior_mode == "dataset":
            name = self.columns[0]
            references, context = self._inputs(columns, len(self._column(columns, name)))
            prior = self.metric.prevalence(references, **context)
            if not 0 < prior < 1:
                missing = "positive" if prior == 0 else "negative"
                raise ValueError(
                    f"the references of the training set hold no {missing} label, so CRG is undefined on it"
                )
            self.metric.prior = prior
        return self

    def state_dict(self) -> dict[str, Any]:
        """Labels counted for a running prior; nothing for others, which are arguments or measured by :meth:`fit`."""
        return {"positives": self._positives, "labels": self._labels} if self.prior_mode == "running" else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        Raises:
            ValueError: If the state is another reward's.
        """
        if state.keys() != self.state_dict().keys():
            raise ValueError(
                f"the state of reward {self.__name__!r} has {sorted(self.state_dict())}, got {sorted(state)}"
            )
        if state:
            self._positives, self._labels = int(state["positives"]), int(state["labels"])

    def score(self, completions: Sequence[Completion], **columns: Any) -> LabelScores:
        """Contributions of completions to the corpus CRG, with the prior in use.

        A running prior is not updated, and that of the given references takes its place before any was seen.

        Raises:
            ValueError: If the prior has yet to be fitted, a column is missing, or a length differs.
        """
        if self.prior_mode == "dataset" and self.prior is None:
            arguments = ", ".join(f"{column}=dataset[{column!r}]" for column in self.columns)
            raise ValueError(
                f"reward {self.__name__!r} has prior='dataset', which is measured on the training set: call "
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
        # At 0 or 1 no reference seen differs from another: CRG's weights have no meaning, its limit has.
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
