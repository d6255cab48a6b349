"""Judges' answers as JSON: read strictly into types that give their schema; those of CRIMSON in its published form."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.schemas import AttributeErrorType

__all__ = [
    "AttributeErrorAnswer",
    "CrimsonAnswer",
    "ErrorsAnswer",
    "FindingAnswer",
    "MatchAnswer",
    "StrictAnswer",
    "read_answer",
    "read_json",
]

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_THOUGHT = ("<think>", "</think>")


class StrictAnswer(BaseModel):
    """A part of an answer: every key required, no other allowed, nothing taken for another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @classmethod
    @cache
    def json_schema(cls) -> Mapping[str, Any]:
        """JSON schema of the answer, of the few means that servers and grammars share: no references, no patterns."""
        schema = cls.model_json_schema()
        inlined: dict[str, Any] = _inline(schema, schema.pop("$defs", {}))
        return inlined


Form = TypeVar("Form", bound=StrictAnswer)


class FindingAnswer(StrictAnswer):
    """A finding of one report."""

    id: str
    finding: str
    clinical_significance: Literal["urgent", "actionable_not_urgent", "not_actionable_not_urgent", "benign_expected"]


class MatchAnswer(StrictAnswer):
    """Two findings that are the same."""

    ref_id: str
    pred_id: str


class AttributeErrorAnswer(StrictAnswer):
    """What is wrong about a matched finding."""

    ref_id: str
    pred_id: str
    severity: Literal["significant", "negligible"]
    error_types: list[AttributeErrorType]
    explanation: str


class ErrorsAnswer(StrictAnswer):
    """What the candidate adds, lacks and gets wrong."""

    false_findings: list[str]
    missing_findings: list[str]
    attribute_errors: list[AttributeErrorAnswer]


class CrimsonAnswer(StrictAnswer):
    """A judge's answer, of the right form; whether it makes sense is for ``CrimsonTask.parse`` to say.

    Example:
        >>> CrimsonAnswer.json_schema()["required"]
        ['reference_findings', 'predicted_findings', 'matched_findings', 'errors']
    """

    reference_findings: list[FindingAnswer]
    predicted_findings: list[FindingAnswer]
    matched_findings: list[MatchAnswer]
    errors: ErrorsAnswer


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Put definitions in the place of references to them, and leave out what only people read."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _inline(entry, definitions) for name, entry in value.items()}
        elif key not in ("title", "description"):
            kept[key] = _inline(value, definitions)
    return kept


def read_answer(answer: str, form: type[Form]) -> Form:
    """Read a judge's answer: JSON (:func:`read_json`) that is an object of the schema.

    Args:
        answer: What the judge said.
        form: What it must be.

    Raises:
        AnswerError: ``malformed``, with the place of what is wrong and without text of the answer.

    Example:
        >>> read_answer('{"reference_findings": []}', CrimsonAnswer)
        Traceback (most recent call last):
        ...
        rrg_rewards.judges.base.AnswerError: predicted_findings: Field required (and 2 more)
    """
    content = read_json(answer)
    try:
        return form.model_validate(content)
    except ValidationError as error:
        raise AnswerError("malformed", _told(error)) from None


def read_json(answer: str) -> Any:
    """Read a judge's answer that is JSON of any form.

    White space around it, a fence of three backticks around it, and ``<think>...</think>`` before it are taken off;
    anything else that is no JSON makes the answer malformed. Of two values for one key nothing is taken.

    Raises:
        AnswerError: ``malformed``, with the place of what is wrong and without text of the answer.

    Example:
        >>> read_json('<think>Two of them.</think> {"errors": 2}')
        {'errors': 2}
    """
    opening, closing = _THOUGHT
    text = answer.strip()
    if text.startswith(opening):
        # The last one: what a judge thinks may quote one.
        _, ended, text = text.rpartition(closing)
        if not ended:
            raise AnswerError("malformed", f"the answer ends before {closing}; allow more tokens")
        text = text.strip()
    fenced = _FENCE.fullmatch(text)
    return _read_json(fenced[1] if fenced else text)


def _read_json(text: str) -> Any:
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
        # Half a surrogate pair cannot be written to any file.
        json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        # Its message quotes nothing.
        raise AnswerError("malformed", f"no JSON: {error.msg} at character {error.pos} of {len(text)}") from None
    except UnicodeEncodeError:
        raise AnswerError("malformed", "a string holds half a character") from None
    except RecursionError:
        raise AnswerError("malformed", "JSON nested too deeply") from None
    except AnswerError:
        raise
    except ValueError:
        raise AnswerError("malformed", "a number of too many digits") from None
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise AnswerError("malformed", "an object holds the same key twice")
    return content


def _no_number(constant: str) -> None:
    raise AnswerError("malformed", f"{constant} is no JSON")


def _told(error: ValidationError) -> str:
    """What is wrong first, without a value or a key of the answer: they may quote a report."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    known = {name for model in StrictAnswer.__subclasses__() for name in model.model_fields}
    place = ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in errors[0]["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{place or 'the answer'}: {errors[0]['msg']}{more}"
