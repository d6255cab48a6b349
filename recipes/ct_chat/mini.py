"""A CT-CHAT with fewer than 600,000 parameters, for phantom volumes and reports in the compact style."""

from typing import Any

from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration, CTChatProcessor
from rrg_rewards.recipes.phantom.policy import compact_config, compact_tokenizer

__all__ = ["mini_ct_chat", "mini_processor"]


def mini_processor(num_image_tokens: int = 16, feature_size: int = 32) -> Any:
    r"""Make a processor with a word-level tokenizer, CT-CHAT's added tokens and Llama 3's headers.

    Args:
        num_image_tokens: Number of soft tokens per volume.
        feature_size: Number of channels of the volume features.

    Example:
        >>> processor = mini_processor()
        >>> processor.apply_chat_template([{"role": "user", "content": "<image>\nReport. <report_generation>"}])
        '<|start_header_id|>user<|end_header_id|>\n\n<image>\nReport. <report_generation><|eot_id|>'
    """
    tokenizer = compact_tokenizer()
    tokenizer.add_tokens(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], special_tokens=True)
    tokenizer.add_tokens(["user", "assistant", "system", "Report"])
    tokenizer.eos_token = "<|eot_id|>"
    return CTChatProcessor.from_tokenizer(tokenizer, "llama3", num_image_tokens, feature_size)


def mini_ct_chat(processor: Any, head_size: int = 24) -> Any:
    """Make a CT-CHAT with random weights for a processor.

    Args:
        processor: A processor made by :func:`mini_processor`.
        head_size: Width of an attention head of the language model. vLLM on CPU supports 32, but not 24.

    Example:
        >>> model = mini_ct_chat(mini_processor())
        >>> model.num_parameters() < 600_000
        True
    """
    text_config = compact_config(processor.tokenizer, vocab_size=processor.image_token_id)
    text_config.head_dim = head_size
    # Three times the default: with such narrow layers, the warm start needs half as many steps.
    text_config.initializer_range = 0.06
    config = CTChatConfig(
        text_config=text_config,
        num_image_tokens=processor.num_image_tokens,
        feature_size=processor.feature_size,
        pooler_size=text_config.hidden_size,
        pooler_heads=4,
    )
    return CTChatForConditionalGeneration(config)
