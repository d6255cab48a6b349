"""Log-probabilities and entropies of tokens under a policy, and estimates of its divergence from a reference."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.utilities.names import shown

KLEstimator = Literal["k1", "k2", "k3"]

# Number of logits that are converted to float32 at once: 16 MiB.
_BLOCK = 2**22


def token_log_probs(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Compute the log-probabilities of given tokens.

    .. math::
        \log \pi(y_t) = z_{y_t} / \tau - \log \sum_v e^{z_v / \tau}

    in float32 for logits of any dtype.

    Args:
        logits: Logits ``(N, T, V)``.
        tokens: Token ids ``(N, T)``.
        temperature: :math:`\tau`, the sampling temperature.

    Returns:
        Log-probabilities ``(N, T)``.

    Raises:
        ValueError: If shapes do not fit or the temperature is not positive.

    Example:
        >>> import torch
        >>> token_log_probs(torch.zeros(1, 1, 4), torch.tensor([[2]]))
        tensor([[-1.3863]])
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    if logits.ndim != 3 or logits.shape[:2] != tokens.shape:
        raise ValueError(
            f"logits must have shape (N, T, V) for tokens {tuple(tokens.shape)}, got {tuple(logits.shape)}"
        )
    parts = [
        (part := _scaled(own, temperature)).gather(-1, ids.unsqueeze(-1)).squeeze(-1) - part.logsumexp(-1)
        for own, ids in zip(_blocks(logits, logits), _blocks(tokens, logits), strict=True)
    ]
    return torch.cat(parts)


def token_entropies(logits: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Compute the entropies of next-token distributions.

    .. math::
        H_t = -\sum_v \pi_v \log \pi_v \quad\text{in nats}, \qquad \pi = \operatorname{softmax}(z / \tau)

    Args:
        logits: Logits ``(N, T, V)``.
        temperature: :math:`\tau`, the sampling temperature.

    Returns:
        Entropies ``(N, T)``, at least 0.

    Raises:
        ValueError: If the temperature is not positive.

    Example:
        >>> import torch
        >>> token_entropies(torch.zeros(1, 1, 4))
        tensor([[1.3863]])
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    parts = (_scaled(own, temperature).log_softmax(-1) for own in _blocks(logits, logits))
    return torch.cat([-(part.exp() * part).sum(-1) for part in parts])


def _blocks(values: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Divide values into blocks of rows, because a float32 copy of all logits would be the largest tensor of a step."""
    return torch.split(values, max(1, _BLOCK // max(logits[:1].numel(), 1)))


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    # A division by 1 would copy the logits.
    return logits.float() if temperature == 1 else logits.float() / temperature


def bounded_exp(logarithms: Tensor) -> Tensor:
    """Compute the exponential of log-ratios, with the largest bounded so that losses stay finite.

    The bound is 0.9 times the logarithm of the greatest number of the type: 79.8 for float32 and bfloat16. Beyond it
    the gradient is 0; an infinite ratio times a gradient of 0 would be NaN.

    Example:
        >>> import torch
        >>> bounded_exp(torch.tensor([0.0, 100.0]))
        tensor([1.0000e+00, 4.7715e+34])
    """
    return _bounded(logarithms).exp()


def _bounded(logarithms: Tensor) -> Tensor:
    return logarithms.clamp(max=0.9 * math.log(torch.finfo(logarithms.dtype).max))


def kl_estimate(
    log_probs: Tensor, reference_log_probs: Tensor, estimator: KLEstimator = "k3", mask: Tensor | None = None
) -> Tensor:
    r"""Estimate the divergence :math:`KL(\pi \| \pi_\text{ref})` from tokens that the policy sampled.

    With :math:`\ell = \log \pi_\text{ref} - \log \pi` of a token,

    .. math::
        k_1 = -\ell, \qquad k_2 = \tfrac12 \ell^2, \qquad k_3 = e^{\ell} - \ell - 1

    :math:`k_1` is unbiased and noisy, :math:`k_2` is biased and never negative, :math:`k_3` is unbiased and never
    negative; GRPO uses it, here with :math:`\ell` bounded as by :func:`bounded_exp`.

    Source: Schulman, "Approximating KL Divergence", 2020; :math:`k_3`: Shao et al., "DeepSeekMath", Eq. 4.

    Args:
        log_probs: Log-probabilities ``(N, T)`` under the policy.
        reference_log_probs: Log-probabilities ``(N, T)`` under the reference.
        estimator: ``"k1"``, ``"k2"`` or ``"k3"``.
        mask: ``(N, T)``, 1 at the tokens that count. Estimates and gradients of other tokens are 0, whatever their
            values; default: all tokens count.

    Returns:
        Estimates ``(N, T)``, one per token.

    Raises:
        ValueError: If shapes differ or the estimator is unknown.

    Example:
        >>> import torch
        >>> kl_estimate(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]))
        tensor([[0.3679]])
    """
    if log_probs.shape != reference_log_probs.shape:
        raise ValueError(
            f"reference_log_probs must have shape {tuple(log_probs.shape)}, got {tuple(reference_log_probs.shape)}"
        )
    if estimator not in get_args(KLEstimator):
        raise ValueError(f"estimator must be 'k1', 'k2' or 'k3', got {shown(estimator)}")
    if mask is not None:
        # Before the difference: an infinity in padding has no gradient.
        log_probs, reference_log_probs = (
            tensor.masked_fill(mask == 0, 0.0) for tensor in (log_probs, reference_log_probs)
        )
    log_ratio = reference_log_probs - log_probs
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return 0.5 * log_ratio.square()
    log_ratio = _bounded(log_ratio)
    return log_ratio.exp() - log_ratio - 1
