"""Strict parsing of judges' answers as JSON."""

import json
import re
from typing import Any

from rrg_rewards.judges.base import AnswerError

__all__ = ["read_json"]

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_THOUGHT = ("<think>", "</think>")


def read_json(answer: str) -> Any:
    """Parse a judge's answer as JSON.

    White space, a fence of three backticks around the JSON, and ``<think>...</think>`` before it are removed. Any other
    text, or a key that occurs twice in an object, makes the answer malformed.

    Raises:
        AnswerError: ``malformed``, with the position of the error and without text of the answer.

    Example:
        >>> read_json('<think>Two of them.</think> {"errors": 2}')
        {'errors': 2}
    """
    opening, closing = _THOUGHT
    text = answer.strip()
    if text.startswith(opening):
        # Search for the last tag, because the text before it may quote the tag.
        _, ended, text = text.rpartition(closing)
        if not ended:
            raise AnswerError("malformed", f"the answer ends before {closing}; allow more tokens")
        text = text.strip()
    fenced = _FENCE.fullmatch(text)
    return _read_json(fenced[1] if fenced else text)


def _read_json(text: str) -> Any:
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_reject_constant)
        # An unpaired surrogate cannot be written to a file.
        json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        # The message of this error contains no text of the answer.
        raise AnswerError("malformed", f"not JSON: {error.msg} at character {error.pos} of {len(text)}") from None
    except UnicodeEncodeError:
        raise AnswerError("malformed", "a string contains an unpaired surrogate") from None
    except RecursionError:
        raise AnswerError("malformed", "JSON nested too deeply") from None
    except AnswerError:
        raise
    except ValueError:
        raise AnswerError("malformed", "a number with too many digits") from None
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise AnswerError("malformed", "an object contains the same key twice")
    return content


def _reject_constant(constant: str) -> None:
    raise AnswerError("malformed", f"{constant} is not JSON")
