"""CT-CHAT as a model of vLLM, with its prompts and volumes as inputs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BatchFeature
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces import SupportsLoRA, SupportsMultiModal, SupportsPP
from vllm.model_executor.models.module_mapping import MultiModelKeys
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    WeightsMapper,
    init_vllm_registered_model,
    maybe_prefix,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import ModalityDataItems, MultiModalDataParser, ProcessorBatchItems
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
)
from vllm.renderers import TokenizeParams

from rrg_rewards.models.ct_chat.config import CTChatConfig
from rrg_rewards.models.ct_chat.processor import IMAGE_TOKEN, is_volume, read_volume, tokenize_prompts, volumes_of
from rrg_rewards.models.ct_chat.projector import CTChatProjector

# Tokens of a published volume. vLLM reserves memory for the projector with a volume of this size.
_PUBLISHED_TOKENS = 24**3
_TEXT = "ct_chat_text"


class _Volumes(ProcessorBatchItems[Any]):  # type: ignore[misc]
    """The volumes of a prompt as arrays, from which vLLM computes the keys of its caches.

    A key is therefore the hash of the features: files with different features have different keys, and so has a file
    that is written again.
    """

    def __init__(self, volumes: Sequence[Any]) -> None:
        super().__init__(volumes, "image")


class _VolumeParser(MultiModalDataParser):  # type: ignore[misc]
    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self._feature_size = feature_size

    def _parse_image_data(self, data: Any) -> ModalityDataItems[Any, Any] | None:
        if data is None:
            return None
        given = [data] if is_volume(data) else list(data)
        return _Volumes([array for item in given for array in self._read(item)])

    def _read(self, item: Any) -> list[Any]:
        # None stands for a volume in vLLM's cache, whose key the user gives.
        if item is None:
            return [None]
        # A copy: the file or the array may change after its hash was computed.
        return [np.array(read_volume(volume, self._feature_size)) for volume in volumes_of(item)]


@dataclass(frozen=True)
class CTChatTokenizeParams(TokenizeParams):  # type: ignore[misc]
    """Tokenises prompts as :class:`rrg_rewards.models.CTChatProcessor` does, part by part around ``<image>``.

    Args:
        num_image_tokens: Number of soft tokens of a volume; the other arguments are those of the base class.
    """

    num_image_tokens: int = 0

    def with_kwargs(self, **tokenization_kwargs: Any) -> "CTChatTokenizeParams":
        """Return the settings with changes."""
        changed = super().with_kwargs(**tokenization_kwargs)
        settings = {field.name: getattr(changed, field.name) for field in fields(TokenizeParams)}
        return CTChatTokenizeParams(**settings, num_image_tokens=self.num_image_tokens)

    def apply_pre_tokenization(self, tokenizer: Any, prompt: Any) -> Any:
        """Check the text of a prompt, and keep it."""
        prompt = super().apply_pre_tokenization(tokenizer, prompt)
        return {**prompt, _TEXT: prompt["prompt"]}

    def apply_post_tokenization(self, tokenizer: Any, prompt: Any) -> Any:
        """Replace the token ids of a text by those of its parts, and check their number."""
        text = prompt.pop(_TEXT, None)
        # Absent if the prompt came as token ids.
        if text is not None:
            [prompt["prompt_token_ids"]] = tokenize_prompts(
                tokenizer, [text], self.num_image_tokens, self.add_special_tokens
            )
        if "prompt_token_ids" in prompt and not prompt.get("multi_modal_data"):
            _check_counts(prompt["prompt_token_ids"].count(tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)), 0)
        return super().apply_post_tokenization(tokenizer, prompt)


class CTChatProcessingInfo(BaseProcessingInfo):  # type: ignore[misc]
    """What vLLM needs to know of CT-CHAT's inputs."""

    def get_hf_config(self) -> CTChatConfig:
        """The model's configuration."""
        config: CTChatConfig = self.ctx.get_hf_config(CTChatConfig)
        return config

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """No limit on the number of volumes of a prompt; ``limit_mm_per_prompt`` sets one."""
        return {"image": None}

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Number of soft tokens of a volume."""
        return {"image": self.get_hf_config().num_image_tokens}

    def get_data_parser(self) -> MultiModalDataParser:
        """Return the parser of volumes: paths or arrays."""
        return _VolumeParser(self.get_hf_config().feature_size)

    def get_default_tok_params(self) -> TokenizeParams:
        """Return the settings that tokenise a text prompt as ``CTChatProcessor`` does."""
        base = super().get_default_tok_params()
        settings = {field.name: getattr(base, field.name) for field in fields(TokenizeParams)}
        return CTChatTokenizeParams(**settings, num_image_tokens=self.get_hf_config().num_image_tokens)


class CTChatDummyInputs(BaseDummyInputsBuilder[CTChatProcessingInfo]):  # type: ignore[misc]
    """Volumes of the published size, with which vLLM measures its need of memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Return a prompt with ``mm_counts["image"]`` volumes."""
        return IMAGE_TOKEN * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Return ``mm_counts["image"]`` volumes of zeros."""
        volume = np.zeros((_PUBLISHED_TOKENS, self.info.get_hf_config().feature_size), np.float16)
        return {"image": [volume] * mm_counts.get("image", 0)}


class CTChatVLLMProcessor(BaseMultiModalProcessor[CTChatProcessingInfo]):  # type: ignore[misc]
    """Finds the soft tokens of the volumes in a prompt.

    In the token ids of a prompt, a volume is ``num_image_tokens`` image tokens, as ``CTChatProcessor`` writes them, or
    a single one.
    """

    def _call_hf_processor(self, hf_data: Mapping[str, Any], hf_kwargs: Mapping[str, Any]) -> BatchFeature:
        # Not CTChatProcessor: vLLM has tokenised the prompt before, and has read the volumes to compute their keys.
        return BatchFeature({"pixel_values": [torch.from_numpy(volume) for volume in hf_data["images"]]})

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, Any]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {"pixel_values": MultiModalFieldConfig.batched("image")}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any
    ) -> Sequence[PromptReplacement]:
        config = self.info.get_hf_config()
        soft_tokens = [config.image_token_id] * config.num_image_tokens
        return [PromptReplacement(modality="image", target=soft_tokens, replacement=soft_tokens)]

    def _apply_prompt_updates(self, token_ids: list[int], mm_prompt_updates: Mapping[str, Any]) -> Any:
        config = self.info.get_hf_config()
        volumes = len(mm_prompt_updates.get("image", ()))
        expanded = _expand(token_ids, config.image_token_id, config.num_image_tokens, volumes)
        return super()._apply_prompt_updates(expanded, mm_prompt_updates)


def _expand(token_ids: list[int], image_token_id: int, num_image_tokens: int, volumes: int) -> list[int]:
    """Return the ids with ``num_image_tokens`` image tokens for each volume."""
    found = token_ids.count(image_token_id)
    if found == volumes:
        return [token for id_ in token_ids for token in [id_] * (num_image_tokens if id_ == image_token_id else 1)]
    runs = [sum(1 for _ in run) for token, run in groupby(token_ids) if token == image_token_id]
    if any(run % num_image_tokens for run in runs):
        raise ValueError(
            f"the prompt has runs of {runs} image tokens; a volume is 1 or {num_image_tokens} of them. Was the prompt "
            "truncated?"
        )
    _check_counts(found // num_image_tokens, volumes)
    return token_ids


def _check_counts(images: int, volumes: int) -> None:
    if images != volumes:
        raise ValueError(
            f"the prompt has {images} image tokens, but {volumes} volumes are given; give a volume for each "
            f"{IMAGE_TOKEN} in multi_modal_data"
        )


@MULTIMODAL_REGISTRY.register_processor(CTChatVLLMProcessor, info=CTChatProcessingInfo, dummy_inputs=CTChatDummyInputs)
class CTChatForConditionalGeneration(nn.Module, SupportsLoRA, SupportsMultiModal, SupportsPP):  # type: ignore[misc]
    """The projector, which each process holds as a whole, and a language model of vLLM.

    Parameters have the names of :class:`rrg_rewards.models.CTChatForConditionalGeneration` in :meth:`load_weights`, so
    that trainers can replace weights by name.

    Args:
        vllm_config: vLLM's configuration.
        prefix: Prefix of the names of the modules.
    """

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={
            "model.language_model.": "language_model.model.",
            "model.mm_projector.": "mm_projector.",
            "lm_head.": "language_model.lm_head.",
        }
    )

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str:
        """Return ``<image>``, the text of a volume in a prompt."""
        return IMAGE_TOKEN

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        text_config = config.text_config
        self.config = config
        # The id of <image> is outside the embedding table.
        self.configure_mm_token_handling(vocab_size=text_config.vocab_size, mm_token_ids=[config.image_token_id])  # type: ignore[operator]
        with self._mark_tower_model(vllm_config, "image"):  # type: ignore[operator]
            self.mm_projector = CTChatProjector(config)
        with self._mark_language_model(vllm_config):  # type: ignore[operator]
            self.language_model = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=text_config,
                architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[text_config.model_type]],
                prefix=maybe_prefix(prefix, "language_model"),
            )
        self.make_empty_intermediate_tensors = self.language_model.make_empty_intermediate_tensors

    def get_mm_mapping(self) -> MultiModelKeys:
        """Return the prefixes of the language model, to which adapters apply, and of the projector."""
        return MultiModelKeys.from_string_field(language_model="language_model", connector="mm_projector")

    def embed_multimodal(self, pixel_values: Any = None, **kwargs: Any) -> Any:
        """Return the soft tokens ``(Q, hidden)`` of each volume.

        Args:
            pixel_values: ``(V, tokens, feature_size)``, or a list of volumes of different sizes.
            **kwargs: Inputs of other modalities; there are none.
        """
        if pixel_values is None:
            return []
        if isinstance(pixel_values, Tensor):
            return self.mm_projector(pixel_values)
        return [self.mm_projector(volume.unsqueeze(0)).squeeze(0) for volume in pixel_values]

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the hidden states of the language model, or the intermediate tensors for the next pipeline stage."""
        if intermediate_tensors is not None:
            inputs_embeds = None
        return self.language_model.model(input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Return the logits of hidden states."""
        logits: Tensor | None = self.language_model.compute_logits(hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load weights, all or some, by their names in a checkpoint of CT-CHAT.

        vLLM keeps soft tokens of volumes from before: a trainer that changes the projector must also empty the encoder
        cache, ``llm.llm_engine.reset_encoder_cache()``.
        """
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)
        return loaded
