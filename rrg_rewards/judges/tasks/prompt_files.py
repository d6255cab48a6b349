"""Tasks with a prompt from a file of the user: the printed layout of a paper, whose placeholders the texts replace."""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rrg_rewards.judges.base import Item, JudgeFailure, JudgeTask, Message, Result
from rrg_rewards.judges.tasks.crimson_published import refuse_control_text
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError

# Also {reference_report}, and {reference\_report} as in a paper that is stored as Markdown.
_PLACEHOLDER = re.compile(r"<([a-z]+(?: [a-z]+)*)>|\{([a-z]+(?:\\?_[a-z]+)*)\}")
Task = TypeVar("Task", bound="PromptFileTask[Any, Any]")


@dataclass(unsafe_hash=True)
class PromptFileTask(JudgeTask[Item, Result]):
    """A task with a prompt of the user. The answer is free text, so that servers get no schema of it.

    A placeholder is written ``<reference report>`` or ``{reference_report}``. The texts of an item replace it, neither
    escaped nor delimited. A prompt without the necessary placeholders gets them at its end, each with its name.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only some of the necessary placeholders, or an unknown one in ``<>``.
    """

    prompt: str

    required: ClassVar[tuple[str, ...]]
    """Names of the necessary placeholders."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Names of further placeholders."""

    def __post_init__(self) -> None:
        known = tuple(dict.fromkeys((*self.required, *self.optional)))
        found = {_name(placeholder) for placeholder in _PLACEHOLDER.finditer(self.prompt)}
        for name in sorted({placeholder[1] for placeholder in _PLACEHOLDER.finditer(self.prompt)} - {None, *known}):
            raise ValueError(f"{unknown_name_message('placeholder', name, known)} (written {_in_brackets(known)})")
        missing = tuple(name for name in self.required if name not in found)
        if missing and len(missing) < len(self.required):
            raise ValueError(
                f"the prompt lacks {_in_brackets(missing)}; use all of {_in_brackets(self.required)}, or none to have "
                "them added at the end"
            )
        if missing:
            added = "".join(f"\n\n{name.capitalize()}: <{name}>" for name in missing)
            self.prompt = f"{self.prompt.rstrip()}{added}\n"

    @property
    def prompt_hash(self) -> str:
        """First 12 digits of the SHA-256 of the prompt."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()[:12]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Empty: the answer is free text."""
        return {}

    @abstractmethod
    def values(self, item: Item) -> Mapping[str, str]:
        """Return the texts for the placeholders by name."""

    def messages(self, item: Item) -> list[Message]:
        """Build one message: the prompt with the texts of the item."""
        values = self.values(item)
        # One pass, so that placeholders in a report are not replaced.
        filled = _PLACEHOLDER.sub(lambda placeholder: values.get(_name(placeholder), placeholder[0]), self.prompt)
        return [{"role": "user", "content": filled}]

    def refusal(self, item: Item) -> JudgeFailure | None:
        """Return a failure if a text contains what a prompt without escapes must not contain."""
        return refuse_control_text(self.values(item), "a prompt of the user")


def _name(placeholder: re.Match[str]) -> str:
    return placeholder[1] or placeholder[2].replace("\\", "").replace("_", " ")


def _in_brackets(names: tuple[str, ...]) -> str:
    return ", ".join(f"<{name}>" for name in names)


def read_prompt_task(setting: str, path: str | Path, task: type[Task]) -> Task:
    """Return a task with the prompt of a file.

    Args:
        setting: Name of the setting that has the path, for messages.
        path: The file.
        task: Class of the task.

    Raises:
        SettingError: If the file is blank or not UTF-8, or its placeholders are wrong.
        OSError: If the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        if not text.strip():
            raise ValueError("is blank; it must be a prompt")
        return task(text)
    except ValueError as error:
        raise SettingError(setting, f"{path}: {error}") from None
