"""The report in what a policy wrote: texts of completions, and the forms in which a report is wrapped."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from rrg_rewards.utilities.checks import check_list, check_same_length
from rrg_rewards.utilities.settings import SettingError

Completion = str | Sequence[Mapping[str, Any]]


def completion_text(completion: Completion) -> str | None:
    """Return the text of a plain or conversational completion.

    Args:
        completion: A text, or a list of messages ``{"role": ..., "content": ...}``. The content of a message is a text
            or a list of parts ``{"type": "text", "text": ...}``; parts of other types and further keys, such as
            ``reasoning_content``, are not read.

    Returns:
        The text, or the text of the last assistant message; ``None`` if there is no assistant message.

    Raises:
        TypeError: If the completion is neither a text nor a list of messages.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "No effusion."}]}])
        'No effusion.'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(message, Mapping) for message in completion):
        raise TypeError(f"a completion must be a text or a list of messages, got {type(completion).__name__}")
    messages = cast(Sequence[Mapping[str, Any]], completion)
    replies = [message for message in messages if message.get("role") == "assistant"]
    if not replies:
        return None
    content = replies[-1].get("content") or ""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, Mapping) else {} for part in content]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if not all(parts) or not all(isinstance(text, str) for text in texts):
        # Types only, because the parts may contain report text.
        kinds = ", ".join(type(part.get("text") if isinstance(part, Mapping) else part).__name__ for part in content)
        raise TypeError(
            "content of a message must be a text or a list of parts such as {'type': 'text', 'text': ...}, got "
            f"{type(content).__name__} with {kinds}"
        )
    return "".join(map(str, texts))


def completion_texts(completions: Sequence[Completion]) -> list[str | None]:
    """Return the texts of a batch of completions; see :func:`completion_text`.

    Raises:
        TypeError: If ``completions`` is one string, or no list, such as a set, which has no order, or an element is not
            a completion.

    Example:
        >>> completion_texts(["No effusion.", []])
        ['No effusion.', None]
    """
    if isinstance(completions, str):
        raise TypeError("completions must be a list of completions, got one string; pass [completion]")
    check_list("completions", completions)
    return [completion_text(completion) for completion in completions]


# Reasoning of DeepSeek, Qwen and others; Magistral; Kimi; MedGemma; OpenThinker; Command A; Gemma; Unsloth.
_THOUGHT = r"think(?:ing)?|thoughts?|reason(?:ing)?|seed:think"
_OPEN = re.compile(
    rf"<(?:{_THOUGHT})>|\[THINK\]|\u25c1think\u25b7|<unused94>|<\|begin_of_thought\|>|<\|START_THINKING\|>|"
    r"<\|channel>|<start_working_out>",
    re.I,
)
_CLOSE = re.compile(
    rf"</(?:{_THOUGHT})>|\[/THINK\]|\u25c1/think\u25b7|<unused95>|<\|end_of_thought\|>|<\|END_THINKING\|>|"
    r"<channel\|>|<end_working_out>",
    re.I,
)
# The end of a prompt that opens the reasoning, also in the formats of Gemma and gpt-oss.
_OPENED = re.compile(rf"(?:{_OPEN.pattern}|<\|channel>thought|<\|channel\|>analysis<\|message\|>)\s*\Z", re.I)
_PARSED = frozenset({"reasoning_content", "reasoning", "thinking"})
# The Harmony format of gpt-oss, and what a tokenizer that skips special tokens leaves of it.
_HARMONY = re.compile(r"<\|channel\|>|\A(?:analysis|commentary)(?=[A-Z])")
_FINAL = re.compile(
    r".*<\|channel\|>final[^\n<]{0,40}(?:<\|constrain\|>[^\n<]{0,40})?<\|message\|>|"
    r"\A(?:analysis|commentary).*assistantfinal",
    re.S,
)
# DeepSeek's tokens have full-width bars and low blocks in place of spaces. The start of a turn has a role.
SPECIAL_TOKENS = re.compile(
    r"<\|(?:im_start|start_header_id)\|>assistant(?:<\|end_header_id\|>)?\s*|<start_of_turn>model\s*|"
    r"<\|[A-Za-z0-9_ ]{1,40}\|>|<\uff5c[A-Za-z0-9_\u2581 ]{1,40}\uff5c>|</?s>|<\|?turn\|?>|"
    r"<(?:eos|bos|pad|end_of_turn|start_of_turn)>"
)
"""Special tokens of the common tokenizers in a decoded text."""

_ANSWER = r"(?:final[_ ])?(?:answer|report)|solution|response|output"
# Tokens of GLM and OpenThinker around an answer.
_BOX = re.compile(r"<\|(begin|end)_of_(?:box|solution)\|>")
_BRACED = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*"
# What stands around a report, by a sign without which there is none. The first group is the report, in the last match.
_FORMS = {
    # In tags, of which the prompt may have opened the first.
    "</": re.compile(rf"(?:<(?:{_ANSWER})>|\A)((?:(?!</?(?:{_ANSWER})>).)*)</(?:{_ANSWER})>", re.I | re.S),
    # In the only code fence, with at most one line before it, which ends with a colon.
    "```": re.compile(r"\A(?:[^\n`]{0,200}:[*_ \t]*\n)?\s*```(?:[\w+-]*[ \t]*\n)?((?:(?!```).)*)```\s*\Z", re.S),
    "\\boxed{": re.compile(rf"\\boxed\{{({_BRACED})\}}"),
    "\\text{": re.compile(rf"\A\s*\\text\{{({_BRACED})\}}\s*\Z"),
    # At the start of a line or sentence.
    "final answer": re.compile(
        r"\A(?:.*[\n.!?])?[#*_ \t]*(?:the )?final answer(?: is)?[*_]*[ \t]*(?::[*_]*|\n)(.*)\Z", re.I | re.S
    ),
}
_MOST_FORMS = 8
_CHOICES = ("auto", "opened", "raw")


def opened_reasoning(prompt: Any) -> str:
    r"""Return the tag of reasoning with which a prompt ends; empty if there is none.

    Args:
        prompt: A text, or a list of messages, of which the last is read; anything else has no tag.

    Example:
        >>> opened_reasoning("Report the CT.\n<think>\n"), opened_reasoning("Think in <think> tags.")
        ('<think>\n', '')
        >>> opened_reasoning([{"role": "assistant", "content": [{"type": "text", "text": "<think>"}]}])
        '<think>'
    """
    while isinstance(prompt, Sequence) and prompt and isinstance(prompt[-1], Mapping):
        # A list of messages, or of the parts of the content of one.
        prompt = prompt[-1].get("content", prompt[-1].get("text"))
    opened = _OPENED.search(prompt) if isinstance(prompt, str) else None
    return "" if opened is None else opened[0]


def _continued(completion: Completion, text: str | None, prompt: Any) -> str | None:
    """Return the text of a completion after the tag of reasoning that its prompt has opened."""
    if text is None or not (opened := opened_reasoning(prompt)):
        return text
    # After tools reply, and beside reasoning that a trainer has parsed, the text continues no reasoning of the prompt.
    replies = [] if isinstance(completion, str) else [one for one in completion if one.get("role") == "assistant"]
    return text if len(replies) > 1 or any(_PARSED & one.keys() for one in replies) else opened + text


@dataclass(frozen=True)
class ReportExtractor:
    r"""Extracts the report from what a policy wrote.

    With ``"auto"``, in this order:

    1. Reasoning is removed: the report follows the last end of reasoning (``</think>`` and its kin, or the start of the
       final message in the Harmony format). Reasoning that does not end is removed, too, so that a policy earns no
       exemption by never ending it.
    2. Text from the first special token on is dropped, such as ``<|im_end|>`` and padding. Special tokens at the start
       are skipped.
    3. The report is the text in the last pair of tags such as ``<answer>...</answer>`` or ``<report>``, in a code
       fence, in ``\boxed{}``, or after "Final answer:". These may be nested.

    A text without any of these forms remains as it is, byte for byte. Only closed forms count: ``<answer>`` without an
    end, as in a completion that was cut off, is text, and so is what follows it.

    A completion continues its prompt: after a prompt that ends in an opening tag, such as ``<think>``, a completion
    without an end of reasoning is an empty report.

    Args:
        report: ``"auto"``; ``"opened"``, if the chat template, which is no part of a prompt of messages, opens the
            reasoning: a completion without an end of it is an empty report; ``"raw"``, which changes nothing; or a
            regular expression, in which ``.`` matches line breaks, too: after steps 1 and 2, the report is the groups
            of its last match, joined by line breaks. Without a match, the report is empty.

    Raises:
        SettingError: If ``report`` is no regular expression with a group.

    Example:
        >>> extract = ReportExtractor()
        >>> extract("<think>Large heart?</think><answer>Cardiomegaly.</answer><|im_end|>")
        'Cardiomegaly.'
        >>> extract("<think>Large heart?"), extract("Heart <5 cm. ")
        ('', 'Heart <5 cm. ')
        >>> ReportExtractor("<findings>(.*?)</findings>.*?<impression>(.*?)</impression>")(
        ...     "<findings>Edema.</findings><impression>Heart failure.</impression>")
        'Edema.\nHeart failure.'
    """

    report: str = "auto"

    def __post_init__(self) -> None:
        try:
            # A compiled expression has no place in YAML.
            groups = 1 if self.report in _CHOICES else re.compile("" + self.report).groups
        except (TypeError, re.error) as error:
            raise SettingError("report", f"must be auto, opened, raw or a regular expression: {error}") from None
        if not groups:
            problem = "must be auto, opened, raw or a regular expression with a group, such as '<a>(.*?)</a>'"
            raise SettingError("report", f"{problem}, got {self.report!r}")

    def __call__(self, text: str) -> str:
        """Return the report."""
        return text if self.report == "raw" else _extracted(self, text)

    def _extract(self, text: str) -> str:
        if self.report == "opened" and _CLOSE.search(text) is None:
            return ""
        rest = _BOX.sub(lambda token: "<answer>" if token[1] == "begin" else "</answer>", _without_reasoning(text))
        report = _until_end(rest)
        if self.report not in _CHOICES:
            *_, groups = ((), *(match.groups() for match in re.finditer(self.report, report, re.S)))
            return "\n".join(group for group in groups if group is not None).strip()
        for _ in range(_MOST_FORMS):
            forms = (form for sign, form in _FORMS.items() if sign in report.lower())
            matches = (match for form in forms for match in reversed([*form.finditer(report)]))
            if (match := next(matches, None)) is None:
                break
            report = match[1]
        return text if report == text else report.strip()

    def reports(self, completions: Sequence[Completion], prompts: Sequence[Any] | None = None) -> list[str | None]:
        """Return the reports of completions, of which the prompts may be given; ``None`` without a reply."""
        texts = completion_texts(completions)
        if prompts is not None and self.report != "raw":
            check_same_length("completions", completions, "prompts", prompts)
            texts = [_continued(*row) for row in zip(completions, texts, prompts, strict=True)]
        return [None if text is None else self(text) for text in texts]


@lru_cache(maxsize=1024)
def _extracted(extractor: ReportExtractor, text: str) -> str:
    """Return a report; a text is read once for its score, its log and all parts of a composed reward."""
    return extractor._extract(text)


def _without_reasoning(text: str) -> str:
    if (final := _FINAL.match(text)) is not None or _HARMONY.search(text) is not None:
        text = "" if final is None else text[final.end() :]
    rest = _CLOSE.split(text)[-1]
    opened = _OPEN.search(rest)
    return rest if opened is None else rest[: opened.start()]


def _until_end(text: str) -> str:
    start = 0
    for match in SPECIAL_TOKENS.finditer(text):
        if text[start : match.start()].strip():
            return text[start : match.start()]
        start = match.end()
    return text[start:]
