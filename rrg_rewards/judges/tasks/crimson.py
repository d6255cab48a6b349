"""CRIMSON's task for language models: prompt and checks of answers."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from typing_extensions import TypedDict

from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.functional.crimson import CrimsonChecks
from rrg_rewards.judges.base import AnswerError, JudgeFailure, Message, ReportPair
from rrg_rewards.judges.tasks.base import PromptTask, fenced_text, quote_text
from rrg_rewards.judges.tasks.crimson_published import (
    published_messages,
    read_published_answer,
    read_repaired_answer,
    refuse_control_text,
)
from rrg_rewards.judges.tasks.grounding import content_words, report_words
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS, AttributeErrorType
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.settings import SettingError

CrimsonPrompt = Literal["own", "guidelines", "crimson-score", "crimson-score-guidelines"]
"""``"own"``: this package's prompt. ``"guidelines"``: with clinical guidelines, for strong models. ``"crimson-score"``:
the prompt that the published judge was fine-tuned on. ``"crimson-score-guidelines"``: the published prompt for strong
models."""

# The prompts of the package crimson-score, and whether they have its guidelines.
_PUBLISHED = {"crimson-score": False, "crimson-score-guidelines": True}

_ID = {"reference_findings": re.compile(r"R[0-9]{1,4}"), "predicted_findings": re.compile(r"P[0-9]{1,4}")}
# Levels of clinical significance in ascending order. An unknown one weighs as much as the second.
_LEVELS = {level: i for i, level in enumerate(sorted(SIGNIFICANCE_WEIGHTS, key=SIGNIFICANCE_WEIGHTS.__getitem__))}
_UNKNOWN_LEVEL = 1
# A bilateral finding of the candidate may match one reference finding on each side.
_MOST_MATCHES = 2
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PROBE = ReportPair('Reference. <a> "b"\n', "Candidate. <c> {d}\n", (("age", "82"), ("sex", "F"), ("indication", "e")))


class FindingAnswer(TypedDict):
    """A finding of one report."""

    id: str
    finding: str
    clinical_significance: Literal["urgent", "actionable_not_urgent", "not_actionable_not_urgent", "benign_expected"]


class MatchAnswer(TypedDict):
    """A reference finding and a candidate finding that match."""

    ref_id: str
    pred_id: str


class AttributeErrorAnswer(TypedDict):
    """An error in an attribute of a matched finding."""

    ref_id: str
    pred_id: str
    severity: Literal["significant", "negligible"]
    error_types: list[AttributeErrorType]
    explanation: str


class ErrorsAnswer(TypedDict):
    """False findings, missing findings and attribute errors of the candidate."""

    false_findings: list[str]
    missing_findings: list[str]
    attribute_errors: list[AttributeErrorAnswer]


class CrimsonAnswer(TypedDict):
    """Answer of :class:`CrimsonTask`, in CRIMSON's published form."""

    reference_findings: list[FindingAnswer]
    predicted_findings: list[FindingAnswer]
    matched_findings: list[MatchAnswer]
    errors: ErrorsAnswer


class CrimsonTask(PromptTask[ReportPair, CrimsonEvaluation]):
    """List and match the abnormal findings of two reports, in the published JSON form.

    ``prompt="own"`` explains the paper's three stages, levels of significance and attribute errors. Reports are
    inserted as JSON strings between tags and between codes that are hashes of the reports. All characters except
    letters, digits and plain punctuation are escaped, so that a report cannot close its tags or codes, write other tags
    or special tokens, or start a line.

    ``prompt="guidelines"`` adds clinical guidelines for strong models: common findings by level, rules on age,
    indication and known disease, and when an error of each type is significant.

    ``prompt="crimson-score"`` calls the package ``crimson-score`` to build exactly the messages that it sends to
    ``rajpurkarlab/medgemma-4b-it-crimson``. Reports are inserted unchanged. A pair with a special token of a chat
    template, which could begin another message, is not sent and fails with ``status``.
    ``prompt="crimson-score-guidelines"`` does the same with the package's prompt for strong models, which has examples
    and guidelines.

    ``checks`` decides which answers are scored. It is independent of the prompt.

    ``checks="published"``, the default for the prompts of ``crimson-score``: an answer is valid if the code of the
    package scores it, and gets the same score (which the package rounds to four digits). Neither the reports nor the
    answer's consistency are considered:

    - The text is parsed, and repaired if it is not JSON, as the package does it
      (:func:`rrg_rewards.judges.tasks.crimson_published.read_published_answer`). A code fence, reasoning or any other
      text around the JSON makes an answer ``malformed``, because the package does not remove it.
    - A missing key is an empty list or label, so that ``{}`` is the answer of two normal reports and scores 1. Only
      ``id`` of a finding, and ``ref_id`` of a match and an attribute error are required. Any other key is ignored,
      also ``finding``, ``explanation`` and ``pred_id``.
    - Ids may have any form. An id that no finding has counts in the numbers of errors and weighs 0. An id that is
      listed several times as false or missing is counted each time; a reference finding that is matched several times
      is credited once; one that is both matched and missing is credited. Of equal ids in a list of findings the last
      determines the weight of the id, and each adds its weight to that of the reference.
    - Findings of any levels match. An attribute error of a finding that is not matched is counted and has no effect on
      the score.
    - Unknown labels weigh 0.25, and unknown types of attribute errors are in no count by type.
    - Matches without reference findings weigh nothing, but the score is 0 and not 1, if there is no false finding.
    - Numbers, ``true``, ``false`` and ``null`` as ids or labels, and texts or objects in place of lists, are read as
      the package reads them (:meth:`rrg_rewards.functional.CrimsonEvaluation.from_dict`).

    ``checks="strict"``, the default for the other prompts: an answer is valid if it is a JSON object of the schema
    (:class:`CrimsonAnswer`), possibly in a code fence and after ``<think>...</think>``, and

    - ids are ``R1, R2, ...`` and ``P1, P2, ...``, unique, and every id in a match or an error is the id of a finding;
    - each reference finding is either matched, once or several times, or missing once; each candidate finding is either
      matched or false once; no pair is matched twice; attribute errors belong to matched pairs;
    - a matched candidate finding is at most one level less significant than its reference finding, so that a finding
      that costs nothing if it is false earns nothing from a weighty one;
    - except with the prompts of ``crimson-score``, a candidate finding matches at most two reference findings, one on
      each side;
    - a report's list contains no finding twice, and not more findings than the report has words;
    - each finding is stated in its report in similar words, with its numbers
      (:data:`rrg_rewards.judges.tasks.grounding.GROUNDING`);
    - each report's list covers at least half of what the rules find present in the report
      (:data:`rrg_rewards.judges.tasks.grounding.COVERAGE`).

    With the prompts of ``crimson-score``, strict checks accept unknown labels of significance and severity, further
    keys, errors without an explanation, and errors of JSON that the published code repairs.

    Whether matches and levels of significance are correct is not checked.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Sections 3.1 and 3.2.

    Args:
        prompt: ``"own"``, ``"guidelines"``, ``"crimson-score"`` or ``"crimson-score-guidelines"``.
        checks: ``"published"`` or ``"strict"``; ``None``: ``"published"`` for the prompts of ``crimson-score``, else
            ``"strict"``.

    Raises:
        SettingError: For another prompt or other checks.

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
    template = "crimson"
    form = CrimsonAnswer

    def __init__(self, prompt: CrimsonPrompt = "own", checks: CrimsonChecks | None = None) -> None:
        if prompt not in get_args(CrimsonPrompt):
            raise SettingError("prompt", f"must be one of {', '.join(get_args(CrimsonPrompt))}; got {shown(prompt)}")
        if checks is not None and checks not in get_args(CrimsonChecks):
            raise SettingError("checks", f"must be one of {', '.join(get_args(CrimsonChecks))}; got {shown(checks)}")
        self.prompt = prompt
        self.checks: CrimsonChecks = checks or ("published" if prompt in _PUBLISHED else "strict")

    def __repr__(self) -> str:
        return f"CrimsonTask(prompt={self.prompt!r}, checks={self.checks!r})"

    @property
    def prompt_hash(self) -> str:
        """Hash of prompt and form as in the base class, and of the checks if they are not strict.

        A judge asks again if the checks reject an answer. Answers that are kept by this hash therefore depend on them.
        """
        prompt = super().prompt_hash
        return (
            prompt if self.checks == "strict" else hashlib.sha256(f"{prompt} {self.checks}".encode()).hexdigest()[:12]
        )

    @property
    def prompt_signature(self) -> str:
        """Name of the prompt, and the hash that identifies its text, its form and the checks."""
        return f"{self.prompt}@{self.prompt_hash}"

    def _probes(self) -> Sequence[ReportPair]:
        return (_PROBE, ReportPair("", ""))

    def messages(self, item: ReportPair) -> list[Message]:
        """Build the conversation: instructions, then patient and reports as data."""
        if self.prompt in _PUBLISHED:
            return published_messages(item, _PUBLISHED[self.prompt])
        patient = [f"  {quote_text(name)}: {quote_text(value)}" for name, value in item.context]
        instructions, data = self._fill(
            patient="{" + ("\n" + ",\n".join(patient) + "\n" if patient else "") + "}",
            reference=fenced_text(item.reference),
            candidate=fenced_text(item.candidate),
        )
        if self.prompt == "guidelines":
            instructions = {**instructions, "content": f"{instructions['content']}\n\n{_guidelines()}"}
        return [instructions, data]

    def shared_part(self, item: ReportPair) -> Hashable:
        """Patient and reference."""
        return item.context, item.reference

    def refusal(self, item: ReportPair) -> JudgeFailure | None:
        """Return a failure if the published prompt, which has no escapes, cannot contain a text of the pair."""
        if self.prompt not in _PUBLISHED:
            return None
        texts = {"the reference": item.reference, "the candidate": item.candidate, **dict(item.context)}
        return refuse_control_text(texts, "the published prompt")

    def answer(self, evaluation: CrimsonEvaluation) -> str | None:
        """Return the answer that contains an evaluation, to train a model on it.

        Returns:
            JSON of the prompt's form, for the prompts of ``crimson-score`` in ASCII and without spaces, as their
            authors train on it. ``None`` if the published code, with ``checks="published"``, would read another
            evaluation because of its repairs.
        """
        published = self.prompt in _PUBLISHED
        separators = (",", ":") if published else None
        answer = json.dumps(evaluation.to_dict(), ensure_ascii=published, separators=separators)
        return None if self.checks == "published" and not _is_read_as(answer, evaluation) else answer

    def parse(self, item: ReportPair, answer: str) -> CrimsonEvaluation:
        """Return the evaluation that an answer contains."""
        if self.checks == "published":
            return read_published_answer(answer)
        published = self.prompt in _PUBLISHED
        evaluation = read_repaired_answer(answer) if published else _evaluation(self._read(answer))
        reference = _ids("reference_findings", evaluation.reference_findings)
        predicted = _ids("predicted_findings", evaluation.predicted_findings)
        _check_references(evaluation, reference, predicted)
        _check_levels(evaluation)
        if not published:
            _check_collecting(evaluation)
        _check_findings("reference_findings", evaluation.reference_findings, item.reference)
        _check_findings("predicted_findings", evaluation.predicted_findings, item.candidate)
        return evaluation


@cache
def _guidelines() -> str:
    path = resources.files("rrg_rewards.judges.tasks").joinpath("crimson_guidelines.md")
    return path.read_text(encoding="utf-8").strip()


def _is_read_as(answer: str, evaluation: CrimsonEvaluation) -> bool:
    try:
        return read_published_answer(answer) == evaluation
    except AnswerError:
        return False


def _evaluation(answer: Any) -> CrimsonEvaluation:
    errors = answer["errors"]
    return CrimsonEvaluation(
        reference_findings=tuple(CrimsonFinding(**finding) for finding in answer["reference_findings"]),
        predicted_findings=tuple(CrimsonFinding(**finding) for finding in answer["predicted_findings"]),
        matched_findings=tuple((match["ref_id"], match["pred_id"]) for match in answer["matched_findings"]),
        false_findings=tuple(errors["false_findings"]),
        missing_findings=tuple(errors["missing_findings"]),
        attribute_errors=tuple(
            CrimsonAttributeError(**{**error, "error_types": tuple(error["error_types"])})
            for error in errors["attribute_errors"]
        ),
    )


def _ids(kind: str, findings: Sequence[CrimsonFinding]) -> set[str]:
    for row, finding in enumerate(findings):
        # Check the form of ids first: only then can a message contain them without containing report text.
        if not _ID[kind].fullmatch(finding.id):
            raise AnswerError("inconsistent", f"{kind}[{row}].id must be {kind[0].upper()} and a number")
    if twice := _twice(finding.id for finding in findings):
        raise AnswerError("inconsistent", f"{kind} contains {twice} twice")
    return {finding.id for finding in findings}


def _twice(values: Iterable[Any]) -> Any:
    """Return a value that occurs more than once, or ``None``."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _check_references(evaluation: CrimsonEvaluation, reference: set[str], predicted: set[str]) -> None:
    matched_references = {ref_id for ref_id, _ in evaluation.matched_findings}
    matched_predictions = {pred_id for _, pred_id in evaluation.matched_findings}
    _check_known("matched_findings", matched_references, reference)
    _check_known("matched_findings", matched_predictions, predicted)
    if pair := _twice(evaluation.matched_findings):
        raise AnswerError("inconsistent", f"matched_findings contains a pair twice: {', '.join(pair)}")
    _check_partition("missing_findings", evaluation.missing_findings, matched_references, reference)
    _check_partition("false_findings", evaluation.false_findings, matched_predictions, predicted)
    for row, error in enumerate(evaluation.attribute_errors):
        if (error.ref_id, error.pred_id) not in evaluation.matched_findings:
            raise AnswerError("inconsistent", f"errors.attribute_errors[{row}] is about a pair that is not matched")


def _check_levels(evaluation: CrimsonEvaluation) -> None:
    """Raise if a match would let a candidate finding earn credit far above its own weight."""
    levels = {
        finding.id: _LEVELS.get(finding.clinical_significance, _UNKNOWN_LEVEL)
        for finding in (*evaluation.reference_findings, *evaluation.predicted_findings)
    }
    for ref_id, pred_id in evaluation.matched_findings:
        if levels[ref_id] - levels[pred_id] > 1:
            raise AnswerError(
                "inconsistent", f"{pred_id} is matched with {ref_id}, which is more significant by two levels or more"
            )


def _check_collecting(evaluation: CrimsonEvaluation) -> None:
    """Raise if one candidate finding would earn the credit of many reference findings."""
    counts = Counter(pred_id for _, pred_id in evaluation.matched_findings)
    for pred_id, count in counts.items():
        if count > _MOST_MATCHES:
            raise AnswerError("inconsistent", f"{pred_id} is matched with {count} reference findings")


def _check_known(kind: str, ids: set[str], known: set[str]) -> None:
    if not ids <= known:
        raise AnswerError("inconsistent", f"{kind} contains {len(ids - known)} ids that no finding has")


def _check_partition(kind: str, unmatched: Sequence[str], matched: set[str], known: set[str]) -> None:
    _check_known(f"errors.{kind}", set(unmatched), known)
    if _twice(unmatched):
        raise AnswerError("inconsistent", f"errors.{kind} contains {_twice(unmatched)} twice")
    if both := matched & set(unmatched):
        raise AnswerError("inconsistent", f"{min(both)} is matched and in errors.{kind}")
    if neither := known - matched - set(unmatched):
        raise AnswerError("inconsistent", f"{min(neither)} is neither matched nor in errors.{kind}")


def _check_findings(kind: str, findings: Sequence[CrimsonFinding], report: str) -> None:
    """Raise if a list of findings cannot belong to a report."""
    words = report_words(report)
    if len(findings) > len(words):
        raise AnswerError(
            "inconsistent", f"{kind} contains {len(findings)} findings for a report of {len(words)} words"
        )
    for finding in findings:
        if not words.contains_finding(finding.finding):
            raise AnswerError("inconsistent", f"{kind}: {finding.id} is not in the report in similar words")
    if _twice((content_words(finding.finding), tuple(_NUMBER.findall(finding.finding))) for finding in findings):
        raise AnswerError("inconsistent", f"{kind} contains a finding twice")
    if not words.covered_by([finding.finding for finding in findings]):
        raise AnswerError("inconsistent", f"{kind} leaves out most abnormal findings of the report")
