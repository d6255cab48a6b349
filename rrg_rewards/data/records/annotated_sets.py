"""Public data sets of annotated report pairs by name, and their tables of judgements."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.annotation_layouts import READERS, annotation_layouts
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.table import Table
from rrg_rewards.utilities.names import unknown_name_message

_TOTALS = ("errors", "significant", "insignificant")
# Of all other judgements, a lower number is better.
_HIGHER_IS_BETTER = ("rating",)


def read_annotated_set(name: str, path: str | Path, **options: Any) -> list[ErrorRecord]:
    """Read a public data set of annotated report pairs by its name.

    The layouts are in ``annotation_layouts.yaml``. But for RadPref, the readers were tested on files in these layouts,
    not on the data.

    - ``rexval`` (PhysioNet, credentialed): 50 chest X-ray references with four candidates each. The counts are the
      means over six raters, or those of ``rater``; a category without a row is ``None``. ``study`` is
      ``study_number``, and the attribute ``candidate_type`` the type.
    - ``radevalx`` (PhysioNet, open): 100 references of IU X-Ray with a candidate each, as the folder of the release.
      Categories 1 to 6 are those of ReXVal; errors of uncertainty, 7 and 8, are in ``ErrorRecord.other``, so that
      ``total`` is the sum over all, as in the paper of CREPE (Appendix A.3.3). Empty cells are no error, as public
      scripts read them, with a warning.
    - ``chest2error`` (Hugging Face, CC BY-NC): 400 chest CT pairs, 50 reports of CT-RATE in two styles with four
      candidates each; ``study`` is ``anchor_id``. The listed errors are ``ErrorRecord.edits``, and the critical ones of
      each category ``significant``, unless the list does not have the counts of the columns. The ratings are the totals
      of the data set and ``weighted_error``, in which a minor error counts 0.25.
    - ``refisco`` (PhysioNet, credentialed), version 0 or 1: lines of chest X-ray reports that radiologists corrected
      and graded. **The reference is the corrected text**, as in FineRadScore. A line with a grade above "No error" is
      an error (CREPE, Appendix A.3.2), and so is a corrected line without a grade. Grades name no category: the six
      counts are ``None``, ``other`` is the number of lines with errors, ``significant_other`` that of grade 2 or more
      (this package's boundary), and the ratings are ``insertions``, ``deletions``, ``edits``, ``unchanged``,
      ``max_severity`` (the authors' MES) and ``sum_severity``. The authors' average, AES, is not computed: it is no
      mean over lines, because its printed mean of 2.42 for CXR-RePaiR is above that of MES, 2.26.
    - ``radpref`` (repository of CRIMSON, MIT): chest X-ray references with candidates C1 and C2, and the means over
      three radiologists, or the counts of ``rater``. A false finding is an A, a missing one a B, a wrong location a C,
      a wrong severity or measurement a D, each at most once per finding. Other attribute errors do not count, and E and
      F are ``None``. The rating ``rating`` is 1 to 5, higher is better.
    - ``rate_eval`` (Hugging Face, CC BY): sentence pairs of nine modalities, as JSON with ``gt``, ``pred``, a list of
      six numbers ``errors``, and ``potential_errors``, by which ``normalise`` divides them. The layout is this
      package's reading of the paper and **not verified**.

    Args:
        name: A name in :data:`rrg_rewards.data.ANNOTATED_SETS`.
        path: Its file or folder.
        options: ``rater`` for ReXVal and RadPref (from 0), ``normalise`` for RaTE-Eval.

    Returns:
        One record for each pair, in the order of the data set.

    Raises:
        ValueError: If the name or the rater is unknown.
        TableError: If a file or column is missing, naming all missing columns, or a cell is malformed.

    Counts that are empty, cannot be read or contradict each other are told by an ``AnnotationWarning``.

    Example:
        >>> import json
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "sentences.json"
        ...     _ = path.write_text(json.dumps([{"gt": "No edema.", "pred": "Edema.", "errors": [1, 0, 0, 0, 0, 0]}]))
        ...     read_annotated_set("rate_eval", path)[0].counts
        (1, 0, 0, 0, 0, 0)
        >>> read_annotated_set("rexvall", "folder")
        Traceback (most recent call last):
        ...
        ValueError: unknown data set 'rexvall'; did you mean 'rexval'? ...
    """
    layouts = annotation_layouts()
    if name not in layouts:
        raise ValueError(unknown_name_message("data set", name, layouts))
    return READERS[name](layouts[name], path, **options)


def judgement_table(records: Sequence[ErrorRecord], source: str = "table") -> Table:
    """Return annotated report pairs as a table with a column for each judgement.

    Args:
        records: The pairs.
        source: Name of the table in messages.

    Returns:
        Columns: ``prediction`` and ``reference``; ``study``, the name of the study, or the reference if it has none;
        ``errors``, ``significant`` and ``insignificant``, the numbers of these errors, and the ratings of the records,
        each only if a record has it, ``None`` if it is missing; and the attributes, if no other column has their name.

    Example:
        >>> record = ErrorRecord("Clear.", "Edema.", (1, 0, 0, 0, 0, 0), study="7", ratings={"weighted_error": 0.25})
        >>> judgement_table([record]).columns  # doctest: +NORMALIZE_WHITESPACE
        {'prediction': ['Edema.'], 'reference': ['Clear.'], 'study': ['7'], 'errors': [1.0],
         'weighted_error': [0.25]}
    """
    columns: dict[str, list[Any]] = {
        "prediction": [record.candidate for record in records],
        "reference": [record.reference for record in records],
        "study": [record.study or record.reference for record in records],
    }
    for name in dict.fromkeys([*_TOTALS, *(name for record in records for name in record.ratings)]):
        rated = [name in _TOTALS or name in record.ratings for record in records]
        values = [record.judgement(name) if one else math.nan for record, one in zip(records, rated, strict=True)]
        if not all(map(math.isnan, values)):
            columns[name] = [None if math.isnan(value) else value for value in values]
    for name in dict.fromkeys(name for record in records for name in record.attributes):
        columns.setdefault(name, [record.attributes.get(name) for record in records])
    return Table(columns, source)


def lower_is_better(name: str) -> bool:
    """Whether a lower number of a judgement of the data sets is better; only of ratings, a higher one is.

    Example:
        >>> lower_is_better("significant"), lower_is_better("rating")
        (True, False)
    """
    return name not in _HIGHER_IS_BETTER
