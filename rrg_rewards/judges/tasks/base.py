"""Base class of tasks with a prompt file in this folder: escaped texts in prompts, and strict parsing of answers."""

import hashlib
import json
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any, get_args, get_type_hints

from typing_extensions import is_typeddict

from rrg_rewards.judges.base import AnswerError, Item, JudgeTask, Message, Result
from rrg_rewards.utilities.imports import require

_SEPARATOR = "\n=====\n"
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
# All other characters are escaped: quotes and backslashes end strings; <>[]{}|`# occur in delimiters, markup, JSON and
# the special tokens of chat templates; line breaks start headings and turns.
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:?!()/%+-'*=_&")
# Invisible characters that Unicode classifies as letters.
_BLANK_LETTERS = frozenset("\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_THOUGHT = ("<think>", "</think>")


class PromptTask(JudgeTask[Item, Result]):
    """A task whose prompt is a Markdown file in ``judges/tasks``.

    Two tasks are equal if they are of the same class and have equal attributes.
    """

    template: str
    """Prompt file ``judges/tasks/<template>_prompt.md``: system and user message with placeholders ``{{name}}``."""

    form: Any
    """Form of the answer: a TypedDict, from which the JSON schema is made and by which answers are checked."""

    def __eq__(self, other: object) -> bool:
        # A subclass may build another prompt from the same attributes.
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    @property
    def prompt_hash(self) -> str:
        """First 12 digits of the SHA-256 of the messages for example items and of the answer's schema."""
        return _prompt_hash(self)

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer; every key is required, and no other key is allowed."""
        return answer_schema(self.form)

    @abstractmethod
    def _probes(self) -> Sequence[Item]:
        """Example items whose messages contain every variant of the prompt."""

    def _fill(self, **values: str) -> list[Message]:
        """Build the messages with ``values`` in the placeholders."""
        system, user = _read_template(self.template)
        # Do not search long instructions without placeholders for each item.
        instructions = _fill(system, values) if "{{" in system else system
        return [{"role": "system", "content": instructions}, {"role": "user", "content": _fill(user, values)}]

    def _read(self, answer: str) -> Any:
        """Parse an answer as :attr:`form`; raise :class:`AnswerError` if it is malformed."""
        return read_answer(answer, self.form)


@cache
def _read_template(name: str) -> tuple[str, str]:
    text = resources.files("rrg_rewards.judges.tasks").joinpath(f"{name}_prompt.md").read_text(encoding="utf-8")
    system, user = text.split(_SEPARATOR)
    return system.strip(), user.strip()


# The cache is small because a task may keep large objects alive.
@lru_cache(maxsize=16)
def _prompt_hash(task: PromptTask[Any, Any]) -> str:
    content = [*(task.messages(item) for item in task._probes()), task.schema]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def quote_text(text: str) -> str:
    r"""Write a text as a JSON string of letters, digits, spaces and plain punctuation.

    All other characters are escaped, so that no text can contain a delimiter, a tag, a line break or a special token of
    a chat template such as ``<|im_start|>`` or ``[INST]``. Letters of other scripts are kept, except invisible letters
    and those that Unicode normalisation (NFKC) changes.

    Args:
        text: Any text.

    Returns:
        A JSON string with its quotes; ``json.loads`` returns the text.

    Example:
        >>> print(quote_text('Clear.\n</report> "ok"'))
        "Clear.\n\u003c/report\u003e \u0022ok\u0022"
    """
    return '"' + "".join(char if char in _SAFE else _escaped(char) for char in text) + '"'


def fenced_text(text: str) -> str:
    """Write a report as :func:`quote_text` does, between delimiters that its author cannot write.

    The code of the delimiters is a hash of the report. It differs for each report, and the same report has the same
    code, so that answers can be cached and a server can reuse a prompt's beginning.

    Example:
        >>> print(fenced_text("Clear."))
        [0781ca99] "Clear." [/0781ca99]
    """
    code = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"[{code}] {quote_text(text)} [/{code}]"


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders ``{{name}}`` of a template. Placeholders inside a value are not replaced."""
    return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], template)


def _escaped(char: str) -> str:
    if char == "\n":
        return "\\n"
    visible = char.isalpha() and char not in _BLANK_LETTERS
    if visible and not char.isascii() and unicodedata.normalize("NFKC", char) == char:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))


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
    text = without_thought(answer)
    fenced = _FENCE.fullmatch(text)
    return _read_json(fenced[1] if fenced else text)


def without_thought(answer: str) -> str:
    """Return a judge's answer without ``<think>...</think>`` before it, and without surrounding white space.

    Raises:
        AnswerError: ``malformed``, if the answer ends before ``</think>``.

    Example:
        >>> without_thought("<think>A nodule.</think> 12 mm ")
        '12 mm'
    """
    opening, closing = _THOUGHT
    text = answer.strip()
    if text.startswith(opening):
        # Search for the last tag, because the text before it may quote the tag.
        _, ended, text = text.rpartition(closing)
        if not ended:
            raise AnswerError("malformed", f"the answer ends before {closing}; allow more tokens")
    return text.strip()


def _read_json(text: str) -> Any:
    try:
        content = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_reject_constant)
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


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise an :class:`AnswerError` for a repeated key."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise AnswerError("malformed", "an object contains the same key twice")
    return content


def _reject_constant(constant: str) -> None:
    raise AnswerError("malformed", f"{constant} is not JSON")


@cache
def _validator(form: Any) -> Any:
    """Return a validator of answers: no other key is allowed, and no value is converted.

    Raises:
        ModuleNotFoundError: If pydantic is not installed, naming the pip command.
    """
    pydantic = require("pydantic", extra="judge")
    for part in _forms(form):
        part.__pydantic_config__ = {"strict": True, "extra": "forbid"}
    return pydantic.TypeAdapter(form)


def _forms(annotation: Any) -> Iterator[Any]:
    """Yield a form and the forms inside of it."""
    if is_typeddict(annotation):
        yield annotation
        for hint in get_type_hints(annotation).values():
            yield from _forms(hint)
    for argument in get_args(annotation):
        yield from _forms(argument)


@cache
def answer_schema(form: Any) -> Mapping[str, Any]:
    """Return the JSON schema of a form, without references and patterns, which some servers do not support."""
    schema = _validator(form).json_schema()
    return dict(_inline(schema, schema.pop("$defs", {})))


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Replace references with their definitions, and remove titles and descriptions."""
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


@cache
def form_keys(form: Any) -> tuple[str, ...]:
    """Return all keys of a form and of the forms inside of it, each once."""
    return tuple(dict.fromkeys(_keys(answer_schema(form))))


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        yield from schema.get("properties", ())
        for value in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
            yield from _keys(value)


def read_answer(answer: str, form: Any) -> Any:
    """Parse a judge's answer.

    A form checks keys and types. The ``parse`` of the task checks whether an answer agrees with itself and the reports.

    Args:
        answer: Text of the answer, as in :func:`read_json`.
        form: TypedDict with the keys of the answer.

    Returns:
        A dictionary of the form.

    Raises:
        AnswerError: ``malformed``, with the key of the first error and without text of the answer.

    Example:
        >>> from typing_extensions import TypedDict
        >>> Counts = TypedDict("Counts", {"errors": int, "findings": int})
        >>> read_answer('{"errors": 2}', Counts)
        Traceback (most recent call last):
        ...
        rrg_rewards.judges.base.AnswerError: findings: Field required
    """
    content = read_json(answer)
    try:
        return _validator(form).validate_python(content)
    except require("pydantic", extra="judge").ValidationError as error:
        raise AnswerError("malformed", _first_error(error, form)) from None


def _first_error(error: Any, form: Any) -> str:
    """Describe the first error without a value or an unknown key of the answer, which may quote a report."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    known = form_keys(form)
    where = ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in errors[0]["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where or 'the answer'}: {errors[0]['msg']}{more}"
