"""CT-CHAT as a model of vLLM."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
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

from rrg_rewards.integrations.vllm.processing import CTChatDummyInputs, CTChatProcessingInfo, CTChatVLLMProcessor
from rrg_rewards.models.ct_chat.processor import IMAGE_TOKEN
from rrg_rewards.models.ct_chat.projector import CTChatProjector


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
