"""The messages of CRIMSON's published judge, made by the package that publishes them."""

from types import SimpleNamespace
from typing import Any

from rrg_rewards.judges.base import Message, ReportPair
from rrg_rewards.judges.escaping import plain_text
from rrg_rewards.utilities.imports import require

__all__ = ["published_messages"]


def published_messages(pair: ReportPair) -> list[Message]:
    """The messages that ``crimson-score`` asks its fine-tuned judge with: its prompt without guidelines.

    The prompt has no delimiters, so reports go in by :func:`rrg_rewards.judges.escaping.plain_text`. An empty report
    stays empty.

    Args:
        pair: Reports, and context whose names become headings as in the package's examples (``Age``).

    Raises:
        ModuleNotFoundError: If ``crimson-score`` is not installed, naming the pip command.
    """
    package = require("CRIMSON", extra="crimson")
    build = require("CRIMSON.prompt_parts", extra="crimson").build_prompt
    prompt = build(
        plain_text(pair.reference),
        plain_text(pair.candidate),
        patient_context={plain_text(name).capitalize(): plain_text(value) for name, value in pair.context} or None,
        include_significance_examples=False,
        include_attribute_guidelines=False,
        include_context_guidelines=False,
    )
    return _asked(package.CRIMSONScore, prompt)


def _asked(scorer_class: Any, prompt: str) -> list[Message]:
    """What the package's scorer sends. It alone knows its system message, so it gets a listener for a model."""
    sent: list[list[Message]] = []

    def listen(conversations: list[list[Message]], **_: Any) -> list[Any]:
        sent.extend(conversations)
        return [SimpleNamespace(outputs=[SimpleNamespace(text="")])]

    # Without its constructor, which would load the model.
    scorer = scorer_class.__new__(scorer_class)
    scorer.api, scorer.llm, scorer.sampling_params = "vllm", SimpleNamespace(chat=listen), None
    scorer._chat_completion(prompt)
    (messages,) = sent
    return [{"role": message["role"], "content": message["content"]} for message in messages]
