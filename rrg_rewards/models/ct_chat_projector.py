"""From a volume's tokens to soft tokens of the language model: CT-CHAT's published projector."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rrg_rewards.models.ct_chat_config import CTChatConfig

__all__ = ["CTChatProjector"]


class _AttentionalPooler(nn.Module):
    """Cross attention of learned queries over a volume's tokens; parameters are named as published."""

    def __init__(self, config: CTChatConfig) -> None:
        super().__init__()
        width = config.pooler_size
        self.heads = config.pooler_heads
        self.query = nn.Parameter(torch.randn(config.num_image_tokens, width))
        self.ln_k = nn.LayerNorm(config.feature_size)
        self.ln_q = nn.LayerNorm(width)
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(config.feature_size, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        query = self._split(self.to_q(self.ln_q(self.query)).expand(len(features), -1, -1))
        key, value = (self._split(part) for part in self.to_kv(self.ln_k(features)).chunk(2, dim=-1))
        pooled = scaled_dot_product_attention(query, key, value)
        return self.to_out(pooled.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, states: Tensor) -> Tensor:
        # The width by its number: a batch without volumes has nothing to infer it from.
        return states.view(*states.shape[:-1], self.heads, states.shape[-1] // self.heads).transpose(1, 2)


class CTChatProjector(nn.Module):
    r"""The published projector: attentional pooling, LayerNorm, two-layer GELU MLP.

    With volume tokens :math:`X \in \mathbb{R}^{T \times C}`, queries :math:`P \in \mathbb{R}^{Q \times D}` and
    :math:`H` heads of width :math:`d = D / H`,

    .. math::
        A_h = \mathrm{softmax}\!\left(\tfrac{1}{\sqrt d}
              \, [\mathrm{LN}_q(P) W_q]_h \, [\mathrm{LN}_k(X) W_k]_h^\top\right) [\mathrm{LN}_k(X) W_v]_h,
        \qquad
        Z = W_2 \, \mathrm{GELU}(W_1 \, \mathrm{LN}([A_1 \dots A_H] W_o) + b_1) + b_2

    without biases in :math:`W_q, W_k, W_v, W_o`. Nothing in it knows a token's place: place is what CT-ViT has written
    into the tokens.

    Args:
        config: The model's configuration.

    Example:
        >>> import torch
        >>> text = {"vocab_size": 32, "hidden_size": 8, "num_attention_heads": 2}
        >>> config = CTChatConfig(text, num_image_tokens=4, feature_size=16, pooler_heads=2)
        >>> CTChatProjector(config)(torch.randn(3, 27, 16)).shape
        torch.Size([3, 4, 8])
    """

    def __init__(self, config: CTChatConfig) -> None:
        super().__init__()
        hidden_size = config.text_config.hidden_size
        self.attn_pool = _AttentionalPooler(config)
        self.ln = nn.LayerNorm(config.pooler_size)
        self.proj = nn.Sequential(
            nn.Linear(config.pooler_size, hidden_size), nn.GELU(), nn.Linear(hidden_size, hidden_size)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Soft tokens ``(V, Q, hidden)`` of volume features ``(V, T, C)`` in any floating type."""
        # Not from a parameter by its name, which ZeRO-3 would gather for it and keep; and here, where the parameters
        # are those in use: beside LoRA, PEFT trains a copy, which may be wider than the rest of the model.
        features = features.to(next(self.parameters()).dtype)
        return self.proj(self.ln(self.attn_pool(features)))  # type: ignore[no-any-return]
