"""CREPE as a Hugging Face model: an encoder that reads both reports, and heads that count errors by category.

Source: Cho et al., "CREPE: Rapid Chest X-ray Report Evaluation by Predicting Multi-category Error Counts", Section 3.2.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rrg_rewards.functional.crepe import CrepeLoss, crepe_loss
from rrg_rewards.models.crepe.config import CrepeConfig
from rrg_rewards.models.loading import read_device_map, read_dtype
from rrg_rewards.models.state_dicts import check_state_dict, locate_weights, read_state_dicts
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoModel, PreTrainedModel  # noqa: E402
from transformers.modeling_outputs import ModelOutput  # noqa: E402

from rrg_rewards.models.model_card import CardedModel  # noqa: E402

__all__ = ["CrepeConfig", "CrepeModel", "CrepeOutput"]

_HEAD = re.compile(r"error_regressors\.(\d+)\.")
# A buffer that older versions of transformers save and newer versions compute.
_DERIVED = ".embeddings.position_ids"


@dataclass
class CrepeOutput(ModelOutput):  # type: ignore[misc]
    """Output of :class:`CrepeModel`.

    Args:
        loss: The dual loss, if labels were given.
        loss_terms: The loss and its terms without gradient, for logging, if labels were given.
        counts: Predicted error counts ``(N, C)``, float32, as returned by the heads, or their softplus with the Poisson
            loss. Without it, they may be negative; scores clip them at 0 (:func:`rrg_rewards.functional.crepe_score`).
        presence_logits: Logits ``(N, C)`` of any error of the category, if the model has presence heads.
    """

    loss: Tensor | None = None
    loss_terms: CrepeLoss | None = None
    counts: Tensor | None = None
    presence_logits: Tensor | None = None


class CrepeModel(CardedModel, PreTrainedModel):  # type: ignore[misc]
    r"""CREPE: predicts the number of errors of each category in a candidate report, compared with a reference.

    The feature of a pair is the encoder's ``pooler_output``, or its first token if there is none. After dropout, each
    category has a linear head for the count and another for the presence logit. Parameters have the names of the
    published checkpoint: the encoder's prefix (``bert.*``), ``error_regressors.{c}.*`` and ``error_presence.{c}.*``.
    The heads compute in float32 under autocast, because bfloat16 counts have only 8 significant bits.

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
        # Always float32, because the type in the configuration may be narrower than that of the weights.
        encoder = AutoModel.from_config(config.encoder_config, dtype=torch.float32, trust_remote_code=False)
        self.base_model_prefix = encoder.base_model_prefix
        setattr(self, self.base_model_prefix, encoder)
        self.dropout = nn.Dropout(_dropout(config.encoder_config))
        categories = range(config.num_error_categories)
        self.error_regressors = nn.ModuleList(_new_head(config.hidden_size) for _ in categories)
        self.error_presence = (
            nn.ModuleList(_new_head(config.hidden_size) for _ in categories) if config.use_presence_loss else None
        )
        self.post_init()

    @property
    def encoder(self) -> nn.Module:
        """The encoder, without the heads."""
        return getattr(self, self.base_model_prefix)  # type: ignore[no-any-return]

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
        """Predict the error counts of report pairs, and compute the dual loss if labels are given.

        Args:
            input_ids: ``(N, T)`` token ids of (reference, candidate).
            attention_mask: ``(N, T)``, 0 at padding.
            token_type_ids: ``(N, T)``, 0 for the reference and 1 for the candidate, for encoders that use it.
            labels: True error counts ``(N, C)``; NaN if a category is not annotated.

        Raises:
            ValueError: If the labels are invalid; see :func:`rrg_rewards.functional.crepe_loss`.
        """
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        pooled = getattr(outputs, "pooler_output", None)
        feature = self.dropout(outputs.last_hidden_state[:, 0] if pooled is None else pooled)
        regressed = _heads(self.error_regressors, feature)
        logits = None if self.error_presence is None else _heads(self.error_presence, feature)
        counts = functional.softplus(regressed) if self.config.use_poisson_loss else regressed
        if labels is None:
            return CrepeOutput(counts=counts, presence_logits=logits)
        terms = crepe_loss(
            counts,
            logits,
            labels,
            presence_weight=self.config.presence_loss_weight,
            poisson=self.config.use_poisson_loss,
        )
        logged = CrepeLoss(*(None if term is None else term.detach() for term in terms))  # type: ignore[arg-type]
        return CrepeOutput(terms.loss, logged, counts, logits)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        dtype: str | torch.dtype = torch.float32,
        device_map: Any = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> "CrepeModel":
        """Load a model in the published layout, which :meth:`save_pretrained` also writes.

        Weights load from safetensors, or from ``pytorch_model.bin`` without executing pickled code.
        Presence heads are ignored if the configuration does not use them.

        Args:
            pretrained_model_name_or_path: Folder or Hub id with ``config.json`` and weights.
            revision: Revision of a Hub id.
            dtype: Type of the encoder's weights, or its name; the heads are float32.
            device_map: The one device of the model, or ``"auto"``; default: the CPU.
            token: Token of the Hub; default: that of the login on this machine.
            cache_dir: Folder of downloaded models; default: the Hub's.
            local_files_only: Download nothing.

        Raises:
            FileNotFoundError: If there is no such folder, or it contains no weights.
            ValueError: If ``dtype`` or ``device_map`` is invalid, the configuration is not that of a CREPE model, a
                weight file is corrupt or contains anything but tensors, the number of categories differs, or keys are
                missing, unexpected or misshapen.

        Example:
            >>> CrepeModel.from_pretrained("./nowhere")
            Traceback (most recent call last):
            ...
            FileNotFoundError: model: ./nowhere: no such folder
        """
        kind, device = read_dtype(dtype), read_device_map(device_map)
        hub = {"token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
        weights = locate_weights(pretrained_model_name_or_path, revision, **hub)
        model: CrepeModel = cls(CrepeConfig.from_pretrained(weights.parent))
        model.load_state_dict(_read_weights(weights, model.state_dict()))
        model.encoder.to(kind)
        model.name_or_path = str(pretrained_model_name_or_path)
        return (model if device is None else model.to(device)).eval()  # type: ignore[no-any-return]

    @classmethod
    def from_encoder(
        cls,
        encoder: str | Path,
        error_categories: Sequence[str] | None = None,
        *,
        revision: str | None = None,
        **options: Any,
    ) -> "CrepeModel":
        """Make a model for training from a plain encoder, with new heads.

        Args:
            encoder: Folder or Hub id of an encoder that ``AutoModel`` supports.
            error_categories: Names of the error categories; default: the six of the paper.
            revision: Revision of a Hub id.
            options: Further arguments of :class:`CrepeConfig`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If weights of the encoder are missing, naming them. A missing pooling layer is initialised.
        """
        check_model_source(encoder, "encoder")
        loaded, info = AutoModel.from_pretrained(
            encoder, revision=revision, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
        missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
        if missing:
            raise ValueError(f"{encoder} lacks weights of its encoder: {', '.join(missing[:5])}")
        model = cls(CrepeConfig(loaded.config, error_categories, **options))
        model.encoder.load_state_dict(loaded.state_dict())
        return model


def _new_head(width: int) -> nn.Linear:
    return nn.Linear(width, 1, dtype=torch.float32)


def _heads(heads: nn.ModuleList, feature: Tensor) -> Tensor:
    """Return one column per head, computed in the type of the heads' weights, without autocast."""
    kind = feature.device.type
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        columns = [head(feature.to(head.get_parameter("weight").dtype)) for head in heads]
    return torch.cat(columns, dim=1)


def _dropout(encoder_config: Any) -> float:
    for name in ("classifier_dropout", "hidden_dropout_prob", "dropout"):
        if isinstance(value := getattr(encoder_config, name, None), float | int):
            return float(value)
    return 0.1


def _read_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the weights of a CREPE model; raise a ValueError unless they fit the expected state_dict."""
    state = {key: value for key, value in read_state_dicts(path).items() if not key.endswith(_DERIVED)}
    found, wanted = _num_categories(state), _num_categories(expected)
    # If there is no head, the check below reports missing keys.
    if found and found != wanted:
        raise ValueError(
            f"{path} has heads for {found} error categories, but its config.json has {wanted} (num_error_categories)"
        )
    if not any(key.startswith("error_presence.") for key in expected):
        state = {key: value for key, value in state.items() if not key.startswith("error_presence.")}
    check_state_dict(state, expected, path)
    return state


def _num_categories(state: Mapping[str, Tensor]) -> int:
    return len({match[1] for key in state if (match := _HEAD.match(key))})
