"""Paraphrases of reports, and versions with wrong details, as in CT-FineBench's Table 3."""

from itertools import islice

from rrg_rewards.analysis.question_items import ReportTexts, ask_judge
from rrg_rewards.analysis.settings import VersionSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.wrong_details import corrupt_report
from rrg_rewards.utilities.run_log import RunLog

# Rules, and setting of the prompt, for each version.
_VERSIONS = {
    "paraphrased": (paraphrase_report, "paraphrase_prompt"),
    "adversarial": (corrupt_report, "adversarial_prompt"),
}


def make_versions(
    reports: ReportTexts, settings: VersionSettings = VersionSettings(), log: RunLog | None = None
) -> Table:
    """Make a paraphrase of each report and a version with wrong details, by rules or with prompts for a judge.

    A metric of clinical content gives the paraphrase the higher score; a metric of wording gives it the lower one.

    Source: Yuan et al., "CT-FineBench", Table 3.

    Args:
        reports: The reports.
        settings: Seed, judge and its prompts, and the maximum number of reports.
        log: Receives warnings and progress.

    Returns:
        Table with the columns ``report_id``, ``report``, ``paraphrased`` and ``adversarial``, ``None`` where the judge
        failed.

    Raises:
        SettingError: For an invalid judge or prompt.
        ValueError: If there is no report, or the judge fails on every report.

    Example:
        >>> made = make_versions(ReportTexts.of(["There is a nodule of 8 mm in the left lung."]))
        >>> made.texts("paraphrased"), made.texts("adversarial")
        (['A nodule of 0.8 cm is seen in the left lung.'], ['There is a nodule of 24 mm in the right lung.'])
    """
    texts = dict(islice(reports.texts.items(), settings.limit))
    if not texts:
        raise ValueError(f"{reports.source}: contains no report")
    versions: dict[str, list[str | None]] = {}
    for name, (rewrite, setting) in _VERSIONS.items():
        if (prompt := getattr(settings, setting)) is None:
            versions[name] = [rewrite(report, seed=settings.seed).candidate for report in texts.values()]
        else:
            from rrg_rewards.analysis.judge_choice import choose_prompt_task
            from rrg_rewards.judges.tasks.finebench_prompt_files import RewritePromptTask

            task = choose_prompt_task(setting, prompt, RewritePromptTask)
            made = dict(ask_judge(task, list(texts.values()), reports, settings, log or RunLog()))
            versions[name] = [made.get(row) for row in range(len(texts))]
    return Table({"report_id": list(texts), "report": list(texts.values()), **versions})
