"""Paraphrases of reports, and versions with wrong details, as in CT-FineBench's Table 3."""

from itertools import islice

from rrg_rewards.analysis.question_items import ReportTexts
from rrg_rewards.analysis.settings import VersionSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings.editing.paraphrase import paraphrase_report
from rrg_rewards.findings.editing.wrong_details import corrupt_report

_REWRITERS = {"paraphrased": paraphrase_report, "adversarial": corrupt_report}


def make_versions(reports: ReportTexts, settings: VersionSettings = VersionSettings()) -> Table:
    """Make a paraphrase of each report and a version with wrong details, by rules.

    A metric of clinical content gives the paraphrase the higher score; a metric of wording gives it the lower one.

    Source: Yuan et al., "CT-FineBench", Table 3.

    Args:
        reports: The reports.
        settings: Seed, and the maximum number of reports.

    Returns:
        Table with the columns ``report_id``, ``report``, ``paraphrased`` and ``adversarial``.

    Raises:
        ValueError: If there is no report.

    Example:
        >>> made = make_versions(ReportTexts.of(["There is a nodule of 8 mm in the left lung."]))
        >>> made.texts("paraphrased"), made.texts("adversarial")
        (['A nodule of 0.8 cm is seen in the left lung.'], ['There is a nodule of 24 mm in the right lung.'])
    """
    texts = dict(islice(reports.texts.items(), settings.limit))
    if not texts:
        raise ValueError(f"{reports.source}: contains no report")
    versions = {
        name: [rewrite(report, seed=settings.seed).candidate for report in texts.values()]
        for name, rewrite in _REWRITERS.items()
    }
    return Table({"report_id": list(texts), "report": list(texts.values()), **versions})
