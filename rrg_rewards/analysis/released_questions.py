"""The attributes and questions that the authors of CT-FineBench released, converted to schemas and items."""

from collections import Counter
from pathlib import Path

from rrg_rewards.analysis.settings import ReleasedQuestionSettings, ReleasedSchemaSettings
from rrg_rewards.data.records.released_questions import ReleasedQuestions, read_released_questions
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.questions.schema import QuestionSchema
from rrg_rewards.questions.schema_files import ReleasedAttribute, convert_released_attributes
from rrg_rewards.utilities.run_log import RunLog

_COLUMNS = ("Finding", "Feature", "Explanation", "Examples")


def convert_schema(
    table: Table, settings: ReleasedSchemaSettings = ReleasedSchemaSettings(), log: RunLog | None = None
) -> QuestionSchema:
    """Convert the released table of attributes to a question schema.

    Findings that are no label of the lexicon, and attributes that the finding engine cannot read, are listed in
    warnings. They stay in the schema, which then needs a judge that makes and answers questions, or are left out with
    ``readable_only``.

    Args:
        table: The table, with the columns ``Finding``, ``Feature``, ``Explanation`` and ``Examples``.
        settings: Name, lexicon and types of answers.
        log: Receives the warnings, and a note with the counts.

    Raises:
        TableError: If a column or a cell is missing, an attribute of a finding is repeated, or a type of answers is
            unknown. The message names the row.
        ValueError: If the lexicon is unknown, or has none of the findings and ``readable_only`` is set.

    Example:
        >>> cells = ["renal_cyst", "Size", "Largest diameter.", "4 mm, 12 mm"]
        >>> schema = convert_schema(Table({name: [cell] for name, cell in zip(_COLUMNS, cells)}))
        >>> schema.lexicon, [spec.name for spec in schema.finding("Renal cyst").attributes]
        ('abdomen', ['existence', 'size'])
    """
    log = log or RunLog()
    columns = [[text or "" for text in table.texts(name)] for name in _COLUMNS]
    rows = [ReleasedAttribute(*row) for row in zip(*columns, strict=True)]
    try:
        made = convert_released_attributes(rows, settings.name, settings.lexicon, settings.answer_type)
    except ValueError as error:
        raise TableError(f"{table.source}: {error}") from None
    left = "are left out" if settings.readable_only else "need a judge that makes and answers the questions"
    if made.unread_findings:
        log.warn(
            f"{len(made.unread_findings)} of {len(made.schema.findings)} findings are no label of the lexicon "
            f"{made.schema.lexicon} and {left}: {', '.join(made.unread_findings)}"
        )
    if made.unread_attributes:
        names = "; ".join(f"{finding}, {attribute}" for finding, attribute in made.unread_attributes)
        log.warn(f"{len(made.unread_attributes)} attributes cannot be read by the finding engine and {left}: {names}")
    schema = made.readable() if settings.readable_only else made.schema
    kinds = Counter(spec.answer_type for finding in schema.findings for spec in finding.attributes)
    log.note(
        f"{len(schema.findings)} findings with {kinds.total()} attributes: "
        f"{', '.join(f'{kind} {count}' for kind, count in kinds.items())}"
    )
    return schema


def convert_questions(
    path: str | Path, settings: ReleasedQuestionSettings = ReleasedQuestionSettings(), log: RunLog | None = None
) -> ReleasedQuestions:
    """Read a released file of questions, and say what was read.

    Args:
        path: Path of the file; see :func:`~rrg_rewards.data.read_released_questions`.
        settings: Schema and keys.
        log: Receives a note with the counts, and a warning if answers on numeric attributes are no numbers.

    Raises:
        TableError: As :func:`~rrg_rewards.data.read_released_questions`.
        ValueError: Likewise.
        OSError: If the file cannot be read.
    """
    log = log or RunLog()
    found = read_released_questions(path, settings.schema, settings.column)
    log.note(f"{found.num_items} questions on {len(found.reports)} reports")
    if found.num_not_numeric:
        log.warn(
            f"{found.num_not_numeric} answers on numeric attributes are no numbers with known units; their questions "
            "are categorical"
        )
    return found
