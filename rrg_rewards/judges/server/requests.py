"""Build requests to a chat server, and parse its replies."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rrg_rewards.judges.base import AnswerError, Item, JudgeTask
from rrg_rewards.judges.server.response_format import ResponseFormat, response_format_field
from rrg_rewards.judges.server.settings import ServerSettings
from rrg_rewards.utilities.texts import encodable_text

__all__ = ["Tokens", "answer_key", "hash_json", "reply_text", "reply_tokens", "request_body"]

# Minimum temperature of a request after a rejected answer. At 0, the seed has no effect.
_REASK_TEMPERATURE = 0.5
# Distance between the seeds of two runs: more than the number of requests for an item.
_SEEDS_OF_RUN = 1000
# Greater counts are not believed. JSON holds integers of thousands of digits, with which rates and costs overflow.
_MOST_TOKENS = 2**31


def hash_json(value: object) -> str:
    """Return the SHA-256 of a value's JSON.

    Example:
        >>> hash_json({"b": 1, "a": 2}) == hash_json({"a": 2, "b": 1})
        True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def answer_key(settings: ServerSettings, task: JudgeTask[Item, Any], item: Item) -> str:
    """Return the cache key of an item: a hash of the task, the conversation, the model and the sampling settings."""
    sampling = [settings.model, settings.temperature, settings.max_tokens, settings.seed, settings.extra_body]
    sampling.append(settings.response_format)
    # The first run has the key of a judge without runs.
    sampling += [settings.run] if settings.run else []
    return hash_json([task.name, task.prompt_hash, sampling, task.messages(item)])


def request_body(
    settings: ServerSettings,
    task: JudgeTask[Item, Any],
    item: Item,
    response_format: ResponseFormat,
    rejected: int = 0,
) -> dict[str, Any]:
    """Build the body of a request.

    Args:
        settings: The judge's settings.
        task: The task.
        item: The item.
        response_format: Constraint of the answer.
        rejected: Number of rejected answers to this item. If it is not 0, the request has another seed, and a
            temperature at which the seed has an effect.
    """
    temperature, seed = settings.temperature, settings.seed
    if rejected:
        temperature = None if temperature is None else max(temperature, _REASK_TEMPERATURE)
        seed = None if seed is None else seed + rejected
    seed = None if seed is None else seed + _SEEDS_OF_RUN * settings.run
    fields = {
        **settings.extra_body,
        "model": settings.model,
        "messages": [{**message, "content": encodable_text(message["content"])} for message in task.messages(item)],
        "temperature": temperature,
        "max_tokens": settings.max_tokens,
        "seed": seed,
        "response_format": response_format_field(response_format, task),
    }
    return {name: value for name, value in fields.items() if value is not None}


class Tokens(NamedTuple):
    """Token counts of a call, as reported by the server.

    Attributes:
        prompt: Tokens of the prompt.
        completion: Tokens of the answer.
    """

    prompt: int
    completion: int


def reply_tokens(reply: object) -> Tokens:
    """Return the token counts in a reply. A missing or impossible count is 0.

    Example:
        >>> reply_tokens({"usage": {"prompt_tokens": 7, "completion_tokens": "many"}})
        Tokens(prompt=7, completion=0)
    """
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    if not isinstance(usage, Mapping):
        return Tokens(0, 0)
    return Tokens(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def reply_text(reply: object) -> str:
    """Return the text of a reply.

    Raises:
        AnswerError: If the reply has no text, or was cut off.

    Example:
        >>> reply_text({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]})
        'yes'
    """
    if not isinstance(reply, Mapping):
        raise AnswerError("malformed", "the server's reply is not a JSON object")
    try:
        choice = reply["choices"][0]
        text, reason = choice["message"]["content"], choice.get("finish_reason")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise AnswerError("malformed", "the server's reply contains no message") from None
    if not isinstance(text, str) or not text:
        raise AnswerError("malformed", "the server's reply contains no text")
    if reason == "length":
        raise AnswerError("malformed", "the answer was cut off; raise max_tokens or the server's context length")
    return encodable_text(text)


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 < tokens <= _MOST_TOKENS else 0
