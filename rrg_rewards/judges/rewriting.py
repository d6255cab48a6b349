"""Paraphrases and wrong details of reports, written by a judge."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.findings.editing.rewrite_rules import Rewording, RewrittenReport
from rrg_rewards.findings.editing.text_edits import Replacement, apply
from rrg_rewards.judges.base import Judge, JudgeFailure
from rrg_rewards.judges.tasks.rewriting import ParaphraseTask, WrongDetail, WrongDetailTask
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.schema import QuestionSchema, get_question_schema

__all__ = ["JudgedVersions", "rewrite_reports"]


@dataclass(frozen=True)
class JudgedVersions:
    """The versions of reports that a judge wrote.

    Args:
        versions: ``paraphrased`` and ``adversarial``, each with one version for each report; ``None`` if no answer was
            accepted.
        answers: For both versions the number of answers asked for, the number accepted, and the numbers of failures by
            reason.
    """

    versions: Mapping[str, Sequence[RewrittenReport | None]]
    answers: Mapping[str, Mapping[str, Any]]


async def rewrite_reports(
    judge: Judge, reports: Sequence[str], schema: str | Path | QuestionSchema = "ct_rate"
) -> JudgedVersions:
    """Let a judge write a paraphrase of each report, and a version with wrong details.

    The judge is asked for one paraphrase of each report (:class:`ParaphraseTask`), and for one replacement for each
    attribute that the finding engine reads in it (:class:`WrongDetailTask`). The adversarial version contains the
    accepted replacements that do not overlap, in the order of the questions.

    Args:
        judge: The judge.
        reports: ``N`` reports.
        schema: Question schema, its name, or its YAML file.

    Returns:
        Both versions of each report, and an account of the answers.
    """
    questions = schema if isinstance(schema, QuestionSchema) else get_question_schema(schema)
    paraphrases = await judge.evaluate(ParaphraseTask(questions), reports)
    requests = [_wrong_details(report, questions) for report in reports]
    flat = [request for row in requests for request in row]
    edits = await judge.evaluate(WrongDetailTask(questions), flat) if flat else []
    found = iter(edits)
    return JudgedVersions(
        {
            "paraphrased": [
                None if isinstance(text, JudgeFailure) else _paraphrased(report, text)
                for report, text in zip(reports, paraphrases, strict=True)
            ],
            "adversarial": [
                _adversarial(report, [next(found) for _ in row]) for report, row in zip(reports, requests, strict=True)
            ],
        },
        {"paraphrased": _account(paraphrases), "adversarial": _account(edits)},
    )


def _wrong_details(report: str, schema: QuestionSchema) -> list[WrongDetail]:
    """Return a request for each attribute that the finding engine reads in a report."""
    items = [item for item in build_items(report, schema) if item.answer_type != "existence"]
    return [
        WrongDetail(report, item, tuple(one for one in items if one.finding == item.finding and one is not item))
        for item in items
    ]


def _paraphrased(report: str, text: str) -> RewrittenReport:
    return RewrittenReport(report, text, (Rewording("paraphrase", report, text),))


def _adversarial(report: str, edits: Sequence[Rewording | JudgeFailure]) -> RewrittenReport | None:
    """Return a report with its accepted replacements, or ``None`` without any."""
    placed: list[tuple[Replacement, Rewording]] = []
    for edit in edits:
        if isinstance(edit, JudgeFailure):
            continue
        start = report.index(edit.before)
        end = start + len(edit.before)
        if all(end <= other.start or other.end <= start for other, _ in placed):
            placed.append((Replacement(start, end, edit.after), edit))
    if not placed:
        return None
    placed.sort(key=lambda pair: pair[0])
    return RewrittenReport(report, apply(report, [one for one, _ in placed]), tuple(edit for _, edit in placed))


def _account(results: Sequence[Any]) -> dict[str, Any]:
    failed = Counter(f"{one.kind}: {one.reason}" for one in results if isinstance(one, JudgeFailure))
    return {"asked": len(results), "accepted": len(results) - failed.total(), "failures": dict(failed.most_common())}
