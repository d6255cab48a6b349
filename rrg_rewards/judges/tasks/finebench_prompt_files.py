"""CT-FineBench's steps with prompts from files of the user, and the answers that the paper's appendices ask for."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.base import read_json, without_thought
from rrg_rewards.judges.tasks.finebench import (
    Answer,
    AnswerPairs,
    FindingTriple,
    FindingTriples,
    Questions,
    Refused,
    ReportFindings,
    question_item,
    readable_answer,
)
from rrg_rewards.judges.tasks.prompt_files import PromptFileTask
from rrg_rewards.questions.schema import AttributeSpec, QAItem, name_key

_OF_ITEM = ("attribute", "disease", "explanation", "example")
_UNANSWERED = frozenset({"no answer", "null"})
_FENCE = re.compile(r"\s*```\w*\s*")
_BOX = re.compile(r"\\(?:boxed|text|mathbf)\b")
# A line that is a score, and a line that may state one. Not the digits of -1 or .1.
_BARE = re.compile(r"\W*(?:score\W*)?(?<![-\u2212.])(?:0(?:\.0)?|0?\.5|1(?:\.0)?)\W*", re.IGNORECASE)
_SCORE = re.compile(r"\b(?:score|grade)[sd]?\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-\u2212]?(?:\d+(?:\.\d+)?|\.\d+)")
# Words by which a line says what is no score, or another one under a condition.
_DENIED = re.compile(
    r"\b(?:not|cannot|no|never|without|rather than|instead of)\b[^,.;:]*$|n't\b[^,.;:]*$", re.IGNORECASE
)
_CONDITIONAL = re.compile(r"\b(?:would|could|might|may|should|if|unless|requires?|between|either|or)\b", re.IGNORECASE)
_SCORES = frozenset({0.0, 0.5, 1.0})


class AnswerPromptTask(PromptFileTask[Questions, tuple[Answer, ...]]):
    """Answer one question about a report, with a prompt in the layout of the paper's appendix B.

    The placeholders are ``<report>`` and ``<question>``, which are necessary, and ``<attribute>``, ``<disease>``,
    ``<explanation>`` and ``<example>``. Any text is an answer, also one that is not in the words of the report. ``no
    answer`` and ``[NULL]`` mean that the report does not state it.

    Source: Yuan et al., "CT-FineBench", Section 3.3 and Appendix B.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only one of the necessary placeholders, or an unknown one.

    Example:
        >>> task = AnswerPromptTask("Report: <report> Question: <question>")
        >>> item = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task.messages(Questions("Nodule of 8 mm.", (item,)))[0]["content"]
        'Report: Nodule of 8 mm. Question: What is the size of the nodule?'
        >>> task.parse(Questions("Nodule of 8 mm.", (item,)), "No answer.")
        (None,)
    """

    name = "ct_finebench_answer_prompt"
    required = ("report", "question")
    optional = _OF_ITEM

    def values(self, item: Questions) -> Mapping[str, str]:
        """Return the report, and the question with its attribute."""
        (asked,) = item.items
        return {"report": item.report, "question": asked.question, **_values_of(asked)}

    def parse(self, item: Questions, answer: str) -> tuple[Answer, ...]:  # noqa: ARG002 (the answer is not checked)
        """Return the answer as a tuple of one; ``None`` if the report does not state it."""
        text = without_thought(answer)
        return (None if text.strip(" .\"'`*[]").lower() in _UNANSWERED else text or None,)


class GradePromptTask(PromptFileTask[AnswerPairs, tuple[float | None, ...]]):
    r"""Grade one answer with 0, 0.5 or 1, with a prompt in the layout of the paper's appendix B.

    The placeholders are ``<question>``, ``<reference answer>`` and ``<predict answer>``, which are necessary, and
    ``<attribute>``, ``<disease>``, ``<explanation>`` and ``<example>``. The paper prints a prompt without placeholders.
    An answer is valid if its last line is one of the scores, alone or after the word "Score"; or if its lines that are
    a score, or say "score" or "grade", state one score only, as in ``The score is 0.5.``, ``\boxed{1}`` or ``Score 0.5
    (Partially Correct)``. A line with a percentage, another number, a denial or a condition makes it invalid.

    Source: Yuan et al., "CT-FineBench", Section 3.3 and Appendix B.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only some of the necessary placeholders, or an unknown one.

    Example:
        >>> item = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task = GradePromptTask("Score the predict answer with 0, 0.5 or 1.")
        >>> task.messages(AnswerPairs((item,), ("8 mm",)))[0]["content"].splitlines()[2::2]
        ['Question: What is the size of the nodule?', 'Reference answer: 12 mm', 'Predict answer: 8 mm']
        >>> task.parse(AnswerPairs((item,), ("8 mm",)), "Score: 0")
        (0.0,)
    """

    name = "ct_finebench_grade_prompt"
    required = ("question", "reference answer", "predict answer")
    optional = _OF_ITEM

    def values(self, item: AnswerPairs) -> Mapping[str, str]:
        """Return the question with its attribute, and both answers."""
        (asked,), (answer,) = item.items, item.answers
        own = {"question": asked.question, "reference answer": asked.answer, "predict answer": answer}
        return {**own, **_values_of(asked)}

    def parse(self, item: AnswerPairs, answer: str) -> tuple[float | None, ...]:  # noqa: ARG002 (only the score counts)
        """Return the grade as a tuple of one."""
        lines = [line for line in without_thought(answer).splitlines() if line.strip() and not _FENCE.fullmatch(line)]
        lines = [_BOX.sub(" score ", line) for line in lines]
        told = [line for line in lines if _BARE.fullmatch(line) or (_SCORE.search(line) and _NUMBER.search(line))]
        # The last line counts alone if it is a score: the lines before it weigh several.
        scores = set(map(_stated_score, lines[-1:] if lines and _BARE.fullmatch(lines[-1]) else told))
        if len(scores) != 1 or None in scores:
            raise AnswerError("malformed", "the answer states no score of 0, 0.5 or 1, or several")
        return (scores.pop(),)


def _stated_score(line: str) -> float | None:
    """Return the score that a line states; ``None`` if it is unclear."""
    numbers = list(_NUMBER.finditer(line))
    # A percentage is no score: 1 % is not 1.
    is_unclear = len(numbers) != 1 or "%" in line or _CONDITIONAL.search(line)
    if is_unclear or _DENIED.search(line[: numbers[0].start()]):
        return None
    value = float(numbers[0][0].replace("\u2212", "-"))
    return value if value in _SCORES else None


def _values_of(item: QAItem) -> dict[str, str]:
    values = (item.attribute, item.finding, item.explanation, ", ".join(item.examples))
    return dict(zip(_OF_ITEM, values, strict=True))


class AskedAttribute(NamedTuple):
    """An attribute of a finding, on which a report may have a question.

    Args:
        report: The report.
        finding: Name of the finding.
        spec: The attribute.
    """

    report: str
    finding: str
    spec: AttributeSpec


class QuestionPromptTask(PromptFileTask[AskedAttribute, QAItem | Refused | None]):
    """Make the question on one attribute of a finding, with a prompt in the layout of the paper's appendix A.

    The placeholders are ``<report>``, ``<disease>`` and ``<attribute>``, which are necessary, and ``<attribute
    explanation>`` and ``<attribute example>``. The answer has a pair ``["question", "answer"]`` in ``<step3>``, or an
    empty list if the report does not state the attribute. The words of the report are not checked. An answer of a
    numeric attribute without a number that can be compared is :attr:`Refused.NOT_NUMERIC`.

    Source: Yuan et al., "CT-FineBench", Section 3.2 and Appendix A.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains only some of the necessary placeholders, or an unknown one.
    """

    name = "ct_finebench_question_prompt"
    required = ("report", "disease", "attribute")
    optional = ("attribute explanation", "attribute example")

    def values(self, item: AskedAttribute) -> Mapping[str, str]:
        """Return the report, and the attribute as the schema describes it."""
        described = {"attribute explanation": item.spec.explanation, "attribute example": ", ".join(item.spec.examples)}
        return {"report": item.report, "disease": item.finding, "attribute": item.spec.name, **described}

    def parse(self, item: AskedAttribute, answer: str) -> QAItem | Refused | None:
        """Return the question with its answer; ``None`` if the report does not state the attribute."""
        found = _tagged_list(answer, "step3")
        if not found:
            return None
        if len(found) != 2 or not all(isinstance(text, str) and text.strip() for text in found):
            raise AnswerError("malformed", "<step3> must contain a pair of question and answer, or an empty list")
        question, stated = map(str.strip, found)
        told = readable_answer(stated, item.spec.answer_type)
        return told if isinstance(told, Refused) else question_item(item.finding, item.spec, told, question)


class TriplesPromptTask(PromptFileTask[ReportFindings, FindingTriples]):
    """List what a report states of findings, with a prompt in the layout of the paper's appendix A.

    The placeholders are ``<report>``, which is necessary, and ``<findings>``, the names of the findings, one a line.
    The answer has a list of ``[sentence, finding, attribute, value]`` in ``<step3>``. A finding that is named like one
    of those asked for, case and underscores aside, gets its name. Sentences, names and values are not checked: the
    paper lets the judge rewrite the sentences.

    Source: Yuan et al., "CT-FineBench", Section 3.2 and Appendix A.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains an unknown placeholder.

    Example:
        >>> task = TriplesPromptTask("List the attributes.")
        >>> answer = '<step3>[["fibrosis in both lungs", "Fibrosis", "Location", "both lungs"]]</step3>'
        >>> task.parse(ReportFindings("Fibrosis in both lungs.", ("Lung nodule",)), answer)
        (FindingTriple(finding='fibrosis', attribute='location', value='both lungs', quote='fibrosis in both lungs'),)
    """

    name = "ct_finebench_triples_prompt"
    required = ("report",)
    optional = ("findings",)

    def values(self, item: ReportFindings) -> Mapping[str, str]:
        """Return the report, and the names of the findings."""
        return {"report": item.report, "findings": "\n".join(item.findings)}

    def parse(self, item: ReportFindings, answer: str) -> FindingTriples:
        """Return the triples of an answer, each once."""
        asked = {name_key(finding): finding for finding in item.findings}
        triples = []
        for number, entry in enumerate(_tagged_list(answer, "step3"), start=1):
            texts = (
                [" ".join(text.split()) for text in entry if isinstance(text, str)] if isinstance(entry, list) else []
            )
            if len(texts) != 4 or not all(texts):
                raise AnswerError("malformed", f"entry {number} of <step3> must be a list of four texts")
            quote, finding, attribute, value = texts
            key = name_key(finding)
            triples.append(FindingTriple(asked.get(key, key), attribute.lower(), value.lower(), quote))
        return tuple(dict.fromkeys(triples))


class RewritePromptTask(PromptFileTask[str, str]):
    """Rewrite a report, with a prompt in the layout of the paper's appendix B for paraphrases or adversarial reports.

    The placeholder is ``<report>``, which the printed prompts lack. The answer is the report, also in a code fence.

    Source: Yuan et al., "CT-FineBench", Section 5.2 and Appendix B.

    Args:
        prompt: The prompt.

    Raises:
        ValueError: If the prompt contains an unknown placeholder.

    Example:
        >>> RewritePromptTask("Paraphrase the report.").parse("Clear lungs.", "The lungs are clear.")
        'The lungs are clear.'
    """

    name = "ct_finebench_rewrite_prompt"
    required = ("report",)

    def values(self, item: str) -> Mapping[str, str]:
        """Return the report."""
        return {"report": item}

    def parse(self, item: str, answer: str) -> str:  # noqa: ARG002 (the answer is not checked)
        """Return the rewritten report."""
        lines = without_thought(answer).splitlines()
        text = "\n".join(line for line in lines if not _FENCE.fullmatch(line)).strip()
        if not text:
            raise AnswerError("malformed", "the answer is blank")
        return text


def _tagged_list(answer: str, tag: str) -> list[Any]:
    """Return the JSON list in the last pair of tags of an answer."""
    _, opened, rest = without_thought(answer).rpartition(f"<{tag}>")
    content, closed, _ = rest.partition(f"</{tag}>")
    if not opened or not closed:
        raise AnswerError("malformed", f"the answer has no <{tag}>...</{tag}>")
    found = read_json(content)
    if not isinstance(found, list):
        raise AnswerError("malformed", f"<{tag}> must contain a list")
    return found
