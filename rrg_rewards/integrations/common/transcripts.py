"""The completion in a decoded text that also contains the prompt."""

import re

from rrg_rewards.rewards.completions import SPECIAL_TOKENS

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
    return _PLACEHOLDER.sub("", SPECIAL_TOKENS.sub("", text)).strip()
