"""Training of CREPE, which predicts the number of errors of each category in a report."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.utilities import dim_zero_cat

from rrg_rewards.functional.correlation import kendall_tau
from rrg_rewards.metrics.base import ScalarMetric
from rrg_rewards.models.crepe.model import CrepeModel
from rrg_rewards.training.base import OptimizerSettings, ScheduleName
from rrg_rewards.training.metrics.base import LearnedMetricModule
from rrg_rewards.training.metrics.tokenized import HEADS, Heads


class CountCorrelation(ScalarMetric):
    r"""Kendall's :math:`\tau_b` between predicted and true total error counts of report pairs.

    In [-1, 1], higher is better. A rank correlation needs all values, so the states contain ``2 C`` float32 values for
    each pair. They are gathered from all processes, so the result does not depend on the distribution of the pairs over
    processes.

    Args:
        categories: Names of the ``C`` error categories.
        kwargs: Arguments of ``torchmetrics.Metric``.

    Raises:
        ValueError: If there is no category, or a name is repeated.

    Example:
        >>> metric = CountCorrelation(["A", "B"])
        >>> metric.update(torch.tensor([[0.2, 0.1], [1.1, 0.0], [0.9, 2.5]]), torch.tensor([[0, 0], [1, 0], [1, 2]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
        >>> {name: round(float(value), 2) for name, value in metric.statistics().items()}
        {'mae_A': 0.13, 'mae_B': 0.2, 'mae': 0.27}
    """

    plot_lower_bound = -1.0
    plot_upper_bound = 1.0

    # torchmetrics replaces each list by one tensor while the states are synced.
    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self, categories: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not categories or len(set(categories)) < len(categories):
            raise ValueError(f"categories must be distinct names, at least one, got {list(categories)}")
        self.categories = tuple(categories)
        # The states are flat, because torchmetrics gathers a one-dimensional placeholder from a process without data.
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add counts of report pairs.

        Args:
            preds: ``(N, C)`` predicted counts; negative counts are replaced by 0, as in the score.
            target: ``(N, C)`` true counts; NaN if a category is not annotated.

        Raises:
            ValueError: If a shape is wrong, or a predicted count is not finite. On a GPU, ``compute`` raises the latter
                error, because ``update`` does not wait to read the counts.
        """
        shape = (len(preds), len(self.categories))
        if tuple(preds.shape) != shape or tuple(target.shape) != shape:
            raise ValueError(
                f"preds and target must both be (N, {len(self.categories)}), got {tuple(preds.shape)} and "
                f"{tuple(target.shape)}"
            )
        if preds.device.type == "cpu":
            _check_finite(preds)
        for values, state in ((preds, self.preds), (target, self.target)):
            state.append(values.detach().to(torch.float32).flatten())

    def compute(self) -> Tensor:
        """Kendall's tau of total counts: float64, NaN if all predicted or all true totals are equal.

        Pairs with a category that is not annotated have no true total and are excluded.
        """
        preds, target = self._counts()
        whole = ~target.isnan().any(1)
        return kendall_tau(preds[whole].sum(1), target[whole].sum(1))

    def counts(self) -> tuple[Tensor, Tensor]:
        """Return the predicted and true counts of all pairs on all processes, each ``(N, C)``.

        Every process must call this method. Rows are ordered by process, then by update.
        """
        with self._synced():
            return self._counts()

    def statistics(self) -> dict[str, Tensor]:
        """Mean absolute errors of each category (``mae_<category>``) and of the total (``mae``), over all processes.

        Every process must call this method. Only annotated counts are used; NaN if there is none.
        """
        preds, target = self.counts()
        by_category = (preds - target).abs().nanmean(0)
        total = (preds.sum(1) - target.sum(1)).abs().nanmean()
        return {**{f"mae_{c}": v for c, v in zip(self.categories, by_category, strict=True)}, "mae": total}

    def _counts(self) -> tuple[Tensor, Tensor]:
        none = torch.zeros(0, dtype=torch.float32, device=self.device)
        preds, target = (dim_zero_cat(state) if len(state) else none for state in (self.preds, self.target))
        _check_finite(preds)
        # float64 sums of counts are not rounded, so totals do not depend on the device. Negative counts are 0.
        shape = (-1, len(self.categories))
        return preds.clamp(min=0).reshape(shape).double(), target.clamp(min=0).reshape(shape).double()


def _check_finite(preds: Tensor) -> None:
    if not bool(preds.isfinite().all()):
        raise ValueError("preds must be finite; has the training diverged? A lower learning rate helps")


class CrepeModule(LearnedMetricModule):
    """Trains :class:`~rrg_rewards.models.CrepeModel` on records of error counts.

    Each validation logs, over all processes, ``train/loss``, ``train/regression`` and ``train/presence`` since the
    previous validation; the same losses under ``val/``; ``val/tau``, Kendall's tau of predicted and true total counts;
    ``val/tau_<source>`` for each source of records; ``val/mae_<category>``; and ``val/mae``. ``trainer.test`` logs the
    same values under ``test/`` and stores predicted and true counts by source in ``test_counts``.

    The paper tuned the learning rate, the weight decay and the warm-up ratio but does not report them. The defaults are
    common values for BERT-base models.

    Args:
        encoder: Folder or Hub id of the pretrained encoder.
        revision: Revision of a Hub id.
        presence_loss_weight: Weight of the presence loss; 0.5 in the paper. 0 trains without it.
        use_poisson_loss: Whether to replace the squared error of counts by the Poisson likelihood.
        heads: ``categories``, one head for each of the six categories as in the paper; ``significance``, two heads for
            the numbers of significant and insignificant errors; or ``total``, one head for the number of all errors.
            The names of the heads are the ``error_categories`` of the trained model.
        learning_rate: Highest learning rate.
        weight_decay: Weight decay. Biases and norms are not decayed.
        warmup_ratio: Fraction of the steps in which the learning rate rises.
        schedule: ``linear`` or ``cosine``, which fall to 0 at the last step, or ``constant``.
        seed: Seed of the initial weights of the heads and of dropout.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> CrepeModule("microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract").schedule
        'linear'
    """

    monitor = "tau"
    source_monitor = "tau_{source}"

    def __init__(
        self,
        encoder: str,
        revision: str | None = None,
        presence_loss_weight: float = 0.5,
        use_poisson_loss: bool = False,
        heads: Heads = "categories",
        *,
        learning_rate: float = 3e-5,
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        schedule: ScheduleName = "linear",
        seed: int = 0,
    ) -> None:
        super().__init__(OptimizerSettings(learning_rate, weight_decay, warmup_ratio, schedule, seed))
        if not 0 <= presence_loss_weight <= 1:
            raise ValueError(f"presence_loss_weight must lie in [0, 1], got {presence_loss_weight}")
        self.encoder = encoder
        if heads not in HEADS:
            raise ValueError(f"heads must be one of {', '.join(HEADS)}; got {heads!r}")
        self.revision = revision
        self.heads = heads
        self.presence_loss_weight = presence_loss_weight
        self.use_poisson_loss = use_poisson_loss
        self.test_counts: dict[str, tuple[Tensor, Tensor]] = {}

    def build_model(self) -> nn.Module:
        """Build the encoder with new heads, in training mode."""
        model: nn.Module = CrepeModel.from_encoder(
            self.encoder,
            HEADS[self.heads],
            revision=self.revision,
            presence_loss_weight=self.presence_loss_weight,
            use_poisson_loss=self.use_poisson_loss,
        )
        return model.train()

    def make_agreement(self) -> CountCorrelation:
        """Build the metric that compares predicted with true counts."""
        return CountCorrelation(self.model.config.error_categories)

    def loss_terms(self) -> tuple[str, ...]:
        """Return the names of the loss terms. Only a model with presence heads has a presence loss."""
        return ("loss", "regression", "presence") if self.model.config.use_presence_loss else ("loss", "regression")

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """Return the loss of a batch."""
        loss: Tensor = self._forward(batch, "fit").loss
        return loss

    def evaluate(self, batch: dict[str, Tensor], stage: str) -> tuple[Tensor, ...]:
        """Return predicted and true counts."""
        return self._forward(batch, stage).counts, batch["labels"]

    def on_test_epoch_end(self) -> None:
        """Store the counts by source and log the results of the test."""
        metrics = zip(self.source_names, self.by_source["test"], strict=True)
        self.test_counts = {name: metric.counts() for name, metric in metrics}
        super().on_test_epoch_end()

    def _forward(self, batch: dict[str, Tensor], stage: str) -> Any:
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}
        output = self.model(**inputs, labels=batch["labels"])
        for name, metric in self.terms[stage].items():
            # Weight the terms of a batch by the number of annotated counts, over which they are means.
            metric.update(getattr(output.loss_terms, name).float(), weight=(~batch["labels"].isnan()).sum())
        return output
