"""The task of a labeler: state of each label of a schema, with a quote of the report."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

from rrg_rewards.judges.base import AnswerError, Message
from rrg_rewards.judges.tasks.base import PromptTask, fenced_text
from rrg_rewards.judges.tasks.grounding import is_denial, report_words

LabelState = Literal["positive", "negative", "uncertain"]
"""Whether a report states the finding of a label, denies or does not mention it, or leaves it open."""

_PROBE = 'A nodule. <a> "b"\n{c}'


@dataclass(frozen=True, slots=True)
class StatedLabel:
    """The state of a label in a report.

    Args:
        state: ``positive``, ``negative`` or ``uncertain``.
        quote: The report's words that decide the state; ``None`` for a negative label that no words deny.
    """

    state: LabelState
    quote: str | None


class LabelAnswer(TypedDict):
    """Whether a report states a label, with the words that say so."""

    quote: str | None
    state: LabelState


class LabelsForm(TypedDict):
    """Answer of :class:`LabelsTask`: an answer by label."""

    labels: dict[str, LabelAnswer]


class LabelsTask(PromptTask[str, tuple[StatedLabel, ...]]):
    """State all labels of a report in one answer.

    An answer is valid if it is a JSON object of the form that has each label once, and

    - a positive or uncertain label has a quote, and a negative one has a quote or ``null``;
    - quotes are in the words of the report
      (:meth:`rrg_rewards.judges.tasks.grounding.ReportWords.contains_finding`);
    - the quote of a positive label does not begin with a negation.

    Whether the quote is about the label is not checked.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Section 2.2: labels "using any recent LLM".

    Args:
        labels: Names of the labels.
        definitions: Definition of each label, ``""`` for none.

    Raises:
        ValueError: If there is no label, or another number of definitions.

    Example:
        >>> task = LabelsTask(["Lung nodule"], ["a nodule of any size"])
        >>> task.parse("Nodule of 8 mm.", '{"labels": {"Lung nodule": {"quote": "Nodule", "state": "positive"}}}')
        (StatedLabel(state='positive', quote='Nodule'),)
    """

    name = "labels"
    template = "labels"
    form = LabelsForm

    def __init__(self, labels: Sequence[str], definitions: Sequence[str] = ()) -> None:
        self.labels = tuple(labels)
        self.definitions = tuple(definitions) or ("",) * len(self.labels)
        if not self.labels or len(self.definitions) != len(self.labels):
            raise ValueError(
                f"{len(self.definitions)} definitions for {len(self.labels)} labels; there must be one each"
            )

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer, with a key for each label."""
        schema: Any = deepcopy(super().schema)
        entry = schema["properties"]["labels"]["additionalProperties"]
        schema["properties"]["labels"] = {
            "type": "object",
            "properties": {label: deepcopy(entry) for label in self.labels},
            "required": list(self.labels),
            "additionalProperties": False,
        }
        return dict(schema)

    def _probes(self) -> Sequence[str]:
        return ("", _PROBE)

    def messages(self, item: str) -> list[Message]:
        """Build the conversation: instructions with the labels, then the report as data."""
        described = (
            f"- {json.dumps(label, ensure_ascii=False)}{f': {text}' if text else ''}"
            for label, text in zip(self.labels, self.definitions, strict=True)
        )
        form = (
            f'{{"labels": {{{json.dumps(self.labels[0], ensure_ascii=False)}: {{"quote": ..., "state": ...}}, ...}}}}'
        )
        return self._fill(labels="\n".join(described), answer=form, report=fenced_text(item))

    def parse(self, item: str, answer: str) -> tuple[StatedLabel, ...]:
        """Return the state of each label, in the order of :attr:`labels`."""
        given = self._read(answer)["labels"]
        missing, unknown = set(self.labels) - given.keys(), given.keys() - set(self.labels)
        if missing or unknown:
            # Do not quote unknown names, which may contain report text.
            raise AnswerError("inconsistent", f"labels: {len(missing)} are missing, and {len(unknown)} are unknown")
        return tuple(_checked(label, given[label], item) for label in self.labels)


def _checked(label: str, stated: LabelAnswer, report: str) -> StatedLabel:
    quote, state = (stated["quote"] or "").strip(), stated["state"]
    if not quote:
        if state != "negative":
            raise AnswerError("inconsistent", f"{label}: {state} without a quote")
        return StatedLabel("negative", None)
    if not report_words(report).contains_finding(quote):
        raise AnswerError("inconsistent", f"{label}: the quote is not in the report in similar words")
    if state == "positive" and is_denial(quote):
        raise AnswerError("inconsistent", f"{label}: positive with a quote that denies the finding")
    return StatedLabel(state, quote)
