r"""CT-CHAT as a Hugging Face model: a causal language model that reads volume features as soft tokens.

The input is a chest CT volume, encoded by CT-ViT as :math:`T` tokens (published: :math:`T = 24^3`, 512 channels).
Attention with :math:`Q` learned queries (published: 256) pools the tokens into :math:`Q` soft tokens of the language
model's width, which replace one ``<image>`` in the prompt.

Importing this module registers the classes with transformers' ``AutoConfig``, ``AutoModel``,
``AutoModelForCausalLM``, ``AutoModelForImageTextToText`` and ``AutoProcessor``.

Source: Hamamci et al., "Developing Generalist Foundation Models from a Multimodal Dataset for 3D Computed Tomography",
arXiv:2403.17834 (CT-RATE, CT-CHAT).
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights  # noqa: E402
from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402

from rrg_rewards.models.ct_chat.config import CTChatConfig  # noqa: E402
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS, CTChatProcessor, appended_tokens  # noqa: E402
from rrg_rewards.models.ct_chat.projector import CTChatProjector  # noqa: E402
from rrg_rewards.models.loading import load_tokenizer  # noqa: E402
from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict, read_state_dicts  # noqa: E402
from rrg_rewards.utilities.checks import check_model_source  # noqa: E402

__all__ = [
    "CTChatConfig",
    "CTChatForConditionalGeneration",
    "CTChatModel",
    "CTChatProcessor",
    "CTChatProjector",
]

logger = logging.getLogger(__name__)

# Checkpoints of CT-CHAT's published code, a fork of LLaVA.
_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_PROJECTOR = ("non_lora_trainables.bin", "mm_projector.bin")
_FULL = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
# Prefixes that the wrappers of training add to the names of weights.
_WRAPPERS = re.compile(r"^(?:base_model\.|model\.)*")
# Keys that LLaVA adds to the configuration of a language model.
_NOT_OF_THE_LANGUAGE_MODEL = re.compile(
    r"(model_type|architectures|auto_map|transformers_version|(un)?freeze_mm_.*|(tune_|use_)?mm_.*|image_.*|tokenizer_.*)$"
)
_EMBEDDINGS, _HEAD = "embed_tokens.weight", "lm_head.weight"
_LLAMA3_HEADER = "<|start_header_id|>"

_IGNORED_LABEL = -100


class _CTChatPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    config_class = CTChatConfig
    base_model_prefix = "model"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = ("past_key_values",)
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # One token after the prompt has no soft tokens, and its computation does not depend on values.
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # PyTorch's initialisation, as in the published code. With the small weights of a language model, all queries
        # attend to all tokens equally, and training has to break this symmetry first.
        if isinstance(module, CTChatProjector):
            nn.init.normal_(module.attn_pool.query)
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.LayerNorm):
                    part.reset_parameters()


class CTChatModel(_CTChatPreTrainedModel):
    """The projector and the language model without its head: hidden states of volume features and token ids.

    Args:
        config: The model's configuration.
    """

    def __init__(self, config: CTChatConfig) -> None:
        super().__init__(config)
        self.mm_projector = CTChatProjector(config)
        self.language_model = AutoModel.from_config(config.text_config, trust_remote_code=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The language model's token embeddings."""
        return self.language_model.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the language model's token embeddings."""
        self.language_model.set_input_embeddings(value)

    def get_image_features(self, pixel_values: Tensor) -> Tensor:
        """Return the soft tokens ``(V, Q, hidden)`` of volume features ``(V, T, C)`` in any floating dtype."""
        return self.mm_projector(pixel_values)  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the language model's output for ``input_ids`` ``(N, T)``.

        See :meth:`CTChatForConditionalGeneration.forward` for the arguments.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            inputs_embeds = self._embed(input_ids, pixel_values)
        elif pixel_values is not None:
            raise ValueError("pixel_values needs input_ids, because inputs_embeds marks no positions of soft tokens")
        return self.language_model(
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )

    def _embed(self, input_ids: Tensor, pixel_values: Tensor | None) -> Tensor:
        is_image = input_ids == self.config.image_token_id
        embeddings: Tensor = self.get_input_embeddings()(input_ids.masked_fill(is_image, 0))
        if pixel_values is not None and len(pixel_values):
            soft_tokens = self.get_image_features(pixel_values).to(embeddings.dtype)
            self._check_counts(int(is_image.sum()), soft_tokens.shape[0] * soft_tokens.shape[1])
            return embeddings.masked_scatter(is_image.unsqueeze(-1), soft_tokens)
        # Generation passes rows of one token. Counting their image tokens would synchronise the device.
        if input_ids.shape[1] == 1:
            return embeddings
        self._check_counts(int(is_image.sum()), 0)
        # Under ZeRO-3, all processes must run the same modules, even for a batch without volumes.
        blank = embeddings.new_zeros(1, 1, self.config.feature_size)
        return embeddings + 0 * self.get_image_features(blank).to(embeddings.dtype).sum()

    @staticmethod
    def _check_counts(num_tokens: int, num_features: int) -> None:
        if num_tokens != num_features:
            # This is the message of transformers. TRL recognises it and reports that a prompt was truncated.
            raise ValueError(
                f"Image features and image tokens do not match, tokens: {num_tokens}, features: {num_features}"
            )


class _WithoutImageTokens(LogitsProcessorList):  # type: ignore[misc]
    """Logits processors that do not receive image tokens, because their id is outside the vocabulary."""

    def __init__(self, processors: LogitsProcessorList, image_token_id: int, in_place_of_image: int) -> None:
        super().__init__(processors)
        self.image_token_id = image_token_id
        self.in_place_of_image = in_place_of_image

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        if not self:
            return scores
        text_ids = input_ids.masked_fill(input_ids == self.image_token_id, self.in_place_of_image)
        return super().__call__(text_ids, scores, **kwargs)  # type: ignore[no-any-return]


class CTChatForConditionalGeneration(_CTChatPreTrainedModel, GenerationMixin):  # type: ignore[misc]
    r"""CT-CHAT: generates reports and answers from the features of a chest CT and a prompt.

    ``model.mm_projector`` is a :class:`CTChatProjector`, ``model.language_model`` the language model, and ``lm_head``
    its head. The model is saved and loaded like any transformers model, and supports TRL, PEFT, gradient checkpointing,
    SDPA and flash attention. With PEFT, ``modules_to_save: [mm_projector]`` trains the projector in addition to LoRA.

    Args:
        config: The model's configuration.

    Example:
        >>> import torch
        >>> text = {
        ...     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
        ...     "num_hidden_layers": 1, "num_attention_heads": 2,
        ... }
        >>> config = CTChatConfig(text, num_image_tokens=2, feature_size=16, pooler_heads=2)
        >>> model = CTChatForConditionalGeneration(config).eval()
        >>> input_ids = torch.tensor([[1, config.image_token_id, config.image_token_id, 5]])
        >>> model(input_ids=input_ids, pixel_values=torch.randn(1, 27, 16)).logits.shape
        torch.Size([1, 4, 32])
    """

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.language_model.embed_tokens.weight"}

    def __init__(self, config: CTChatConfig) -> None:
        super().__init__(config)
        self.model = CTChatModel(config)
        self.lm_head: nn.Module = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Compute the logits and, with labels, the language modelling loss.

        Args:
            input_ids: ``(N, T)`` token ids, with ``config.num_image_tokens`` times ``config.image_token_id`` for each
                volume.
            attention_mask: ``(N, T)``, 0 at padding on either side.
            position_ids: ``(N, T)``; default: counted from the first 1 of the mask in generation, else from the left.
            past_key_values: Cache of earlier tokens.
            inputs_embeds: ``(N, T, hidden)``, an alternative to ``input_ids`` without volumes.
            pixel_values: ``(V, tokens, feature_size)`` features of the ``V`` volumes of the batch, in the order of
                their image tokens in ``input_ids``.
            labels: ``(N, T)`` token ids to predict, -100 to ignore a token; soft tokens are ignored.
            logits_to_keep: Number of last logits to compute; 0 for all.
            **kwargs: Arguments of the language model.

        Raises:
            ValueError: If the numbers of soft tokens and image tokens differ.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            pixel_values=pixel_values,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])
        loss = None
        if labels is not None:
            labels = labels.masked_fill(labels == self.config.image_token_id, _IGNORED_LABEL)
            loss = self.loss_function(logits, labels, vocab_size=self.config.text_config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.get("past_key_values"),
            hidden_states=outputs.get("hidden_states"),
            attentions=outputs.get("attentions"),
        )

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, pixel_values: Tensor | None = None, is_first_iteration: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the inputs of one generation step; later steps read the volumes from the cache."""
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(
            input_ids, is_first_iteration=is_first_iteration, **kwargs
        )
        if is_first_iteration or not kwargs.get("use_cache", True):
            inputs["pixel_values"] = pixel_values
        return inputs

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> Any:
        processors = super()._get_logits_processor(*args, **kwargs)
        pad_token_id = self.config.text_config.pad_token_id
        return _WithoutImageTokens(processors, self.config.image_token_id, 0 if pad_token_id is None else pad_token_id)

    @classmethod
    def from_llava_checkpoint(
        cls,
        checkpoint: str | Path,
        base_model: str | Path | None = None,
        *,
        pooler_heads: int = 8,
        dtype: str | torch.dtype = "auto",
        revision: str | None = None,
    ) -> "CTChatForConditionalGeneration":
        """Load a checkpoint of CT-CHAT's published code.

        The names of the files tell which of three layouts a checkpoint has:

        - ``adapter_model.safetensors`` or ``.bin``, with ``non_lora_trainables.bin``: a LoRA adapter, which is merged
          into the base model;
        - only ``mm_projector.bin``: a projector, which is combined with the base model;
        - ``model*.safetensors`` or ``pytorch_model*.bin``: a full checkpoint, which needs no base model.

        The tokens of :data:`rrg_rewards.models.ct_chat.processor.ADDED_TOKENS` are appended to the vocabulary of the
        base model, in this order. ``<pad>`` is left out if the tokenizer of the base model has a padding token.

        The tokens get the mean of the base model's embeddings if the checkpoint stores no others, so that they add no
        noise to a prompt. The embeddings of the four task tokens are random numbers in the published training, and an
        adapter does not contain them. They cannot be recovered.

        Weights load without executing pickled code. :meth:`CTChatProcessor.from_base_model` makes the processor of the
        model.

        Args:
            checkpoint: Folder that CT-CHAT's training wrote.
            base_model: Folder or Hub id of the language model that the checkpoint was trained from.
            pooler_heads: Number of heads of the attentional pooling; the weights do not determine it. Published: 8.
            dtype: Floating type of the weights, or ``"auto"`` for that of the base model.
            revision: Revision of a base model on the Hub.

        Raises:
            FileNotFoundError: If the folder, or a file that the layout requires, does not exist.
            ValueError: If a key is missing, unexpected or misshapen, naming the keys; if a required base model is not
                given.
        """
        folder = Path(checkpoint)
        if not folder.is_dir():
            raise FileNotFoundError(f"{checkpoint}: no such folder")
        if _kind_of(folder) == "ct_chat":
            raise ValueError(f"{folder} is converted already")
        if base_model is not None:
            check_model_source(base_model, "base_model")
            if _kind_of(Path(base_model)) == "ct_chat":
                raise ValueError(f"{base_model} is a CT-CHAT model; pass the language model that it was trained from")
        adapter, projector, full = (_only_file(folder, names) for names in (_ADAPTER, _PROJECTOR, _FULL))
        if adapter is None and projector is None and full is None:
            known = ", ".join(_ADAPTER + _PROJECTOR + _FULL)
            raise FileNotFoundError(f"{folder} contains no weights; expected one of {known}")
        partial = adapter or projector
        if full is not None and partial is not None:
            raise ValueError(f"{folder} contains {full.name} and {partial.name}; move the unneeded file elsewhere")
        if isinstance(dtype, str) and dtype != "auto":
            dtype = getattr(torch, dtype)
        source = folder if full is not None and base_model is None else base_model
        tokenizer = None if source is None else load_tokenizer(source, revision)
        if full is not None:
            weights = _unwrapped(read_state_dicts(full), full)
            base = _empty_base(folder, base_model, weights, dtype, revision)
            _fill(base, weights, full)
        else:
            if base_model is None:
                raise ValueError(
                    f"{folder} contains no whole language model; pass base_model, which it was trained from"
                )
            base = AutoModelForCausalLM.from_pretrained(
                base_model, dtype=dtype, revision=revision, trust_remote_code=False
            )
            _append_tokens(base, ADDED_TOKENS if tokenizer is None else appended_tokens(tokenizer))
            weights = _trained_weights(base, folder, adapter, projector)
            _overwrite(base, weights, projector or folder)
        projected = {key: tensor for key, tensor in weights.items() if key.startswith("mm_projector.")}
        config = _config_of(base, projected, pooler_heads, projector or full or folder)
        config.tokenizer_model_max_length = _saved_config(folder).get("tokenizer_model_max_length")
        config.uses_system_prompt = tokenizer is not None and _LLAMA3_HEADER in tokenizer.get_vocab()
        source = projector or full or folder
        return _assemble(cls, config, base, projected, source)  # type: ignore[no-any-return]


def _trained_weights(base: Any, folder: Path, adapter: Path | None, projector: Path | None) -> dict[str, Tensor]:
    """Merge an adapter into the base model, and return the other weights of the checkpoint by name."""
    weights = {} if projector is None else _unwrapped(read_state_dict(projector), projector)
    if adapter is None:
        return weights
    others = _merge_adapter(base, folder, adapter)
    if twice := sorted(others.keys() & weights.keys()):
        raise ValueError(f"{folder}: both {adapter.name} and {projector} contain {', '.join(twice)}")
    return weights | others


def _saved_config(folder: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a folder; empty if there is none."""
    path = folder / "config.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _kind_of(folder: Path) -> Any:
    return _saved_config(folder).get("model_type")


def _only_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} contains {found[1].name} and {found[0].name}; move the unneeded file elsewhere")
    return found[0] if found else None


def _unwrapped(state: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Return weights by their names without the prefixes of wrappers."""
    weights: dict[str, Tensor] = {}
    for key, tensor in state.items():
        name = _WRAPPERS.sub("", key)
        if name in weights:
            raise ValueError(f"{source}: contains {name} more than once, the second time as {key}")
        weights[name] = tensor
    return weights


def _language_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights outside the projector, named as in a causal language model."""
    return {
        key if key == _HEAD else f"model.{key}": tensor
        for key, tensor in weights.items()
        if not key.startswith("mm_projector.")
    }


def _append_tokens(base: Any, tokens: Sequence[str]) -> None:
    """Append a row for each token: the mean of the existing rows."""
    rows = base.config.vocab_size
    base.resize_token_embeddings(rows + len(tokens), mean_resizing=False)
    tables = [base.get_input_embeddings().weight]
    if base.get_output_embeddings().weight is not tables[0]:
        tables.append(base.get_output_embeddings().weight)
    with torch.no_grad():
        for table in tables:
            table[rows:] = table[:rows].float().mean(0).to(table.dtype)


def _overwrite(base: Any, weights: Mapping[str, Tensor], source: Path) -> None:
    """Replace weights of the base model by those of the checkpoint outside the projector, if any."""
    language = _language_weights(weights)
    if not {f"model.{_EMBEDDINGS}", _HEAD} & language.keys():
        logger.info("%s stores no embeddings of the task tokens", source)
    expected = base.state_dict()
    check_state_dict(language, {key: expected[key] for key in language if key in expected}, source)
    base.load_state_dict(language, strict=False)


def _merge_adapter(base: Any, folder: Path, file: Path) -> dict[str, Tensor]:
    """Merge a LoRA adapter into the base model and return the other weights of its file, by name."""
    peft = require("peft", extra="models")
    state = read_state_dict(file)
    rest = {key: tensor for key, tensor in state.items() if ".lora_" not in key}
    lora = {key: tensor for key, tensor in state.items() if key not in rest}
    config = peft.PeftConfig.from_pretrained(str(folder))
    # The adapter records the path that the base model had during training.
    config.base_model_name_or_path = base.config._name_or_path
    adapted = peft.get_peft_model(base, config)
    expected = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    check_state_dict(lora, {key: tensor for key, tensor in expected.items() if ".lora_" in key}, file)
    peft.set_peft_model_state_dict(adapted, lora)
    adapted.merge_and_unload(safe_merge=True)
    return _unwrapped(rest, file)


def _empty_base(
    folder: Path, base_model: str | Path | None, weights: Mapping[str, Tensor], dtype: str | torch.dtype, revision: Any
) -> Any:
    """Return a language model with the architecture of the checkpoint and uninitialised weights."""
    config = _text_config(folder) or (
        base_model and AutoConfig.from_pretrained(base_model, revision=revision, trust_remote_code=False)
    )
    if not config:
        raise FileNotFoundError(f"{folder} contains no config.json; copy it there, or pass base_model")
    if _EMBEDDINGS in weights:
        config.vocab_size = len(weights[_EMBEDDINGS])
    own = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
    with no_init_weights():
        base = AutoModelForCausalLM.from_config(
            config, dtype=own if dtype == "auto" else dtype, trust_remote_code=False
        )
    if (folder / "generation_config.json").is_file():
        # The generation configuration defines the tokens that end an answer.
        base.generation_config = GenerationConfig.from_pretrained(folder)
    return base


def _text_config(folder: Path) -> Any:
    """Return the configuration of the language model in ``config.json``, whose model type may be LLaVA's."""
    content = _saved_config(folder)
    if not content:
        return None
    model_type = content.get("model_type", "llama").removeprefix("llava_")
    model_type = "llama" if model_type == "llava" else model_type
    return AutoConfig.for_model(
        model_type, **{key: value for key, value in content.items() if not _NOT_OF_THE_LANGUAGE_MODEL.match(key)}
    )


def _fill(base: Any, weights: Mapping[str, Tensor], source: Path) -> None:
    language = _language_weights(weights)
    expected = base.state_dict()
    if base.config.tie_word_embeddings and _HEAD not in language:
        expected.pop(_HEAD)
    check_state_dict(language, expected, source)
    # Assign the memory-mapped tensors, so that an 8B model is in memory only once.
    base.load_state_dict({key: value.to(base.dtype) for key, value in language.items()}, strict=False, assign=True)
    base.tie_weights()


def _assemble(model_class: Any, config: CTChatConfig, base: Any, weights: dict[str, Tensor], source: Path) -> Any:
    projector: nn.Module = CTChatProjector(config).to(base.dtype)
    check_state_dict(weights, {f"mm_projector.{key}": tensor for key, tensor in projector.state_dict().items()}, source)
    projector.load_state_dict({key.removeprefix("mm_projector."): tensor for key, tensor in weights.items()})
    # Build the model on the meta device and insert the base model's modules, so that an 8B model is in memory only
    # once.
    with torch.device("meta"), no_init_weights():
        model = model_class(config)
    model.model.mm_projector = projector
    model.model.language_model = base.base_model
    model.lm_head = base.get_output_embeddings()
    model.generation_config = base.generation_config
    return model.eval()


def _config_of(base: Any, weights: Mapping[str, Tensor], pooler_heads: int, source: Path) -> CTChatConfig:
    sizing = {"mm_projector.attn_pool.query": 2, "mm_projector.attn_pool.ln_k.weight": 1}
    for key, axes in sizing.items():
        if key not in weights:
            raise ValueError(f"{source} does not fit the model (missing: {key})")
        if weights[key].ndim != axes:
            raise ValueError(f"{source} does not fit the model (misshapen: {key}, must have {axes} axes)")
    query, norm = (weights[key] for key in sizing)
    return CTChatConfig(
        text_config=base.config,
        num_image_tokens=len(query),
        feature_size=len(norm),
        pooler_size=query.shape[1],
        pooler_heads=pooler_heads,
        dtype=base.dtype,
    )


AutoConfig.register(CTChatConfig.model_type, CTChatConfig)
AutoModel.register(CTChatConfig, CTChatModel)
AutoModelForCausalLM.register(CTChatConfig, CTChatForConditionalGeneration)
AutoModelForImageTextToText.register(CTChatConfig, CTChatForConditionalGeneration)
AutoProcessor.register(CTChatConfig, CTChatProcessor)
