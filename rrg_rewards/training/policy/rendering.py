"""Prompts as texts."""

from collections.abc import Sequence
from typing import Any

__all__ = ["render_prompts", "with_volume"]


def render_prompts(processor: Any, prompts: Sequence[Any]) -> tuple[list[str], bool]:
    """Return prompts as texts, and whether they were messages.

    A chat template renders messages. Its texts contain the special tokens, so the tokenizer must add none.

    Args:
        processor: Tokenizer or processor of the model.
        prompts: Texts, or lists of messages.
    """
    if isinstance(prompts[0], str):
        return list(prompts), False
    texts = [processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    return texts, True


def with_volume(prompt: Any) -> Any:
    """Return the messages with the volume at the start of the first user message, as in TRL.

    Raises:
        ValueError: If the prompt is a text.
    """
    if isinstance(prompt, str):
        raise ValueError("a prompt of CT-CHAT must be a list of messages, got a text")
    first = next(index for index, message in enumerate(prompt) if message["role"] == "user")
    message = prompt[first]
    parts = [{"type": "image"}, {"type": "text", "text": message["content"]}]
    return [*prompt[:first], {**message, "content": parts}, *prompt[first + 1 :]]
