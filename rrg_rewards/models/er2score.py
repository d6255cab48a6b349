"""ER²Score as a Hugging Face model: a decoder that reads both reports, and a linear head with a reward a criterion.

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

from rrg_rewards.models.er2score_config import ER2ScoreConfig, read_er2score_config
from rrg_rewards.models.er2score_weights import (
    ADAPTER,
    BACKBONE,
    HEAD,
    absolute_source,
    add_adapter,
    backbone_source,
    load_adapter,
    load_backbone,
    load_head,
    load_tokenizer,
    locate_model,
    read_backbone_config,
)
from rrg_rewards.schemas import ScoringSystem
from rrg_rewards.utilities.imports import require

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoConfig, AutoModel, DynamicCache, PreTrainedModel  # noqa: E402
from transformers.modeling_outputs import ModelOutput  # noqa: E402

__all__ = ["ER2ScoreConfig", "ER2ScoreModel", "ER2ScoreOutput", "ReadPrefixes"]

Quantization = Literal["4bit"]
_AS_SAVED = "saved"
# Families that take past_key_values and keep a part of their state in themselves.
_OTHER_CACHES = frozenset({"recurrent_gemma"})


@dataclass
class ER2ScoreOutput(ModelOutput):  # type: ignore[misc]
    """What :class:`ER2ScoreModel` returns.

    Args:
        rewards: What each criterion contributes to the total, ``(N, C)``, float32: negative where a sub-score is
            deducted. A sub-score is its reward divided by the criterion's factor (``ScoringSystem.factors``).
    """

    rewards: Tensor | None = None


@dataclass(frozen=True)
class ReadPrefixes:
    """Prefixes as the backbone has read them: what suffixes of them attend to.

    Args:
        cache: Keys and values of each layer, in transformers' form.
        mask: ``(B, P)``, 0 at padding.
    """

    cache: Any
    mask: Tensor


class ER2ScoreModel(PreTrainedModel):  # type: ignore[misc]
    r"""ER²Score: a reward for each criterion of a scoring system, read at the last token of a prompt with both reports.

    The backbone is any decoder of ``AutoModel`` that takes ``past_key_values``. Its last hidden state at the last
    token that is no padding goes through one linear layer with an output a criterion; each output times the
    criterion's weight is the reward, so that one learning rate suits criteria that weigh 1 and 30. With RadCliQ's
    weights of 1 that is the paper's head. The head computes in float32 whatever the backbone's type. The sum of the
    rewards, and the system's base, are the score.

    Prompts of several candidates of one reference begin alike. :meth:`forward_shared` runs what is common once.

    Args:
        config: The configuration.
        backbone: The backbone with its weights; default: one of random weights as the configuration describes it.

    Raises:
        ValueError: If the backbone is of a family that takes no ``past_key_values``, or keeps more beside them.

    Attributes:
        tokenizer: The backbone's tokenizer where it is known, else ``None``; :meth:`save_pretrained` writes it.

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
            # Not in the type that the configuration names, which may be narrower than the weights.
            backbone = AutoModel.from_config(config.backbone_config, dtype=torch.float32)
        self.backbone: Any = backbone
        self.head = nn.Linear(config.hidden_size, config.num_criteria, dtype=torch.float32)
        weights = torch.tensor([float(criterion.weight) for criterion in config.system.criteria], dtype=torch.float32)
        self.register_buffer("criterion_weights", weights, persistent=False)
        taken = inspect.signature(self.backbone.forward).parameters
        # Others would read a suffix as if nothing came before it.
        if "past_key_values" not in taken or config.backbone_config.model_type in _OTHER_CACHES:
            raise ValueError(
                f"a backbone of type {config.backbone_config.model_type} keeps what it has read otherwise than by "
                "past_key_values, so prompts could not share it; use another one"
            )
        # Families without rotary embeddings may take no positions and find them from the mask.
        self._takes_positions = "position_ids" in taken
        self.tokenizer: Any = None
        self.post_init()
        if config.lora is not None:
            self.backbone = add_adapter(self.backbone, config.lora)

    @property
    def scoring_system(self) -> ScoringSystem:
        """The scoring system by whose criteria the rewards are, in its order."""
        system: ScoringSystem = self.config.system
        return system

    def get_input_embeddings(self) -> nn.Module:
        """The backbone's token embeddings."""
        embeddings: nn.Module = self.backbone.get_input_embeddings()
        return embeddings

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
        """Rewards of prompts.

        Args:
            input_ids: ``(N, T)`` token ids, padded on either side.
            attention_mask: ``(N, T)``, 0 at padding; with ``past_key_values`` ``(N, P + T)``, the past first.
            position_ids: ``(N, T)``; default: counted from the mask.
            past_key_values: Keys and values of ``P`` tokens that were read before, in transformers' form; it is added
                to.
        """
        length = input_ids.shape[1]
        if position_ids is None:
            position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]
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
        """Rewards of prompts that begin alike: each prefix is run once, whatever the number of its suffixes.

        Equal to :meth:`forward` for the prompts in one piece, but for rounding; gradients flow through the prefixes.
        While gradient checkpointing is on, the prompts *are* run in one piece, for layers that are recomputed cannot
        keep what they read.

        Args:
            prefix_ids: ``(B, P)`` token ids, padded on the left.
            prefix_mask: ``(B, P)``, 0 at padding.
            suffix_ids: ``(N, T)`` token ids, padded on the right, at least one a row.
            suffix_mask: ``(N, T)``, 0 at padding.
            owner: ``(N,)``, int64: the prefix that each suffix goes on from.

        Returns:
            Rewards of the ``N`` prompts.

        Raises:
            ValueError: If prefixes are padded on the right.
        """
        if _recomputes(self.backbone):
            _check_padding(prefix_mask)
            ids = torch.cat([prefix_ids[owner], suffix_ids], dim=1)
            whole: ER2ScoreOutput = self(ids, torch.cat([prefix_mask[owner], suffix_mask], dim=1))
            return whole
        return self.continue_prefixes(self.read_prefixes(prefix_ids, prefix_mask), suffix_ids, suffix_mask, owner)

    def read_prefixes(self, prefix_ids: Tensor, prefix_mask: Tensor) -> ReadPrefixes:
        """The first half of :meth:`forward_shared`: run ``(B, P)`` prefixes, padded on the left."""
        _check_padding(prefix_mask)
        cache = DynamicCache(config=self.config.backbone_config)
        positions = {"position_ids": (prefix_mask.long().cumsum(1) - 1).clamp(min=0)} if self._takes_positions else {}
        self.backbone(
            input_ids=prefix_ids, attention_mask=prefix_mask, past_key_values=cache, use_cache=True, **positions
        )
        return ReadPrefixes(cache, prefix_mask)

    def continue_prefixes(
        self, prefixes: ReadPrefixes, suffix_ids: Tensor, suffix_mask: Tensor, owner: Tensor
    ) -> ER2ScoreOutput:
        """The second half of :meth:`forward_shared`; it may be repeated with other suffixes of the same prefixes."""
        cache = copy.copy(prefixes.cache)
        cache.layers = [_copied(layer) for layer in prefixes.cache.layers]
        cache.reorder_cache(owner)
        mask = torch.cat([prefixes.mask[owner], suffix_mask], dim=1)
        output: ER2ScoreOutput = self(suffix_ids, mask, past_key_values=cache)
        return output

    def _rewards(self, feature: Tensor) -> Tensor:
        """The head's outputs times the criteria's weights, in the head's type whatever autocast says."""
        kind = feature.device.type
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            rewards: Tensor = self.head(feature.to(self.head.weight.dtype)).float() * self.criterion_weights
        return rewards

    def merge_adapter(self) -> "ER2ScoreModel":
        """Add the adapter to the backbone's weights, in place: the scores stay as they were, but for rounding.

        What :meth:`save_pretrained` writes from then on needs no other folder.

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

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Write all that :meth:`from_pretrained` needs into a folder: safetensors and JSON.

        ``config.json`` with scoring system and prompt, ``head.safetensors``, the tokenizer where it is known, and the
        weights that were trained: ``adapter/`` as PEFT writes it, or ``backbone/``, which ``AutoModel`` reads.

        Args:
            save_directory: The folder, made if it is not there.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self.config.lora is None:
            self.backbone.save_pretrained(folder / BACKBONE)
        else:
            # PEFT would ask the Hub for the backbone's vocabulary, to see whether rows were added; none are here.
            self.backbone.save_pretrained(folder / ADAPTER, save_embedding_layers=False)
        head = {name: value.detach().cpu().contiguous() for name, value in self.head.state_dict().items()}
        require("safetensors.torch", extra="models").save_file(head, folder / HEAD, metadata={"format": "pt"})
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder)
        self.config.architectures = [type(self).__name__]
        # Last: a folder with a configuration is whole.
        self.config.save_pretrained(folder)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        backbone: str | Path | None = None,
        revision: str | None = None,
        dtype: torch.dtype = torch.float32,
        quantization: str | None = _AS_SAVED,
    ) -> "ER2ScoreModel":
        """Load what :meth:`save_pretrained` wrote. Nothing is unpickled, and no code of a repository is run.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            backbone: Folder or Hub id of the backbone under an adapter, where it has moved.
            revision: Revision of a Hub id.
            dtype: Type of the backbone's weights; the head is float32.
            quantization: ``"4bit"`` or ``None``; default: as the model was trained.

        Raises:
            FileNotFoundError: If there is no such folder, files are missing, or the backbone has moved.
            ModuleNotFoundError: If weights are to be quantised and bitsandbytes is not installed.
            ValueError: If the configuration is of no ER²Score model, the backbone is another one or not needed, or
                weights are torn, missing or misshapen, as where they are of another scoring system.

        Example:
            >>> ER2ScoreModel.from_pretrained("./nowhere")
            Traceback (most recent call last):
            ...
            FileNotFoundError: ./nowhere: no such folder
        """
        folder = locate_model(pretrained_model_name_or_path, revision)
        config = read_er2score_config(folder)
        if quantization != _AS_SAVED:
            config.quantization = quantization
        adapted = config.lora is not None
        if not adapted and backbone is not None:
            raise ValueError(f"{folder} holds its backbone and no adapter; leave backbone= out")
        source: str | Path = folder / BACKBONE
        pinned = None
        if adapted:
            source, pinned = backbone_source(folder, config.backbone, config.backbone_revision, backbone)
            config.backbone, config.backbone_revision = source, pinned
        loaded = load_backbone(source, config.backbone_config, pinned, dtype, config.quantization)
        model: ER2ScoreModel = cls(config, loaded)
        if adapted:
            load_adapter(model.backbone, folder / ADAPTER)
        load_head(model.head, folder, config.system)
        model.tokenizer = load_tokenizer(folder) or (load_tokenizer(source, pinned) if adapted else None)
        model.name_or_path = str(pretrained_model_name_or_path)
        return model.eval()  # type: ignore[no-any-return]

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
        """Start training from a plain language model, with a new head.

        Args:
            backbone: Folder or Hub id of a causal language model.
            scoring_system: Name, YAML file or :class:`rrg_rewards.schemas.ScoringSystem`.
            revision: Revision of a Hub id; default: the newest, which is noted.
            num_layers: Decoder layers to keep, the first ones; default: all.
            lora: Fields of PEFT's ``LoraConfig``, as ``{"r": 16}``: the backbone is frozen and an adapter trained.
                Default: all weights are trained.
            quantization: ``"4bit"`` to quantise the frozen backbone (QLoRA).
            prompt: Text of the template; default: the package's.
            max_length: Tokens of a prompt at most; what the backbone takes where that is less.
            dtype: Type of the backbone's weights; the head is float32.

        Raises:
            FileNotFoundError: If there is no such folder.
            ModuleNotFoundError: If weights are to be quantised and bitsandbytes is not installed.
            ValueError: If it is no decoder or lacks weights, or a setting is out of range.
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
        # The backbone was loaded as one that is used.
        return model.train()  # type: ignore[no-any-return]


def _copied(layer: Any) -> Any:
    """A layer of a cache that may be added to while the first one stays as it is."""
    copied = copy.copy(layer)
    # Layers replace their tensors and write in none; those of linear attention replace them in dicts of theirs.
    vars(copied).update({name: dict(value) for name, value in vars(layer).items() if isinstance(value, dict)})
    return copied


def _recomputes(module: nn.Module) -> bool:
    """Whether layers would be computed anew in the backward pass, by gradient checkpointing."""
    return any(part.training and getattr(part, "gradient_checkpointing", False) for part in module.modules())


def _check_padding(prefix_mask: Tensor) -> None:
    # A gap between a prefix and its suffix would fall into the window of sliding attention.
    if not bool(prefix_mask[:, -1].all()):
        raise ValueError("prefix_mask must be 0 on the left only: pad prefixes on the left and suffixes on the right")


# By which a tokenizer in a saved model's folder knows the configuration beside it.
AutoConfig.register(ER2ScoreConfig.model_type, ER2ScoreConfig)
