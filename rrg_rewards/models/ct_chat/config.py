"""The configuration of CT-CHAT."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoConfig, PretrainedConfig  # noqa: E402


class CTChatConfig(PretrainedConfig):  # type: ignore[misc]
    """Configuration of :class:`CTChatForConditionalGeneration`.

    Args:
        text_config: Configuration of the causal language model (Llama, Mistral, Vicuna or any other model of
            ``AutoModelForCausalLM``), or its dict.
        image_token_id: Id that marks the position of a soft token in ``input_ids``. Default: ``vocab_size``, which is
            outside the embedding table: the published checkpoint has no row for it, and a policy cannot sample it.
        num_image_tokens: Number of learned queries, and of soft tokens of a volume.
        feature_size: Channels of the volume features.
        pooler_size: Width of the attentional pooling; default: ``feature_size``.
        pooler_heads: Number of heads of the attentional pooling; must divide ``pooler_size``.
        tokenizer_model_max_length: Maximum number of tokens of a prompt in the published training, if it is known.
        uses_system_prompt: Whether every conversation of the training had a system prompt, as in the published
            Llama 3 model. Recipes warn if such a model runs without one.

    Raises:
        ValueError: If a size is not positive, or the number of heads does not divide the width of the pooling.

    Example:
        >>> config = CTChatConfig(text_config={"model_type": "llama", "vocab_size": 128261})
        >>> config.image_token_id, config.num_image_tokens, config.feature_size
        (128261, 256, 512)
    """

    model_type = "ct_chat"
    sub_configs: ClassVar[dict[str, Any]] = {"text_config": AutoConfig}
    # Trainers read this attribute of configurations that are not part of transformers.
    auto_map: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        text_config: PretrainedConfig | Mapping[str, Any] | None = None,
        image_token_id: int | None = None,
        num_image_tokens: int = 256,
        feature_size: int = 512,
        pooler_size: int | None = None,
        pooler_heads: int = 8,
        tokenizer_model_max_length: int | None = None,
        uses_system_prompt: bool = False,
        **kwargs: Any,
    ) -> None:
        self.text_config: Any = (
            AutoConfig.for_model(**{"model_type": "llama", **(text_config or {})})
            if text_config is None or isinstance(text_config, Mapping)
            else text_config
        )
        self.image_token_id = self.text_config.vocab_size if image_token_id is None else image_token_id
        self.num_image_tokens = num_image_tokens
        self.feature_size = feature_size
        self.pooler_size = feature_size if pooler_size is None else pooler_size
        self.pooler_heads = pooler_heads
        self.tokenizer_model_max_length = tokenizer_model_max_length
        self.uses_system_prompt = uses_system_prompt
        for name in ("num_image_tokens", "feature_size", "pooler_size", "pooler_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.pooler_size % pooler_heads:
            raise ValueError(f"pooler_heads ({pooler_heads}) must divide pooler_size ({self.pooler_size})")
        kwargs.setdefault("tie_word_embeddings", self.text_config.tie_word_embeddings)
        super().__init__(**kwargs)
