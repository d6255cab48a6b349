"""CRIMSON as a task for language models: the question, and the checks that an answer must pass before it counts."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Literal, get_args

from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import AnswerError, JudgeTask, Message, ReportPair
from rrg_rewards.judges.escaping import fill, quote_text
from rrg_rewards.judges.grounding import ReportWords, content_words
from rrg_rewards.judges.published import published_messages
from rrg_rewards.judges.templates import load_template, prompt_digest
from rrg_rewards.utilities.imports import require

__all__ = ["CrimsonPrompt", "CrimsonTask"]

CrimsonPrompt = Literal["own", "crimson-score"]
"""Whose words ask for CRIMSON: this package's, or those that the published fine-tuned judge was trained on."""

_ID = {"reference_findings": re.compile(r"R[0-9]{1,4}"), "predicted_findings": re.compile(r"P[0-9]{1,4}")}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Everything that a prompt may do with an item shows in what it makes of this one.
_PROBE = ReportPair('Reference. <a> "b"\n', "Candidate. <c> {d}\n", (("age", "82"), ("sex", "F"), ("indication", "e")))


class CrimsonTask(JudgeTask[ReportPair, CrimsonEvaluation]):
    """Ask for the abnormal findings of two reports and how they relate, in the published JSON form.

    ``prompt="own"`` explains the paper's three stages, levels of significance and attribute errors. Reports go in as
    JSON strings between tags, with everything but letters, digits and plain punctuation escaped, so that no report can
    close its tags, write tags or special tokens of its own, or start a line.

    ``prompt="crimson-score"`` builds, by calling the package ``crimson-score``, exactly the messages that
    ``rajpurkarlab/medgemma-4b-it-crimson`` was trained on. These have no place for escapes: reports lose line breaks,
    markup and invisible characters, but a sentence that addresses the judge reaches it as one.

    An answer counts if it is a JSON object of the schema (see :mod:`rrg_rewards.judges.answers`) and

    - ids are ``R1, R2, ...`` and ``P1, P2, ...``, different, and all ids that are referred to are listed;
    - each reference finding is matched, once or several times, or missing once; each candidate's finding is matched or
      false once; no pair is matched twice; attribute errors are of matched pairs;
    - a report's list holds no finding twice, and not more findings than the report has words;
    - each finding is in its report in about its words, with its numbers
      (:data:`rrg_rewards.judges.grounding.GROUNDING`);
    - each report's list tells of at least half of what the rules find present in it
      (:data:`rrg_rewards.judges.grounding.COVERAGE`).

    Whether findings are matched rightly, and how significant they are, is the judge's word and is not checked.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Sections 3.1 and 3.2.

    Args:
        prompt: ``"own"`` or ``"crimson-score"``.

    Raises:
        ValueError: For another prompt.

    Example:
        >>> import json
        >>> from rrg_rewards.functional import crimson_score
        >>> task = CrimsonTask()
        >>> pair = ReportPair("Small left effusion.", "Normal chest.")
        >>> [message["role"] for message in task.messages(pair)]
        ['system', 'user']
        >>> effusion = {"id": "R1", "finding": "small left effusion", "clinical_significance": "actionable_not_urgent"}
        >>> errors = {"false_findings": [], "missing_findings": ["R1"], "attribute_errors": []}
        >>> answer = {"reference_findings": [effusion], "predicted_findings": [], "matched_findings": []}
        >>> crimson_score(task.parse(pair, json.dumps({**answer, "errors": errors})))
        tensor(0., dtype=torch.float64)
    """

    name = "crimson"

    def __init__(self, prompt: CrimsonPrompt = "own") -> None:
        if prompt not in get_args(CrimsonPrompt):
            raise ValueError(f"prompt must be one of {', '.join(get_args(CrimsonPrompt))}; got {prompt!r}")
        self.prompt = prompt

    def __eq__(self, other: object) -> bool:
        # Not those of a subclass, which may ask otherwise.
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.prompt))

    def __repr__(self) -> str:
        return f"CrimsonTask(prompt={self.prompt!r})"

    @property
    def prompt_hash(self) -> str:
        """First digits of the SHA-256 of messages and schema."""
        return _prompt_hash(self)

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer: every key required, no other allowed."""
        schema: Mapping[str, Any] = _answers().CrimsonAnswer.json_schema()
        return schema

    def messages(self, item: ReportPair) -> list[Message]:
        """The conversation to answer: instructions, then patient and reports as data."""
        if self.prompt == "crimson-score":
            return published_messages(item)
        system, user = load_template("crimson")
        patient = [f"  {quote_text(name)}: {quote_text(value)}" for name, value in item.context]
        filled = fill(
            user,
            patient="{" + ("\n" + ",\n".join(patient) + "\n" if patient else "") + "}",
            reference=quote_text(item.reference),
            candidate=quote_text(item.candidate),
        )
        return [{"role": "system", "content": system}, {"role": "user", "content": filled}]

    def parse(self, item: ReportPair, answer: str) -> CrimsonEvaluation:
        """The evaluation that an answer gives, if it stands all checks.

        Raises:
            AnswerError: ``malformed`` or ``inconsistent``, saying what is wrong without report text.
        """
        found = _read(answer)
        reference = _ids("reference_findings", found.reference_findings)
        predicted = _ids("predicted_findings", found.predicted_findings)
        _check_references(found, reference, predicted)
        _check_findings("reference_findings", found.reference_findings, item.reference)
        _check_findings("predicted_findings", found.predicted_findings, item.candidate)
        return found


def _read(answer: str) -> CrimsonEvaluation:
    answers = _answers()
    return CrimsonEvaluation.from_dict(answers.read_answer(answer, answers.CrimsonAnswer).model_dump())


def _answers() -> ModuleType:
    require("pydantic", extra="judge")
    return require("rrg_rewards.judges.answers", extra="judge")


@cache
def _prompt_hash(task: CrimsonTask) -> str:
    return prompt_digest([task.messages(_PROBE), task.messages(ReportPair("", ""))], task.schema)


def _ids(kind: str, findings: Sequence[CrimsonFinding]) -> set[str]:
    for row, finding in enumerate(findings):
        # Checked first: from here on ids may be told in messages, for they hold no text.
        if not _ID[kind].fullmatch(finding.id):
            raise AnswerError("inconsistent", f"{kind}[{row}].id must be {kind[0].upper()} and a number")
    if twice := _twice(finding.id for finding in findings):
        raise AnswerError("inconsistent", f"{kind} holds {twice} twice")
    return {finding.id for finding in findings}


def _twice(values: Any) -> Any:
    """A value that occurs more than once."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _check_references(found: CrimsonEvaluation, reference: set[str], predicted: set[str]) -> None:
    matched_references = {ref_id for ref_id, _ in found.matched_findings}
    matched_predictions = {pred_id for _, pred_id in found.matched_findings}
    _check_known("matched_findings", matched_references, reference)
    _check_known("matched_findings", matched_predictions, predicted)
    if pair := _twice(found.matched_findings):
        raise AnswerError("inconsistent", f"matched_findings holds a pair twice: {', '.join(pair)}")
    _check_partition("missing_findings", found.missing_findings, matched_references, reference)
    _check_partition("false_findings", found.false_findings, matched_predictions, predicted)
    for row, error in enumerate(found.attribute_errors):
        if (error.ref_id, error.pred_id) not in found.matched_findings:
            raise AnswerError("inconsistent", f"errors.attribute_errors[{row}] is about a pair that is not matched")


def _check_known(kind: str, ids: set[str], known: set[str]) -> None:
    if not ids <= known:
        raise AnswerError("inconsistent", f"{kind} holds {len(ids - known)} ids that no finding has")


def _check_partition(kind: str, unmatched: Sequence[str], matched: set[str], known: set[str]) -> None:
    _check_known(f"errors.{kind}", set(unmatched), known)
    if _twice(unmatched):
        raise AnswerError("inconsistent", f"errors.{kind} holds {_twice(unmatched)} twice")
    if both := matched & set(unmatched):
        raise AnswerError("inconsistent", f"{min(both)} is matched and in errors.{kind}")
    if neither := known - matched - set(unmatched):
        raise AnswerError("inconsistent", f"{min(neither)} is neither matched nor in errors.{kind}")


# A reference comes with each of its candidates, and a cached answer with its report again.
_report_words = lru_cache(maxsize=1 << 10)(ReportWords)


def _check_findings(kind: str, findings: Sequence[CrimsonFinding], report: str) -> None:
    """Raise unless a list of findings can be of a report."""
    words = _report_words(report)
    if len(findings) > len(words):
        raise AnswerError("inconsistent", f"{kind} holds {len(findings)} findings of a report of {len(words)} words")
    for finding in findings:
        if not words.holds(finding.finding):
            raise AnswerError("inconsistent", f"{kind}: {finding.id} is not in the report in about these words")
    if _twice((content_words(finding.finding), tuple(_NUMBER.findall(finding.finding))) for finding in findings):
        raise AnswerError("inconsistent", f"{kind} holds a finding twice")
    if not words.covered_by([finding.finding for finding in findings]):
        raise AnswerError("inconsistent", f"{kind} leaves out most of what the report says is abnormal")
