"""The CRG score as a reward."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.functional.label_counts import label_statistics
from rrg_rewards.labelers.registry import LabelerSetting
from rrg_rewards.metrics.crg import CRGPrior, LabelScores, ReportCRG, prior_text
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Completion, MetricReward
from rrg_rewards.utilities.signature import format_signature

PriorMode = Literal["dataset", "running"]


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

    The prior :math:`p` sets the cost of a false negative relative to a false positive:

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
    ``unscorable``; and ``prior``, with ``"macro"`` the mean prevalence of the labels. To compute precision or recall
    over several steps, sum ``tp``, ``fn`` and ``fp``.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name; see :func:`rrg_rewards.labelers.get_labeler`.
        prior: ``"dataset"``, ``"running"``, or the prevalence in (0, 1); with ``average="macro"`` the prevalences of
            the labels.
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
            missing or the prior is not fitted.

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
        prior: float | Sequence[float] | PriorMode = "dataset",
        label_column: str | None = None,
        reference_column: str | None = "reference",
        name: str | None = None,
        log_explanations: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(prior, str) and prior not in get_args(PriorMode):
            raise ValueError(f"prior must be 'dataset', 'running' or a number in (0, 1), got {prior!r}")
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
        self.prior_mode = prior if isinstance(prior, str) else "fixed"
        # Positive references of all labels, of each level or, with average="macro", of each label; and the number of
        # labels, or with levels or "macro" of references, that were counted.
        self._sizes = self._prior_sizes()
        self._positives = [0] * len(self._sizes)
        self._labels = 0

    def _prior_sizes(self) -> tuple[int, ...]:
        """Return the number of labels of a reference that each prevalence of the prior is over."""
        if self.metric.average == "macro":
            return (1,) * len(self.metric.labels)
        return self.metric.widths if self.metric.levels else (1,)

    @property
    def _has_one_prevalence(self) -> bool:
        return self.metric.average == "micro" and not self.metric.levels

    @property
    def prior(self) -> CRGPrior | None:
        """The current prevalence; ``None`` if it is not fitted, or before the first reference."""
        if self.prior_mode != "running":
            return self.metric.prior
        if not self._labels:
            return None
        shares = tuple(
            positives / (self._labels * size) for positives, size in zip(self._positives, self._sizes, strict=True)
        )
        return shares[0] if self._has_one_prevalence else shares

    @property
    def signature(self) -> str:
        """Labeler, prior and sign of the reward."""
        prior = self.prior
        prior_setting = "running" if self.prior_mode == "running" else None if prior is None else prior_text(prior)
        own = format_signature("crg", **self.metric.settings, prior=prior_setting, sign=f"{self.sign:+d}")
        return own + self.output.suffix

    @property
    def estimated(self) -> tuple[str, ...]:
        """``("prior",)`` for a running prior, and before a prior of the data set is fitted."""
        return ("prior",) if self.prior_mode == "running" or self.prior is None else ()

    @property
    def has_independent_rows(self) -> bool:
        """Whether the prior is constant and the labels of a report are the same in any batch."""
        plain = type(self).score is CRGReward.score
        # A prior of the data set is known before the first call, if not yet now.
        return plain and self.prior_mode != "running" and self.metric.has_independent_rows

    def fitted_options(self) -> dict[str, Any]:
        """Return the prior that :meth:`fit` has computed."""
        if self.prior_mode != "dataset" or self.prior is None:
            return {}
        return {"prior": list(self.prior) if isinstance(self.prior, tuple) else self.prior}

    def fit(self, **columns: Sequence[Any]) -> Self:
        """Compute the prior from the training set if ``prior="dataset"``; otherwise do nothing.

        Args:
            columns: The complete reference column of the data set, and the complete label column if one is set.

        Raises:
            ValueError: If a column is missing, or the references contain no positive or no negative label; with
                ``average="macro"``, if no label has both.
        """
        if self.prior_mode == "dataset":
            name = self.columns[0]
            references, context = self._inputs(columns, len(self._column(columns, name)))
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
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the label counts of a running prior; empty for other priors."""
        if self.prior_mode != "running":
            return {}
        positives = self._positives[0] if self._has_one_prevalence else list(self._positives)
        return {"positives": positives, "labels": self._labels}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned; see :meth:`Reward.load_state_dict`."""
        if state.keys() != self.state_dict().keys():
            raise ValueError(
                f"the state of reward {self.__name__!r} has {sorted(self.state_dict())}, got {sorted(state)}"
            )
        if state:
            given = state["positives"]
            positives = [int(count) for count in given] if isinstance(given, Sequence) else [int(given)]
            if len(positives) != len(self._positives):
                raise ValueError(
                    f"the state of reward {self.__name__!r} has {len(self._positives)} counts of positives, got "
                    f"{len(positives)}; it was saved with another average, labeler or levels"
                )
            self._positives, self._labels = positives, int(state["labels"])

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
        self._count(scores.target[scores.scored])
        return self._with_running_prior(scores)

    def _count(self, seen: Tensor) -> None:
        """Add reference labels ``(N, L)`` to the counts of the running prior."""
        by_label = seen.sum(0)
        if self._has_one_prevalence:
            added = by_label.sum(0, keepdim=True)
        else:
            added = torch.stack([part.sum() for part in torch.split(by_label, list(self._sizes))])
        self._positives = [before + more for before, more in zip(self._positives, added.tolist(), strict=True)]
        self._labels += seen.numel() if self._has_one_prevalence else len(seen)

    def _with_running_prior(self, scores: LabelScores) -> LabelScores:
        # For a prior of 0 or 1, the weights of CRG are undefined; `None` selects the limit of the contributions.
        prior = self.prior
        shares = prior if isinstance(prior, tuple) else (prior,)
        is_defined = any(share is not None and 0 < share < 1 for share in shares)
        return scores.with_prior(prior if is_defined else None)

    def _sub_scores(self, scores: Scores) -> dict[str, float]:
        assert isinstance(scores, LabelScores)
        pooled = label_statistics(scores.counts())
        return {
            **super()._sub_scores(scores),
            **{name: float(pooled[name]) for name in ("precision", "recall")},
            "prior": _mean_prior(self.prior),
        }


def _mean_prior(prior: CRGPrior | None) -> float:
    if prior is None:
        return float("nan")
    return sum(prior) / len(prior) if isinstance(prior, tuple) else prior
