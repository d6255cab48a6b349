"""The prompt of CRIMSON's published judge, built by the package ``crimson-score``."""

from types import SimpleNamespace
from typing import Any

from rrg_rewards.judges.base import Message, ReportPair
from rrg_rewards.utilities.imports import require

__all__ = ["published_messages"]


def published_messages(pair: ReportPair) -> list[Message]:
    """Build the messages that ``crimson-score`` sends to its fine-tuned judge: its prompt without guidelines.

    The messages are those of the package to the byte, because its judge was trained on them. The prompt has no
    delimiters and no escapes; :func:`rrg_rewards.judges.tasks.escaping.find_control_text` says which reports must
    therefore not be sent.

    Args:
        pair: Reports and context. Names of the context become headings, as in the package's examples (``Age``).

    Raises:
        ModuleNotFoundError: If ``crimson-score`` is not installed, naming the pip command.
    """
    package = require("CRIMSON", extra="crimson")
    build = require("CRIMSON.prompt_parts", extra="crimson").build_prompt
    prompt = build(
        pair.reference,
        pair.candidate,
        patient_context={name.capitalize(): value for name, value in pair.context} or None,
        include_significance_examples=False,
        include_attribute_guidelines=False,
        include_context_guidelines=False,
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
