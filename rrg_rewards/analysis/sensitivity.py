"""Sensitivity of metrics: how scores change if reports are paraphrased, or get known errors of graded numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rrg_rewards.analysis.comparison import (
    TIE,
    GroupComparison,
    MetricComparison,
    SystemComparison,
    compare_runs,
    plain,
)
from rrg_rewards.analysis.metric_choice import metrics_by_name
from rrg_rewards.analysis.outcomes import PairCounts, RunUsage, all_errors, warn_of_failures
from rrg_rewards.analysis.question_items import ask_judge
from rrg_rewards.analysis.report_pairs import PairReader
from rrg_rewards.analysis.settings import REWRITE_PROMPTS, PairColumns, QuestionSettings, SensitivitySettings
from rrg_rewards.analysis.system_tables import SystemRun, scored_runs
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.findings.editing.inject_errors import inject_errors
from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.wrong_details import corrupt_report
from rrg_rewards.judges.tasks.finebench_prompt_files import RewritePromptTask
from rrg_rewards.judges.tasks.prompt_files import read_prompt_task
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.schemas import ERROR_CATEGORIES
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

_RULES = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}
CHANGES = (*_RULES, *ERROR_CATEGORIES)
"""Changes of reports: other words, wrong details, and the six categories of injected errors."""

_CLEAN = "clean"


def make_versions(
    reports: Sequence[str | None],
    settings: SensitivitySettings = SensitivitySettings(),
    log: RunLog | None = None,
    source: str = "reports",
) -> dict[str, list[str | None]]:
    """Make versions of reports: paraphrases, wrong details, and 1 to N errors of each category.

    They are made by rules; paraphrases and wrong details also by a language model with a prompt.

    A metric of clinical content gives a paraphrase the higher score, a metric of wording the wrong details. Errors are
    injected by :func:`rrg_rewards.findings.inject_errors`, without harmless edits.

    Source: Yuan et al., "CT-FineBench", Table 3 (paraphrased and adversarial); Sharma et al., "CTest-Metric",
    arXiv:2601.11488 (rephrasing, and synthetic errors of graded severity). There a language model writes the versions.

    Args:
        reports: ``N`` reports; ``None`` or blank for a missing one, which has no version.
        settings: Changes, the maximum number of errors, the seed, and prompts.
        log: Receives warnings and progress of the language model.
        source: Name of the table of the reports, for errors.

    Returns:
        ``N`` texts of each version, such as ``adversarial`` or ``wrong_severity 2``; ``None`` for a report that does
        not allow so many errors, or on which the language model failed.

    Raises:
        SettingError: For an unknown change, or an invalid judge or prompt.
        ValueError: If the language model fails on every report.

    Example:
        >>> made = make_versions(["There is a nodule of 8 mm in the left lung."])
        >>> made["paraphrased"], made["adversarial"]
        (['A nodule of 0.8 cm is seen in the left lung.'], ['There is a nodule of 24 mm in the right lung.'])
        >>> made["wrong_severity 1"], made["wrong_severity 2"]
        (['There is a nodule of 24 mm in the left lung.'], [None])
    """
    rows = [row for row, report in enumerate(reports) if report is not None and report.strip()]
    texts = [reports[row] or "" for row in rows]
    versions = {}
    for change in dict.fromkeys(settings.changes or CHANGES):
        if change not in CHANGES:
            raise SettingError("changes", unknown_name_message("change", change, CHANGES))
        for errors in (0,) if change in _RULES else range(1, settings.max_errors + 1):
            made = dict(zip(rows, _changed(texts, change, errors, settings, log or RunLog(), source), strict=True))
            versions[f"{change} {errors}" if errors else change] = [made.get(row) for row in range(len(reports))]
    return versions


def _changed(
    texts: Sequence[str], change: str, errors: int, settings: SensitivitySettings, log: RunLog, source: str
) -> list[str | None]:
    if errors:
        injected = (inject_errors(text, {change: errors}, seed=settings.seed, harmless=0) for text in texts)
        return [one.candidate if one is not None and not any(one.declined) else None for one in injected]
    setting = REWRITE_PROMPTS[change]
    if (prompt := getattr(settings, setting)) is None:
        return [_RULES[change](text, seed=settings.seed).candidate for text in texts]
    task = read_prompt_task(setting, prompt, RewritePromptTask)
    try:
        made = dict(ask_judge(task, texts, source, QuestionSettings(judge=settings.rewriter), log))
    except SettingError as error:
        raise SettingError("rewriter", error.problem) from error
    return [made.get(row) for row in range(len(texts))]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Effects of changes on the scores of reports.

    Args:
        comparison: Comparison of the versions with the clean reports, the baseline, which are scored against
            themselves. There is a group for each category of errors, and one for the ``rewritten`` reports.
        order: For each category and metric, Kendall's τ_a of numbers of errors and scores inside of reports: 1 if each
            further error lowers the score of each report, 0 if no score changes; NaN without scores, or if the metric
            does not say whether higher is better.
        table: The input, with a column for each version and for the scores of each version by each metric.
        errors: What is wrong with each metric that has scored no report because its judge failed.
    """

    comparison: SystemComparison
    order: Mapping[str, Mapping[str, float]]
    table: Table
    errors: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return comparison and order as dicts, lists, texts and numbers."""
        order = {kind: {name: plain(value) for name, value in own.items()} for kind, own in self.order.items()}
        return {"table": self.table.source, **self.comparison.to_dict(), "order": order}


def measure_sensitivity(
    table: Table,
    metrics: Mapping[str, ReportMetric] | Sequence[str],
    *,
    columns: PairColumns = PairColumns(),  # noqa: B008 (frozen)
    settings: SensitivitySettings = SensitivitySettings(),
    log: RunLog | None = None,
) -> Sensitivity:
    """Score versions of reports against the reports, and measure how much each change lowers the scores.

    All versions with errors of one category are compared on the reports that allow the maximum number.

    Args:
        table: Table of reports; other columns may be context.
        metrics: Metrics by name, or names as in :func:`~rrg_rewards.metrics.make_metric`.
        columns: Column of the reports, ``reference_column``, and of context.
        settings: Changes, bootstrap, permutations and seed.
        log: Receives notes, warnings and progress.

    Raises:
        SettingError: For an unknown change.
        TableError: If the table is malformed, lacks a column, or no report allows a change.

    Example:
        >>> reports = Table({"reference": ["Nodule of 8 mm in the left lung. Small hiatal hernia."] * 2})
        >>> settings = SensitivitySettings(changes=["wrong_severity"], bootstrap=0, permutations=0)
        >>> found = measure_sensitivity(reports, ["crg", "ct_finebench"], settings=settings)
        >>> found.order
        {'wrong_severity': {'crg': 0.0, 'ct_finebench': 1.0}}
        >>> [round(one.value, 2) for one in found.comparison.all_reports.metrics[1].differences]
        [-0.2, -0.4]
    """
    log = log or RunLog()
    name = columns.reference_column or "reference"
    made, table = metrics_by_name(metrics), next(table.batches(settings.limit or max(1, len(table))))
    own = replace(columns, prediction_column=name, reference_column=name, missing_prediction="score")
    reader = PairReader(own, [table], made, table.source)
    reader.check(log)
    (clean,) = reader
    versions = make_versions(clean.predictions, settings, log, table.source)
    if unmade := [name for name, texts in versions.items() if not any(texts)]:
        log.note(f"no report allows {', '.join(unmade)}")
    versions = {name: texts for name, texts in versions.items() if name not in unmade}
    if not versions:
        raise TableError(f"{table.source}: no report allows a change")
    batches = [clean, *(replace(clean, predictions=texts) for texts in versions.values())]
    runs = [SystemRun(name, name, name, table.source) for name in (_CLEAN, *versions)]
    with RunUsage({name: metric.judges() for name, metric in made.items()}).noted(log):
        scored = scored_runs(batches, runs, reader.metrics, {}, log)
    # Of all versions, so that there is one warning for each metric.
    counts = {one.name: PairCounts() for one in scored}
    for one in scored:
        for (run,) in one.runs.values():
            counts[one.name].add(run)
    warn_of_failures(counts, log)
    kinds = {name: "rewritten" if name in _RULES else name.split()[0] for name in versions}
    groups = {}
    for kind in dict.fromkeys(kinds.values()):
        changed = [name for name in versions if kinds[name] == kind]
        unchanged = sum(None in texts for texts in zip(*(versions[name] for name in changed), strict=True))
        if unchanged:
            log.note(f"{kind}: {unchanged} of {len(table)} reports have no {' or '.join(changed)}, and are left out")
        of_kind = [replace(one, runs={name: one.runs[name] for name in (_CLEAN, *changed)}) for one in scored]
        found = compare_runs(
            of_kind, num_resamples=settings.bootstrap, num_permutations=settings.permutations, seed=settings.seed
        )
        compared = tuple(replace(one, left_out=one.left_out - unchanged) for one in found.all_reports.metrics)
        groups[kind] = GroupComparison("change", kind, len(table) - unchanged, compared)
    result = replace(found, systems={run.name: 1 for run in runs}, groups=tuple(groups.values()))
    cells: dict[str, Sequence[Any]] = {**versions}
    for kind, group in groups.items():
        for name, scores in group.report_columns(len(table)).items():
            cells[name if name.partition(" of ")[2] != _CLEAN else f"{name}, {kind}"] = scores
    order = {kind: {one.metric: _order(one) for one in group.metrics} for kind, group in groups.items()}
    order.pop("rewritten", None)
    if replaced := [name for name in cells if name in table.columns]:
        log.warn(f"the output replaces input columns of the same name: {', '.join(replaced)}")
    return Sensitivity(result, order, table.with_columns(cells), all_errors(counts))


def _order(one: MetricComparison) -> float:
    values = torch.stack([*one.report_values.values()])
    first, second = torch.triu_indices(len(values), len(values), 1)
    falls = values[first] - values[second]
    sign = torch.where(falls.abs() > TIE, falls.sign(), 0.0)
    direction = {True: 1.0, False: -1.0, None: math.nan}[one.higher_is_better]
    return float(sign.mean()) * direction
