"""Prompts and volumes of CT-CHAT as inputs of vLLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np
import torch
from transformers import BatchFeature
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
