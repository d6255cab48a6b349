"""The CT-RATE report classifier: a RadBERT encoder with a linear layer over its pooled output."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict
from rrg_rewards.utilities.imports import require

__all__ = ["RadBertClassifier", "load_radbert_classifier"]

# A buffer in checkpoints of older transformers; newer versions compute it.
_DERIVED_KEYS = frozenset({"model.embeddings.position_ids"})


class RadBertClassifier(nn.Module):
    r"""Encoder and linear multi-label head, with the published checkpoint's parameter names.

    .. math::
        z = W \, \mathrm{pool}(\mathrm{RadBERT}(x)) + b

    A label is positive where :math:`\sigma(z) \ge 0.5`. Parameters are named ``model.*`` and ``classifier.*``.

    Source: Hamamci et al., CT-RATE, arXiv:2403.17834 (text classifier); Yan et al., RadBERT, Radiology: AI 2022.

    Args:
        config: Configuration of the encoder.
        num_labels: Number of labels :math:`L`.

    Example:
        >>> import torch
        >>> from transformers import RobertaConfig
        >>> config = RobertaConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> model = RadBertClassifier(config, num_labels=18)
        >>> model(torch.tensor([[0, 5, 2]]), torch.ones(1, 3, dtype=torch.long)).shape
        torch.Size([1, 18])
    """

    def __init__(self, config: Any, num_labels: int) -> None:
        super().__init__()
        transformers = require("transformers", extra="labelers")
        # Not in the type that the configuration names, which may be narrower than the weights.
        self.model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits ``(N, L)`` of token ids ``(N, T)``."""
        pooled = self.model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        logits: Tensor = self.classifier(pooled)
        return logits


def load_radbert_classifier(weights: Path, config: Any, num_labels: int) -> nn.Module:
    """Build the classifier from weights in either of the forms they are distributed in.

    Args:
        weights: A plain state_dict (``RadBertClassifier.pth``) or safetensors with the keys of
            :class:`RadBertClassifier`, or safetensors of a Hugging Face sequence classifier.
        config: Configuration of the encoder.
        num_labels: Number of labels.

    Returns:
        The model, float32; called with ``input_ids`` and ``attention_mask`` it returns logits ``(N, L)``.

    Raises:
        ValueError: If a key is missing, unexpected or misshapen, naming the keys.
    """
    state = read_state_dict(weights)
    if any(key.startswith("model.") for key in state):
        model: nn.Module = RadBertClassifier(config, num_labels)
        state = {key: value for key, value in state.items() if key not in _DERIVED_KEYS}
    else:
        model = _SequenceClassifier(config, num_labels)
        state = {f"model.{key}": value for key, value in state.items() if not key.endswith(".position_ids")}
    check_state_dict(state, model.state_dict(), weights)
    model.load_state_dict(state)
    return model


class _SequenceClassifier(nn.Module):
    """A Hugging Face sequence classifier behind the interface of :class:`RadBertClassifier`."""

    def __init__(self, config: Any, num_labels: int) -> None:
        super().__init__()
        transformers = require("transformers", extra="labelers")
        config.num_labels = num_labels
        self.model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits
