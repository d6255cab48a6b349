"""CT-FineBench's answers and grades with prompts from files of the user, one question in a request, as in the paper."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.judges.base import AnswerError, JudgeFailure, JudgeTask, Message
from rrg_rewards.judges.tasks.base import without_thought
from rrg_rewards.judges.tasks.crimson_published import find_control_text
from rrg_rewards.judges.tasks.finebench import Answer, AnswerPairs, Questions
from rrg_rewards.questions.schema import QAItem
from rrg_rewards.utilities.names import unknown_name_message

_PLACEHOLDER = re.compile(r"<([a-z]+(?: [a-z]+)*)>")
_OF_ITEM = ("question", "attribute", "disease", "explanation", "example")
_OF_PAIR = ("question", "reference answer", "predict answer")
# The prompt for grades in the paper's appendix has no placeholders.
_PAIR = "\n\nQuestion: <question>\n\nReference answer: <reference answer>\n\nPredict answer: <predict answer>\n"
_UNANSWERED = frozenset({"no answer", "null"})
# Not the digits of -1 or .1.
_SCORE = re.compile(r"\W*(?:score\W*)?(?<![-\u2212.])(0(?:\.0)?|0?\.5|1(?:\.0)?)\W*", re.IGNORECASE)


@dataclass(frozen=True)
class _PromptFileTask(JudgeTask[Any, Any]):
    """A task with a user's prompt. The answer is free text, so that servers get no schema of it.

    Args:
        prompt: The prompt with placeholders.
    """

    prompt: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", self._checked_prompt())

    def _checked_prompt(self) -> str:
        """Return the prompt with all placeholders; raise a ValueError for a wrong or missing one."""
        raise NotImplementedError

    @property
    def prompt_hash(self) -> str:
        """First 12 digits of the SHA-256 of the prompt."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()[:12]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Empty: the answer is free text."""
        return {}

    def _values(self, item: Any) -> Mapping[str, str]:
        """Return the texts for the placeholders."""
        raise NotImplementedError

    def messages(self, item: Any) -> list[Message]:
        """Build one message: the prompt with the texts of the item. They are neither escaped nor delimited."""
        values = self._values(item)
        # One pass, so that placeholders in a report are not replaced.
        return [{"role": "user", "content": _PLACEHOLDER.sub(lambda found: values[found[1]], self.prompt)}]

    def refusal(self, item: Any) -> JudgeFailure | None:
        """Return a failure if a text contains what a prompt without escapes must not contain."""
        for name, text in self._values(item).items():
            if (reason := find_control_text(text)) is not None:
                return JudgeFailure("status", f"{name} contains {reason}, which a prompt of the user cannot escape")
        return None


class AnswerPromptTask(_PromptFileTask):
    """Answer one question about a report, with a prompt in the layout of the paper's appendix B.

    The placeholders are ``<report>`` and ``<question>``, which the prompt must contain, and ``<attribute>``,
    ``<disease>``, ``<explanation>`` and ``<example>``. Any text is an answer, also one that is not in the words of the
    report. ``no answer`` and ``[NULL]`` mean that the report does not state it.

    Source: Yuan et al., "CT-FineBench", Section 3.3 and Appendix B.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt lacks a placeholder, or contains an unknown one.

    Example:
        >>> task = AnswerPromptTask("Report: <report> Question: <question>")
        >>> item = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task.messages(Questions("Nodule of 8 mm.", (item,)))[0]["content"]
        'Report: Nodule of 8 mm. Question: What is the size of the nodule?'
        >>> task.parse(Questions("Nodule of 8 mm.", (item,)), "No answer.")
        (None,)
    """

    name = "ct_finebench_answer_prompt"

    def _checked_prompt(self) -> str:
        found = _check_placeholders(self.prompt, ("report", *_OF_ITEM))
        if missing := [f"<{name}>" for name in ("report", "question") if name not in found]:
            raise ValueError(f"the prompt for answers lacks {' and '.join(missing)}")
        return self.prompt

    def _values(self, item: Questions) -> Mapping[str, str]:
        (asked,) = item.items
        return {"report": item.report, **_values_of(asked)}

    def parse(self, item: Questions, answer: str) -> tuple[Answer, ...]:  # noqa: ARG002 (the answer is not checked)
        """Return the answer as a tuple of one; ``None`` if the report does not state it."""
        text = without_thought(answer)
        return (None if text.strip(" .\"'`*[]").lower() in _UNANSWERED else text or None,)


class GradePromptTask(_PromptFileTask):
    """Grade one answer with 0, 0.5 or 1, with a prompt in the layout of the paper's appendix B.

    The placeholders are ``<question>``, ``<reference answer>`` and ``<predict answer>``, and the optional
    ``<attribute>``, ``<disease>``, ``<explanation>`` and ``<example>``. The paper prints a prompt without placeholders:
    question and answers are then added at its end, each with its name. An answer is valid if its last line is one of
    the scores, alone or after the word "Score".

    Source: Yuan et al., "CT-FineBench", Section 3.3 and Appendix B.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only some of the three placeholders, or an unknown one.

    Example:
        >>> item = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task = GradePromptTask("Score the predict answer with 0, 0.5 or 1.")
        >>> task.messages(AnswerPairs((item,), ("8 mm",)))[0]["content"].splitlines()[2::2]
        ['Question: What is the size of the nodule?', 'Reference answer: 12 mm', 'Predict answer: 8 mm']
        >>> task.parse(AnswerPairs((item,), ("8 mm",)), "Score: 0")
        (0.0,)
    """

    name = "ct_finebench_grade_prompt"

    def _checked_prompt(self) -> str:
        found = _check_placeholders(self.prompt, (*_OF_PAIR, *_OF_ITEM))
        missing = [f"<{name}>" for name in _OF_PAIR if name not in found]
        if missing and len(missing) < len(_OF_PAIR):
            raise ValueError(
                f"the prompt for grades lacks {' and '.join(missing)}; use all of {_in_brackets(_OF_PAIR)}, or none to "
                "have them added at the end"
            )
        return self.prompt.rstrip() + _PAIR if missing else self.prompt

    def _values(self, item: AnswerPairs) -> Mapping[str, str]:
        (asked,), (answer,) = item.items, item.answers
        return {**_values_of(asked), "reference answer": asked.answer, "predict answer": answer}

    def parse(self, item: AnswerPairs, answer: str) -> tuple[float | None, ...]:  # noqa: ARG002 (only the score counts)
        """Return the grade as a tuple of one."""
        lines = without_thought(answer).splitlines() or [""]
        score = _SCORE.fullmatch(lines[-1])
        if score is None:
            raise AnswerError("malformed", "the last line of the answer is no score of 0, 0.5 or 1")
        return (float(score[1]),)


def _values_of(item: QAItem) -> dict[str, str]:
    return {
        "question": item.question,
        "attribute": item.attribute,
        "disease": item.finding,
        "explanation": item.explanation,
        "example": ", ".join(item.examples),
    }


def _check_placeholders(prompt: str, known: tuple[str, ...]) -> set[str]:
    found = set(_PLACEHOLDER.findall(prompt))
    for name in sorted(found - set(known)):
        raise ValueError(f"{unknown_name_message('placeholder', name, known)} (written {_in_brackets(known)})")
    return found


def _in_brackets(names: tuple[str, ...]) -> str:
    return ", ".join(f"<{name}>" for name in dict.fromkeys(names))


def read_prompt_file(path: str | Path) -> str:
    """Return the text of a prompt file.

    Raises:
        ValueError: If the file is blank, or is not UTF-8.
        OSError: If the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    if not text.strip():
        raise ValueError(f"{path}: is blank; it must be a prompt")
    return text
