"""Reports of graded quality by a language model, in a file that ER²Score is trained on."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.analysis.answers import AnswerRun, choose_model, distinct_items
from rrg_rewards.analysis.judge_choice import JudgeSetting
from rrg_rewards.analysis.settings import GradingSettings
from rrg_rewards.data.records.graded_reports import GradedReport, read_graded_reports
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.judges.base import Judge
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, WrittenReport, quality_tiers, tier_name
from rrg_rewards.schemas.scoring import ScoringSystem, get_scoring_system
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError


class GradingRun(AnswerRun[GradingItem, WrittenReport]):
    """A run of :func:`grade_reports`.

    Args:
        references: Reference reports; equal ones count once.
        output: JSON lines file to append to.
        judge: The judge; ``None`` if nothing is requested.
        settings: The settings.

    Raises:
        SettingError: As :func:`choose_system`.

    Example:
        >>> run = GradingRun(["Small left effusion.", "Normal chest."], "graded.jsonl")
        >>> print(run.describe())
        reports: 6 (2 of -2 to 0, 2 of -4 to -3, 2 of -6 to -5); in the output: 0; to request: 6
    """

    activity = "grading"
    noun = "reports"
    columns = ("reference", "tier", "draw", "in_tier", "system")

    def __init__(
        self,
        references: Sequence[str],
        output: str | Path,
        judge: Judge | None = None,
        settings: GradingSettings = GradingSettings(),
    ) -> None:
        self.system = choose_system(settings)
        self._source = settings.source
        self._num_references = len(references)
        items = [
            GradingItem(reference, tier, draw)
            for reference in dict.fromkeys(references)
            for tier in quality_tiers(self.system)
            for draw in range(1, settings.per_tier + 1)
        ]
        super().__init__(GradingTask(self.system), items, output, judge)
        self.written_by_tier: Counter[str] = Counter()
        """Number of reports that this run has written, by tier."""
        self._written_in_tier: Counter[str] = Counter()

    @property
    def wanted_by_tier(self) -> Counter[str]:
        """Number of reports of each tier after the run."""
        return Counter(tier_name(item.tier) for item in self.items)

    @property
    def held_by_tier(self) -> Counter[str]:
        """Number of these reports that the file held before the run, by tier."""
        return Counter(tier_name(item.tier) for item in self.items if self._key(item) in self.held.answers)

    @property
    def in_tier(self) -> Counter[str]:
        """Number of reports in the file whose total is in the requested tier, by tier."""
        held = Counter(tier_name(item.tier) for item in self.items if self.held.answers.get(self._key(item)))
        return held + self._written_in_tier

    def _key(self, item: GradingItem) -> Hashable:
        return item.reference, tier_name(item.tier), str(item.draw)

    def _answers(self, table: Table) -> Mapping[Hashable, Any]:
        if others := sorted({str(name) for name in table.columns["system"]} - {self.system.name}):
            raise TableError(
                f"{self.output}: contains reports graded under {others[0]}, not {self.system.name}; choose another "
                "`output`"
            )
        texts = (map(str, table.columns[name]) for name in ("reference", "tier", "draw"))
        return dict(zip(zip(*texts, strict=True), table.columns["in_tier"], strict=True))

    def _check(self) -> None:
        read_graded_reports(self.output, self.system)

    def _expected_answer(self, item: GradingItem) -> str:
        # The report is as long as the reference, and each number has about two characters.
        return "".join(f'"{name}": 0, ' for name in ("report", "scores", *self.system.names)) + item.reference

    def _sent(self) -> str:
        return f"{self._num_references} reports"

    def _record(self, item: GradingItem, result: WrittenReport) -> Mapping[str, Any]:
        scores = tuple(int(score) if score == int(score) else score for score in result.scores)
        graded = GradedReport(item.reference, result.text, scores, self._source, tier_name(item.tier))
        return graded.to_record(self.system) | {
            "draw": item.draw,
            "in_tier": result.in_tier,
            "system": self.system.name,
        }

    def _count(self, item: GradingItem, result: WrittenReport) -> None:
        self.written_by_tier[tier_name(item.tier)] += 1
        self._written_in_tier[tier_name(item.tier)] += result.in_tier

    def plan(self) -> dict[str, Any]:
        """Return the numbers of all reports, of those in the file, and of those to request."""
        wanted, held = self.wanted_by_tier, self.held_by_tier
        return {
            "system": self.system.name,
            "prompt_hash": self.task.prompt_hash,
            "wanted": dict(wanted),
            "held": {name: held[name] for name in wanted},
            "to_ask": len(self.missing),
        }

    def describe(self) -> str:
        """Return these numbers in a line of text."""
        tiers = ", ".join(f"{count} of {name}" for name, count in self.wanted_by_tier.items())
        return f"reports: {len(self.items)} ({tiers}); in the output: {self.num_held}; to request: {len(self.missing)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts of the run."""
        in_tier, plan = self.in_tier, self.plan()
        return {
            **plan,
            "judge": None if self.judge is None else self.judge.signature,
            "written": {name: self.written_by_tier[name] for name in plan["wanted"]},
            "in_tier": {name: in_tier[name] for name in plan["wanted"]},
            **self._outcome(),
        }


def choose_system(settings: GradingSettings) -> ScoringSystem:
    """Return the scoring system of the settings.

    Raises:
        SettingError: If the system is unknown, or has neither tiers nor a finite range of totals.
        OSError: If its file cannot be read.
    """
    try:
        system = get_scoring_system(settings.system)
        quality_tiers(system)
    except ValueError as error:
        raise SettingError("system", str(error)) from error
    return system


def grade_reports(
    references: Sequence[str],
    judge: JudgeSetting,
    output: str | Path,
    settings: GradingSettings = GradingSettings(),
    *,
    log: RunLog | None = None,
) -> GradingRun:
    """Let a language model write candidate reports of graded quality, and append each one to a file.

    Reports that the file contains are not requested again, so the same call continues an interrupted run.

    Source: Liu et al., "ER²Score", 2024, Section 3.1.

    Args:
        references: Reference reports; equal ones count once.
        judge: Judge, its name or its settings, as for :func:`~rrg_rewards.judges.get_judge`; a language model.
        output: JSON lines file to append to.
        settings: Scoring system, and reports per tier.
        log: Receives notes, warnings and progress.

    Returns:
        The run, with its counts.

    Raises:
        SettingError: If the judge is invalid, or no language model; as :func:`choose_system`.
        TableError: If the file has other content, or another process appends to it.

    Example:
        >>> grade_reports(["Edema."], "openai:my-model", "graded.jsonl", GradingSettings(system="radclik"))
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: system: ... did you mean 'radcliq'?...
    """
    return GradingRun(references, output, choose_model(judge, "writes no reports"), settings).complete(log)


def read_references(
    table: Table, settings: GradingSettings = GradingSettings(), log: RunLog | None = None
) -> list[str]:
    """Return the distinct reports of a table that are not blank.

    Args:
        table: The table.
        settings: Column, and the maximum number of references.
        log: Receives notes and warnings.

    Example:
        >>> read_references(Table({"report": ["Edema.", "Clear."]}))
        ['Edema.', 'Clear.']
    """
    texts = [text if text is not None and text.strip() else None for text in table.texts(settings.report_column)]
    return distinct_items(texts, "reports", "are missing or blank", log or RunLog())[: settings.max_reports]
