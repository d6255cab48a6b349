"""Readers of public annotations of report pairs as error records: ReXVal, RadPref and RaTE-Eval."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.annotation_cells import check_names, parse_number
from rrg_rewards.data.records.error_records import ErrorRecord, parse_count
from rrg_rewards.data.tables.json_documents import read_json_document
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.findings.editing.injected_report import LETTERS
from rrg_rewards.utilities.names import unknown_name_message

_REXVAL_REPORTS = "50_samples_gt_and_candidates.csv"
_REXVAL_ERRORS = ("6_valid_raters_per_rater_error_categories.csv", "6_valid_raters_per_rater_error_counts.csv")
_REFERENCE = "gt_report"
_RATER_COLUMNS = (
    "study_number",
    "candidate_type",
    "error_category",
    "clinically_significant",
    "rater_index",
    "num_errors",
)
_SIGNIFICANCES = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}

Counts = dict[int, dict[bool, float]]
"""Numbers of errors of one rater by category and significance."""


def read_rexval(folder: str | Path, significant: bool | None = None, rater: int | None = None) -> list[ErrorRecord]:
    r"""Read ReXVal: 50 chest X-ray references with four candidates each, and error counts of six radiologists.

    The data set is available to credentialed users of PhysioNet (rexval-dataset 1.0.0). This reader follows its public
    description and public scripts that read it. It was tested on files in this layout, but not on the data.
    ``50_samples_gt_and_candidates.csv`` has one row per study, in the order of ``study_number``: the reference in
    ``gt_report`` and one column per candidate type. ``6_valid_raters_per_rater_error_categories.csv`` (or
    ``..._error_counts.csv``) has one row for each ``study_number``, ``candidate_type``, ``error_category`` (1 to 6),
    ``clinically_significant`` and ``rater_index``, with the count in ``num_errors``.

    Args:
        folder: Folder with both files.
        significant: True to count only clinically significant errors, False to count only insignificant ones, None to
            count both; the significant errors are then in ``ErrorRecord.significant``.
        rater: Rater whose counts are used. Default: the mean over all raters.

    Returns:
        One record for each study and candidate type, in order. The count of a category without a row is None. ``study``
        is ``study_number``, and the attribute ``candidate_type`` the type.

    Raises:
        TableError: If a file or column is missing, a cell is malformed, or a count is repeated.
        ValueError: If the rater does not exist. The message lists the raters.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     reports, errors = (Path(folder) / name for name in (_REXVAL_REPORTS, _REXVAL_ERRORS[0]))
        ...     _ = reports.write_text("gt_report,radgraph\nClear lungs.,Edema.\n")
        ...     _ = errors.write_text(",".join(_RATER_COLUMNS) + "\n0,radgraph,1,True,0,1\n0,radgraph,1,True,1,0\n")
        ...     (record,) = read_rexval(folder)
        >>> record.candidate, record.counts[0], record.total_significant
        ('Edema.', 0.5, 0.5)
    """
    folder = Path(folder)
    errors = next((folder / name for name in _REXVAL_ERRORS if (folder / name).exists()), folder / _REXVAL_ERRORS[0])
    texts, counts = read_table(folder / _REXVAL_REPORTS), read_table(errors)
    check_names(texts.names, [_REFERENCE], texts.source)
    check_names(counts.names, _RATER_COLUMNS, counts.source)
    references = texts.required_texts(_REFERENCE)
    by_pair = _read_counts(counts, _RATER_COLUMNS, len(references))
    raters = sorted({index for by_rater in by_pair.values() for index in by_rater})
    if rater is not None and rater not in raters:
        raise ValueError(f"rater must be one of {', '.join(map(str, raters))}, got {rater}")
    kinds = (True, False) if significant is None else (significant,)
    candidates = {kind: texts.required_texts(kind) for kind in {kind for _, kind in by_pair}}
    records = []
    for (study, kind), by_rater in sorted(by_pair.items()):
        chosen = [numbers for index, numbers in by_rater.items() if rater in (None, index)]
        found, weighty = (
            tuple(_mean_count(chosen, category, summed, kinds) for category in range(len(LETTERS)))
            for summed in (kinds, (True,))
        )
        records.append(
            ErrorRecord(
                references[study],
                candidates[kind][study],
                found,
                "rexval",
                significant=weighty if significant is None else None,
                study=str(study),
                attributes={"candidate_type": kind},
            )
        )
    return records


def _read_counts(table: Table, names: Sequence[str], studies: int) -> dict[tuple[int, str], dict[int, Counts]]:
    """Return the counts by study and candidate type, and by rater."""
    found: dict[tuple[int, str], dict[int, Counts]] = {}
    for row, cells in enumerate(zip(*map(table.column, names), strict=True)):
        where = table.where(row)
        study, kind, category, significance, rater, count = zip(names, cells, strict=True)
        if kind[1] is None:
            raise TableError(f"{where}, column {kind[0]!r}: is missing")
        is_significant = _SIGNIFICANCES.get(str(significance[1]).strip().lower())
        if is_significant is None:
            raise TableError(f"{where}, column {significance[0]!r}: must be True or False, got {significance[1]!r}")
        pair = _whole(study, where, 0, studies - 1), str(kind[1])
        number = parse_number(count[1], f"{where}, column {count[0]!r}")
        counts = found.setdefault(pair, {}).setdefault(_whole(rater, where, 0), {})
        by_significance = counts.setdefault(_whole(category, where, 1, len(LETTERS)) - 1, {})
        if is_significant in by_significance:
            raise TableError(f"{where}: repeats a count of the same rater")
        by_significance[is_significant] = number
    return found


def _mean_count(
    raters: Sequence[Counts], category: int, summed: tuple[bool, ...], counted: tuple[bool, ...]
) -> float | None:
    """Return the mean number of errors of a category with a significance in ``summed``.

    The mean is over the raters with a count of the category and a significance in ``counted``; ``None`` without one.
    """
    given = [numbers for by_category in raters if (numbers := by_category.get(category, {})).keys() & set(counted)]
    if not given:
        return None
    return math.fsum(number for numbers in given for kind, number in numbers.items() if kind in summed) / len(given)


def _whole(cell: tuple[str, Any], where: str, first: int, last: int | None = None) -> int:
    number = parse_number(cell[1], f"{where}, column {cell[0]!r}")
    if number != int(number) or number < first or (last is not None and number > last):
        most = "on" if last is None else f"to {last}"
        raise TableError(f"{where}, column {cell[0]!r}: must be a whole number from {first} {most}, got {cell[1]!r}")
    return int(number)


# Categories of RadPref's attribute errors. ReXVal has no category for its other errors (descriptor, certainty,
# unspecific, overinterpretation, temporal).
_RADPREF_LETTERS = {"location": "C", "severity": "D", "measurement": "D"}
_RADPREF_CANDIDATES = ("C1", "C2")
_RADPREF_CONTEXT = ("PatientAge", "PatientSex", "Indication")


def read_radpref(path: str | Path, radiologist: int | None = None) -> list[ErrorRecord]:
    """Read RadPref: chest X-ray references with two candidates each, annotated by three radiologists.

    The data set is part of CRIMSON's repository (MIT). The reader is tested on 50 of its entries, which have
    ``ground_truth_report``, ``C1_report``, ``C2_report`` and ``radiologists``, a list of objects with the annotations
    of ``C1`` and ``C2``: ``finding_errors``, ``missing_findings`` and ``rating``.

    A false finding counts as an error A, a missing finding as B, a wrong location as C, and a wrong severity or
    measurement as D. Each category counts at most once per finding. Significant and insignificant errors count.
    Errors in descriptor, certainty, specificity, interpretation and time have no category and do not count. E and F are
    None, because comparisons were not annotated. The rating ``rating`` is that of the whole candidate, 1 to 5, higher
    is better; ``study`` is the ``id`` of the entry, if it has one, or its number. The attributes ``PatientAge``,
    ``PatientSex`` and ``Indication`` are those of the entry.

    Args:
        path: Path of ``pairs.json``.
        radiologist: Index from 0 of the radiologist whose counts are used. Default: the mean over all radiologists.

    Returns:
        Two records for each reference, C1 and C2, in order.

    Raises:
        TableError: If the file is malformed. The message names the entry.
        ValueError: If an entry lacks this radiologist.

    Example:
        >>> import json
        >>> from tempfile import TemporaryDirectory
        >>> errors = {"finding_errors": {"0": {"error_type": "false"}}, "missing_findings": {}, "rating": 3}
        >>> none = {"finding_errors": {}, "missing_findings": {}, "rating": 5}
        >>> reports = {"ground_truth_report": "Clear.", "C1_report": "Edema.", "C2_report": "Clear lungs."}
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pairs.json"
        ...     _ = path.write_text(json.dumps([{**reports, "radiologists": [{"C1": errors, "C2": none}]}]))
        ...     first, second = read_radpref(path)
        >>> first.counts, first.judgement("rating"), second.judgement("rating")
        ((1.0, 0.0, 0.0, 0.0, None, None), 3.0, 5.0)
    """
    entries = read_json_document(path)
    if not isinstance(entries, list):
        raise TableError(f"{path}: must be a list of entries, got {type(entries).__name__}")
    return [
        record
        for number, entry in enumerate(entries, start=1)
        for record in _radpref_records(entry, number, f"{path}: entry {number}", radiologist)
    ]


def _radpref_records(entry: Any, number: int, where: str, radiologist: int | None) -> list[ErrorRecord]:
    try:
        judged = entry["radiologists"]
        if not judged:
            raise TableError(f"{where}: has no radiologist")
        if radiologist is not None and not 0 <= radiologist < len(judged):
            raise ValueError(f"radiologist must be below {len(judged)} in {where}, got {radiologist}")
        judged = judged if radiologist is None else [judged[radiologist]]
        context = {name: str(entry[name]) for name in _RADPREF_CONTEXT if entry.get(name)}
        records = []
        for candidate in _RADPREF_CANDIDATES:
            counts = [_radpref_counts(judgement[candidate]) for judgement in judged]
            means = tuple(sum(values) / len(counts) for values in zip(*counts, strict=True))
            texts = entry["ground_truth_report"], entry[f"{candidate}_report"]
            given = [judgement[candidate].get("rating") for judgement in judged]
            rating = None if None in given else statistics.fmean(given)
            records.append(
                ErrorRecord(
                    *texts,
                    (*means, None, None),
                    "radpref",
                    study=str(entry.get("id", number)),
                    attributes={"candidate": candidate, **context},
                    ratings={"rating": rating},
                )
            )
        return records
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{where}: is no RadPref annotation: {type(error).__name__}: {error}") from None


def _radpref_counts(judgement: Mapping[str, Any]) -> list[int]:
    """Return the numbers of errors A to D that one radiologist found in one candidate."""
    letters = ["B"] * len(judgement["missing_findings"])
    for error in judgement["finding_errors"].values():
        if error["error_type"] == "false":
            letters.append("A")
        else:
            letters += sorted({_RADPREF_LETTERS[name] for name in error["attributes"] if name in _RADPREF_LETTERS})
    return [letters.count(letter) for letter in "ABCD"]


_RATE_EVAL_KEYS = {"reference": "gt", "candidate": "pred", "errors": "errors", "potential": "potential_errors"}


def read_rate_eval(
    path: str | Path, normalise: bool = False, columns: Mapping[str, str] | None = None
) -> list[ErrorRecord]:
    """Read the sentence-level human ratings of RaTE-Eval: sentence pairs of nine imaging modalities.

    The layout is this package's reading of the paper and **not verified**: the published task (``Angelakeke/RaTE-Eval``
    on Hugging Face, CC BY 4.0) has two JSON files and a CSV file, whose columns were not seen. The file here is JSON: a
    list of objects, or an object of objects by id. Each object has the reference sentence ``gt``, the candidate
    sentence ``pred``, the numbers of errors of the six categories of ReXVal in ``errors`` (a list of six, or an
    object by letter A to F or number 1 to 6, 0 for absent ones), and the number of possible errors in
    ``potential_errors``, which is required only with ``normalise``.

    Args:
        path: Path of the JSON file.
        normalise: Whether to divide the counts by the number of possible errors, as RaTE-Eval does. The paper of CREPE
            reports both variants (Appendix A.3.4).
        columns: Names of keys that differ from the layout, by content: ``reference``, ``candidate``, ``errors`` and
            ``potential``.

    Returns:
        One record for each pair, in order.

    Raises:
        TableError: If the file is no JSON of this layout. The message names the entry and all missing keys.
        ValueError: If ``columns`` has an unknown key.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "sentences.json"
        ...     _ = path.write_text('[{"gt": "No edema.", "pred": "Edema.", "errors": {"A": 1}}]')
        ...     read_rate_eval(path)[0].counts
        (1, 0, 0, 0, 0, 0)
    """
    names = _column_names(_RATE_EVAL_KEYS, columns)
    content = read_json_document(path)
    if not isinstance(content, Mapping | list):
        raise TableError(f"{path}: must be a list or an object of entries, got {type(content).__name__}")
    entries = content.items() if isinstance(content, Mapping) else enumerate(content, start=1)
    return [_rate_eval_record(entry, names, normalise, f"{path}: entry {key}") for key, entry in entries]


def _rate_eval_record(entry: Any, names: Mapping[str, str], normalise: bool, where: str) -> ErrorRecord:
    if not isinstance(entry, Mapping):
        raise TableError(f"{where}: must be an object, got {type(entry).__name__}")
    required = list(names.values()) if normalise else [names[key] for key in ("reference", "candidate", "errors")]
    check_names(list(entry), required, where, "name the keys of the file, as in columns={'candidate': 'output'}")
    reference, candidate = (_rate_eval_text(entry[names[key]], names[key], where) for key in ("reference", "candidate"))
    counts = _rate_eval_counts(entry[names["errors"]], f"{where}, {names['errors']!r}")
    if normalise:
        potential = parse_count(entry[names["potential"]], f"{where}, {names['potential']!r}")
        if not potential:
            raise TableError(f"{where}, {names['potential']!r}: must be a positive number, got {potential}")
        counts = [None if count is None else count / potential for count in counts]
    return ErrorRecord(reference, candidate, tuple(counts), "rate_eval")


def _rate_eval_text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise TableError(f"{where}, {name!r}: must be a text, got {type(value).__name__}")
    return value


def _rate_eval_counts(value: Any, where: str) -> list[float | None]:
    if isinstance(value, Mapping):
        letters = {**{letter: letter for letter in LETTERS}, **dict(zip("123456", LETTERS, strict=True))}
        if unknown := [key for key in value if str(key) not in letters]:
            raise TableError(f"{where}: category must be A to F or 1 to 6, got {unknown[0]!r}")
        by_letter = {letters[str(key)]: count for key, count in value.items()}
        if len(by_letter) < len(value):
            raise TableError(f"{where}: a category has two counts, one by letter and one by number")
        value = [by_letter.get(letter, 0) for letter in LETTERS]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(LETTERS):
        raise TableError(f"{where}: must be {len(LETTERS)} numbers")
    return [parse_count(count, f"{where}, {letter}") for letter, count in zip(LETTERS, value, strict=True)]


def _column_names(defaults: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the names of columns by what they contain, with the user's names in place of the defaults.

    Raises:
        ValueError: If ``given`` has a key that ``defaults`` lacks.

    Example:
        >>> _column_names({"reference": "gt", "candidate": "pred"}, {"candidate": "output"})
        {'reference': 'gt', 'candidate': 'output'}
    """
    for key in given or {}:
        if key not in defaults:
            raise ValueError(unknown_name_message("key of columns", key, defaults))
    return {**defaults, **(given or {})}
