"""Errors of requests. Their messages and logs contain no report text."""

import traceback
from collections.abc import Mapping
from pathlib import Path

__all__ = ["RequestError", "busy", "error_place", "scoring_error"]


class RequestError(Exception):
    """A request that gets no reward.

    Args:
        status: HTTP status.
        message: What is wrong and what to do, without text of the request.
        headers: Further headers of the reply.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def busy(message: str) -> RequestError:
    """Return the error of a request that the client should repeat after a second."""
    return RequestError(429, message, {"Retry-After": "1"})


def error_place(error: BaseException) -> str:
    """Describe an error by its type and its line of code, because its message may quote a report.

    Example:
        >>> try:
        ...     raise ValueError("No effusion.")
        ... except ValueError as error:
        ...     error_place(error)
        'ValueError in <module> (...:2)'
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    return f"{type(error).__name__} in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def scoring_error(row: int, error: Exception) -> RequestError:
    """Return the error of a completion that the reward could not process.

    A ``ValueError`` or ``TypeError`` means that the reward refuses the input, such as an age that is no number.
    """
    refused = isinstance(error, ValueError | TypeError)
    told = "the reward refuses the values of" if refused else "the reward failed on"
    return RequestError(422 if refused else 500, f"{told} completion {row}: {error_place(error)}")
