"""CREPE as a Hugging Face model: an encoder that reads both reports, and heads that count errors by category.

Source: Cho et al., "CREPE: Rapid Chest X-ray Report Evaluation by Predicting Multi-category Error Counts", Section 3.2.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrg_rewards.functional.crepe import CrepeLoss, crepe_loss
from rrg_rewards.models.crepe_config import CrepeConfig
from rrg_rewards.models.crepe_weights import locate_weights, read_crepe_weights
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoModel, PreTrainedModel  # noqa: E402
from transformers.modeling_outputs import ModelOutput  # noqa: E402

__all__ = ["CrepeConfig", "CrepeModel", "CrepeOutput"]


@dataclass
class CrepeOutput(ModelOutput):  # type: ignore[misc]
    """What :class:`CrepeModel` returns.

    Args:
        loss: The dual loss, where labels were given.
        loss_terms: The loss and its terms without gradient, for logging, where labels were given.
        counts: Predicted error counts ``(N, C)``, float32, as the heads give them: they may be negative, and scores
            clip them at 0 (:func:`rrg_rewards.functional.crepe_score`).
        presence_logits: Logits ``(N, C)`` that there is an error of the category, where the model has such heads.
    """

    loss: Tensor | None = None
    loss_terms: CrepeLoss | None = None
    counts: Tensor | None = None
    presence_logits: Tensor | None = None


class CrepeModel(PreTrainedModel):  # type: ignore[misc]
    r"""CREPE: predicted numbers of errors of each category in a candidate report, against a reference.

    A pair's feature is the encoder's ``pooler_output`` where it has one, else its first token; dropout and one linear
    head a category give the count, another the presence logit. Parameters are named as the published checkpoint's:
    the encoder's under its own prefix (``bert.*``), ``error_regressors.{c}.*`` and ``error_presence.{c}.*``. The heads
    compute in float32 under autocast, for a count of 8 bits would be coarse.

    ``save_pretrained`` writes the published layout, and :meth:`from_pretrained` reads it.

    Args:
        config: The configuration.

    Example:
        >>> import torch
        >>> encoder = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = CrepeModel(CrepeConfig({**encoder, "intermediate_size": 8})).eval()
        >>> ids = torch.tensor([[2, 5, 3, 6, 3]])
        >>> out = model(ids, torch.ones_like(ids), labels=torch.tensor([[1.0, 0, 0, 0, 2, 0]]))
        >>> out.counts.shape, out.loss.ndim
        (torch.Size([1, 6]), 0)
    """

    config_class = CrepeConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: CrepeConfig) -> None:
        super().__init__(config)
        # Not in the type that the configuration names, which may be narrower than the weights.
        encoder = AutoModel.from_config(config.encoder_config, dtype=torch.float32)
        self.base_model_prefix = encoder.base_model_prefix
        setattr(self, self.base_model_prefix, encoder)
        self.dropout = nn.Dropout(_dropout(config.encoder_config))
        categories = range(config.num_error_categories)
        self.error_regressors = nn.ModuleList(nn.Linear(config.hidden_size, 1) for _ in categories)
        self.error_presence = (
            nn.ModuleList(nn.Linear(config.hidden_size, 1) for _ in categories) if config.use_presence_loss else None
        )
        self.post_init()

    @property
    def encoder(self) -> nn.Module:
        """The encoder, without the heads."""
        encoder: nn.Module = getattr(self, self.base_model_prefix)
        return encoder

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's token embeddings."""
        return self.encoder.get_input_embeddings()  # type: ignore[operator, no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's token embeddings."""
        self.encoder.set_input_embeddings(value)  # type: ignore[operator]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> CrepeOutput:
        """Error counts of report pairs, and with labels the dual loss.

        Args:
            input_ids: ``(N, T)`` token ids of (reference, candidate).
            attention_mask: ``(N, T)``, 0 at padding.
            token_type_ids: ``(N, T)``, which report a token is of, for encoders that take it.
            labels: True error counts ``(N, C)``; NaN where a category is not annotated.

        Raises:
            ValueError: If the labels do not fit; see :func:`rrg_rewards.functional.crepe_loss`.
        """
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        pooled = getattr(outputs, "pooler_output", None)
        feature = self.dropout(outputs.last_hidden_state[:, 0] if pooled is None else pooled)
        regressed = _heads(self.error_regressors, feature)
        logits = None if self.error_presence is None else _heads(self.error_presence, feature)
        counts = regressed.exp() if self.config.use_poisson_loss else regressed
        if labels is None:
            return CrepeOutput(counts=counts, presence_logits=logits)
        terms = crepe_loss(
            regressed,
            logits,
            labels,
            presence_weight=self.config.presence_loss_weight,
            poisson=self.config.use_poisson_loss,
        )
        logged = CrepeLoss(*(None if term is None else term.detach() for term in terms))  # type: ignore[arg-type]
        return CrepeOutput(terms.loss, logged, counts, logits)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, *, revision: str | None = None) -> "CrepeModel":
        """Load a model from the published layout, in which :meth:`save_pretrained` writes too.

        Weights are float32, and load from safetensors, or from ``pytorch_model.bin`` without executing what is pickled
        in it. Presence heads of a checkpoint whose configuration does not use them are left out.

        Args:
            pretrained_model_name_or_path: Folder or Hub id with ``config.json`` and weights.
            revision: Revision of a Hub id.

        Raises:
            FileNotFoundError: If there is no such folder, or it holds no weights.
            ValueError: If the configuration is of no CREPE model, a weight file is torn or holds anything but
                tensors, the weights are of another number of categories, or keys are missing, unexpected or misshapen.

        Example:
            >>> CrepeModel.from_pretrained("./nowhere")
            Traceback (most recent call last):
            ...
            FileNotFoundError: ./nowhere: no such folder
        """
        weights = locate_weights(pretrained_model_name_or_path, revision)
        model: CrepeModel = cls(CrepeConfig.from_pretrained(weights.parent))
        model.load_state_dict(read_crepe_weights(weights, model.state_dict()))
        model.name_or_path = str(pretrained_model_name_or_path)
        model.eval()
        return model

    @classmethod
    def from_encoder(
        cls,
        encoder: str | Path,
        error_categories: Sequence[str] | None = None,
        *,
        revision: str | None = None,
        **options: Any,
    ) -> "CrepeModel":
        """Start training from a plain encoder, with new heads.

        Args:
            encoder: Folder or Hub id of an encoder that ``AutoModel`` knows.
            error_categories: Names of the error categories; default: the paper's six.
            revision: Revision of a Hub id.
            options: Further arguments of :class:`CrepeConfig`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If weights of the encoder are missing, naming them; a pooling layer may be, and is new then.
        """
        check_model_source(encoder)
        loaded, info = AutoModel.from_pretrained(
            encoder, revision=revision, dtype=torch.float32, output_loading_info=True
        )
        missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
        if missing:
            raise ValueError(f"{encoder} lacks weights of its encoder: {', '.join(missing[:5])}")
        model = cls(CrepeConfig(loaded.config, error_categories, **options))
        model.encoder.load_state_dict(loaded.state_dict())
        return model


def _heads(heads: nn.ModuleList, feature: Tensor) -> Tensor:
    """One column a head, in the type of the heads' weights whatever autocast says."""
    kind = feature.device.type
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        columns = [head(feature.to(head.get_parameter("weight").dtype)) for head in heads]
    return torch.cat(columns, dim=1)


def _dropout(encoder_config: Any) -> float:
    for name in ("classifier_dropout", "hidden_dropout_prob", "dropout"):
        if isinstance(value := getattr(encoder_config, name, None), float | int):
            return float(value)
    return 0.1
