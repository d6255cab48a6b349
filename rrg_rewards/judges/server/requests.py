"""The settings of an OpenAIJudge, the requests that follow from them, and the replies."""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rrg_rewards.judges.base import AnswerError, Item, JudgeTask
from rrg_rewards.judges.server.calls import Address, check_address
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError, Settings, setting
from rrg_rewards.utilities.texts import encodable_text

ResponseFormat = Literal["auto", "json_schema", "schema_object", "json_object", "text"]
"""Constraint of an answer; ``auto`` is the strictest that the server accepts."""

RESPONSE_FORMATS: tuple[ResponseFormat, ...] = ("json_schema", "schema_object", "json_object", "text")
"""All formats except ``auto``, the strictest first."""

# Fields of a request that extra_body must not replace.
_OWN_FIELDS = frozenset({"messages", "model", "n", "response_format", "stream"})
# Minimum temperature of a request after a rejected answer. At 0, the seed has no effect.
_REASK_TEMPERATURE = 0.5
# Distance between the seeds of two runs: more than the number of requests for an item.
_SEEDS_OF_RUN = 1000
# Greater counts are not believed. JSON holds integers of thousands of digits, with which rates and costs overflow.
_MOST_TOKENS = 2**31
# Words in error messages of servers that refuse a response format.
_REFUSAL = re.compile(r"response_format|json_schema|json_object|guided|grammar|structured.?output", re.IGNORECASE)


class Key:
    """A key for a server, which is shown nowhere: neither in representations nor in JSON.

    Args:
        value: The key.
        name: Where it comes from, for messages.

    Raises:
        ValueError: If it has characters that no header of HTTP can carry.

    Example:
        >>> Key("secret", "api_key")
        <key>
    """

    def __init__(self, value: str, name: str) -> None:
        place = next((place for place, letter in enumerate(value) if not " " <= letter <= "~"), None)
        if place is not None:
            raise ValueError(
                f"{name} must contain printable ASCII characters only, but character {place + 1} of {len(value)} is "
                f"{_character_name(value[place])}"
            )
        self.value = value

    def __repr__(self) -> str:
        return "<key>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def _character_name(letter: str) -> str:
    return unicodedata.name(letter, f"U+{ord(letter):04X}")


@dataclass(frozen=True)
class ServerSettings(Settings):
    """Settings of :class:`rrg_rewards.judges.OpenAIJudge`, which takes each of them as a keyword argument.

    Args:
        model: Name of the model on the server. It is part of the cache key, so each model needs a different name.
        base_url: Address of the API, on this machine unless ``allow_remote`` is set.
        api_key: Key for the server, which becomes a :class:`Key`, whose text nothing shows. It is not pickled; set
            ``api_key_variable`` for judges in other processes.
        api_key_variable: Environment variable that contains the key, read at each evaluation if ``api_key`` is not set.
        allow_remote: Whether report text may be sent to another machine.
        concurrency: Maximum number of simultaneous calls in each event loop.
        timeout: Maximum seconds of a call, from its first to its last byte, and maximum pause for a ``Retry-After``.
        batch_deadline: Maximum seconds of an evaluation; unfinished items then fail with ``deadline``.
        max_retries: Maximum number of retries of a call.
        first_pause: Seconds before the first retry. Each further pause is twice as long, up to 16 times the first. Up
            to half of each pause is removed at random, so that calls do not retry at the same moment.
        max_reasks: Maximum number of further requests for an item whose answer the task rejects.
        temperature: Sampling temperature; ``None`` for the server's default.
        max_tokens: Maximum number of tokens of an answer; ``None`` for the server's default.
        seed: Random seed of sampling; ``None`` for the server's default.
        run: Number of the run, if the same items are evaluated several times. Each run has its own random seed, and its
            own entries in the cache.
        seed_per_run: Whether each run has its own random seed. If not, all runs send ``seed``, and differ only as far
            as the server does not repeat its answers.
        response_format: How the server constrains answers to JSON: ``json_schema`` (OpenAI, vLLM, SGLang),
            ``schema_object`` (llama.cpp), ``json_object`` (any JSON), ``text`` (no constraint), or ``auto``, which uses
            the first of these that the server accepts.
        cache: Folder in which accepted answers are stored; several processes may share it.
        extra_body: Further fields of each request, such as ``{"top_k": 1}``; they must be JSON.
        price: Price of a million prompt tokens and of a million completion tokens, for the cost in ``judge.usage``.
        price_cached: Price of a million prompt tokens that the server takes from its prefix cache; ``None`` for that of
            the other prompt tokens.

    Raises:
        ValueError: If the address is not a plain HTTP address, or is on another machine without ``allow_remote``; if
            the key has other characters than ASCII.
        SettingError: If another setting is out of its range.

    Example:
        >>> ServerSettings("m", extra_body={"stream": True})
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: extra_body: must not set stream, which the judge sets itself
    """

    model: str
    _: KW_ONLY
    base_url: str = "http://localhost:8000/v1"
    api_key: str | Key | None = field(default=None, repr=False)
    api_key_variable: str = "OPENAI_API_KEY"
    allow_remote: bool = False
    concurrency: int = setting(32, minimum=1)
    timeout: float = setting(60.0, above=0)
    batch_deadline: float | None = setting(None, above=0)
    max_retries: int = setting(4, minimum=0)
    first_pause: float = setting(0.5, minimum=0)
    max_reasks: int = setting(1, minimum=0)
    temperature: float | None = 0.0
    max_tokens: int | None = setting(2048, minimum=1)
    seed: int | None = 0
    run: int = setting(0, minimum=0)
    seed_per_run: bool = True
    response_format: ResponseFormat = "auto"
    cache: str | os.PathLike[str] | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    price: tuple[float, float] | None = None
    price_cached: float | None = setting(None, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise SettingError("model", "must be the name of the model on the server, got ''")
        if self.response_format not in (formats := ("auto", *RESPONSE_FORMATS)):
            raise SettingError("response_format", unknown_name_message("value", self.response_format, formats))
        if self.price_cached is not None and self.price is None:
            raise SettingError("price_cached", "needs the prices of other tokens in price")
        if isinstance(self.api_key, str):
            object.__setattr__(self, "api_key", Key(self.api_key, "api_key") if self.api_key else None)
        object.__setattr__(self, "base_url", self.address.url)
        object.__setattr__(self, "extra_body", _checked_extra_body(dict(self.extra_body or {})))
        object.__setattr__(self, "cache", None if self.cache is None else os.fspath(self.cache))
        object.__setattr__(self, "price", None if self.price is None else tuple(self.price))

    @cached_property
    def address(self) -> Address:
        """The checked address of the server."""
        return check_address(self.base_url, self.allow_remote)

    def key(self) -> str | None:
        """Return the key: ``api_key``, or that of the environment variable; ``None`` without any.

        Raises:
            ValueError: If the key of the environment variable has characters that no header can carry.
        """
        if isinstance(self.api_key, Key):
            return self.api_key.value
        value = os.environ.get(self.api_key_variable)
        return Key(value, f"environment variable {self.api_key_variable}").value if value else None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild the settings, without ``api_key``."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.name != "api_key"}


def _checked_extra_body(extra_body: dict[str, Any]) -> dict[str, Any]:
    if own := sorted(_OWN_FIELDS & extra_body.keys()):
        raise SettingError("extra_body", f"must not set {', '.join(own)}, which the judge sets itself")
    try:
        json.dumps(extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingError("extra_body", f"must be JSON: {error}") from error
    return extra_body


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
