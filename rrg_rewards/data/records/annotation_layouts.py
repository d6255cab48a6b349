"""Records of the public data sets of annotated report pairs, by the layouts of ``annotation_layouts.yaml``."""

import math
import statistics
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.error_records import ErrorRecord, parse_count
from rrg_rewards.data.tables.json_documents import read_json_document
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, is_missing, parse_json_cell
from rrg_rewards.findings.editing.injected_report import LETTERS
from rrg_rewards.utilities.yaml_files import package_yaml

Layout = Mapping[str, Any]
"""An entry of ``annotation_layouts.yaml``, or one of its files."""

ANNOTATED_SETS: Mapping[str, Layout]
"""The data sets by name: what the reader takes (``files``), the default ``judgement``, and the columns."""

_SIX = len(LETTERS)
_SIGNIFICANCES = {"true": True, "1": True, "1.0": True, "significant": True}
_SIGNIFICANCES |= {"false": False, "0": False, "0.0": False, "insignificant": False}


def annotation_layouts() -> Mapping[str, Layout]:
    """Return :data:`ANNOTATED_SETS`, whose file is read at the first call."""
    return package_yaml("rrg_rewards.data.records", "annotation_layouts")


def __getattr__(name: str) -> Any:
    if name == "ANNOTATED_SETS":
        return annotation_layouts()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class AnnotationWarning(UserWarning):
    """Annotations that are incomplete, or that contradict each other."""


@dataclass(frozen=True)
class _Row:
    """A row of a table or an entry of a JSON document; cells are asked for by their parts in the layout."""

    cells: Mapping[str, Any]
    where: str
    layout: Layout

    def at(self, part: str) -> str:
        return f"{self.where}, column {self.layout['columns'].get(part, part)!r}"

    def cell(self, part: str) -> Any:
        cell = self.cells[self.layout["columns"].get(part, part)]
        return None if is_missing(cell) else cell

    def report(self, part: str) -> str:
        cell = self.cell(part)
        if not isinstance(cell, str):
            problem = "is missing; leave the row out" if cell is None else f"must be a report text, got {cell!r}"
            raise TableError(f"{self.at(part)}: {problem}")
        return cell

    def text(self, part: str) -> str:
        return "" if (cell := self.cell(part)) is None else str(cell).strip()

    def name(self, part: str) -> str:
        if text := self.text(part):
            return text
        raise TableError(f"{self.at(part)}: is missing; each row needs it")

    def attributes(self) -> dict[str, str]:
        return {name: self.text(name) for name in self.layout["attributes"]}

    def significance(self, part: str) -> bool:
        if (found := _SIGNIFICANCES.get(self.text(part).lower())) is None:
            raise TableError(f"{self.at(part)}: must be significant or insignificant, got {self.cell(part)!r}")
        return found

    def number(self, part: str) -> float:
        try:
            number = float(self.cell(part))
        except (TypeError, ValueError):
            number = -1.0
        if not 0 <= number < math.inf:
            raise TableError(f"{self.at(part)}: must be a number from 0 on, got {self.cell(part)!r}")
        return number

    def whole(self, part: str, first: int, last: float = math.inf) -> int:
        number = self.number(part)
        if number != int(number) or not first <= number <= last:
            raise TableError(f"{self.at(part)}: must be a whole number from {first} to {last}, got {self.cell(part)!r}")
        return int(number)

    def numbers(self, columns: Sequence[str]) -> list[float | None]:
        """Return the numbers of some columns, ``None`` for an empty cell."""
        return [self.number(column) if self.text(column) else None for column in columns]


def _check_names(found: Collection[str], required: Sequence[str], where: str) -> None:
    if missing := [name for name in dict.fromkeys(required) if name not in found]:
        raise TableError(f"{where}: lacks {', '.join(missing)}; it has {', '.join(map(str, found))}")


def _rows(source: str | Path | Table, layout: Layout) -> list[_Row]:
    """Return the rows of a table with the columns of a layout."""
    table = source if isinstance(source, Table) else read_table(source)
    columns = layout["columns"]
    further = [name for part in ("keys", "attributes", "ratings", "counts", "others") for name in layout.get(part, ())]
    _check_names(table.names, [*columns.values(), *further], table.source)
    for part in columns.keys() & {"reference", "candidate"}:
        table.warn_of_placeholders(columns[part])
    cells = enumerate(zip(*table.columns.values(), strict=True))
    return [_Row(dict(zip(table.names, row, strict=True)), table.where(number), layout) for number, row in cells]


def _entries(path: str | Path, layout: Layout) -> Iterator[tuple[str, _Row]]:
    """Yield the entries of a JSON document, a list or an object by name, with their numbers or names."""
    content = read_json_document(path)
    if not isinstance(content, Mapping | list):
        raise TableError(f"{path}: must be a list or an object of entries, got {type(content).__name__}")
    for key, entry in content.items() if isinstance(content, Mapping) else enumerate(content, start=1):
        where = f"{path}: entry {key}"
        if not isinstance(entry, Mapping):
            raise TableError(f"{where}: must be an object, got {type(entry).__name__}")
        _check_names(entry, list(layout["columns"].values()), where)
        yield str(key), _Row(entry, where, layout)


def _sum_if_complete(counts: Sequence[float | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return math.fsum(known) if len(known) == len(counts) else None


def _record(
    texts: tuple[str, str], source: str, counts: Mapping[bool, Sequence[float | None]], **further: Any
) -> ErrorRecord:
    """Return the record of six or more counts by significance; totals that contain an unknown count are missing."""
    both = [_sum_if_complete(pair) for pair in zip(counts[True], counts[False], strict=True)]
    # A count that is known for one significance only is unknown, because the sum is.
    weighty = [None if total is None else count for count, total in zip(counts[True], both, strict=True)]
    totals = {"errors": both, "significant": counts[True], "insignificant": counts[False]}
    return ErrorRecord(
        *texts,
        tuple(both[:_SIX]),
        source,
        significant=tuple(weighty[:_SIX]),
        other=_sum_if_complete(both[_SIX:]),
        significant_other=_sum_if_complete(weighty[_SIX:]),
        ratings={name: None for name, given in totals.items() if _sum_if_complete(given) is None},
        **further,
    )


def _warn(message: str) -> None:
    warnings.warn(message, AnnotationWarning, stacklevel=4)


def _read_rexval(layout: Layout, path: str | Path, rater: int | None = None) -> list[ErrorRecord]:
    folder, files = Path(path), layout["counts_files"]
    texts = read_table(folder / layout["reports"])
    _check_names(texts.names, [layout["reference"]], texts.source)
    references = texts.required_texts(layout["reference"])
    found: dict[tuple[int, str], dict[int, dict[int, dict[bool, float]]]] = {}
    for row in _rows(next((folder / name for name in files if (folder / name).exists()), folder / files[0]), layout):
        key = row.whole("study", 0, len(references) - 1), row.name("kind")
        by_category = found.setdefault(key, {}).setdefault(row.whole("rater", 0), {})
        counts = by_category.setdefault(row.whole("category", 1, _SIX) - 1, {})
        number = row.number("errors")
        if counts.setdefault(row.significance("significance"), number) is not number:
            raise TableError(f"{row.where}: repeats a count of the same rater")
    raters = sorted({index for by_rater in found.values() for index in by_rater})
    if rater is not None and rater not in raters:
        raise ValueError(f"rater must be one of {', '.join(map(str, raters))}, got {rater}")
    candidates = {kind: texts.required_texts(kind) for kind in {kind for _, kind in found}}
    records = []
    for (study, kind), by_rater in sorted(found.items()):
        chosen = [given for index, given in by_rater.items() if rater in (None, index)]
        given = [[one[category] for one in chosen if category in one] for category in range(_SIX)]
        both, weighty = (tuple(_mean(counts, kinds) for counts in given) for kinds in ((True, False), (True,)))
        pair = references[study], candidates[kind][study]
        attributes = {"candidate_type": kind}
        records.append(ErrorRecord(*pair, both, "rexval", (), weighty, study=str(study), attributes=attributes))
    return records


def _mean(counts: Sequence[Mapping[bool, float]], kinds: Sequence[bool]) -> float | None:
    """Return the mean over raters of the errors of some significances; ``None`` without a rater."""
    total = math.fsum(number for one in counts for kind, number in one.items() if kind in kinds)
    return total / len(counts) if counts else None


def _read_radevalx(layout: Layout, path: str | Path) -> list[ErrorRecord]:
    texts: dict[str, tuple[str, str]] = {}
    found: dict[str, dict[bool, list[float | None]]] = {}
    files = zip((True, False), layout["counts_files"], strict=True)
    for kind, row in ((kind, row) for kind, name in files for row in _rows(Path(path) / name, layout)):
        study, pair = row.name("study"), (row.report("reference"), row.report("candidate"))
        if [text.split() for text in texts.setdefault(study, pair)] != [text.split() for text in pair]:
            raise TableError(f"{row.where}: the reports of {study!r} differ from those in an earlier row")
        if kind in found.setdefault(study, {}):
            raise TableError(f"{row.where}: repeats the errors of report {study!r}")
        found[study][kind] = row.numbers(layout["counts"])
    if incomplete := [study for study, given in found.items() if len(given) < 2]:
        raise TableError(f"{path}: the report {incomplete[0]!r} needs significant and insignificant errors")
    cells = [count for given in found.values() for numbers in given.values() for count in numbers]
    if blanks := cells.count(None):
        _warn(f"RadEvalX: {blanks} of {len(cells)} counts are empty; they are read as no error")
    zeros = {study: {kind: [n or 0.0 for n in row] for kind, row in given.items()} for study, given in found.items()}
    return [_record(pair, "radevalx", zeros[study], study=study) for study, pair in texts.items()]


def _read_chest2error(layout: Layout, path: str | Path) -> list[ErrorRecord]:
    records, differing = [], 0
    for row in _rows(path, layout):
        counts, errors = row.numbers(layout["counts"]), _listed_errors(row)
        listed = [int(error["category"]) - 1 for error in errors]
        critical = [k for k, error in zip(listed, errors, strict=True) if error["criticality"].lower() == "critical"]
        is_complete = [listed.count(k) for k in range(_SIX)] == counts
        differing += not is_complete
        records.append(
            ErrorRecord(
                row.report("reference"),
                row.report("candidate"),
                tuple(counts),
                "chest2error",
                edits=errors,
                significant=tuple(float(critical.count(k)) for k in range(_SIX)) if is_complete else None,
                study=row.report("study"),
                attributes={name: row.report(name) for name in layout["attributes"]},
                ratings={name: row.numbers([column])[0] for column, name in layout["ratings"].items()},
            )
        )
    if differing:
        _warn(
            f"{path}: the list {layout['columns']['errors']} of {differing} of {len(records)} pairs does not have the "
            f"counts of the columns {layout['counts'][0]} to {layout['counts'][-1]}; their critical errors are not "
            "divided by category"
        )
    return records


def _listed_errors(row: _Row) -> tuple[Mapping[str, Any], ...]:
    errors = parse_json_cell(row.cell("errors"), row.at("errors"), "list of errors")
    if not isinstance(errors, Sequence) or not all(isinstance(error, Mapping) for error in errors):
        raise TableError(f"{row.at('errors')}: must be a list of objects, got {errors!r}")
    for key, known in (("category", tuple("123456")), ("criticality", ("critical", "minor"))):
        if wrong := [error.get(key) for error in errors if str(error.get(key)).lower() not in known]:
            raise TableError(f"{row.at('errors')}: {key} must be one of {', '.join(known)}, got {wrong[0]!r}")
    return tuple(errors)


# An error of ReFiSco of this severity or more is actionable.
_ACTIONABLE = 2
_DELETION, _UNCHANGED = "[delete]", "[no edit]"
_KINDS = {"insertion": "insertions", "deletion": "deletions", "edit": "edits", "unchanged": "unchanged"}


@dataclass(frozen=True)
class _Line:
    """A line of an annotation: its texts and its severity."""

    original: str
    corrected: str
    severity: int | None

    @property
    def kind(self) -> str:
        if self.original == self.corrected:
            return "unchanged"
        if not self.original:
            return "insertion"
        return "edit" if self.corrected else "deletion"

    @property
    def is_error(self) -> bool:
        """Whether the line has an error: a grade above 0; without a grade, whether it was corrected."""
        return self.kind != "unchanged" if self.severity is None else self.severity > 0


def _read_refisco(layout: Layout, path: str | Path) -> list[ErrorRecord]:
    found: dict[tuple[str, ...], tuple[str, Mapping[str, str], list[_Line]]] = {}
    table = read_table(path)
    is_v1 = layout["v1"]["columns"]["original"] in table.columns
    for row in _rows(table, layout["v1" if is_v1 else "v0"]):
        key, study = tuple(map(row.name, row.layout["keys"])), row.name("study")
        before, _, lines = found.setdefault(key, (study, row.attributes(), []))
        if before != study:
            raise TableError(f"{row.at('study')}: is {study!r}, but {before!r} in earlier rows of {' '.join(key)}")
        lines.append(_Line(row.text("original"), _corrected(row, is_v1), _severity(row, layout["grades"])))
    all_lines = [line for _, _, lines in found.values() for line in lines]
    ungraded = sum(line.severity is None and line.is_error for line in all_lines)
    harmless = sum(line.severity == 0 and line.kind != "unchanged" for line in all_lines)
    if ungraded or harmless:
        _warn(
            f"{path}: {ungraded} corrected lines have no grade and count as errors of unknown severity; {harmless} "
            "corrected lines are graded as no error and do not count"
        )
    return [_refisco_record(*annotation) for annotation in found.values()]


def _corrected(row: _Row, empty_is_unchanged: bool) -> str:
    """Return the line after its correction; ``""`` if it is deleted."""
    original, correction = row.text("original"), row.text("corrected")
    if _DELETION in correction.lower():
        return ""
    if correction.lower() == _UNCHANGED or (not correction and (empty_is_unchanged or not original)):
        return original
    return row.name("corrected")


def _severity(row: _Row, grades: Mapping[str, int]) -> int | None:
    grade = " ".join(row.text("grade").lower().replace("-", " ").replace("_", " ").split())
    if not grade:
        return None
    number = grades.get(grade, {str(value): value for value in grades.values()}.get(grade.removesuffix(".0")))
    if number is None:
        raise TableError(f"{row.at('grade')}: must be 0 to 4 or one of {', '.join(grades)}; got {row.cell('grade')!r}")
    return number


def _refisco_record(study: str, attributes: Mapping[str, str], lines: Sequence[_Line]) -> ErrorRecord:
    errors = [line for line in lines if line.is_error]
    known = [line.severity for line in errors if line.severity is not None]
    is_graded = len(known) == len(errors)
    kinds = [line.kind for line in errors]
    return ErrorRecord(
        " ".join(line.corrected for line in lines if line.corrected),
        " ".join(line.original for line in lines if line.original),
        (None,) * _SIX,
        "refisco",
        edits=tuple({"kind": line.kind, "severity": line.severity} for line in errors),
        other=float(len(errors)),
        significant_other=float(sum(severity >= _ACTIONABLE for severity in known)) if is_graded else None,
        study=study,
        attributes=attributes,
        ratings={
            **{name: float(kinds.count(kind)) for kind, name in _KINDS.items()},
            "max_severity": float(max(known, default=0)) if is_graded else None,
            "sum_severity": float(sum(known)) if is_graded else None,
        },
    )


# The six categories have none for RadPref's other attribute errors (descriptor, certainty, unspecific,
# overinterpretation, temporal).
_RADPREF_LETTERS = {"location": "C", "severity": "D", "measurement": "D"}


def _read_radpref(layout: Layout, path: str | Path, rater: int | None = None) -> list[ErrorRecord]:
    records = []
    for number, row in _entries(path, layout):
        judged = row.cell("radiologists")
        if not judged:
            raise TableError(f"{row.where}: has no radiologist")
        if rater is not None and not 0 <= rater < len(judged):
            raise ValueError(f"rater must be below {len(judged)} in {row.where}, got {rater}")
        context = {name: str(row.cells[name]) for name in layout["attributes"] if row.cells.get(name)}
        for name in ("C1", "C2"):
            try:
                given = [one[name] for one in (judged if rater is None else [judged[rater]])]
                counts = [_radpref_counts(judgement) for judgement in given]
                ratings = [judgement.get("rating") for judgement in given]
            except (KeyError, TypeError, AttributeError) as error:
                raise TableError(f"{row.where}: is no RadPref annotation: {type(error).__name__}: {error}") from None
            means = (sum(values) / len(counts) for values in zip(*counts, strict=True))
            records.append(
                ErrorRecord(
                    row.report("reference"),
                    row.report(name),
                    (*means, None, None),
                    "radpref",
                    study=str(row.cells.get("id", number)),
                    attributes={"candidate": name, **context},
                    ratings={"rating": None if None in ratings else statistics.fmean(ratings)},
                )
            )
    return records


def _radpref_counts(judgement: Mapping[str, Any]) -> list[int]:
    """Return the numbers of errors A to D that one radiologist found in one candidate."""
    letters = ["B"] * len(judgement["missing_findings"])
    for error in judgement["finding_errors"].values():
        if error["error_type"] == "false":
            letters.append("A")
        else:
            letters += sorted({_RADPREF_LETTERS[name] for name in error["attributes"] if name in _RADPREF_LETTERS})
    return [letters.count(letter) for letter in "ABCD"]


def _read_rate_eval(layout: Layout, path: str | Path, normalise: bool = False) -> list[ErrorRecord]:
    records = []
    for _, row in _entries(path, layout):
        counts = row.cell("errors")
        if not isinstance(counts, list) or len(counts) != _SIX:
            raise TableError(f"{row.at('errors')}: must be a list of {_SIX} numbers, got {counts!r}")
        counts = [parse_count(n, f"{row.at('errors')}, {letter}") for letter, n in zip(LETTERS, counts, strict=True)]
        if normalise:
            _check_names(row.cells, ["potential_errors"], row.where)
            if not (potential := parse_count(row.cell("potential_errors"), row.at("potential_errors"))):
                raise TableError(f"{row.at('potential_errors')}: must be a positive number, got {potential}")
            counts = [None if count is None else count / potential for count in counts]
        records.append(ErrorRecord(row.report("reference"), row.report("candidate"), tuple(counts), "rate_eval"))
    return records


READERS: Mapping[str, Callable[..., list[ErrorRecord]]] = {
    "rexval": _read_rexval,
    "radevalx": _read_radevalx,
    "chest2error": _read_chest2error,
    "refisco": _read_refisco,
    "radpref": _read_radpref,
    "rate_eval": _read_rate_eval,
}
"""The reader of each data set, of its layout, its path and the options of ``read_annotated_set``."""
