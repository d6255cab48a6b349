"""The CT-RATE report classifier: a RadBERT encoder with a linear layer over its pooled output."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict
from rrg_rewards.utilities.imports import require

__all__ = ["RadBertClassifier", "load_radbert_classifier"]

# A buffer in checkpoints of old versions of transformers; new versions compute it.
_DERIVED_KEYS = frozenset({"model.embeddings.position_ids"})


class RadBertClassifier(nn.Module):
    r"""Encoder with a linear multi-label head.

    .. math::
        z = W \, \mathrm{pool}(\mathrm{RadBERT}(x)) + b

    A label is positive if :math:`\sigma(z) \ge 0.5`. Parameters are named ``model.*`` and
    ``classifier.*``, as in the published checkpoint.

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
        # The dtype of the configuration may have a lower precision than the weights.
        self.model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        self.classifier = nn.Linear(config.hidden_size, num_labels, dtype=torch.float32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits ``(N, L)`` of token ids ``(N, T)``."""
        pooled = self.model(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        logits: Tensor = self.classifier(pooled)
        return logits


def load_radbert_classifier(weights: Path, config: Any, num_labels: int) -> nn.Module:
    """Load the classifier from weights in one of the published formats.

    Args:
        weights: A plain state_dict (``RadBertClassifier.pth``) or safetensors with the keys of
            :class:`RadBertClassifier`, or safetensors of a Hugging Face sequence classifier.
        config: Configuration of the encoder.
        num_labels: Number of labels.

    Returns:
        The float32 model. It maps ``input_ids`` and ``attention_mask`` to logits ``(N, L)``.

    Raises:
        ValueError: If a key is missing or unexpected, or a shape differs. The message names the keys.
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
    """A Hugging Face sequence classifier with the interface of :class:`RadBertClassifier`."""

    def __init__(self, config: Any, num_labels: int) -> None:
        super().__init__()
        transformers = require("transformers", extra="labelers")
        config.num_labels = num_labels
        self.model = transformers.AutoModelForSequenceClassification.from_config(
            config, dtype=torch.float32, trust_remote_code=False
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits
