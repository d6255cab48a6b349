"""Build requests to a chat server, with the constraint of the answer that the server accepts, and parse its replies."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rrg_rewards.judges.base import AnswerError, Item, JudgeTask
from rrg_rewards.judges.server.settings import RESPONSE_FORMATS, ResponseFormat, ServerSettings
from rrg_rewards.utilities.texts import encodable_text

# Minimum temperature of a request after a rejected answer. At 0, the seed has no effect.
_REASK_TEMPERATURE = 0.5
# Distance between the seeds of two runs: more than the number of requests for an item.
_SEEDS_OF_RUN = 1000
# Greater counts are not believed. JSON holds integers of thousands of digits, with which rates and costs overflow.
_MOST_TOKENS = 2**31
# Words in error messages of servers that refuse a response format.
_REFUSAL = re.compile(r"response_format|json_schema|json_object|guided|grammar|structured.?output", re.IGNORECASE)


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
    sampling += ["same seed"] if settings.run and not settings.seed_per_run else []
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
    if seed is not None and settings.seed_per_run:
        seed += _SEEDS_OF_RUN * settings.run
    fields = {
        **settings.extra_body,
        "model": settings.model,
        "messages": [{**message, "content": encodable_text(message["content"])} for message in task.messages(item)],
        "temperature": temperature,
        "max_tokens": settings.max_tokens,
        "seed": seed,
        "response_format": _response_format(response_format, task),
    }
    return {name: value for name, value in fields.items() if value is not None}


class Tokens(NamedTuple):
    """Token counts of a call, as reported by the server.

    Attributes:
        prompt: Tokens of the prompt.
        completion: Tokens of the answer.
        cached: Tokens of the prompt that the server took from its prefix cache; ``None`` if the reply does not say.
    """

    prompt: int
    completion: int
    cached: int | None

    @property
    def total(self) -> int:
        """Tokens of prompt and answer."""
        return self.prompt + self.completion


def reply_tokens(reply: object) -> Tokens:
    """Return the token counts in a reply. A missing or impossible count is 0, or ``None`` for cached tokens.

    Example:
        >>> reply_tokens({"usage": {"prompt_tokens": 7, "completion_tokens": "many"}})
        Tokens(prompt=7, completion=0, cached=None)
    """
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    if not isinstance(usage, Mapping):
        return Tokens(0, 0, None)
    prompt = _count(usage.get("prompt_tokens"))
    return Tokens(prompt, _count(usage.get("completion_tokens")), _cached(usage.get("prompt_tokens_details"), prompt))


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
    has_text = isinstance(text, str) and text
    if reason == "length":
        # Reasoning counts as part of the answer, and is not part of its text.
        cut = "was cut off" if has_text else "has no text: all its tokens went to reasoning"
        limits = "max_tokens (or max_completion_tokens in extra_body)"
        raise AnswerError("malformed", f"the answer {cut}; raise {limits} or the server's context length")
    if not has_text:
        raise AnswerError("malformed", "the server's reply contains no text")
    return encodable_text(text)


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 < tokens <= _MOST_TOKENS else 0


def _cached(details: object, prompt: int) -> int | None:
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    # True is an int.
    is_count = isinstance(cached, int) and not isinstance(cached, bool) and 0 <= cached <= prompt
    return cached if is_count else None


def _response_format(response_format: ResponseFormat, task: JudgeTask[Any, Any]) -> dict[str, Any] | None:
    """Return the value of ``response_format`` in a request, or ``None`` if the request has no such field."""
    if not task.schema:
        return None
    if response_format == "json_schema":
        name = re.sub(r"[^A-Za-z0-9_-]", "_", task.name)[:64]
        return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(task.schema), "strict": True}}
    if response_format == "schema_object":
        return {"type": "json_object", "schema": dict(task.schema)}
    if response_format == "json_object":
        return {"type": "json_object"}
    return None


def is_format_refusal(status: int, body: object) -> bool:
    """Whether a server refused a request because of its response format.

    Example:
        >>> is_format_refusal(400, {"error": {"message": "response_format.type is not supported"}})
        True
    """
    text = _messages(body)
    # llama-cpp-python reports a request that it cannot validate as an internal error.
    return "response_format" in text if status == 500 else status in (400, 422) and _REFUSAL.search(text) is not None


def _messages(body: object) -> str:
    """Return the texts in an error body, without the quoted request."""
    if isinstance(body, Mapping):
        return " ".join(_messages(value) for key, value in body.items() if key not in ("input", "ctx"))
    if isinstance(body, list):
        return " ".join(map(_messages, body))
    return body if isinstance(body, str) else ""


class FormatChoice:
    """Finds the strictest response format that a server accepts, and keeps it.

    Args:
        response_format: ``auto``, or the only format to use.

    Example:
        >>> choice = FormatChoice("auto")
        >>> choice.after("json_schema")
        'schema_object'
        >>> choice.settle("schema_object")
        >>> choice.first, choice.after("schema_object")
        ('schema_object', None)
    """

    def __init__(self, response_format: ResponseFormat) -> None:
        self._settled = response_format != "auto"
        self.first: ResponseFormat = RESPONSE_FORMATS[0] if response_format == "auto" else response_format
        """Format of the first request."""

    def settle(self, response_format: ResponseFormat) -> None:
        """Record that the server accepted a format; later refusals have another cause."""
        if not self._settled:
            self.first, self._settled = response_format, True

    def after(self, refused: ResponseFormat) -> ResponseFormat | None:
        """Return the format to try after a refusal, or ``None`` if all were refused."""
        if self._settled:
            return None if refused == self.first else self.first
        following = RESPONSE_FORMATS[RESPONSE_FORMATS.index(refused) + 1 :]
        return following[0] if following else None
