"""Base class of tasks with a prompt file in this folder."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from types import ModuleType
from typing import Any

from rrg_rewards.judges.base import Item, JudgeTask, Message, Result
from rrg_rewards.judges.tasks.escaping import fill
from rrg_rewards.utilities.imports import require

__all__ = ["PromptTask", "answer_schemas"]

_SEPARATOR = "\n=====\n"


class PromptTask(JudgeTask[Item, Result]):
    """A task whose prompt is a Markdown file in ``judges/tasks``.

    Two tasks are equal if they are of the same class and have equal attributes.
    """

    template: str
    """Prompt file ``judges/tasks/<template>_prompt.md``: system and user message with placeholders ``{{name}}``."""

    form: str
    """Name of the class of answers in :mod:`rrg_rewards.judges.tasks.answer_schemas`."""

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
        schema: Mapping[str, Any] = getattr(answer_schemas(), self.form).json_schema()
        return schema

    @abstractmethod
    def _probes(self) -> Sequence[Item]:
        """Example items whose messages contain every variant of the prompt."""

    def _fill(self, **values: str) -> list[Message]:
        """Build the messages with ``values`` in the placeholders."""
        system, user = _read_template(self.template)
        # Do not search long instructions without placeholders for each item.
        instructions = fill(system, **values) if "{{" in system else system
        return [{"role": "system", "content": instructions}, {"role": "user", "content": fill(user, **values)}]

    def _read(self, answer: str) -> Any:
        """Parse an answer as :attr:`form`; raise :class:`AnswerError` if it is malformed."""
        forms = answer_schemas()
        return forms.read_answer(answer, getattr(forms, self.form))


def answer_schemas() -> ModuleType:
    """Return :mod:`rrg_rewards.judges.tasks.answer_schemas`, imported lazily because it needs pydantic.

    Raises:
        ModuleNotFoundError: If pydantic is not installed, naming the pip command.
    """
    require("pydantic", extra="judge")
    return require("rrg_rewards.judges.tasks.answer_schemas", extra="judge")


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
