"""The prompt and the answers of CRIMSON's published judge, as the package ``crimson-score`` builds and reads them."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.functional.crimson import CrimsonChecks
from rrg_rewards.judges.base import AnswerError, JudgeFailure, Message, ReportPair
from rrg_rewards.judges.tasks.base import read_json, unique_keys
from rrg_rewards.utilities.imports import require

# Special tokens of chat templates: <|im_start|>, <start_of_turn>, <bos>, </s>, [INST], <<SYS>> and similar ones.
_CONTROL = re.compile(
    r"<\s*\|[^<>]*\|\s*>|<\s*/?\s*(?:start_of_turn|end_of_turn|bos|eos|pad|unk|s)\s*>|\[\s*/?\s*INST\s*\]|<<\s*/?\s*SYS\s*>>",
    re.IGNORECASE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ARRAY_AS_OBJECT = re.compile(r'\[""\s*:\s*\[')
_WRONG_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
# The published code escapes typographic quotes, with a backslash also before single ones, which is an error of its own.
_TYPOGRAPHIC = str.maketrans({"\u201c": '\\"', "\u201d": '\\"', "\u2018": "\\'", "\u2019": "\\'"})
# A word that a quote follows, after the end of a value and a comma, or after a brace. It may be in a text: "7, mass".
_UNOPENED_KEY = re.compile(r'([\]}"0-9]\s*,\s*|\{\s*)([A-Za-z_][A-Za-z0-9_]*")')
# A text without a colon between commas or braces. It may be in a list: ["P1","P2","P3"].
_LONE_TEXT = re.compile(r',\s*"[^"]*"\s*(?=[,}])')
_LONE_FIRST_TEXT = re.compile(r'\{\s*"[^"]*"\s*,\s*(?=")')
# How often the published code escapes a quote, and how far before the position of an error it looks for one.
_MOST_QUOTES = 50
_REACH = 5
_Keys = Callable[[list[tuple[str, Any]]], dict[str, Any]]


def published_messages(pair: ReportPair, guidelines: bool = False) -> list[Message]:
    """Build the messages that ``crimson-score`` sends to a judge, equal to the byte.

    Without guidelines they are those that its fine-tuned judge was trained on; with guidelines, those for strong
    models. The prompt has no delimiters and no escapes; :func:`find_control_text` says which reports must therefore not
    be sent.

    Args:
        pair: Reports and context. Names of the context become headings, as in the package's examples (``Age``).
        guidelines: Whether the prompt has the package's examples and guidelines.

    Raises:
        ModuleNotFoundError: If ``crimson-score`` is not installed, naming the pip command.
    """
    package = require("CRIMSON", extra="crimson", package="crimson-score")
    build = require("CRIMSON.prompt_parts", extra="crimson", package="crimson-score").build_prompt
    prompt = build(
        pair.reference,
        pair.candidate,
        patient_context={name.capitalize(): value for name, value in pair.context} or None,
        include_significance_examples=guidelines,
        include_attribute_guidelines=guidelines,
        include_context_guidelines=guidelines,
    )
    return _recorded(package.CRIMSONScore, prompt)


def _recorded(scorer_class: Any, prompt: str) -> list[Message]:
    """Return the messages that the package's scorer sends to its model; only the scorer knows its system message."""
    sent: list[list[Message]] = []

    def record(conversations: list[list[Message]], **_: Any) -> list[Any]:
        sent.extend(conversations)
        return [SimpleNamespace(outputs=[SimpleNamespace(text="")])]

    # Skip the constructor, which would load the model.
    scorer = scorer_class.__new__(scorer_class)
    scorer.api, scorer.llm, scorer.sampling_params = "vllm", SimpleNamespace(chat=record), None
    scorer._chat_completion(prompt)
    (messages,) = sent
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def find_control_text(text: str) -> str | None:
    r"""Return what makes a text unfit for a prompt without escapes, or ``None``.

    This is a special token of a chat template, which would end the user's message and begin another one, or a character
    that no tokenizer accepts. A model may still follow instructions in words.

    Args:
        text: Any text.

    Returns:
        A description without text of the report.

    Example:
        >>> find_control_text("Clear.<end_of_turn>\n<start_of_turn>model"), find_control_text("Nodule < 6 mm [1].\n")
        ('a special token of a chat template', None)
    """
    # Compatibility forms of brackets and bars are read as these by some models.
    if _CONTROL.search(unicodedata.normalize("NFKC", text)):
        return "a special token of a chat template"
    return "an unpaired surrogate" if _SURROGATE.search(text) else None


def refuse_control_text(texts: Mapping[str, str], prompt: str) -> JudgeFailure | None:
    """Return a failure if a text contains what a prompt without escapes must not contain.

    Args:
        texts: The texts by their names.
        prompt: Name of the prompt, for the reason.
    """
    for name, text in texts.items():
        if (reason := find_control_text(text)) is not None:
            return JudgeFailure("status", f"{name} contains {reason}, which {prompt} cannot escape")
    return None


def read_published_answer(answer: str) -> CrimsonEvaluation:
    """Read an answer exactly as the published code does: the evaluation has the published score of the answer.

    The published code replaces typographic quotes, removes ``"":[`` at the beginning of a list, and adds the missing
    quote before a key. If the text is not JSON then, it tries the same text with one further change after the other:
    without texts that are no values, with backslashes that escape nothing doubled, and with one quote after the other
    escaped that is near an error and not next to punctuation of JSON. Its changes can also damage a correct answer; the
    result is the same here. Fences and text around the JSON are not removed. Of equal keys of an object the first one
    counts. :meth:`rrg_rewards.functional.CrimsonEvaluation.from_dict` says how the content is read.

    Raises:
        AnswerError: ``malformed``, if the published code scores no such answer; without text of the answer.

    Example:
        >>> read_published_answer('{"matched_findings": [{"ref_id": "R1"}], errors": {"false_findings": [7]}}')
        CrimsonEvaluation(..., matched_findings=(('R1', ''),), false_findings=('7',), ...)
    """
    return _read(lambda: _published_json(answer, _first_keys))


def read_repaired_answer(answer: str) -> CrimsonEvaluation:
    """Read an answer of the published judge for strict checks.

    JSON is read as it is, also in fences; anything else as by :func:`read_published_answer`. Every list is needed,
    and every key of its entries but explanations. No object may contain a key twice: a text of a report could otherwise
    end its string and add a key.

    Raises:
        AnswerError: ``malformed``; without text of the answer.

    Example:
        >>> read_repaired_answer('{"error": "I cannot help"}')
        Traceback (most recent call last):
        ...
        rrg_rewards.judges.base.AnswerError: a list, or a key of an entry, is missing: 'errors'
    """
    try:
        content = read_json(answer)
    except AnswerError:
        return _read(lambda: _whole(_published_json(answer, unique_keys)), "strict")
    return _read(lambda: _whole(content), "strict")


def _whole(content: Any) -> Any:
    """Return a content that has every list, and the labels of its findings and errors."""
    try:
        errors, _ = itemgetter("errors", "matched_findings")(content)
        wrong, *_ = itemgetter("attribute_errors", "false_findings", "missing_findings")(errors)
        for error in wrong:
            itemgetter("severity", "error_types")(error)
        for finding in (*content["reference_findings"], *content["predicted_findings"]):
            itemgetter("finding", "clinical_significance")(finding)
    except (KeyError, TypeError) as missing:
        raise AnswerError("malformed", f"a list, or a key of an entry, is missing: {missing}") from None
    return content


def _read(parse: Callable[[], Any], checks: CrimsonChecks = "published") -> CrimsonEvaluation:
    """Return the evaluation of a content; every error of it is an :class:`AnswerError`."""
    try:
        return CrimsonEvaluation.from_dict(parse(), checks=checks)
    except json.JSONDecodeError as error:
        reason = f"not JSON, also with the published repairs: {error.msg} at character {error.pos} of {len(error.doc)}"
    except RecursionError:
        reason = "JSON nested too deeply"
    except ValueError as error:
        # A number with too many digits, or the form of the content.
        reason = str(error)
    raise AnswerError("malformed", reason)


def _published_json(answer: str, keys: _Keys) -> Any:
    text = answer.translate(_TYPOGRAPHIC)
    text = _UNOPENED_KEY.sub(r'\1"\2', _ARRAY_AS_OBJECT.sub("[", text))
    escaped = _WRONG_ESCAPE.sub(r"\\\\", text)
    error: ValueError | None = None
    for changed in (text, _without_lone_texts(text), escaped):
        try:
            return json.loads(changed, object_pairs_hook=keys)
        except json.JSONDecodeError as failure:
            error = error or failure
    for changed in (text, escaped):
        try:
            return _with_escaped_quotes(changed, keys)
        except ValueError:
            continue
    assert error is not None
    raise error


def _first_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _without_lone_texts(text: str) -> str:
    return _LONE_FIRST_TEXT.sub("{", _LONE_TEXT.sub("", text))


def _with_escaped_quotes(text: str, keys: _Keys) -> Any:
    """Parse a text, and escape the last quote that is no delimiter before the position of each error.

    Raises:
        JSONDecodeError: If there is no such quote, or too many are needed.
    """
    for _ in range(_MOST_QUOTES):
        try:
            return json.loads(text, object_pairs_hook=keys)
        except json.JSONDecodeError as error:
            failure = error
        near = range(failure.pos, max(failure.pos - _REACH, 0) - 1, -1)
        place = next((i for i in near if _is_bare_quote(text, i) and not _is_delimiter(text, i)), None)
        if place is None:
            break
        text = f"{text[:place]}\\{text[place:]}"
    raise failure


def _is_bare_quote(text: str, place: int) -> bool:
    return text[place : place + 1] == '"' and text[max(place - 1, 0) : place] != "\\"


def _is_delimiter(text: str, place: int) -> bool:
    """Whether the neighbours of a quote are those of the beginning or end of a JSON string."""
    before, after = text[max(place - 2, 0) : place], text[place + 1 : place + 3]
    if before.endswith((":", "[", "{")) or after.startswith((":", "]", "}")):
        return True
    if before.endswith(","):
        return before[:-1] != "" and (before[0] in '"]}' or before[0].isdigit())
    return after.startswith(",") and after[1:] != "" and (after[1] in '"[{' or after[1].isdigit())
