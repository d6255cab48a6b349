"""ER²Score as a Hugging Face model: a decoder that reads both reports, and a linear head with one reward per criterion.

Importing this module registers the configuration with transformers' ``AutoConfig``.

Source: Liu et al., "ER²Score: LLM-based Explainable and Customizable Metric for Assessing Radiology Reports with
Reward-Control Loss", Section 3.2.
"""

import copy
import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrg_rewards.models.er2score.config import ER2ScoreConfig, read_er2score_config
from rrg_rewards.models.er2score.weights import (
    ADAPTER,
    BACKBONE,
    HEAD,
    absolute_source,
    add_adapter,
    backbone_source,
    load_adapter,
    load_backbone,
    load_head,
    locate_model,
    read_backbone_config,
)
from rrg_rewards.models.loading import load_tokenizer, read_device_map, read_dtype
from rrg_rewards.schemas import ScoringSystem
from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoConfig, AutoModel, PreTrainedModel  # noqa: E402
from transformers.modeling_outputs import ModelOutput  # noqa: E402

from rrg_rewards.models.model_card import CardedModel  # noqa: E402

__all__ = ["ER2ScoreConfig", "ER2ScoreModel", "ER2ScoreOutput"]

Quantization = Literal["4bit"]
_AS_SAVED = "saved"
# Families that keep state in the module, or no keys and values, which transformers 5.24 calls `cache`, too.
_OTHER_CACHES = frozenset({"falcon_mamba", "mamba", "mamba2", "recurrent_gemma", "rwkv", "xlstm"})


@dataclass(frozen=True)
class _CachedPrefixes:
    """Prefixes that the backbone has read.

    Args:
        cache: Keys and values of each layer, as transformers stores them.
        mask: ``(B, P)``, 0 at padding.
    """

    cache: Any
    mask: Tensor

    def select(self, owner: Tensor) -> Any:
        """Return a copy of the cache with the prefix ``owner[i]`` in row ``i``; this cache stays unchanged."""
        cache = copy.copy(self.cache)
        cache.layers = [_copied(layer) for layer in self.cache.layers]
        cache.reorder_cache(owner)
        return cache


@dataclass
class ER2ScoreOutput(ModelOutput):  # type: ignore[misc]
    """Output of :class:`ER2ScoreModel`.

    Args:
        rewards: Contribution of each criterion to the total, ``(N, C)``, float32; negative if the sub-score is
            deducted. A sub-score is its reward divided by the criterion's factor (``ScoringSystem.factors``).
    """

    rewards: Tensor | None = None


class ER2ScoreModel(CardedModel, PreTrainedModel):  # type: ignore[misc]
    r"""ER²Score: one reward per criterion of a scoring system, read at the last token of a prompt with both reports.

    The backbone is any decoder of ``AutoModel`` that accepts ``past_key_values``. A linear layer maps its last hidden
    state, at the last unmasked token, to one output per criterion. The output times the criterion's weight is the
    reward, so that one learning rate suits criteria with weights of 1 and of 30. With RadCliQ's weights of 1 this is
    the paper's head. The head always computes in float32. The score is the sum of the rewards and the system's base.

    Prompts with the same reference have a common prefix; :meth:`forward_shared` runs it once.

    Args:
        config: The configuration.
        backbone: The backbone with its weights; default: a new backbone with random weights.

    Raises:
        ValueError: If the backbone does not keep its whole state in ``past_key_values``.

    Attributes:
        tokenizer: The backbone's tokenizer if it is known, else ``None``; :meth:`save_pretrained` writes it.

    Example:
        >>> import torch
        >>> decoder = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = ER2ScoreModel(ER2ScoreConfig({**decoder, "intermediate_size": 8}, "mrscore")).eval()
        >>> ids = torch.tensor([[2, 5, 3, 6, 3], [2, 5, 7, 0, 0]])
        >>> model(ids, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])).rewards.shape
        torch.Size([2, 7])
    """

    config_class = ER2ScoreConfig
    base_model_prefix = "backbone"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    criterion_weights: Tensor

    def __init__(self, config: ER2ScoreConfig, backbone: nn.Module | None = None) -> None:
        super().__init__(config)
        if backbone is None:
            # Always float32, because the type in the configuration may be narrower than that of the weights.
            backbone = AutoModel.from_config(config.backbone_config, dtype=torch.float32, trust_remote_code=False)
        self.backbone: Any = backbone
        self.head = nn.Linear(config.hidden_size, config.num_criteria, dtype=torch.float32)
        weights = torch.tensor([float(criterion.weight) for criterion in config.system.criteria], dtype=torch.float32)
        self.register_buffer("criterion_weights", weights, persistent=False)
        taken = inspect.signature(self.backbone.forward).parameters
        # Without a complete cache, a suffix would be read without its prefix.
        # transformers 5.24 names it `cache`, and takes the other name until 5.40.
        if not {"past_key_values", "cache"} & taken.keys() or config.backbone_config.model_type in _OTHER_CACHES:
            raise ValueError(
                f"a backbone of type {config.backbone_config.model_type} does not keep its whole state in "
                "past_key_values, so prompts cannot share a prefix; use another one"
            )
        # Some families without rotary embeddings derive positions from the mask.
        self._takes_positions = "position_ids" in taken
        self.tokenizer: Any = None
        self.post_init()
        if config.lora is not None:
            self.backbone = add_adapter(self.backbone, config.lora)

    @property
    def scoring_system(self) -> ScoringSystem:
        """The scoring system; the rewards have the order of its criteria."""
        return self.config.system  # type: ignore[no-any-return]

    def get_input_embeddings(self) -> nn.Module:
        """The backbone's token embeddings."""
        return self.backbone.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the backbone's token embeddings."""
        self.backbone.set_input_embeddings(value)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
    ) -> ER2ScoreOutput:
        """Compute the rewards of prompts.

        Args:
            input_ids: ``(N, T)`` token ids, padded on either side.
            attention_mask: ``(N, T)``, 0 at padding; with ``past_key_values`` ``(N, P + T)``, the past first.
            position_ids: ``(N, T)``; default: counted from the mask.
            past_key_values: Cached keys and values of ``P`` earlier tokens, as transformers stores them; extended in
                place.
        """
        length = input_ids.shape[1]
        if position_ids is None:
            position_ids = _mask_positions(attention_mask)[:, -length:]
        positions = {"position_ids": position_ids} if self._takes_positions else {}
        hidden = self.backbone(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=past_key_values is not None,
            **positions,
        ).last_hidden_state
        last = length - 1 - attention_mask[:, -length:].flip(1).long().argmax(1)
        return ER2ScoreOutput(rewards=self._rewards(hidden[torch.arange(len(hidden), device=hidden.device), last]))

    def forward_shared(
        self, prefix_ids: Tensor, prefix_mask: Tensor, suffix_ids: Tensor, suffix_mask: Tensor, owner: Tensor
    ) -> ER2ScoreOutput:
        """Compute the rewards of prompts with common prefixes, running each prefix once.

        Equal to :meth:`forward` for whole prompts up to rounding; gradients flow through the prefixes. With gradient
        checkpointing, prompts run whole, because recomputed layers cannot fill a cache.

        Args:
            prefix_ids: ``(B, P)`` token ids, padded on the left.
            prefix_mask: ``(B, P)``, 0 at padding.
            suffix_ids: ``(N, T)`` token ids, padded on the right, at least one per row.
            suffix_mask: ``(N, T)``, 0 at padding.
            owner: ``(N,)``, int64, index of the prefix of each suffix.

        Returns:
            Rewards of the ``N`` prompts.

        Raises:
            ValueError: If prefixes are padded on the right.
        """
        if _uses_checkpointing(self.backbone):
            _check_left_padding(prefix_mask)
            ids = torch.cat([prefix_ids[owner], suffix_ids], dim=1)
            mask = torch.cat([prefix_mask[owner], suffix_mask], dim=1)
            return self(ids, mask)  # type: ignore[no-any-return]
        return self.continue_prefixes(self.read_prefixes(prefix_ids, prefix_mask), suffix_ids, suffix_mask, owner)

    def read_prefixes(self, prefix_ids: Tensor, prefix_mask: Tensor) -> _CachedPrefixes:
        """Run prefixes ``(B, P)``, padded on the left: the first half of :meth:`forward_shared`."""
        _check_left_padding(prefix_mask)
        cache = require("transformers", extra="models").DynamicCache(config=self.config.backbone_config)
        positions = {"position_ids": _mask_positions(prefix_mask)} if self._takes_positions else {}
        self.backbone(
            input_ids=prefix_ids, attention_mask=prefix_mask, past_key_values=cache, use_cache=True, **positions
        )
        return _CachedPrefixes(cache, prefix_mask)

    def continue_prefixes(
        self, prefixes: _CachedPrefixes, suffix_ids: Tensor, suffix_mask: Tensor, owner: Tensor
    ) -> ER2ScoreOutput:
        """Run suffixes after their prefixes: the second half of :meth:`forward_shared`, which may be repeated."""
        mask = torch.cat([prefixes.mask[owner], suffix_mask], dim=1)
        return self(suffix_ids, mask, past_key_values=prefixes.select(owner))  # type: ignore[no-any-return]

    def _rewards(self, feature: Tensor) -> Tensor:
        """Return the head's outputs times the criteria's weights, computed in the head's type, without autocast."""
        kind = feature.device.type
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            rewards: Tensor = self.head(feature.to(self.head.weight.dtype)).float() * self.criterion_weights
        return rewards

    def merge_adapter(self) -> "ER2ScoreModel":
        """Add the adapter to the backbone's weights in place. Scores stay equal up to rounding.

        Afterwards :meth:`save_pretrained` writes the whole backbone, so the folder no longer refers to another one.

        Raises:
            ValueError: If there is no adapter, the backbone is quantised, or a merged weight would not be finite.
        """
        if self.config.lora is None:
            raise ValueError("the model has no adapter to merge")
        if self.config.quantization is not None:
            raise ValueError(
                "an adapter is not merged into 4-bit weights, which would round it away; load the model by "
                "from_pretrained(folder, quantization=None) first"
            )
        self.backbone = self.backbone.merge_and_unload(safe_merge=True)
        self.backbone.requires_grad_(True)
        self.config.lora = None
        return self

    def save_pretrained(self, save_directory: str | Path, *, max_shard_size: int | str = "50GB") -> None:
        """Write everything that :meth:`from_pretrained` needs to a folder, as safetensors and JSON.

        The files are ``config.json`` with scoring system and prompt, ``head.safetensors``, the tokenizer if it is
        known, and the trained weights: ``adapter/`` in PEFT's layout, or ``backbone/``, which ``AutoModel`` reads.

        Args:
            save_directory: The folder; it is created if it does not exist.
            max_shard_size: Maximum size of a weight file of the backbone. An adapter is one file.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self.config.lora is None:
            self.backbone.save_pretrained(folder / BACKBONE, max_shard_size=max_shard_size)
        else:
            # Otherwise PEFT queries the Hub for the backbone's vocabulary size, to detect added rows. There are none.
            self.backbone.save_pretrained(folder / ADAPTER, save_embedding_layers=False)
        head = {name: value.detach().cpu().contiguous() for name, value in self.head.state_dict().items()}
        require("safetensors.torch", extra="models").save_file(head, folder / HEAD, metadata={"format": "pt"})
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder)
        self.config.architectures = [type(self).__name__]
        # Write the configuration last, so that a folder with a configuration is complete.
        self.config.save_pretrained(folder)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        backbone: str | Path | None = None,
        revision: str | None = None,
        dtype: str | torch.dtype = torch.float32,
        quantization: str | None = _AS_SAVED,
        device_map: Any = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> "ER2ScoreModel":
        """Load a model that :meth:`save_pretrained` wrote, without unpickling or running code from a repository.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            backbone: Folder or Hub id of the backbone under an adapter, if it has moved.
            revision: Revision of a Hub id.
            dtype: Type of the backbone's weights, or its name; the head is float32.
            device_map: The one device of the model, or ``"auto"``; default: the CPU.
            token: Token of the Hub; default: that of the login on this machine.
            cache_dir: Folder of downloaded models; default: the Hub's.
            local_files_only: Download nothing.
            quantization: ``"4bit"`` or ``None``; default: as the model was trained.

        Raises:
            FileNotFoundError: If there is no such folder, files are missing, or the backbone has moved.
            ModuleNotFoundError: If quantisation is requested and bitsandbytes is not installed.
            ValueError: If ``dtype`` or ``device_map`` is invalid, the configuration is not of an ER²Score model, the
                backbone is a different one or not needed, or weights are corrupt, missing or misshapen, for example
                those of another scoring system.

        Example:
            >>> ER2ScoreModel.from_pretrained("./nowhere")
            Traceback (most recent call last):
            ...
            FileNotFoundError: model: ./nowhere: no such folder
        """
        kind, device = read_dtype(dtype), read_device_map(device_map)
        hub = {"token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
        folder = locate_model(pretrained_model_name_or_path, revision, **hub)
        config = read_er2score_config(folder)
        if quantization != _AS_SAVED:
            config.quantization = quantization
        adapted = config.lora is not None
        if not adapted and backbone is not None:
            raise ValueError(f"{folder} contains its backbone and no adapter; omit backbone=")
        source: str | Path = folder / BACKBONE
        pinned = None
        if adapted:
            source, pinned = backbone_source(folder, config.backbone, config.backbone_revision, backbone)
            config.backbone, config.backbone_revision = source, pinned
        loaded = load_backbone(source, config.backbone_config, pinned, kind, config.quantization, **hub)
        model: ER2ScoreModel = cls(config, loaded)
        if adapted:
            load_adapter(model.backbone, folder / ADAPTER)
        load_head(model.head, folder, config.system)
        model.tokenizer = load_tokenizer(folder) or (load_tokenizer(source, pinned, **hub) if adapted else None)
        model.name_or_path = str(pretrained_model_name_or_path)
        return (model if device is None else model.to(device)).eval()  # type: ignore[no-any-return]

    @classmethod
    def from_backbone(
        cls,
        backbone: str | Path,
        scoring_system: str | Path | ScoringSystem = "radcliq",
        *,
        revision: str | None = None,
        num_layers: int | None = None,
        lora: Mapping[str, Any] | None = None,
        quantization: Quantization | None = None,
        prompt: str | None = None,
        max_length: int = 2048,
        dtype: torch.dtype = torch.float32,
    ) -> "ER2ScoreModel":
        """Make a model for training from a plain language model, with a new head.

        Args:
            backbone: Folder or Hub id of a causal language model.
            scoring_system: Name, YAML file or :class:`rrg_rewards.schemas.ScoringSystem`.
            revision: Revision of a Hub id; default: the newest, which the configuration records.
            num_layers: Number of decoder layers to keep, from the first; default: all.
            lora: Fields of PEFT's ``LoraConfig``, for example ``{"r": 16}``, to freeze the backbone and train an
                adapter. Default: all weights are trained.
            quantization: ``"4bit"`` to quantise the frozen backbone (QLoRA).
            prompt: Text of the template; default: the package's.
            max_length: Maximum number of tokens of a prompt; the limit of the backbone if that is lower.
            dtype: Type of the backbone's weights; the head is float32.

        Raises:
            FileNotFoundError: If there is no such folder.
            ModuleNotFoundError: If quantisation is requested and bitsandbytes is not installed.
            ValueError: If the backbone is not a decoder or lacks weights, or a setting is out of range.
        """
        kept = read_backbone_config(backbone, revision, num_layers)
        longest = getattr(kept, "max_position_embeddings", None) or max_length
        config = ER2ScoreConfig(
            kept,
            scoring_system,
            prompt,
            backbone=absolute_source(backbone),
            backbone_revision=revision or getattr(kept, "_commit_hash", None),
            num_layers=num_layers,
            max_prompt_length=min(max_length, longest),
            lora=lora,
            quantization=quantization,
        )
        model = cls(config, load_backbone(backbone, kept, revision, dtype, quantization))
        model.tokenizer = load_tokenizer(backbone, revision)
        # Backbones are loaded in eval mode.
        return model.train()  # type: ignore[no-any-return]


# AutoTokenizer reads the configuration in a saved folder through AutoConfig.
AutoConfig.register(ER2ScoreConfig.model_type, ER2ScoreConfig)


def _copied(layer: Any) -> Any:
    """Return a copy of a cache layer that can be extended without changing the original."""
    copied = copy.copy(layer)
    # Layers replace their tensors and never modify them in place. Layers of linear attention keep tensors in dicts.
    vars(copied).update({name: dict(value) for name, value in vars(layer).items() if isinstance(value, dict)})
    return copied


def _mask_positions(mask: Tensor) -> Tensor:
    """Return the position of each token, counted from the first unmasked one: ``(N, T)``."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def _check_left_padding(prefix_mask: Tensor) -> None:
    # Padding between prefix and suffix would use up the window of sliding attention.
    if not bool(prefix_mask[:, -1].all()):
        raise ValueError("prefix_mask must be 0 on the left only: pad prefixes on the left and suffixes on the right")


def _uses_checkpointing(module: nn.Module) -> bool:
    """Whether gradient checkpointing recomputes layers of the module in the backward pass."""
    return any(part.training and getattr(part, "gradient_checkpointing", False) for part in module.modules())
