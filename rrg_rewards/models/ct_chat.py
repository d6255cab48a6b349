r"""CT-CHAT as a Hugging Face model: volume features, pooled into soft tokens, in front of a causal language model.

A chest CT volume, encoded beforehand as :math:`T` tokens of CT-ViT (published: :math:`T = 24^3`, 512 channels), is
pooled by attention with :math:`Q` learned queries (published: 256) and mapped to the language model's width; the
:math:`Q` soft tokens stand in place of one ``<image>`` in the prompt.

Importing this module registers the classes with transformers' ``AutoConfig``, ``AutoModel``,
``AutoModelForCausalLM``, ``AutoModelForImageTextToText`` and ``AutoProcessor``.

Source: Hamamci et al., "Developing Generalist Foundation Models from a Multimodal Dataset for 3D Computed Tomography",
arXiv:2403.17834 (CT-RATE, CT-CHAT).
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rrg_rewards.utilities.imports import require

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationMixin,
    LogitsProcessorList,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast  # noqa: E402

from rrg_rewards.models.ct_chat_config import CTChatConfig  # noqa: E402
from rrg_rewards.models.ct_chat_processor import CTChatProcessor  # noqa: E402
from rrg_rewards.models.ct_chat_projector import CTChatProjector  # noqa: E402

__all__ = [
    "CTChatConfig",
    "CTChatForConditionalGeneration",
    "CTChatModel",
    "CTChatProjector",
]

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

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # After its parts, and as the published code leaves them: with a language model's small weights all queries
        # would attend to all tokens alike, and training would have to break that first.
        if isinstance(module, CTChatProjector):
            nn.init.normal_(module.attn_pool.query)
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.LayerNorm):
                    part.reset_parameters()


class CTChatModel(_CTChatPreTrainedModel):
    """Projector and language model without its head: volume features and token ids to hidden states.

    Args:
        config: The model's configuration.
    """

    def __init__(self, config: CTChatConfig) -> None:
        super().__init__(config)
        self.mm_projector = CTChatProjector(config)
        self.language_model = AutoModel.from_config(config.text_config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The language model's token embeddings."""
        return self.language_model.get_input_embeddings()  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the language model's token embeddings."""
        self.language_model.set_input_embeddings(value)

    def get_image_features(self, pixel_values: Tensor) -> Tensor:
        """Soft tokens ``(V, Q, hidden)`` of volume features ``(V, T, C)`` in any floating dtype."""
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
        """Hidden states of ``input_ids`` ``(N, T)``; see :meth:`CTChatForConditionalGeneration.forward`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            inputs_embeds = self._embed(input_ids, pixel_values)
        elif pixel_values is not None:
            raise ValueError("pixel_values goes with input_ids: inputs_embeds has no place marked for soft tokens")
        outputs = self.language_model(
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        return BaseModelOutputWithPast(
            last_hidden_state=outputs[0],
            past_key_values=outputs.get("past_key_values"),
            hidden_states=outputs.get("hidden_states"),
            attentions=outputs.get("attentions"),
        )

    def _embed(self, input_ids: Tensor, pixel_values: Tensor | None) -> Tensor:
        is_image = input_ids == self.config.image_token_id
        embeddings: Tensor = self.get_input_embeddings()(input_ids.masked_fill(is_image, 0))
        if pixel_values is not None and len(pixel_values):
            soft_tokens = self.get_image_features(pixel_values).to(embeddings.dtype)
            self._check_counts(int(is_image.sum()), soft_tokens.shape[0] * soft_tokens.shape[1])
            return embeddings.masked_scatter(is_image.unsqueeze(-1), soft_tokens)
        # Single tokens are generation's: a look at each would make the device wait.
        if input_ids.shape[1] == 1:
            return embeddings
        self._check_counts(int(is_image.sum()), 0)
        # Under ZeRO-3 all processes must run the same modules, and one may have no volume in its batch.
        blank = embeddings.new_zeros(1, 1, self.config.feature_size)
        return embeddings + 0 * self.get_image_features(blank).to(embeddings.dtype).sum()

    @staticmethod
    def _check_counts(num_tokens: int, num_features: int) -> None:
        if num_tokens != num_features:
            # In transformers' words: TRL looks for them, to say that a prompt was cut off.
            raise ValueError(
                f"Image features and image tokens do not match, tokens: {num_tokens}, features: {num_features}"
            )


class _WithoutImageTokens(LogitsProcessorList):  # type: ignore[misc]
    """Logits processors that see no image token: they look input ids up in a table of the vocabulary's size."""

    def __init__(self, processors: LogitsProcessorList, image_token_id: int, in_place_of_image: int) -> None:
        super().__init__(processors)
        self.image_token_id = image_token_id
        self.in_place_of_image = in_place_of_image

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        text_ids = input_ids.masked_fill(input_ids == self.image_token_id, self.in_place_of_image)
        return super().__call__(text_ids, scores, **kwargs)  # type: ignore[no-any-return]


class CTChatForConditionalGeneration(_CTChatPreTrainedModel, GenerationMixin):  # type: ignore[misc]
    r"""CT-CHAT: reports and answers from a chest CT's features and a prompt.

    ``model.mm_projector`` is :class:`CTChatProjector`, ``model.language_model`` the language model, ``lm_head`` its
    head. Saved and loaded as any transformers model; trained by TRL and with PEFT (``modules_to_save:
    [mm_projector]`` trains the projector beside LoRA), gradient checkpointing, SDPA or flash attention.

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

    def get_input_embeddings(self) -> nn.Module:
        """The language model's token embeddings."""
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the language model's token embeddings."""
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        """The language model's head."""
        return self.lm_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        """Replace the language model's head."""
        self.lm_head = value

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
        """Logits, and with labels the language-modelling loss.

        Args:
            input_ids: ``(N, T)`` token ids; ``config.num_image_tokens`` times ``config.image_token_id`` in place of
                each volume.
            attention_mask: ``(N, T)``, 0 at padding, which may stand on either side.
            position_ids: ``(N, T)``; default: counted from the mask's first 1 in generation, else from the left.
            past_key_values: Cache of earlier tokens.
            inputs_embeds: ``(N, T, hidden)`` in place of ``input_ids``, without volumes.
            pixel_values: ``(V, tokens, feature_size)`` features of the batch's ``V`` volumes, in the order of their
                places in ``input_ids``; rows without a volume have none.
            labels: ``(N, T)`` token ids to predict, -100 where there is nothing to predict; soft tokens never are.
            logits_to_keep: Compute the last so many logits only; 0 for all.
            **kwargs: Arguments of the language model.

        Raises:
            ValueError: If the volumes do not fill the places marked for them.
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
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, pixel_values: Tensor | None = None, is_first_iteration: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Inputs of one step of generation: the volumes go in once, after that the cache holds them."""
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
        """Load the published layout, in which CT-CHAT's own code saves.

        Three layouts are told apart by the files: a LoRA adapter (``adapter_model.safetensors`` or ``.bin``) with
        ``non_lora_trainables.bin``, merged into the base model; ``mm_projector.bin`` alone, put in front of it; and a
        full checkpoint (``model*.safetensors`` or ``pytorch_model*.bin``), which needs no base model. The five tokens
        of :data:`rrg_rewards.models.ct_chat_processor.ADDED_TOKENS` are appended to the base's vocabulary, in order;
        where the checkpoint stores no embeddings for them they get the mean of the base's, as LLaVA's own code gives.

        Weights load without executing pickled code. :meth:`CTChatProcessor.from_llava_checkpoint` makes the
        processor that goes with the model.

        Args:
            checkpoint: Folder that CT-CHAT's training wrote.
            base_model: Folder or Hub id of the language model that it was trained from.
            pooler_heads: Heads of the attentional pooling, which no weight tells; 8 as published.
            dtype: Floating type of the weights, or ``"auto"`` for that of the base model.
            revision: Revision of a base model on the Hub.

        Raises:
            FileNotFoundError: If the folder, or the file that a layout needs, does not exist.
            ValueError: If a key is missing, unexpected or misshapen, naming the keys; if a base model is needed and
                not given.
        """
        from rrg_rewards.models.ct_chat_llava import load_llava_checkpoint

        model: CTChatForConditionalGeneration = load_llava_checkpoint(
            cls, checkpoint, base_model, pooler_heads, dtype, revision
        )
        return model


AutoConfig.register(CTChatConfig.model_type, CTChatConfig)
AutoModel.register(CTChatConfig, CTChatModel)
AutoModelForCausalLM.register(CTChatConfig, CTChatForConditionalGeneration)
AutoModelForImageTextToText.register(CTChatConfig, CTChatForConditionalGeneration)
AutoProcessor.register(CTChatConfig, CTChatProcessor)
