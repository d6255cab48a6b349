"""The field of a request that constrains the answer to a JSON schema; its form depends on the server."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from rrg_rewards.judges.base import JudgeTask

__all__ = ["RESPONSE_FORMATS", "FormatChoice", "ResponseFormat", "is_format_refusal", "response_format_field"]

ResponseFormat = Literal["auto", "json_schema", "schema_object", "json_object", "text"]
"""Constraint of an answer (:func:`response_format_field`); ``auto`` is the strictest that the server accepts."""

RESPONSE_FORMATS: tuple[ResponseFormat, ...] = ("json_schema", "schema_object", "json_object", "text")
"""All formats except ``auto``, the strictest first."""

# Words in error messages of servers that refuse a response format.
_REFUSAL = re.compile(r"response_format|json_schema|json_object|guided|grammar|structured.?output", re.IGNORECASE)


def response_format_field(response_format: ResponseFormat, task: JudgeTask[Any, Any]) -> dict[str, Any] | None:
    """Return the value of ``response_format`` in a request, or ``None`` if the request has no such field.

    Args:
        response_format: ``json_schema``, the schema in the form of OpenAI, vLLM and SGLang; ``schema_object``, the
            schema in the form of llama.cpp; ``json_object``, any JSON; ``text``, no constraint.
        task: Task with the schema.
    """
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
