"""The JSON that goes to a chat server and comes back."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rrg_rewards.judges.base import AnswerError, JudgeTask
from rrg_rewards.judges.response_format import ResponseFormat, response_format_field

__all__ = ["ChatSettings", "Tokens", "reply_text", "reply_tokens"]

# A second answer is drawn at this temperature at least: at 0 a seed changes nothing.
_FRESH_TEMPERATURE = 0.5
# What a request is made of, which extra_body must not replace.
_OWN_FIELDS = frozenset({"messages", "model", "n", "response_format", "stream"})

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class ChatSettings:
    """What a chat server is asked for, whatever the question.

    Args:
        model: What the server calls the model.
        temperature: Sampling temperature, or ``None`` to leave it out.
        max_tokens: Most tokens of an answer, or ``None``.
        seed: Seed of the sampling, or ``None``.
        extra_body: Further fields of each request.

    Raises:
        ValueError: If ``extra_body`` is no JSON, or holds a field that is the judge's to set.

    Example:
        >>> ChatSettings("m", temperature=0.0, max_tokens=10, seed=None, extra_body={"stream": True})
        Traceback (most recent call last):
        ...
        ValueError: extra_body must not set stream, which the judge sets itself
    """

    model: str
    temperature: float | None
    max_tokens: int | None
    seed: int | None
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if own := sorted(_OWN_FIELDS & self.extra_body.keys()):
            raise ValueError(f"extra_body must not set {', '.join(own)}, which the judge sets itself")
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"extra_body must be JSON: {error}") from error

    @property
    def extra_hash(self) -> str:
        """Short hash of the further fields."""
        return _hash(self.extra_body)[:8]

    def key(self, task: JudgeTask[Item, Any], item: Item, *others: object) -> str:
        """Hash of all that an item's answer depends on: these settings, others, the task and the conversation."""
        settings = [self.model, self.temperature, self.max_tokens, self.seed, self.extra_body, *others]
        return _hash([task.name, task.prompt_hash, settings, task.messages(item)])

    def body(
        self, task: JudgeTask[Item, Any], item: Item, response_format: ResponseFormat, rejected: int = 0
    ) -> dict[str, Any]:
        """A request.

        Args:
            task: Has the conversation.
            item: What it is about.
            response_format: What the answer is constrained to.
            rejected: How many answers were rejected; further ones are drawn afresh, by another seed and at a
                temperature at which it matters.
        """
        temperature, seed = self.temperature, self.seed
        if rejected:
            temperature = None if temperature is None else max(temperature, _FRESH_TEMPERATURE)
            seed = None if seed is None else seed + rejected
        fields = {
            **self.extra_body,
            "model": self.model,
            "messages": [{**message, "content": _encodable(message["content"])} for message in task.messages(item)],
            "temperature": temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
            "response_format": response_format_field(response_format, task),
        }
        return {name: value for name, value in fields.items() if value is not None}


class Tokens(NamedTuple):
    """Tokens of a call, as the server counts them.

    Attributes:
        prompt: Tokens read.
        completion: Tokens written.
    """

    prompt: int
    completion: int


def reply_tokens(reply: object) -> Tokens:
    """Tokens that a reply names; 0 where it names none.

    Example:
        >>> reply_tokens({"usage": {"prompt_tokens": 7, "completion_tokens": "many"}})
        Tokens(prompt=7, completion=0)
    """
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    if not isinstance(usage, Mapping):
        return Tokens(0, 0)
    return Tokens(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def reply_text(reply: object) -> str:
    """Text of a reply.

    Raises:
        AnswerError: If there is none, or not all of it.

    Example:
        >>> reply_text({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]})
        'yes'
    """
    if not isinstance(reply, Mapping):
        raise AnswerError("malformed", "the server's reply is no JSON object")
    try:
        choice = reply["choices"][0]
        text, reason = choice["message"]["content"], choice.get("finish_reason")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise AnswerError("malformed", "the server's reply holds no message") from None
    if not isinstance(text, str) or not text:
        raise AnswerError("malformed", "the server's reply holds no text")
    if reason == "length":
        raise AnswerError("malformed", "the answer was cut off; raise max_tokens or the server's context length")
    return _encodable(text)


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _encodable(text: str) -> str:
    """A text without halves of surrogate pairs, which neither requests nor the cache can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
