"""Completions as trainers pass them: texts or conversations."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["Completion", "completion_text", "completion_texts"]

Completion = str | Sequence[Mapping[str, Any]]


def completion_text(completion: Completion) -> str | None:
    """Return the report text of a plain or conversational completion.

    Args:
        completion: A text, or a list of messages ``{"role": ..., "content": ...}``. The content of a message is a text
            or a list of parts ``{"type": "text", "text": ...}``.

    Returns:
        The text, or the text of the last assistant message; ``None`` if there is no assistant message.

    Raises:
        TypeError: If the completion is neither a text nor a list of messages.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "No effusion."}]}])
        'No effusion.'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(message, Mapping) for message in completion):
        raise TypeError(f"a completion must be a text or a list of messages, got {type(completion).__name__}")
    messages = cast(Sequence[Mapping[str, Any]], completion)
    replies = [message for message in messages if message.get("role") == "assistant"]
    if not replies:
        return None
    content = replies[-1].get("content") or ""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, Mapping) else {} for part in content]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if not all(parts) or not all(isinstance(text, str) for text in texts):
        # Types only, because the parts may contain report text.
        kinds = ", ".join(type(part.get("text") if isinstance(part, Mapping) else part).__name__ for part in content)
        raise TypeError(
            "content of a message must be a text or a list of parts such as {'type': 'text', 'text': ...}, got "
            f"{type(content).__name__} with {kinds}"
        )
    return "".join(map(str, texts))


def completion_texts(completions: Sequence[Completion]) -> list[str | None]:
    """Return the report texts of a batch of completions; see :func:`completion_text`.

    Raises:
        TypeError: If ``completions`` is one string, or an element is not a completion.

    Example:
        >>> completion_texts(["No effusion.", []])
        ['No effusion.', None]
    """
    if isinstance(completions, str):
        raise TypeError("completions must be a list of completions, got one string; pass [completion]")
    return [completion_text(completion) for completion in completions]
