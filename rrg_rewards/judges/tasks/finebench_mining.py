"""CT-FineBench's named entity recognition: list the attributes of findings that a report states."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from rrg_rewards.judges.base import AnswerError, Message
from rrg_rewards.judges.tasks.base import PromptTask
from rrg_rewards.judges.tasks.escaping import quote_text
from rrg_rewards.judges.tasks.grounding import ReportWords, report_words
from rrg_rewards.questions.schema import QuestionSchema

__all__ = ["FindingTriple", "FindingTriples", "ReportFindings", "TriplesTask"]

# Longest name of an attribute and longest value, in words. A copy of the report would otherwise be a valid value.
_LONGEST_ATTRIBUTE = 4
_LONGEST_VALUE = 15
_PROBE = 'A nodule. <a> "b"\n{c}'


@dataclass(frozen=True)
class ReportFindings:
    """A report, and the findings whose attributes are to be listed.

    Args:
        report: The report.
        findings: Names of findings of the question schema, such as those that labels call positive.
    """

    report: str
    findings: tuple[str, ...]


class FindingTriple(NamedTuple):
    """An attribute of a finding that a report states.

    Args:
        finding: Name of the finding in the question schema.
        attribute: Name of the attribute in the judge's words, in lower case.
        value: Value in the words of the report, in lower case.
        quote: The words of the report that state it.
    """

    finding: str
    attribute: str
    value: str
    quote: str


FindingTriples = tuple[FindingTriple, ...]
"""The triples of one report, each once."""


class TriplesTask(PromptTask[ReportFindings, FindingTriples]):
    """List triples of finding, attribute and value that a report states, with a quote for each.

    The triples of a corpus, counted, are the material from which a question schema is written. An answer is valid if it
    is a JSON object of the form and

    - each finding is one of those asked for;
    - each quote is a passage of the report, word for word, apart from case and white space;
    - each value is in the words of its quote, and has at most 15 words;
    - the name of each attribute has one to four words.

    Source: Yuan et al., "CT-FineBench", Section 3.2 and Appendix A.

    Args:
        questions: Question schema whose findings may be asked for.

    Example:
        >>> from rrg_rewards.questions import get_question_schema
        >>> task = TriplesTask(get_question_schema("ct_rate"))
        >>> item = ReportFindings("Solid nodule of 8 mm.", ("Lung nodule",))
        >>> entry = {"quote": "nodule of 8 mm", "finding": "Lung nodule", "attribute": "Size", "value": "8 mm"}
        >>> import json
        >>> task.parse(item, json.dumps({"triples": [entry]}))[0][:3]
        ('Lung nodule', 'size', '8 mm')
    """

    name = "ct_finebench_triples"
    template = "finebench_triples"
    form = "TriplesForm"

    def __init__(self, questions: QuestionSchema) -> None:
        self.questions = questions

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer, with the names of the findings."""
        schema: Any = deepcopy(super().schema)
        entry = schema["properties"]["triples"]["items"]["properties"]
        entry["finding"]["enum"] = [finding.name for finding in self.questions.findings]
        return dict(schema)

    def _probes(self) -> Sequence[ReportFindings]:
        return (ReportFindings("", ()), ReportFindings(_PROBE, (_PROBE,)))

    def messages(self, item: ReportFindings) -> list[Message]:
        """Build the conversation: instructions, then the report and the names of the findings as data."""
        return self._fill(report=quote_text(item.report), findings="\n".join(map(quote_text, item.findings)))

    def parse(self, item: ReportFindings, answer: str) -> FindingTriples:
        """Return the triples of an answer."""
        words = report_words(item.report)
        listed = self._read(answer).triples
        return tuple(dict.fromkeys(_triple(number, entry, item, words) for number, entry in enumerate(listed, start=1)))


def _triple(number: int, entry: Any, item: ReportFindings, words: ReportWords) -> FindingTriple:
    if entry.finding not in item.findings:
        raise AnswerError("inconsistent", f"triple {number}: the finding is not one of those asked for")
    if not words.contains_passage(entry.quote):
        raise AnswerError("inconsistent", f"triple {number}: the quote is not a passage of the report")
    value, attribute = (" ".join(text.lower().split()) for text in (entry.value, entry.attribute))
    if not value or not ReportWords(entry.quote).contains_answer(value):
        raise AnswerError("inconsistent", f"triple {number}: the value is not in the words of its quote")
    if len(value.split()) > _LONGEST_VALUE:
        raise AnswerError("inconsistent", f"triple {number}: the value has more than {_LONGEST_VALUE} words")
    if not 1 <= len(attribute.split()) <= _LONGEST_ATTRIBUTE:
        raise AnswerError(
            "inconsistent", f"triple {number}: the attribute must be named in 1 to {_LONGEST_ATTRIBUTE} words"
        )
    return FindingTriple(entry.finding, attribute, value, entry.quote)
