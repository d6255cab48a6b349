"""The settings of an OpenAIJudge."""

import json
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from rrg_rewards.judges.server.http_client import Address, check_address
from rrg_rewards.utilities.checks import check_limits
from rrg_rewards.utilities.names import unknown_name_message

ResponseFormat = Literal["auto", "json_schema", "schema_object", "json_object", "text"]
"""Constraint of an answer; ``auto`` is the strictest that the server accepts."""

RESPONSE_FORMATS: tuple[ResponseFormat, ...] = ("json_schema", "schema_object", "json_object", "text")
"""All formats except ``auto``, the strictest first."""

_MINIMUM = {"concurrency": 1, "cache_size_limit": 1, "max_retries": 0, "first_pause": 0, "max_reasks": 0, "run": 0}
_POSITIVE = ("timeout", "batch_deadline", "max_tokens")
# Fields of a request that extra_body must not replace.
_OWN_FIELDS = frozenset({"messages", "model", "n", "response_format", "stream"})


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
class ServerSettings:
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
        cache_size_limit: Approximate maximum size of the folder in bytes; the oldest answers are deleted first.
        extra_body: Further fields of each request, such as ``{"top_k": 1}``; they must be JSON.
        requests_per_minute: Maximum number of calls per minute, evenly spaced; ``None`` for no limit.
        tokens_per_minute: Maximum number of tokens per minute, of prompts and answers; ``None`` for no limit.
        price: Price of a million prompt tokens and of a million completion tokens, for the cost in ``judge.usage``.
        price_cached: Price of a million prompt tokens that the server takes from its prefix cache; ``None`` for that of
            the other prompt tokens.
        progress: Whether to show a progress bar on standard error if it is a terminal.

    Raises:
        ValueError: If the address is not a plain HTTP address, or is on another machine without ``allow_remote``; if
            the key has other characters than ASCII; if another setting is out of its range.

    Example:
        >>> ServerSettings("m", extra_body={"stream": True})
        Traceback (most recent call last):
        ...
        ValueError: extra_body must not set stream, which the judge sets itself
    """

    model: str
    _: KW_ONLY
    base_url: str = "http://localhost:8000/v1"
    api_key: str | Key | None = field(default=None, repr=False)
    api_key_variable: str = "OPENAI_API_KEY"
    allow_remote: bool = False
    concurrency: int = 32
    timeout: float = 60.0
    batch_deadline: float | None = None
    max_retries: int = 4
    first_pause: float = 0.5
    max_reasks: int = 1
    temperature: float | None = 0.0
    max_tokens: int | None = 2048
    seed: int | None = 0
    run: int = 0
    seed_per_run: bool = True
    response_format: ResponseFormat = "auto"
    cache: str | os.PathLike[str] | None = None
    cache_size_limit: int = 4 * 2**30
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price: tuple[float, float] | None = None
    price_cached: float | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must be the name of the model on the server, got ''")
        check_limits(self, _MINIMUM, _POSITIVE)
        if self.response_format not in ("auto", *RESPONSE_FORMATS):
            raise ValueError(unknown_name_message("response_format", self.response_format, ("auto", *RESPONSE_FORMATS)))
        if self.price_cached is not None and (self.price is None or not self.price_cached >= 0):
            raise ValueError(f"price_cached must be a price beside those in price, got {self.price_cached!r}")
        if isinstance(self.api_key, str):
            object.__setattr__(self, "api_key", Key(self.api_key, "api_key") if self.api_key else None)
        object.__setattr__(self, "base_url", self.address.url)
        object.__setattr__(self, "extra_body", _checked_extra_body(dict(self.extra_body or {})))
        object.__setattr__(self, "cache", None if self.cache is None else os.fspath(self.cache))
        object.__setattr__(self, "price", None if self.price is None else tuple(self.price))

    @classmethod
    def from_options(cls, **options: Any) -> "ServerSettings":
        """Make settings from keyword arguments.

        Raises:
            TypeError: For an unknown argument, with the nearest known one.
        """
        known = [setting.name for setting in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise TypeError(unknown_name_message("argument", unknown[0], known))
        return cls(**options)

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
        raise ValueError(f"extra_body must not set {', '.join(own)}, which the judge sets itself")
    try:
        json.dumps(extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"extra_body must be JSON: {error}") from error
    return extra_body
