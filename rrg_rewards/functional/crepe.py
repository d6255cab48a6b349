"""CREPE: predicted error counts by category, and the loss that trains them (Cho et al.)."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor

from rrg_rewards.utilities.names import shown


class CrepeLoss(NamedTuple):
    """The loss and its terms, for logging.

    Args:
        loss: The loss.
        regression: Loss of the counts.
        presence: Loss of the presence logits; ``None`` without presence logits.
    """

    loss: Tensor
    regression: Tensor
    presence: Tensor | None


def crepe_loss(
    predicted_counts: Tensor,
    presence_logits: Tensor | None,
    target_counts: Tensor,
    *,
    presence_weight: float = 0.5,
    poisson: bool = False,
    reduction: Literal["mean", "none"] = "mean",
) -> CrepeLoss:
    r"""Compute the dual loss of CREPE: regression of error counts, and detection of categories with an error.

    With predicted counts :math:`\hat n`, presence logits :math:`\hat p`, true counts :math:`n` and weight :math:`w`,

    .. math::
        \mathcal L = (1 - w)\,\overline{(\hat n_c - n_c)^2} + w\,\overline{\mathrm{BCE}(\hat p_c, [n_c > 0])}

    averaged over categories and pairs. The published weight 0.5 is the average of the two terms (Eq. 7). With weight 0,
    or without presence logits, the loss is the regression. A NaN target is not annotated and is excluded. All annotated
    counts have the same weight; if all counts are annotated, the result is the mean over categories of means over pairs
    (Eq. 5 and 6).

    With ``poisson``, the regression is the Poisson negative log likelihood without its constant,
    :math:`\hat n - n \log(\hat n + 10^{-8})`, as in the published code. The predictions are then rates, at least 0; a
    model returns the softplus of its linear heads.

    Source: Cho et al., "CREPE", Section 3.2 (Eq. 5 to 7); Section 5.2 for the Poisson variant, and the published code
    for its form.

    Args:
        predicted_counts: Predicted counts ``(N, C)``, unbounded; at least 0 with ``poisson``.
        presence_logits: Logits ``(N, C)`` of the presence of any error of the category, or ``None``.
        target_counts: True counts ``(N, C)``, at least 0; NaN if a category is not annotated.
        presence_weight: :math:`w` in [0, 1].
        poisson: Whether the regression uses the Poisson likelihood instead of the squared error.
        reduction: ``"mean"``, or ``"none"`` for terms ``(N, C)`` with NaN for counts that are not annotated.

    Returns:
        The loss and its two terms: scalars, or ``(N, C)``.

    Raises:
        ValueError: If shapes differ, a true count is negative, a predicted count is negative with ``poisson``, nothing
            is annotated, the weight lies outside [0, 1] or the reduction is unknown.

    Example:
        >>> import torch
        >>> counts, logits = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
        >>> crepe_loss(counts, logits, torch.tensor([[3.0, 0.0]]))
        CrepeLoss(loss=tensor(1.3466), regression=tensor(2.), presence=tensor(0.6931))
    """
    if not 0 <= presence_weight <= 1:
        raise ValueError(f"presence_weight must lie in [0, 1], got {presence_weight}")
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction must be 'mean' or 'none', got {shown(reduction)}")
    annotated = _annotated(predicted_counts, presence_logits, target_counts)
    # Fill NaN: its gradient would be NaN even for a masked term.
    target = target_counts.to(predicted_counts.dtype).masked_fill(~annotated, 0.0)
    if poisson:
        if (predicted_counts < 0).any():
            raise ValueError(
                "predicted_counts must be at least 0 with poisson; apply softplus to outputs of linear heads"
            )
        terms = F.poisson_nll_loss(predicted_counts, target, log_input=False, reduction="none")
    else:
        terms = F.mse_loss(predicted_counts, target, reduction="none")
    regression = _reduced(terms, annotated, reduction)
    if presence_logits is None:
        return CrepeLoss(regression, regression, None)
    present = (target > 0).to(presence_logits.dtype)
    detection = F.binary_cross_entropy_with_logits(presence_logits, present, reduction="none")
    presence = _reduced(detection, annotated, reduction)
    return CrepeLoss((1 - presence_weight) * regression + presence_weight * presence, regression, presence)


def _annotated(counts: Tensor, logits: Tensor | None, target: Tensor) -> Tensor:
    """Check the inputs of the loss and return a mask of the annotated counts."""
    if counts.ndim != 2:
        raise ValueError(f"predicted_counts must have shape (N, C), got {tuple(counts.shape)}")
    for name, values in {"presence_logits": logits, "target_counts": target}.items():
        if values is not None and values.shape != counts.shape:
            raise ValueError(
                f"{name} must have the shape of predicted_counts {tuple(counts.shape)}, got {tuple(values.shape)}"
            )
    annotated = ~target.isnan()
    if not annotated.any():
        raise ValueError("target_counts contains no annotated count")
    if (target < 0).any():
        raise ValueError("target_counts must be at least 0; use NaN for a category that is not annotated")
    return annotated


def _reduced(terms: Tensor, annotated: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return terms.masked_fill(~annotated, float("nan"))
    return terms.masked_fill(~annotated, 0.0).sum() / annotated.sum()


def crepe_score(counts: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Compute CREPE of report pairs: the sum of predicted error counts, clipped at 0.

    .. math::
        \mathrm{CREPE} = \sum_c w_c \max(\hat n_c, 0)

    with all :math:`w_c = 1` as published. At least 0; lower is better; NaN if a count is NaN.

    Source: Cho et al., "CREPE", Eq. 8; the clipping is that of the published code.

    Args:
        counts: Predicted error counts ``(N, C)``.
        weights: Weight of an error of each category, ``(C,)``, at least 0. Default: 1 each.

    Returns:
        Scores ``(N,)``.

    Raises:
        ValueError: If shapes do not fit, or a weight is negative, infinite or NaN.

    Example:
        >>> import torch
        >>> crepe_score(torch.tensor([[1.5, -0.25, 0.5]]))
        tensor([2.])
        >>> crepe_score(torch.tensor([[1.5, -0.25, 0.5]]), torch.tensor([2.0, 1.0, 0.0]))
        tensor([3.])
    """
    if counts.ndim != 2:
        raise ValueError(f"counts must have shape (N, C), got {tuple(counts.shape)}")
    clipped = counts.clamp(min=0)
    if weights is None:
        return clipped.sum(1)
    if weights.shape != counts.shape[1:]:
        raise ValueError(f"weights must have shape {tuple(counts.shape[1:])}, got {tuple(weights.shape)}")
    if not (torch.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("weights must be finite and at least 0")
    return clipped @ weights.to(clipped)
