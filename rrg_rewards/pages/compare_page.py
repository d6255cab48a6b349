"""The page of ``rrg-rewards compare``."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rrg_rewards.analysis.comparison import GroupComparison, MetricComparison, SystemComparison, SystemDifference
from rrg_rewards.analysis.sensitivity import Sensitivity
from rrg_rewards.analysis.settings import PairColumns
from rrg_rewards.analysis.system_tables import TableComparison
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages.highlights import scored_findings
from rrg_rewards.pages.page import Cell, Column, Page, Pane, Rows, sample_note
from rrg_rewards.pages.text_tables import HEADING, constant_tables, distinct_tables
from rrg_rewards.utilities.charts import Histogram, Interval, Intervals, cards
from rrg_rewards.utilities.markup import Markup, shown_interval, shown_number, shown_p, table


def compare_page(
    result: SystemComparison,
    names: Sequence[str],
    panes: Sequence[Pane] = (),
    findings: Mapping[str, Sequence[Sequence[Sequence[Any]] | None]] | None = None,
    texts: Mapping[str, Any] | None = None,
) -> Page:
    """Return the page of a comparison of systems.

    Args:
        result: The comparison.
        names: Names of the ``N`` reports.
        panes: Texts of the reports: the reference, then each system.
        findings: Result of :func:`compared_findings` by metric.
        texts: Result of :meth:`~rrg_rewards.analysis.TableComparison.text_entries`.

    Example:
        >>> from rrg_rewards.analysis import compare_systems
        >>> from rrg_rewards.metrics import ROUGE
        >>> systems = {"a": ["Normal.", "Effusion."], "b": ["Emphysema.", "Effusion."]}
        >>> few = {"num_resamples": 9, "num_permutations": 9}
        >>> result = compare_systems(systems, ["Emphysema.", "Effusion."], [ROUGE()], **few)
        >>> [column.name for column in compare_page(result, ["1", "2"]).rows.columns]
        ['rouge of a', 'rouge of b', 'rouge: b - a']
    """
    sections: dict[str, Sequence[Markup]] = {}
    for group in result.groups:
        name = "All reports" if group.by is None else f"Group {group.by} {group.group}"
        sections[f"{name}: {group.rows} reports"] = list(_group(group, result))
    own = texts or {}
    if found := [*distinct_tables(own.get("texts", {})), *constant_tables(own.get("constant_texts", {}))]:
        sections[HEADING] = found
    sections["Distribution by report"] = _distributions(result)
    columns = [column for one in result.all_reports.metrics for column in _columns(one, len(names))]
    others = [system for system in result.systems if system != result.baseline]
    lead = f"{result.all_reports.rows} reports: {', '.join(others)} compared with {result.baseline}."
    lead += sample_note(len(names), "reports")
    sides = ["Reference", *result.systems]
    title = f"Comparison with {result.baseline}"
    rows = Rows("report", names, columns, panes, findings or {}, sides).sampled()
    return Page(title, lead, sections, rows, _facts(result))


def _facts(result: SystemComparison) -> dict[str, str]:
    return {
        "Intervals": f"bootstrap, {result.num_resamples} draws of the reports, seed {result.seed}",
        "P-values": f"paired approximate randomisation, {result.num_permutations} permutations; corrected by Holm for "
        "all metrics and systems of a group",
        **{f"Signature of {one.metric}": one.signature for one in result.all_reports.metrics if one.signature},
    }


def sensitivity_page(found: Sensitivity) -> Page:
    """Return the page of the effects of changes on scores, without reports."""
    result = found.comparison
    sections = {f"{group.group}: {group.rows} reports": [*_group(group, result)] for group in result.groups}
    if found.order:
        rows = [[kind, *map(shown_number, order.values())] for kind, order in found.order.items()]
        heads = ["Errors", *(one.metric for one in result.all_reports.metrics)]
        sections["Order of errors and scores"] = [table(heads, rows, "Kendall's tau inside of reports")]
    lead = f"{len(found.table)} reports; those that allow a change are compared with the {result.baseline} ones."
    return Page("Sensitivity of metrics", lead, sections, facts=_facts(result))


def table_comparison_page(compared: TableComparison, columns: PairColumns, with_text: bool) -> Page:
    """Return the page of a comparison of tables.

    Args:
        compared: The comparison. Of several runs of a system, the page shows the texts and findings of the first.
        columns: Where the tables have references, and the names of studies.
        with_text: Whether the page contains the reports.
    """
    studies, systems = compared.studies, compared.result.systems
    texts: dict[str, Sequence[str | None]] = {}
    references: list[str | None] | None = None
    if with_text:
        first = {run.system: run for run in reversed(compared.runs)}
        texts = {system: studies.texts(first[system].column, columns.missing_section) for system in systems}
        name, references = columns.reference_column or "reference", [None] * len(studies)
        if studies.has_texts(name):
            references = studies.texts(name, columns.missing_section)
    panes = [Pane(name, cells) for name, cells in [("Reference", references), *texts.items()] if cells is not None]
    if columns.key is None:
        names = [str(row + 1) for row in range(len(studies))]
    else:
        # With a table of references, the studies are its rows.
        names = list(map(str, studies.column(columns.key if columns.references is None else columns.keys[1])))
    found: dict[str, list[list[list[Any]]]] = {}
    for one in compared.scored:
        if own := compared_findings({system: one.runs[system][0] for system in systems}, references, texts):
            found[one.name] = own
    return compare_page(compared.result, names, panes, found, compared.text_entries())


def compared_findings(
    scores: Mapping[str, Scores], references: Sequence[str | None] | None, texts: Mapping[str, Sequence[str | None]]
) -> list[list[list[Any]]] | None:
    """Return what became of each finding by system: those of its reports, and those of the reference that it misses.

    Args:
        scores: Scores of one run of each system by a metric.
        references: Reference reports; ``None`` to leave out all text.
        texts: Reports of each system; empty to leave out all text.

    Returns:
        Findings of each report as :func:`rrg_rewards.pages.highlights` returns them, with the number of the system
        before each id; ``None`` if the metric does not compare findings.
    """
    found: list[list[list[Any]]] = []
    for number, (system, one) in enumerate(scores.items(), 1):
        without = [None] * len(one)
        pairs = (without, without) if references is None else (references, texts[system])
        compared = scored_findings(one, *pairs)
        if compared is None:
            return None
        found = found or [[] for _ in compared]
        for row, of_pair in enumerate(compared):
            if number == 1:
                # The words of the reference that were not read are the same for all systems.
                found[row] += [[0, *rest] for pane, *rest in of_pair or () if not pane and rest[1] == "unread"]
            for pane, id_, status, level, partners, text, note, places in of_pair or ():
                if pane == 1 or status == "missed":
                    places = places if pane == 1 else []
                    matched = ", ".join(f"{number}{partner}" for partner in partners.split(", ") if partner)
                    found[row].append([number, f"{number}{id_}", status, level, matched, text, note, places])
    return found or None


def _group(group: GroupComparison, result: SystemComparison) -> Iterator[Markup]:
    cells = [
        [one.metric, value.system, shown_number(value.value), shown_interval(value.low, value.high), str(len(one.rows))]
        for one in group.metrics
        for value in one.systems
    ]
    yield table(["Metric", "System", "Value", "95 % interval", "Reports"], cells, "Corpus values")
    differences = [(one, difference) for one in group.metrics for difference in one.differences]
    heads = ["Metric", "System", "Difference", "95 % interval", "p", "p, corrected", "Wins", "Ties", "Losses"]
    yield table(
        heads,
        [_difference(*pair, result.num_permutations) for pair in differences],
        f"Differences from {result.baseline}",
    )
    for one in group.metrics:
        marks = [
            Interval(difference.system, difference.value, *_ends(difference))
            for difference in one.differences
            if math.isfinite(difference.value)
        ]
        if marks:
            better = {True: "higher is better", False: "lower is better", None: "direction unknown"}
            title = f"{one.metric}: difference from {result.baseline}, {better[one.higher_is_better]}"
            yield Intervals(title, marks, {"zero": 0.0}, _all_ends(one.metric, result)).svg()


def _all_ends(metric: str, result: SystemComparison) -> list[float]:
    """Return the differences of a metric in all groups and the ends of their intervals, for one axis."""
    found = [one for group in result.groups for one in group.metrics if one.metric == metric]
    ends = [end for one in found for two in one.differences for end in (two.value, two.low, two.high)]
    return [end for end in ends if math.isfinite(end)]


def _ends(difference: SystemDifference) -> tuple[float | None, float | None]:
    ends = (difference.low, difference.high)
    return ends if all(map(math.isfinite, ends)) else (None, None)


def _difference(one: MetricComparison, difference: SystemDifference, permutations: int) -> list[str]:
    return [
        one.metric,
        difference.system,
        shown_number(difference.value),
        shown_interval(difference.low, difference.high),
        shown_p(difference.randomisation_p, permutations),
        shown_p(difference.randomisation_p_holm, permutations),
        *(shown_number(count) for count in (difference.wins, difference.ties, difference.losses)),
    ]


def _differences(one: MetricComparison, result: SystemComparison) -> Iterator[tuple[str, list[float]]]:
    base = one.report_values[result.baseline]
    for system, values in one.report_values.items():
        if system != result.baseline:
            yield system, (values - base).tolist()


def _distributions(result: SystemComparison) -> list[Markup]:
    return cards(
        Histogram(f"{one.metric}: reports by {system} - {result.baseline}; line: no difference", values, 0.0)
        for one in result.all_reports.metrics
        for system, values in _differences(one, result)
        if values
    )


def _columns(one: MetricComparison, reports: int) -> Iterator[Column]:
    rows = one.rows.tolist()
    (baseline, base), *others = one.report_values.items()
    for system, values in one.report_values.items():
        yield Column(f"{one.metric} of {system}", _placed(values.tolist(), rows, reports), one.metric)
    for system, values in others:
        cells = _placed((values - base).tolist(), rows, reports)
        yield Column(f"{one.metric}: {system} - {baseline}", cells, one.metric)


def _placed(values: Sequence[float], rows: Sequence[int], reports: int) -> list[Cell]:
    """Return a cell for each report, ``None`` for those that are left out."""
    cells: list[Cell] = [None] * reports
    for row, value in zip(rows, values, strict=True):
        cells[row] = value
    return cells
