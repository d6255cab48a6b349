"""CT-CHAT's published projector, which maps the tokens of a volume to soft tokens of the language model."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rrg_rewards.models.ct_chat.config import CTChatConfig


class _AttentionalPooler(nn.Module):
    """Cross attention of learned queries over the tokens of a volume; parameters have the published names."""

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
        # Not -1: the width cannot be inferred from a batch without volumes.
        return states.view(*states.shape[:-1], self.heads, states.shape[-1] // self.heads).transpose(1, 2)


class CTChatProjector(nn.Module):
    r"""The published projector: attentional pooling, LayerNorm and a two-layer GELU MLP.

    With volume tokens :math:`X \in \mathbb{R}^{T \times C}`, queries :math:`P \in \mathbb{R}^{Q \times D}` and
    :math:`H` heads of width :math:`d = D / H`,

    .. math::
        A_h = \mathrm{softmax}\!\left(\tfrac{1}{\sqrt d}
              \, [\mathrm{LN}_q(P) W_q]_h \, [\mathrm{LN}_k(X) W_k]_h^\top\right) [\mathrm{LN}_k(X) W_v]_h,
        \qquad
        Z = W_2 \, \mathrm{GELU}(W_1 \, \mathrm{LN}([A_1 \dots A_H] W_o) + b_1) + b_2

    without biases in :math:`W_q, W_k, W_v, W_o`. The projector uses no positional encoding; CT-ViT encodes positions in
    the tokens.

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
        """Return the soft tokens ``(V, Q, hidden)`` of volume features ``(V, T, C)`` in any floating type."""
        # Read the dtype here and not in the model: with LoRA, PEFT trains a copy of this module, which may have another
        # dtype than the model. Access to a parameter by name would make ZeRO-3 gather and keep it.
        features = features.to(next(self.parameters()).dtype)
        return self.proj(self.ln(self.attn_pool(features)))  # type: ignore[no-any-return]
