"""Evaluate report pairs for CRIMSON with the finding engine, without a model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from rrg_rewards.findings import Finding, FindingComparison, compare_findings, get_engine
from rrg_rewards.findings.comparing.profiles import get_profile
from rrg_rewards.findings.knowledge.load import knowledge_digest
from rrg_rewards.findings.reading.coverage import PairCoverage
from rrg_rewards.findings.reading.finding import LUNG_LEVELS, Place
from rrg_rewards.functional.crimson import (
    CrimsonAttributeError,
    CrimsonEvaluation,
    CrimsonFinding,
    StatedDetails,
    StatedPlace,
    crimson_score,
)
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, ReportPair, Result
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.judges.tasks.grounding import readings
from rrg_rewards.schemas.errors import SIGNIFICANCE_WEIGHTS
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.signature import format_signature
from rrg_rewards.utilities.yaml_files import absolute_yaml_path

_TASK = "crimson"
# Probability that the words of a report's certainty state.
_CERTAINTY = {None: 1.0, "likely": 0.75, "possible": 0.5, "doubtful": 0.25}

UnreadReferences = Literal["unscorable", "normal"]
"""What becomes of a reference that has unread words and no abnormal finding: its pair has no score, or it is normal."""


class RuleJudge(Judge):
    """Judge that extracts, matches and weighs the findings of both reports by rules.

    It is deterministic and local, and one core is fast enough for a reward. It recognises the findings of its lexicon,
    and abnormal statements that name none of them. Words that it could not read (see
    :func:`rrg_rewards.findings.read_findings`) are no findings, and are counted. ``docs/measurements.md`` reports the
    agreement with radiologists.

    Args:
        unread: What becomes of a pair whose reference has unread words and no abnormal finding: ``"unscorable"``,
            because the unread words may be abnormal, or ``"normal"``, as if they were not there.
        profile: What is convention: ``"published"``, CRIMSON's rules for chest X-ray; ``"ct"``, a written convention
            for chest CT; or the path of a YAML file, as ``docs/crimson.md`` explains.

    Raises:
        SettingError: If ``unread`` is neither, or the profile is unknown or invalid.
        FileNotFoundError: If the file of the profile does not exist.

    Example:
        >>> from rrg_rewards.judges import ReportPair, RuleJudge
        >>> evaluation = RuleJudge().evaluation(ReportPair("Large left pneumothorax.", "Small left pneumothorax."))
        >>> evaluation.attribute_errors[0].error_types, evaluation.attribute_errors[0].severity
        (('severity',), 'significant')
    """

    is_immediate = True
    has_independent_rows = True
    gives_coverage = True
    task_names = (_TASK,)

    def __init__(self, unread: UnreadReferences = "unscorable", profile: str | Path = "published") -> None:
        if unread not in get_args(UnreadReferences):
            raise SettingError("unread", unknown_name_message("value", str(unread), get_args(UnreadReferences)))
        self.unread = unread
        self.profile = absolute_yaml_path(profile)
        self._profile = get_profile(profile)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return {"unread": self.unread, "profile": self.profile}

    @property
    def signature(self) -> str:
        """Digests of the lexicon and of the rules, the treatment of unread references, the profile, and the version.

        The default profile is left out.
        """
        digests = {"lexicon": get_engine("chest").lexicon.digest, "knowledge": knowledge_digest()}
        profile = {} if self._profile.name == "published" else {"profile": self._profile.name}
        return format_signature("rules", **digests, unread=self.unread, **profile)

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate report pairs; see :meth:`evaluate_now`."""
        return self.evaluate_now(task, items)

    def evaluate_now(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate report pairs. Only a pair whose reference is unread fails; see the argument ``unread``.

        Raises:
            ValueError: For a task other than CRIMSON's.
        """
        if task.name != _TASK:
            raise ValueError(f"RuleJudge has rules for the task {_TASK!r} only, got {task.name!r}; use another judge")
        return [cast("Result | JudgeFailure", self._result(cast(ReportPair, item))) for item in items]

    def _result(self, pair: ReportPair) -> CrimsonEvaluation | JudgeFailure:
        """Return the evaluation of a pair, or the failure if its reference is unread."""
        evaluation = self.evaluation(pair)
        if self.unread == "normal" or evaluation.reference_findings or evaluation.coverage is None:
            return evaluation
        reference = evaluation.coverage[0]
        if not reference.num_unread:
            return evaluation
        reason = f"{reference.num_unread} of {reference.num_words} words of the reference; it has no other finding"
        return JudgeFailure("unread", reason, evaluation.coverage)

    def evaluation(self, pair: ReportPair) -> CrimsonEvaluation:
        """Return CRIMSON's evaluation of one report pair, also if its reference is unread.

        Braces or code fences in a candidate may contain a prepared answer for a judge. Such a candidate is evaluated
        with and without their content, and the evaluation with the lower score is returned. One that is JSON or code as
        a whole is a report.
        """
        context = dict(pair.context)
        evaluations = [
            _evaluation(compare_findings(pair.reference, text, context, open_findings=True, profile=self._profile))
            for text in readings(pair.candidate)
        ]
        # Offsets in the candidate without braces are not those in the candidate.
        evaluations[1:] = [_without_predicted_spans(evaluation) for evaluation in evaluations[1:]]
        if len(evaluations) == 1:
            return evaluations[0]
        lowest = min(evaluations, key=lambda evaluation: crimson_score(evaluation).item())
        return replace(lowest, coverage=evaluations[0].coverage)

    def stated_findings(self, report: str) -> tuple[Finding, ...]:
        """Return the abnormal findings of a report as :meth:`evaluation` compares them."""
        return compare_findings("", report, open_findings=True, profile=self._profile).candidate

    def evaluation_of(self, pair: ReportPair, stated: Sequence[Finding]) -> CrimsonEvaluation:
        """Return the evaluation of some findings in the place of the candidate report of a pair, without coverage."""
        context = dict(pair.context)
        return _evaluation(compare_findings(pair.reference, stated, context, open_findings=True, profile=self._profile))


def expected_answer(task: CrimsonTask, pair: ReportPair) -> str:
    """Return the answer that the rules would give, in the form of the task; a model's may be shorter or longer."""
    evaluation = RuleJudge().evaluation(pair)
    return task.answer(evaluation) or CrimsonTask().answer(evaluation) or ""


def _without_predicted_spans(evaluation: CrimsonEvaluation) -> CrimsonEvaluation:
    predicted = tuple(replace(finding, spans=()) for finding in evaluation.predicted_findings)
    return replace(evaluation, predicted_findings=predicted)


def _evaluation(comparison: FindingComparison) -> CrimsonEvaluation:
    """Return the evaluation of a comparison, in which no listed finding of the candidate earns credit twice.

    Findings of the reference that the candidate names as fewer ones are listed as one. A finding of the candidate that
    states a place for each of several findings of the reference is listed once for each of them.
    """
    reference, predicted = _Listing("R"), _Listing("P")
    # The number of findings of the reference that match each finding of the candidate that states several.
    several = {
        match.candidate[0]: len(match.reference)
        for match in comparison.matches
        if len(match.candidate) == 1 and len(match.reference) > 1
    }
    for j, (finding, level) in enumerate(zip(comparison.candidate, comparison.candidate_significance, strict=True)):
        predicted.add(finding, level, max(1, min(several[j], len(finding.attributes.places))) if j in several else 1)
    united: dict[int, int] = {}
    for match in comparison.matches:
        if len(match.reference) > 1:
            stated = sum(len(predicted.ids[j]) for j in match.candidate)
            ours = sorted(match.reference)
            united.update((i, ours[stated - 1]) for i in ours[stated:])
    for i, (finding, level) in enumerate(zip(comparison.reference, comparison.reference_significance, strict=True)):
        if i in united:
            reference.unite(finding, level, united[i])
        else:
            reference.add(finding, level)
    matched, errors = [], []
    for match in comparison.matches:
        ids = list(dict.fromkeys([id_ for i in match.reference for id_ in reference.ids[i]]))
        theirs = [id_ for j in match.candidate for id_ in predicted.ids[j]]
        pairs = [(ids[min(k, len(ids) - 1)], pred_id) for k, pred_id in enumerate(theirs)]
        matched += pairs
        if match.discrepancies:
            errors += [
                CrimsonAttributeError(
                    ref_id,
                    pred_id,
                    "significant" if error.significant else "negligible",
                    (error.type,),
                    error.explanation,
                )
                for ref_id, pred_id in pairs[: len(ids)]
                for error in match.discrepancies
            ]
    return CrimsonEvaluation(
        reference_findings=tuple(reference.findings.values()),
        predicted_findings=tuple(predicted.findings.values()),
        matched_findings=tuple(matched),
        false_findings=tuple([id_ for i in comparison.false for id_ in predicted.ids[i]]),
        missing_findings=tuple([id_ for i in comparison.missing for id_ in reference.ids[i]]),
        attribute_errors=tuple(errors),
        coverage=_coverage(comparison),
    )


def _coverage(comparison: FindingComparison) -> PairCoverage | None:
    ours, theirs = comparison.reference_coverage, comparison.candidate_coverage
    return None if ours is None or theirs is None else (ours, theirs)


@lru_cache(maxsize=1 << 13)
def _stated(finding: Finding) -> StatedDetails:
    """Return what a report states of a finding.

    Each of several alternatives ("X or Y") is at most as certain as if all were equally probable.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> stated = _stated(extract_findings("Possible 4 mm nodule in the right upper lobe.")[0])
        >>> stated.certainty, stated.places, stated.has_size
        (0.5, (StatedPlace(side='right', level='upper'),), True)
    """
    attributes = finding.attributes
    doubted = "possible" if finding.presence == "uncertain" else None
    certainty = _CERTAINTY[attributes.certainty or doubted]
    places = attributes.places or (Place(attributes.laterality or "", attributes.location),)
    stated = (
        StatedPlace(side, level)
        for place in places
        for side in (("right", "left") if place.laterality == "bilateral" else (place.laterality,))
        for level in sorted(LUNG_LEVELS.intersection(place.location)) or ("",)
        if side or level
    )
    return StatedDetails(
        min(certainty, 1 / (1 + len(finding.alternatives))),
        tuple(dict.fromkeys(stated)),
        attributes.size_mm is not None or attributes.severity is not None,
        max(1, len(attributes.places)),
    )


def _both_stated(first: StatedDetails, second: StatedDetails) -> StatedDetails:
    """Return what two mentions state together; their places are unknown if one of them states none."""
    places = (*first.places, *second.places) if first.places and second.places else ()
    certainty, times = max(first.certainty, second.certainty), max(first.times, second.times)
    return StatedDetails(certainty, tuple(dict.fromkeys(places)), first.has_size or second.has_size, times)


class _Listing:
    """The listed findings of one report by their ids, and the ids of each finding that was read."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.findings: dict[str, CrimsonFinding] = {}
        self.ids: list[list[str]] = []

    def add(self, finding: Finding, level: str, times: int = 1) -> None:
        """List a finding a number of times."""
        text, spans, stated = finding.text, ((finding.start, finding.end),), _stated(finding)
        ids = [f"{self.prefix}{number}" for number in range(len(self.findings) + 1, len(self.findings) + times + 1)]
        for id_ in ids:
            self.findings[id_] = CrimsonFinding(id_, text, level, spans, stated)
        self.ids.append(ids)

    def unite(self, finding: Finding, level: str, index: int) -> None:
        """Add a finding to the listed one with this index."""
        ids = self.ids[index]
        listed = self.findings[ids[0]]
        level = max(level, listed.clinical_significance, key=SIGNIFICANCE_WEIGHTS.__getitem__)
        spans = (*listed.spans, (finding.start, finding.end))
        stated = _both_stated(listed.stated or StatedDetails(), _stated(finding))
        self.findings[ids[0]] = CrimsonFinding(ids[0], f"{listed.finding}; {finding.text}", level, spans, stated)
        self.ids.append(ids)
