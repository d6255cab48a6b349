"""Reports in decoded texts of several chat formats."""

import pytest

from rrg_rewards.integrations.common.transcripts import completion_after_prompt

QWEN = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
LLAMA = (
    "<|start_header_id|>user<|end_header_id|>\n\n{question}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
GEMMA = "<start_of_turn>user\n{question}<end_of_turn>\n<start_of_turn>model\n"
MISTRAL = "<s>[INST] {question} [/INST]"
VICUNA = "A chat. USER: {question} ASSISTANT:"
DEEPSEEK = "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>{question}<\uff5cAssistant\uff5c>"
FORMATS = [QWEN, LLAMA, GEMMA, MISTRAL, VICUNA, DEEPSEEK]


@pytest.mark.parametrize("template", [*FORMATS, "{question}\n"])
def test_completion_after_prompt_follows_the_prompt(template: str) -> None:
    prompt = template.format(question="Report the CT.")
    assert completion_after_prompt(prompt + "Cardiomegaly.", prompt) == "Cardiomegaly."


@pytest.mark.parametrize("template", FORMATS)
def test_completion_after_prompt_allows_repeated_image_tokens(template: str) -> None:
    prompt = template.format(question="<image>\nReport the CT.")
    text = template.format(question="<image>" * 40 + "\nReport the CT.") + "Cardiomegaly."
    assert completion_after_prompt(text, prompt) == "Cardiomegaly."


@pytest.mark.parametrize("template", FORMATS)
def test_completion_after_prompt_hides_nothing_after_another_start_of_an_answer(template: str) -> None:
    prompt = template.format(question="<image>Report.")
    start = template[template.index("{question}") + len("{question}") :]
    completion = f"Large mass. {start}No abnormality."
    text = template.format(question="<image><image>Report.") + completion
    assert completion_after_prompt(text, prompt) == completion


def test_completion_after_prompt_follows_earlier_turns() -> None:
    prompt = QWEN.format(question="<image>Hello.") + "Hi.<|im_end|>\n" + QWEN.format(question="Report.")
    text = QWEN.format(question="<image><image>Hello.") + "Hi.<|im_end|>\n" + QWEN.format(question="Report.") + "Clear."
    assert completion_after_prompt(text, prompt) == "Clear."


def test_completion_after_prompt_finds_a_truncated_prompt_without_a_chat_format() -> None:
    assert (
        completion_after_prompt("<pad><pad> Findings of this CT: Clear.", "<image> Findings of this CT:") == " Clear."
    )


def test_completion_after_prompt_raises_if_it_finds_no_completion() -> None:
    with pytest.raises(ValueError, match="the completion was not found"):
        completion_after_prompt("Something else.", "Report the CT.")
    with pytest.raises(ValueError, match="the completion was not found"):
        completion_after_prompt("Something else.", QWEN.format(question="Report."))
