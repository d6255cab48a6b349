"""The report in what a policy wrote, and the completion in a decoded text that also contains the prompt."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Start of an answer in the chat formats of Qwen, Llama 3, Mistral, Gemma, Phi, DeepSeek and Vicuna.
_ANSWER = re.compile(
    r"<\|im_start\|>assistant\n?|<\|start_header_id\|>assistant<\|end_header_id\|>\s*|\[/INST\]|"
    r"<start_of_turn>model\n?|<\|assistant\|>\n?|<\uff5cAssistant\uff5c>|^ASSISTANT:|(?<=[\s>])ASSISTANT:",
    re.M,
)
_QUESTION = re.compile(
    r"<\|im_start\|>user\n?|<\|start_header_id\|>user<\|end_header_id\|>\s*|\[INST\]|<start_of_turn>user\n?|"
    r"<\|user\|>\n?|<\uff5cUser\uff5c>|^USER:|(?<=[\s>])USER:|^Human:",
    re.M,
)
# LLaMA-Factory's default template.
_PLAIN_ANSWER = re.compile(r"^Assistant:", re.M)
# DeepSeek's tokens have full-width bars and low blocks in place of spaces.
_SPECIAL = re.compile(
    r"<\|[A-Za-z0-9_ ]{1,40}\|>|<\uff5c[A-Za-z0-9_\u2581 ]{1,40}\uff5c>|</?s>|"
    r"<(?:eos|bos|pad|unk|end_of_turn|start_of_turn)>"
)
_PLACEHOLDER = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z/_]{2,20}\]")


def completion_after_prompt(text: str, prompt: str) -> str:
    r"""Return the completion of a decoded text.

    The completion follows the prompt. If the text does not begin with the prompt, because image tokens are repeated or
    the prompt was truncated, it follows as many starts of answers as the prompt has. So a policy that writes such a
    start itself hides nothing. A prompt without a start of an answer ends with its text after the last special token.

    Args:
        text: Decoded prompt and completion.
        prompt: The prompt.

    Raises:
        ValueError: If the completion is not found.

    Example:
        >>> completion_after_prompt("Report the CT.\nCardiomegaly.<|im_end|>", "Report the CT.\n")
        'Cardiomegaly.<|im_end|>'
        >>> prompt = "<image>\n<|im_start|>assistant\n"
        >>> completion_after_prompt("<|image_pad|><|image_pad|>\n<|im_start|>assistant\nClear.", prompt)
        'Clear.'
    """
    if text.startswith(prompt):
        return text[len(prompt) :]
    expected = len(_ANSWER.findall(prompt))
    starts = [match.end() for match in _ANSWER.finditer(text)]
    if 1 <= expected <= len(starts):
        return text[starts[expected - 1] :]
    ending = _PLACEHOLDER.split(prompt)[-1].strip()
    if not expected and ending and ending in text:
        return text[text.index(ending) + len(ending) :]
    raise ValueError(
        "the completion was not found: the text neither begins with its prompt nor contains the prompt's end; end the "
        "prompt with the chat template's start of an answer"
    )


def first_exchange(text: str) -> tuple[str, str]:
    r"""Return the first question of a decoded conversation, without special tokens, and all that follows it.

    Args:
        text: Decoded prompt and completion in a chat format, or in LLaMA-Factory's default template.

    Raises:
        ValueError: If there is no known start of an answer.

    Example:
        >>> first_exchange("<|im_start|>user\nReport.<|im_end|>\n<|im_start|>assistant\nClear.<|im_end|>")
        ('Report.', 'Clear.<|im_end|>')
    """
    answer = _ANSWER.search(text) or _PLAIN_ANSWER.search(text)
    if answer is None:
        raise ValueError("the text has no known start of an answer, such as <|im_start|>assistant")
    starts = [match.end() for match in _QUESTION.finditer(text, 0, answer.start())]
    question = text[starts[-1] if starts else 0 : answer.start()]
    return plain_question(question), text[answer.end() :]


def plain_question(text: str) -> str:
    """Return a question without special tokens, image placeholders and surrounding spaces.

    Example:
        >>> plain_question(" <image>Report the CT. ")
        'Report the CT.'
    """
    return _PLACEHOLDER.sub("", _SPECIAL.sub("", text)).strip()


@dataclass(frozen=True)
class ReportExtractor:
    r"""Extracts the report from what a policy wrote.

    1. Text from the first special token on is dropped, such as ``<|im_end|>`` and padding. Special tokens at the start
       are skipped.
    2. Reasoning is removed: the report follows the last ``</think>``, or the start of the last final message in the
       Harmony format (gpt-oss). A report whose reasoning does not end is empty, so that a policy earns no exemption by
       never ending it.
    3. With ``tags``, the report is the text in all these tags, in their order in the text, joined by line breaks. A tag
       that is not closed ends at the next tag or the end. Without any of the tags, the report is empty.

    Args:
        think: Whether to remove reasoning; ``"opened"`` if the prompt already opens it, so that a text without
            ``</think>`` is only reasoning.
        tags: Names of the tags that contain the report, such as ``["findings", "impression"]``.

    Raises:
        ValueError: If ``think`` is another value, or a tag is not a name.

    Example:
        >>> extract = ReportExtractor(tags=("answer",))
        >>> extract("<think>Large heart?</think><answer>Cardiomegaly.</answer><|im_end|>")
        'Cardiomegaly.'
        >>> extract("Cardiomegaly."), ReportExtractor()("<think>Large heart?")
        ('', '')
    """

    think: bool | Literal["opened"] = True
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.think not in (True, False, "opened"):
            raise ValueError(f"think must be true, false or opened, got {self.think!r}")
        if isinstance(self.tags, str) or not all(
            isinstance(tag, str) and re.fullmatch(r"\w+", tag) for tag in self.tags
        ):
            raise ValueError(f"tags must be a list of names such as [findings, impression], got {self.tags!r}")

    def __call__(self, text: str) -> str:
        """Return the report."""
        if self.think and "<|channel|>" in text:
            _, is_final, text = text.rpartition("<|channel|>final<|message|>")
            text = text if is_final else ""
        text = _until_end(text)
        text = self._without_reasoning(text) if self.think else text
        return (self._tagged(text) if self.tags else text).strip()

    def _without_reasoning(self, text: str) -> str:
        _, closed, rest = text.rpartition("</think>")
        if not closed and self.think == "opened":
            return ""
        return rest.partition("<think>")[0] if closed or "<think>" in rest else text

    def _tagged(self, text: str) -> str:
        names = "|".join(map(re.escape, self.tags))
        found = re.finditer(rf"<({names})>(.*?)(?=</?(?:{names})>|\Z)", text, re.I | re.S)
        return "\n".join(match[2].strip() for match in found)


def _until_end(text: str) -> str:
    start = 0
    for match in _SPECIAL.finditer(text):
        if text[start : match.start()].strip():
            return text[start : match.start()]
        start = match.end()
    return text[start:]
