"""CRIMSON's task for language models: prompt and checks of answers."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from typing_extensions import TypedDict

from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges.base import AnswerError, JudgeFailure, Message, ReportPair
from rrg_rewards.judges.tasks.base import PromptTask, quote_text
from rrg_rewards.judges.tasks.crimson_compact import CompactCrimsonAnswer, compact_answer, compact_evaluation
from rrg_rewards.judges.tasks.crimson_published import find_control_text, published_messages, read_published_answer
from rrg_rewards.judges.tasks.grounding import content_words, report_words
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS, AttributeErrorType

CrimsonPrompt = Literal["own", "guidelines", "compact", "crimson-score", "crimson-score-guidelines"]
"""``"own"``: this package's prompt. ``"guidelines"``: with clinical guidelines, for strong models. ``"compact"``: a
short prompt and form of the answer, for small models trained on evaluations. ``"crimson-score"``: the prompt that the
published judge was fine-tuned on. ``"crimson-score-guidelines"``: the published prompt for strong models."""

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
    inserted as JSON strings between tags. All characters except letters, digits and plain punctuation are escaped, so
    that a report cannot close its tags, write other tags or special tokens, or start a line.

    ``prompt="guidelines"`` adds clinical guidelines for strong models: common findings by level, rules on age,
    indication and known disease, and when an error of each type is significant.

    ``prompt="compact"`` has one sentence of instructions and a short form of the answer
    (:class:`rrg_rewards.judges.tasks.crimson_compact.CompactCrimsonAnswer`), which needs a third of the tokens. It is
    meant for small models that are trained on evaluations; errors have no explanations.

    ``prompt="crimson-score"`` calls the package ``crimson-score`` to build exactly the messages that
    ``rajpurkarlab/medgemma-4b-it-crimson`` was trained on. Reports are inserted unchanged. A pair with a special token
    of a chat template, which could begin another message, is not sent and fails with ``status``. Answers may have the
    errors that the published code accepts (:mod:`rrg_rewards.judges.tasks.crimson_published`), unknown labels of
    significance and severity, and errors without an explanation. All other checks of answers are the same.
    ``prompt="crimson-score-guidelines"`` does the same with the package's prompt for strong models, which has examples
    and guidelines.

    An answer is valid if it is a JSON object of the schema (:class:`CrimsonAnswer`, or the short form) and

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

    Whether matches and levels of significance are correct is not checked.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Sections 3.1 and 3.2.

    Args:
        prompt: ``"own"``, ``"guidelines"``, ``"compact"``, ``"crimson-score"`` or ``"crimson-score-guidelines"``.

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
        is_compact = prompt == "compact"
        self.template = "crimson_compact" if is_compact else "crimson"
        self.form = CompactCrimsonAnswer if is_compact else CrimsonAnswer

    def __repr__(self) -> str:
        return f"CrimsonTask(prompt={self.prompt!r})"

    @property
    def prompt_signature(self) -> str:
        """Name of the prompt, and the hash that identifies its text and form."""
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
            reference=quote_text(item.reference),
            candidate=quote_text(item.candidate),
        )
        if self.prompt == "guidelines":
            instructions = {**instructions, "content": f"{instructions['content']}\n\n{_guidelines()}"}
        return [instructions, data]

    def refusal(self, item: ReportPair) -> JudgeFailure | None:
        """Return a failure if the published prompt, which has no escapes, cannot contain a text of the pair."""
        if self.prompt in _PUBLISHED:
            texts = {"the reference": item.reference, "the candidate": item.candidate, **dict(item.context)}
            for name, text in texts.items():
                if (reason := find_control_text(text)) is not None:
                    return JudgeFailure("status", f"{name} contains {reason}, which the published prompt cannot escape")
        return None

    def answer(self, evaluation: CrimsonEvaluation) -> str | None:
        """Return the answer that contains an evaluation, to train a model on it.

        Returns:
            JSON of the prompt's form; ``None`` if the form cannot contain the evaluation
            (:func:`rrg_rewards.judges.tasks.crimson_compact.compact_answer`).
        """
        if self.prompt != "compact":
            return json.dumps(evaluation.to_dict(), ensure_ascii=False)
        content = compact_answer(evaluation)
        # Without spaces, which saves a sixth of the tokens.
        return None if content is None else json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    def parse(self, item: ReportPair, answer: str) -> CrimsonEvaluation:
        """Return the evaluation that an answer contains."""
        published = self.prompt in _PUBLISHED
        if self.prompt == "compact":
            evaluation = compact_evaluation(self._read(answer))
        else:
            evaluation = _evaluation(read_published_answer(answer) if published else self._read(answer))
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
