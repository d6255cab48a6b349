"""Everything in the package that reads texts of reports or answers, with a check of each result."""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.findings import (
    abnormal_findings,
    compare_findings,
    corrupt_report,
    extract_findings,
    inject_errors,
    paraphrase_report,
    read_findings,
)
from rrg_rewards.findings.reading.plain_text import plain_text
from rrg_rewards.judges.base import AnswerError, JudgeTask, ReportPair
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.judges.tasks.finebench import AnswerPairs, AnswersTask, GradesTask, ItemsTask, Questions
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, quality_tiers
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import BLEU, CRIMSON, ROUGE, CTFineBench, ReportCRG, ReportMetric
from rrg_rewards.questions import compare_answers, get_question_schema
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.rewards import FormatReward, OverlongPenalty, RepetitionPenalty, Reward
from rrg_rewards.schemas.scoring import get_scoring_system

__all__ = ["ENTRY_POINTS", "REPORT", "check_tables"]

REPORT = "A nodule of 5 mm is seen in the right upper lobe. No pleural effusion. The heart is enlarged."
ITEMS = build_items(REPORT)
TASKS: dict[str, tuple[JudgeTask[Any, Any], Any]] = {
    "crimson": (CrimsonTask(), ReportPair(REPORT, "Normal.")),
    "items": (ItemsTask(get_question_schema("ct_rate")), REPORT),
    "answers": (AnswersTask(), Questions(REPORT, ITEMS)),
    "grades": (GradesTask(), AnswerPairs(ITEMS, ("yes",) * len(ITEMS))),
    "grading": (GradingTask("radcliq"), GradingItem(REPORT, quality_tiers(get_scoring_system("radcliq"))[0])),
}


def _label(schema: str) -> Callable[[str, str], None]:
    labeler = RuleLabeler(schema)

    def check(text: str, other: str) -> None:
        assert labeler([text, other]).shape == (2, len(labeler.labels))

    return check


def _extract(lexicon: str, open_findings: bool = False) -> Callable[[str, str], None]:
    def check(text: str, other: str) -> None:
        is_changed = plain_text(text).text != text
        for finding in extract_findings(text, lexicon, open_findings):
            assert 0 <= finding.start < finding.end <= len(text)
            assert is_changed or text[finding.start : finding.end] == finding.text

    return check


def _read(text: str, other: str) -> None:
    reading = read_findings(text)
    assert 0 <= reading.num_unread <= reading.num_words
    is_plain = plain_text(text).text == text
    assert all(0 <= start <= end <= len(text) for start, end, _ in reading.unread)
    assert all(text[start:end] == words for start, end, words in reading.unread if is_plain)


def _compare(text: str, other: str) -> None:
    ours, theirs = (abnormal_findings(one, extract_findings(one)) for one in (text, other))
    found = compare_findings(ours, theirs)
    assert len(found.matches) <= min(len(ours), len(theirs))


def _metric(metric: ReportMetric, low: float, high: float) -> Callable[[str, str], None]:
    def check(text: str, other: str) -> None:
        for value in metric.score([text, other], [other, text]).value.tolist():
            assert math.isnan(value) or low <= value <= high

    return check


def _reward(reward: Reward, low: float, high: float) -> Callable[[str, str], None]:
    def check(text: str, other: str) -> None:
        for value in reward([text, other]):
            assert value is not None
            assert low <= value <= high

    return check


def _parse(task: JudgeTask[Any, Any], item: Any) -> Callable[[str, str], None]:
    def check(text: str, other: str) -> None:
        with suppress(AnswerError):
            task.parse(item, text)

    return check


def _prompt(text: str, other: str) -> None:
    for item in (ReportPair(text, other), ReportPair(other, text, (("indication", text),))):
        for message in CrimsonTask().messages(item):
            message["content"].encode()
    for message in AnswersTask().messages(Questions(text, ITEMS)):
        message["content"].encode()


def _grade(text: str, other: str) -> None:
    for answer_type in ("numeric", "categorical", "location", "existence"):
        true = "12 mm" if answer_type == "numeric" else REPORT
        assert compare_answers(text, true, answer_type) in (0.0, 0.5, 1.0)
        # A true answer that is blank, or no number with a known unit, is refused.
        refused = ValueError if answer_type == "numeric" or not text.strip() else ()
        with suppress(refused):
            assert compare_answers(text, text, answer_type) in (0.0, 0.5, 1.0)


def _answer(text: str, other: str) -> None:
    answers = answer_items(text, ITEMS)
    assert len(answers) == len(ITEMS)
    own = build_items(text)
    assert answer_items(text, own) == [item.answer for item in own]


def _rewrite(text: str, other: str) -> None:
    assert paraphrase_report(text, seed=0).reference == text
    assert corrupt_report(text, seed=0).reference == text


def _inject(text: str, other: str) -> None:
    # Equal counts for all texts; drawn ones, and the work on them, differ from text to text.
    injected = inject_errors(text, {"A": 1, "B": 1, "D": 1}, seed=0, harmless=1)
    assert injected is None or injected.reference == plain_text(text).text


def check_tables(texts: list[str], folder: Path) -> None:
    """Write texts in all formats and read them again."""
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        path = folder / f"texts.{ending}"
        write_table(Table({"text": texts, "number": list(range(len(texts)))}), path)
        assert len(read_table(path)) == len(texts)


ENTRY_POINTS: dict[str, Callable[[str, str], None]] = {
    "labels of CT": _label("ct_rate"),
    "labels of X-ray": _label("chexbert"),
    "findings": _extract("chest", open_findings=True),
    "findings of CT": _extract("chest_ct"),
    "findings of X-ray": _extract("chest_xray"),
    "findings of the abdomen": _extract("abdomen"),
    "unread words": _read,
    "comparison": _compare,
    "CRIMSON": _metric(CRIMSON(), -1.0, 1.0),
    "CT-FineBench": _metric(CTFineBench(mode="f1"), 0.0, 1.0),
    "CT-FineBench of Merlin": _metric(CTFineBench("merlin", mode="f1"), 0.0, 1.0),
    "CRG": _metric(ReportCRG(prior=0.2), -7.5, 5.0),
    "BLEU": _metric(BLEU(), 0.0, 1.0),
    "ROUGE": _metric(ROUGE(), 0.0, 1.0),
    "length": _reward(OverlongPenalty(100, 20), -1.0, 0.0),
    "repetition": _reward(RepetitionPenalty(), -1.0, 0.0),
    "format": _reward(FormatReward(["Findings", "Impression"]), 0.0, 1.0),
    **{f"answer of {name}": _parse(task, item) for name, (task, item) in TASKS.items()},
    "prompts": _prompt,
    "grades": _grade,
    "answers": _answer,
    "rewriting": _rewrite,
    "injection of errors": _inject,
}
