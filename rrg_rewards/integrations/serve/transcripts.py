"""Find the completion in a decoded text that also contains the prompt."""

import re

from rrg_rewards.integrations.serve.errors import RequestError

__all__ = ["completion_after_prompt", "first_exchange"]

# Start of an answer in the chat formats of Qwen, Llama 3, Mistral, Gemma, Phi, Vicuna and LLaMA-Factory's default.
_ANSWER = re.compile(
    r"<\|im_start\|>assistant\n?|<\|start_header_id\|>assistant<\|end_header_id\|>\s*|\[/INST\]|"
    r"<start_of_turn>model\n?|<\|assistant\|>\n?|^ASSISTANT:|(?<=[\s>])ASSISTANT:|^Assistant:",
    re.M,
)
_QUESTION = re.compile(
    r"<\|im_start\|>user\n?|<\|start_header_id\|>user<\|end_header_id\|>\s*|\[INST\]|<start_of_turn>user\n?|"
    r"<\|user\|>\n?|^USER:|(?<=[\s>])USER:|^Human:",
    re.M,
)
_SPECIAL = r"<\|[A-Za-z0-9_ ]{1,40}\|>|</?s>|<(?:eos|bos|pad|unk|image|end_of_turn|start_of_image)>"
_SPECIALS = re.compile(_SPECIAL)
_END = re.compile(rf"(?:{_SPECIAL}|\s)+\Z")


def completion_after_prompt(text: str, prompt: str, where: str) -> str:
    r"""Return the completion of a text, without the special tokens at its end.

    The completion follows the prompt. If the text does not begin with the prompt, for example because image tokens are
    repeated, it follows as many starts of answers as the prompt has. So a policy that writes such a start itself
    hides nothing.

    Args:
        text: Decoded prompt and completion.
        prompt: The prompt.
        where: Name of the text in errors.

    Raises:
        RequestError: If the completion is not found.

    Example:
        >>> completion_after_prompt("Report the CT.\nCardiomegaly.<|im_end|>", "Report the CT.\n", "query[0]")
        'Cardiomegaly.'
    """
    if text.startswith(prompt):
        return _END.sub("", text[len(prompt) :])
    num_answers = len(_ANSWER.findall(prompt))
    starts = [match.end() for match in _ANSWER.finditer(text)]
    if not 1 <= num_answers <= len(starts):
        raise RequestError(422, f"{where} does not begin with its prompt, and has no known start of an answer")
    return _END.sub("", text[starts[num_answers - 1] :])


def first_exchange(text: str, where: str) -> tuple[str, str]:
    r"""Return the first question and its answer in a text, without special tokens around them.

    Raises:
        RequestError: If there is no known start of an answer.

    Example:
        >>> text = "<|im_start|>user\nReport.<|im_end|>\n<|im_start|>assistant\nClear.<|im_end|>"
        >>> first_exchange(text, "messages[0]")
        ('Report.', 'Clear.')
    """
    answer = _ANSWER.search(text)
    if answer is None:
        raise RequestError(422, f"{where} has no known start of an answer, such as <|im_start|>assistant")
    starts = [match.end() for match in _QUESTION.finditer(text, 0, answer.start())]
    question = text[starts[-1] if starts else 0 : answer.start()]
    return _SPECIALS.sub("", question).strip(), _END.sub("", text[answer.end() :])
