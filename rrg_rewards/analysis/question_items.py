"""Question items on single attributes of findings, and the attributes that a corpus states."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import MiningSettings, QuestionSettings
from rrg_rewards.data.records.question_items import ReportItems
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.studies import rows_by_study
from rrg_rewards.data.tables.table import Table
from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.schema import (
    NOT_MENTIONED,
    QAItem,
    QuestionSchema,
    check_finding_labels,
    get_question_schema,
    items_on,
    name_key,
)
from rrg_rewards.questions.schema_files import EXISTENCE_NAMES
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

if TYPE_CHECKING:
    from rrg_rewards.judges.base import Item, JudgeTask, Result

# Modules of judges are imported where they are used: they import torch, which the finding engine does not need.

# Spellings of Merlin's label of what a report does not mention.
_NOT_MENTIONED = frozenset({str(NOT_MENTIONED), f"{NOT_MENTIONED}.0"})

# Number of examples of an attribute in a draft; the paper's guideline asks for five or more.
_NUM_EXAMPLES = 8

Triple = tuple[str, str, str]
"""Finding, attribute and value."""


@dataclass(frozen=True)
class ReportTexts:
    """Reports that are not blank.

    Args:
        texts: Text of each report, by its id.
        positive: Findings of the question schema that the labels of each report call positive, by its id; ``None`` if
            there are no labels.
        source: Name of the reports in messages.

    Example:
        >>> ReportTexts.of(["Edema.", "Clear."]).texts
        {'1': 'Edema.', '2': 'Clear.'}
    """

    texts: Mapping[str, str]
    positive: Mapping[str, frozenset[str]] | None = None
    source: str = "reports"

    @classmethod
    def of(cls, reports: Sequence[str]) -> "ReportTexts":
        """Return reports with their numbers, from 1, as ids."""
        return cls({str(number): text for number, text in enumerate(reports, 1)})


def read_report_texts(
    table: Table, settings: QuestionSettings = QuestionSettings(), log: RunLog | None = None
) -> ReportTexts:
    """Return the reports of a table, and their labels if the settings ask for them.

    Missing and blank reports, and reports without labels if labels are asked for, are left out with a warning. A label
    of -1, Merlin's label of a finding that the report does not mention, is not positive.

    Args:
        table: The table.
        settings: Columns and schema, and the table of the labels.
        log: Receives warnings and notes.

    Raises:
        SettingError: If an id occurs more than once.
        TableError: If a column is missing, a cell is no label, or a study of the labels is missing or repeated.
        OSError: If the table of labels cannot be read.

    Example:
        >>> read_report_texts(Table({"report": ["Edema."], "id": ["a"]}), QuestionSettings(id_column="id")).texts
        {'a': 'Edema.'}
    """
    log = log or RunLog()
    texts = table.texts(settings.text_column)
    ids = [str(row + 1) for row in range(len(table))]
    if (column := settings.id_column or settings.key) is not None:
        ids = [str(cell) for cell in table.column(column)]
        if twice := [report_id for report_id, count in Counter(ids).items() if count > 1]:
            raise SettingError("id_column", f"{twice[0]!r} occurs more than once in {column!r}")
    kept = {report_id: text for report_id, text in zip(ids, texts, strict=True) if text is not None and text.strip()}
    if len(kept) < len(table):
        log.warn(f"{len(table) - len(kept)} of {len(table)} reports are missing or blank, and are left out")
    if not settings.labels:
        return ReportTexts(kept, source=table.source)
    schema = get_question_schema(settings.schema)
    positive = dict(zip(ids, check_finding_labels(_labels(table, schema, settings, log), schema), strict=True))
    labelled = {report_id: findings for report_id in kept if (findings := positive[report_id]) is not None}
    if len(labelled) < len(kept):
        log.warn(f"{len(kept) - len(labelled)} of {len(kept)} reports have no labels, and are left out")
    return ReportTexts({report_id: kept[report_id] for report_id in labelled}, labelled, table.source)


def _labels(
    table: Table, schema: QuestionSchema, settings: QuestionSettings, log: RunLog
) -> list[tuple[int, ...] | None]:
    """Return the labels of each report in the order of the findings, -1 as 0."""
    source = read_table(settings.labels) if isinstance(settings.labels, str) else table
    names = [_label_column(source, finding.name) for finding in schema.findings]
    columns, num_not_mentioned = {}, 0
    for name in names:
        cells = source.column(name)
        is_unmentioned = [str(cell).strip() in _NOT_MENTIONED for cell in cells]
        columns[name] = [0 if unmentioned else cell for cell, unmentioned in zip(cells, is_unmentioned, strict=True)]
        num_not_mentioned += sum(is_unmentioned)
    rows = source.with_columns(columns).labels(names)
    if num_not_mentioned:
        log.note(f"{num_not_mentioned} labels of {source.source} are -1, not mentioned, and count as not positive")
    return rows if source is table else _of_studies(rows, source, table, str(settings.key), log)


def _label_column(table: Table, name: str) -> str:
    """Return the column of a finding's labels; names may differ in case and underscores."""
    alike = [column for column in table.names if name_key(column) == name_key(name)]
    return alike[0] if name not in table.columns and len(alike) == 1 else name


def _of_studies(
    rows: Sequence[tuple[int, ...] | None], labels: Table, reports: Table, key: str, log: RunLog
) -> list[tuple[int, ...] | None]:
    """Return the row of each report's study, ``None`` for a study that the table of labels does not have."""
    places, studies = rows_by_study(labels, key), rows_by_study(reports, key)
    if unused := len(places.keys() - studies.keys()):
        log.note(f"{unused} of {len(places)} studies of {labels.source} have no report")
    return [rows[places[study]] if study in places else None for study in studies]


def ask_judge(
    task: "JudgeTask[Item, Result]",
    items: "Sequence[Item]",
    source: str,
    settings: QuestionSettings,
    log: RunLog,
    noun: str = "reports",
) -> "Iterator[tuple[int, Result]]":
    """Let the judge evaluate items of the reports of ``source`` in batches, and yield the results with their rows.

    Failures are warned of, as those of ``noun``, and left out.

    Raises:
        SettingError: For an unknown judge, or the judge ``rules``, which evaluates CRIMSON only.
        ValueError: If the judge fails on every item.
    """
    from rrg_rewards.analysis.answers import evaluate_in_batches
    from rrg_rewards.analysis.judge_choice import choose_judge
    from rrg_rewards.analysis.outcomes import by_kind
    from rrg_rewards.judges.base import JudgeFailure
    from rrg_rewards.judges.rules import RuleJudge

    judge = choose_judge(settings.judge)
    if isinstance(judge, RuleJudge):
        raise SettingError("judge", "the judge 'rules' evaluates CRIMSON only; without a judge, rules are used")
    with log.progress("judging") as progress:
        results = evaluate_in_batches(judge, task, items, settings.batch_size, progress)
    failed = Counter(result.kind for result in results if isinstance(result, JudgeFailure))
    if failed:
        kinds = by_kind(failed)
        if failed.total() == len(items):
            raise ValueError(f"{source}: the judge failed on every report ({kinds}); nothing is written")
        log.warn(f"the judge failed on {failed.total()} of {len(items)} {noun} ({kinds}): they are left out")
    for row, result in enumerate(results):
        if not isinstance(result, JudgeFailure):
            yield row, result


@dataclass(frozen=True)
class QuestionItems:
    """Result of :func:`build_question_items`.

    Args:
        rows: The items of each report, without the reports on which a judge failed.
        positive_labels: Number of positive labels of these reports; ``None`` without labels.
    """

    rows: list[ReportItems]
    positive_labels: int | None = None

    @property
    def num_items(self) -> int:
        """Number of items."""
        return sum(len(row.items) for row in self.rows)

    @property
    def num_empty(self) -> int:
        """Number of reports without an item."""
        return sum(not row.items for row in self.rows)

    @property
    def num_findings(self) -> int:
        """Number of findings with an item, each once in a report."""
        return sum(len({item.finding for item in row.items}) for row in self.rows)


def build_question_items(
    reports: ReportTexts, settings: QuestionSettings = QuestionSettings(), log: RunLog | None = None
) -> QuestionItems:
    """Make questions on the findings of reports and on each attribute that a report states.

    Args:
        reports: The reports. With labels, only findings with a positive label have items.
        settings: Question schema, and the judge that makes the items. Default: the finding engine.
        log: Receives warnings and progress.

    Raises:
        SettingError: For an invalid judge, or the judge ``rules``.
        ValueError: If the judge fails on every report.

    Example:
        >>> items = build_question_items(ReportTexts.of(["Nodule of 5 mm in the left lung."]))
        >>> items.num_items, items.rows[0].items[1].question
        (3, 'Where are the nodules? Name every place that is given.')
    """
    log = log or RunLog()
    built = _engine_items(reports, settings, log) if settings.judge is None else _judged_items(reports, settings, log)
    if (positive := reports.positive) is None:
        return QuestionItems([ReportItems(name, items, reports.texts[name]) for name, items in built.items()])
    rows = [ReportItems(name, items_on(items, positive[name]), reports.texts[name]) for name, items in built.items()]
    return QuestionItems(rows, sum(len(positive[name]) for name in built))


def _engine_items(reports: ReportTexts, settings: QuestionSettings, log: RunLog) -> dict[str, tuple[QAItem, ...]]:
    built = {}
    with log.progress("building") as progress:
        progress(0, len(reports.texts))
        for report_id, text in reports.texts.items():
            built[report_id] = build_items(text, settings.schema)
            progress(1, 0)
    return built


def _judged_items(reports: ReportTexts, settings: QuestionSettings, log: RunLog) -> dict[str, tuple[QAItem, ...]]:
    from rrg_rewards.judges.tasks.finebench import ItemsTask, Refused

    if (prompt := settings.prompt) is not None:
        made = _prompted_items(prompt, reports, settings, log)
    else:
        ids, task = list(reports.texts), ItemsTask(get_question_schema(settings.schema))
        asked = ask_judge(task, list(reports.texts.values()), reports.source, settings, log)
        made = {ids[row]: list(items) for row, items in asked}
    if refused := Counter(item.value for items in made.values() for item in items if isinstance(item, Refused)):
        reasons = ", ".join(f"{reason} {count}" for reason, count in refused.items())
        log.warn(f"{refused.total()} attributes that the judge stated have no question: their answer is {reasons}")
    return {name: tuple(item for item in items if isinstance(item, QAItem)) for name, items in made.items()}


def _prompted_items(
    prompt: str | Path, reports: ReportTexts, settings: QuestionSettings, log: RunLog
) -> dict[str, list[Any]]:
    """Return the items of each report with a prompt of the user, which asks about one attribute of a finding.

    A report with a failed request is left out. Labels and stated attributes tell that a finding exists.
    """
    from rrg_rewards.judges.tasks.finebench import question_item
    from rrg_rewards.judges.tasks.finebench_prompt_files import AskedAttribute, QuestionPromptTask
    from rrg_rewards.judges.tasks.prompt_files import read_prompt_task

    schema = get_question_schema(settings.schema)
    task = read_prompt_task("prompt", prompt, QuestionPromptTask)
    positive = reports.positive
    asked = {
        (name, finding.name, spec.name): AskedAttribute(text, finding.name, spec)
        for name, text in reports.texts.items()
        for finding in schema.findings
        if positive is None or finding.name in positive[name]
        for spec in finding.attributes
        if spec.answer_type != "existence"
    }
    found = dict(ask_judge(task, list(asked.values()), reports.source, settings, log, "requests") if asked else ())
    results = {key: found[row] for row, key in enumerate(asked) if row in found}
    failed = {name for name, *_ in asked.keys() - results.keys()}
    made: dict[str, list[Any]] = {name: [] for name in reports.texts if name not in failed}
    for name, items in made.items():
        for finding in schema.findings:
            told = [one for spec in finding.attributes if (one := results.get((name, finding.name, spec.name)))]
            if told or (positive is not None and finding.name in positive[name]):
                exists = [spec for spec in finding.attributes if spec.answer_type == "existence"]
                items += [*(question_item(finding.name, spec, "yes") for spec in exists), *told]
    return made


def _are_alike(one: tuple[str, Sequence[str]], other: tuple[str, Sequence[str]]) -> bool:
    """Whether two attributes of a finding may be one, by their names and values."""
    shared = len({*one[1]} & {*other[1]})
    words = {*name_key(one[0]).split()} & {*name_key(other[0]).split()}
    return bool(words) or 2 * shared >= min(len(one[1]), len(other[1]))


@dataclass(frozen=True)
class MinedAttributes:
    """Result of :func:`mine_attributes`.

    Args:
        counts: Number of reports, or of findings, that state each (finding, attribute, value), in the order of the
            output: the triples of a finding by the count of finding and attribute.
        pairs: Count of each (finding, attribute), also of those that were left out.
    """

    counts: dict[Triple, int]
    pairs: Mapping[tuple[str, str], int]

    @property
    def num_kept(self) -> int:
        """Number of pairs that were not left out."""
        return len({triple[:2] for triple in self.counts})

    def to_table(self) -> Table:
        """Return the columns ``finding``, ``attribute``, ``value``, ``count`` and ``pair_count``."""
        columns: dict[str, list[Any]] = {
            name: [triple[index] for triple in self.counts]
            for index, name in enumerate(("finding", "attribute", "value"))
        }
        columns["count"] = list(self.counts.values())
        columns["pair_count"] = [self.pairs[triple[:2]] for triple in self.counts]
        return Table(columns)

    def draft(self) -> Table:
        """Return a draft of a question schema, to be edited and read by :func:`~rrg_rewards.analysis.convert_schema`.

        Each row is a finding (``Finding``) with an attribute (``Feature``), the commonest values (``Examples``), and an
        ``Explanation`` that has to be written. ``Count`` is the count of the pair, and ``Merge`` names attributes of
        the finding that share a word with this one, or at least half of the values of one of both.

        Example:
            >>> counts = {("Nodule", "location", "left lung"): 2, ("Nodule", "position", "left lung"): 1}
            >>> pairs = {("Nodule", "location"): 2, ("Nodule", "position"): 1}
            >>> MinedAttributes(counts, pairs).draft().columns["Merge"]
            ['position', 'location']
        """
        stated: dict[tuple[str, str], list[str]] = {}
        for finding, attribute, value in self.counts:
            if name_key(attribute) not in EXISTENCE_NAMES:
                stated.setdefault((finding, attribute), []).append(value)
        rows = [
            {
                "Finding": finding,
                "Feature": attribute,
                "Explanation": f"{attribute} of the finding",
                "Examples": json.dumps(values[:_NUM_EXAMPLES], ensure_ascii=False),
                "Count": self.pairs[finding, attribute],
                "Merge": ", ".join(
                    other
                    for (owner, other), theirs in stated.items()
                    if owner == finding and other != attribute and _are_alike((attribute, values), (other, theirs))
                ),
            }
            for (finding, attribute), values in stated.items()
        ]
        return Table.from_records(rows, ("Finding", "Feature", "Explanation", "Examples", "Count", "Merge"))


def mine_attributes(
    reports: ReportTexts, settings: MiningSettings = MiningSettings(), log: RunLog | None = None
) -> MinedAttributes:
    """Count the (finding, attribute, value) triples that reports state, for authors of question schemas.

    Args:
        reports: The reports. With labels, a judge is asked about findings with a positive label only.
        settings: The minimum count, and the judge that lists the triples; each triple of a report then counts once.
            Default: the finding engine.
        log: Receives warnings and progress.

    Raises:
        SettingError: For an invalid judge, or the judge ``rules``.
        ValueError: If the judge fails on every report.

    Example:
        >>> texts = ["Nodule of 5 mm in the left lung.", "Nodule of 5 mm in the right lung."]
        >>> mined = mine_attributes(ReportTexts.of(texts), MiningSettings(min_count=2))
        >>> mined.counts["lung_nodule", "size", "5 mm"], mined.pairs["lung_nodule", "laterality"]
        (2, 2)
    """
    log = log or RunLog()
    count = _engine_counts if settings.judge is None else _judged_counts
    counts = count(reports, settings, log)
    pairs: Counter[tuple[str, str]] = Counter()
    for (finding, attribute, _), number in counts.items():
        pairs[finding, attribute] += number
    kept = [triple for triple in counts if pairs[triple[:2]] >= settings.min_count]
    kept.sort(key=lambda triple: (triple[0], -pairs[triple[:2]], triple[1], -counts[triple], triple[2]))
    return MinedAttributes({triple: counts[triple] for triple in kept}, pairs)


def _engine_counts(reports: ReportTexts, settings: MiningSettings, log: RunLog) -> Mapping[Triple, int]:  # noqa: ARG001 (as the judge's)
    """Count the triples of the findings that the finding engine reads."""
    counts: Counter[Triple] = Counter()
    with log.progress("reading") as progress:
        progress(0, len(reports.texts))
        for text in reports.texts.values():
            findings = abnormal_findings(text, extract_findings(text))
            counts.update(triple for finding in findings for triple in _triples(finding))
            progress(1, 0)
    return counts


def _triples(finding: Finding) -> Iterator[Triple]:
    """Return the triples of one finding, with its presence as ``existence``."""
    yield finding.concept, "existence", finding.presence
    for name, value in finding.attributes._asdict().items():
        if name == "size_mm":
            if value is not None:
                yield finding.concept, "size", f"{value:g} mm"
        elif isinstance(value, tuple):
            yield from ((finding.concept, name, each) for each in value)
        elif value is not None:
            yield finding.concept, name, str(value)


def _judged_counts(reports: ReportTexts, settings: MiningSettings, log: RunLog) -> Mapping[Triple, int]:
    """Count the triples that a judge lists, each once in a report."""
    from rrg_rewards.judges.tasks.finebench import FindingTriples, ReportFindings, TriplesTask
    from rrg_rewards.judges.tasks.finebench_prompt_files import TriplesPromptTask
    from rrg_rewards.judges.tasks.prompt_files import read_prompt_task

    schema = get_question_schema(settings.schema)
    task: JudgeTask[ReportFindings, FindingTriples] = TriplesTask(schema)
    if settings.prompt is not None:
        task = read_prompt_task("prompt", settings.prompt, TriplesPromptTask)
    names = tuple(finding.name for finding in schema.findings)
    positive = reports.positive
    items = [
        ReportFindings(text, tuple(name for name in names if positive is None or name in positive[report_id]))
        for report_id, text in reports.texts.items()
    ]
    # A report without a positive finding has nothing to list.
    asked = [item for item in items if item.findings]
    counts: Counter[Triple] = Counter()
    for _, listed in ask_judge(task, asked, reports.source, settings, log) if asked else ():
        counts.update({(one.finding, one.attribute, one.value) for one in listed})
        counts.update({(one.finding, "existence", "present") for one in listed})
    return counts
