"""How a server is told that an answer must be JSON of a schema: servers differ in the dialect that they take."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from rrg_rewards.judges.base import JudgeTask

__all__ = ["RESPONSE_FORMATS", "FormatChoice", "ResponseFormat", "is_format_refusal", "response_format_field"]

ResponseFormat = Literal["auto", "json_schema", "schema_object", "json_object", "text"]
"""What an answer is constrained to (:func:`response_format_field`); ``auto`` is the strictest that a server takes."""

RESPONSE_FORMATS: tuple[ResponseFormat, ...] = ("json_schema", "schema_object", "json_object", "text")
"""From strict to loose."""

# Words of servers that refuse a way of constraining answers.
_REFUSAL = re.compile(r"response_format|json_schema|json_object|guided|grammar|structured.?output", re.IGNORECASE)


def response_format_field(response_format: ResponseFormat, task: JudgeTask[Any, Any]) -> dict[str, Any] | None:
    """Value of ``response_format`` in a request, or ``None`` to leave it out.

    Args:
        response_format: ``json_schema``, the form of OpenAI, vLLM and SGLang; ``schema_object``, JSON of a schema in
            the form of llama.cpp; ``json_object``, any JSON; ``text``, anything.
        task: Has the schema.
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
    """Whether a server's refusal speaks of the answer's format.

    Example:
        >>> is_format_refusal(400, {"error": {"message": "response_format.type is not supported"}})
        True
    """
    said = _messages(body)
    # llama-cpp-python's server calls what it cannot validate an internal error.
    return "response_format" in said if status == 500 else status in (400, 422) and _REFUSAL.search(said) is not None


def _messages(body: object) -> str:
    """What a server says in a refusal, without what it repeats of the request."""
    if isinstance(body, Mapping):
        return " ".join(_messages(value) for key, value in body.items() if key not in ("input", "ctx"))
    if isinstance(body, list):
        return " ".join(map(_messages, body))
    return body if isinstance(body, str) else ""


class FormatChoice:
    """The strictest answer format that a server takes: tried from strict to loose, settled by the first answer.

    Args:
        response_format: ``auto``, or the only one to use.

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
        """The format to begin with."""

    def settle(self, response_format: ResponseFormat) -> None:
        """Note that the server took a format: refusals to come are about something else."""
        if not self._settled:
            self.first, self._settled = response_format, True

    def after(self, refused: ResponseFormat) -> ResponseFormat | None:
        """The format to try after a refusal, or ``None`` where there is none left."""
        if self._settled and refused == self.first:
            return None
        if self._settled:
            return self.first
        following = RESPONSE_FORMATS[RESPONSE_FORMATS.index(refused) + 1 :]
        return following[0] if following else None
