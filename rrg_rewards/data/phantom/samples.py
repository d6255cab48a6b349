"""Small tables of synthetic studies, on which the commands can be tried."""

from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings import corrupt_report, paraphrase_report


def _with_errors(report: str, kind: int, seed: int) -> tuple[str, int]:
    """Return the report in other words with errors of a kind, and their number. Kind 0 has none."""
    errors = 0
    if kind == 1:
        corrupted = corrupt_report(report, seed=seed)
        report, errors = corrupted.candidate, len(corrupted.changes)
    elif kind == 2 and ". " in report:
        report, errors = report.rpartition(". ")[0] + ".", 1
    return paraphrase_report(report, seed=seed).candidate, errors


def sample_tables(num_studies: int = 100, seed: int = 1) -> dict[str, Table]:
    """Return two tables of synthetic chest-CT studies: ``reports`` and ``pairs``.

    ``reports`` has the columns ``study`` and ``report_text``. ``pairs`` has the columns ``study``, ``age``, ``sex``,
    ``indication``, ``reference`` and the reports of two made-up systems, ``prediction`` and ``baseline``. Each system
    rewords the references. ``prediction`` gets details of every third report wrong, such as sides and sizes, and
    leaves out the last sentence of another third; ``baseline`` has such errors in every report. ``errors`` is the
    number of errors that were put into ``prediction``, in place of the count of a radiologist.

    Args:
        num_studies: Number of studies.
        seed: Seed of the studies and the errors.

    Example:
        >>> tables = sample_tables(3)
        >>> list(tables["reports"].columns), len(tables["pairs"])
        (['study', 'report_text'], 3)
    """
    studies = phantom_studies(num_studies, seed=seed)
    references = [study.impression_text for study in studies]
    predictions = [_with_errors(text, row % 3, seed) for row, text in enumerate(references)]
    baseline = [_with_errors(text, 1 + row % 2, seed + 1) for row, text in enumerate(references)]
    names = [study.study_id for study in studies]
    return {
        "reports": Table({"study": names, "report_text": [study.findings_text for study in studies]}),
        "pairs": Table(
            {
                "study": names,
                "age": [study.context.age for study in studies],
                "sex": [study.context.sex for study in studies],
                "indication": [study.context.indication for study in studies],
                "reference": references,
                "prediction": [text for text, _ in predictions],
                "baseline": [text for text, _ in baseline],
                "errors": [errors for _, errors in predictions],
            }
        ),
    }
