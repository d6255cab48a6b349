"""Read the question files that the authors of CT-FineBench released, such as ``ctrate_qa_test.json``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.question_items import ReportItems
from rrg_rewards.data.tables.json_documents import read_json_document
from rrg_rewards.data.tables.studies import study_name
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema, get_question_schema, name_key
from rrg_rewards.questions.schema_files import EXISTENCE_NAMES
from rrg_rewards.utilities.names import unknown_name_message

# Names of keys that are accepted for each part: those of this package, of the released table of attributes and of the
# paper's prompts, and of the tables of CT-RATE and Merlin.
_KEYS = {
    "report_id": ("report_id", "study_id", "VolumeName"),
    "items": ("items", "questions", "qa"),
    "finding": ("finding", "disease"),
    "attribute": ("attribute", "feature"),
    "question": ("question",),
    "answer": ("answer",),
}
_OF_ITEM = ("finding", "attribute", "question", "answer")


@dataclass(frozen=True)
class ReleasedQuestions:
    """Result of :func:`read_released_questions`.

    Args:
        reports: The questions of each report, in the order of the file.
        num_not_numeric: Number of questions on numeric attributes whose answer is no number ("large"), which are
            categorical.
    """

    reports: list[ReportItems]
    num_not_numeric: int

    @property
    def num_items(self) -> int:
        """Number of questions."""
        return sum(len(row.items) for row in self.reports)


def read_released_questions(
    path: str | Path, schema: str | Path | QuestionSchema, columns: Mapping[str, str] | None = None
) -> ReleasedQuestions:
    r"""Read questions with answers in JSON, as the authors of CT-FineBench released them, for :class:`CTFineBench`.

    Each question is an object with the finding, the attribute, the question and the answer. The file is

    - a list of such objects, each also with the name of its study;
    - an object with the list of the questions of each study, by its name; or
    - a list of objects for each study, with its name and the list of its questions.

    The names of the keys are those below, ignoring case and underscores; ``columns`` names others. Keys that are not
    listed are ignored.

    ========= ===============================================
    Part      Keys
    ========= ===============================================
    report_id ``report_id``, ``study_id`` or ``VolumeName``
    items     ``items``, ``questions`` or ``qa``
    finding   ``finding`` or ``disease``
    attribute ``attribute`` or ``feature``
    question  ``question``
    answer    ``answer``
    ========= ===============================================

    The page of the data set does not describe its keys, so these are the names of the released table of attributes and
    of the prompts in the paper. With other keys the error lists those of the file.

    The schema has what the questions lack: type of the answer, explanation and examples of each attribute. The
    attribute ``presence`` is ``existence``.

    Args:
        path: Path of the file.
        schema: Question schema with all findings and attributes of the file, such as the converted table of attributes
            (:func:`rrg_rewards.questions.schema_files.convert_released_attributes`).
        columns: Keys of the file for parts of the table above: ``{"report_id": "name", "answer": "gt"}``.

    Raises:
        TableError: If the file is not JSON, has another layout or other keys, or a question has no text, or is about a
            finding or attribute that the schema does not have. The message names the entry, and lists the keys that it
            has.
        ValueError: If the schema or a part in ``columns`` is unknown.
        OSError: If the file cannot be read.

    Example:
        >>> import json
        >>> from tempfile import TemporaryDirectory
        >>> asked = {"finding": "lung_nodule", "attribute": "Size", "question": "How large is it?", "answer": "12 mm"}
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "qa.json"
        ...     _ = path.write_text(json.dumps({"valid_1_a_1.nii.gz": [asked]}))
        ...     (row,) = read_released_questions(path, "ct_rate").reports
        >>> row.report_id, row.items[0].finding, row.items[0].attribute, row.items[0].answer_type
        ('valid_1_a_1', 'Lung nodule', 'size', 'numeric')
    """
    schema, keys = get_question_schema(schema), _Keys(columns or {})
    rows: dict[str, list[QAItem]] = {}
    num_not_numeric = 0
    for study, record, where in _questions(read_json_document(path), str(path), keys):
        items = rows.setdefault(study, [])
        if record is not None:
            item, is_numeric = _item(record, schema, keys, where)
            items.append(item)
            num_not_numeric += not is_numeric
    if not rows:
        raise TableError(f"{path}: has no questions")
    return ReleasedQuestions([ReportItems(study, tuple(items)) for study, items in rows.items()], num_not_numeric)


class _Keys:
    """Finds parts of a record by the names of their keys.

    Args:
        columns: Names of keys that the user gives, by part.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        for part in columns:
            if part not in _KEYS:
                raise ValueError(unknown_name_message("part of a question in columns", part, list(_KEYS)))
        self._names = {**_KEYS, **{part: (name,) for part, name in columns.items()}}
        self._is_given = columns.keys()

    def of(self, record: Mapping[str, Any], part: str, where: str) -> str | None:
        """Return the key of a part, ``None`` if the record has none."""
        names = self._names[part]
        if part in self._is_given:
            return names[0] if names[0] in record else None
        wanted = {name_key(name) for name in names}
        found = [key for key in record if name_key(key) in wanted]
        if len(found) > 1:
            raise TableError(f"{where}: {' and '.join(map(repr, found))} could both be the {part}; name one in columns")
        return found[0] if found else None

    def missing(self, parts: Sequence[str], record: Mapping[str, Any], where: str) -> TableError:
        """Return the error for parts that a record lacks."""
        example = ", ".join(f"{part!r}: '...'" for part in parts)
        return TableError(
            f"{where}: has no {', '.join(parts)}; keys found: {', '.join(map(repr, record)) or 'none'}. Name the keys: "
            f"columns={{{example}}}"
        )


def _questions(document: Any, source: str, keys: _Keys) -> Iterator[tuple[str, Any, str]]:
    """Yield the study, the record and the location of each question; a study without questions has no record."""
    if isinstance(document, Mapping):
        for study, content in document.items():
            where = f"{source}: study {study!r}"
            if isinstance(content, Mapping) and (key := keys.of(content, "items", where)) is not None:
                content = content[key]
            yield from _of_study(study, content, where)
        return
    if not isinstance(document, list):
        raise TableError(f"{source}: must be a list or an object of questions, got {type(document).__name__}")
    for number, entry in enumerate(document, start=1):
        where = f"{source}: entry {number}"
        if not isinstance(entry, Mapping):
            raise TableError(f"{where}: must be an object, got {type(entry).__name__}")
        id_key, items_key = (keys.of(entry, part, where) for part in ("report_id", "items"))
        if id_key is None or entry[id_key] is None or not str(entry[id_key]).strip():
            raise keys.missing(["report_id"], entry, where)
        if items_key is None:
            yield study_name(str(entry[id_key])), entry, where
        else:
            yield from _of_study(str(entry[id_key]), entry[items_key], where)


def _of_study(study: str, questions: Any, where: str) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(questions, list):
        raise TableError(f"{where}: must have a list of questions, got {type(questions).__name__}")
    if not questions:
        yield study_name(study), None, where
    for number, record in enumerate(questions, start=1):
        yield study_name(study), record, f"{where}, question {number}"


def _item(record: Any, schema: QuestionSchema, keys: _Keys, where: str) -> tuple[QAItem, bool]:
    """Return a question, and whether its answer is a number if its attribute is numeric."""
    if not isinstance(record, Mapping):
        raise TableError(f"{where}: must be an object, got {type(record).__name__}")
    found = {part: keys.of(record, part, where) for part in _OF_ITEM}
    if missing := [part for part, key in found.items() if key is None]:
        raise keys.missing(missing, record, where)
    values = {part: record[key] for part, key in found.items() if key is not None}
    if wrong := [part for part, value in values.items() if type(value) not in (str, int, float)]:
        raise TableError(f"{where}: {wrong[0]} must be a text, got {type(values[wrong[0]]).__name__}")
    texts = {part: str(value).strip() for part, value in values.items()}
    if name_key(texts["attribute"]) in EXISTENCE_NAMES:
        texts["attribute"] = "existence"
    try:
        spec = schema.finding(texts["finding"]).attribute(texts["attribute"])
        item = QAItem(**texts, answer_type=spec.answer_type, explanation=spec.explanation, examples=spec.examples)
    except ValueError as error:
        raise TableError(f"{where}: {error}") from None
    return _comparable(item, schema)


def _comparable(item: QAItem, schema: QuestionSchema) -> tuple[QAItem, bool]:
    """Return a question with the names of the schema, categorical if its numeric attribute has no number."""
    try:
        compare_answers(item.answer, item.answer, item.answer_type)
    except ValueError:
        # Only a numeric answer that is not blank cannot be compared.
        item, is_numeric = replace(item, answer_type="categorical"), False
    else:
        is_numeric = True
    finding = schema.finding(item.finding)
    return replace(item, finding=finding.name, attribute=finding.attribute(item.attribute).name), is_numeric
