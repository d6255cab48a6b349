"""Results of analyses as printed tables, Markdown and LaTeX."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from rich.table import Table as Grid

from rrg_rewards.analysis.agreement import ALL_ROWS
from rrg_rewards.analysis.comparison import (
    GroupComparison,
    MetricComparison,
    SystemComparison,
    SystemDifference,
    SystemValue,
)
from rrg_rewards.analysis.distinct import describe_texts
from rrg_rewards.utilities.grids import printed_table

_CONSTANT_NOTES = {
    "commonest_text": "commonest text: the value if every study had the commonest text of the system",
    "normal_report": "normal report: the value if every study had the same normal report of the chest",
}

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rrg_rewards.analysis.sensitivity import Sensitivity
    from rrg_rewards.analysis.vlm3d import VLM3DEvaluation


def score_grids(summary: Mapping[str, Any]) -> "list[RenderableType]":
    """Return the summary of :func:`~rrg_rewards.analysis.score_table` as tables of rich.

    One table has all metrics; another one has the labels or the parts of each metric.
    """
    texts = constant_names(summary["metrics"])
    headings = ("metric", "value", "95 % interval", *(name.replace("_", " ") for name in texts), "scored", "unscorable")
    overview = printed_table(f"{summary['rows']} report pairs", headings, [])
    notes = [_CONSTANT_NOTES[text] for text in texts]
    tables: list[RenderableType] = [overview]
    if "texts" in summary:
        tables.append(describe_texts(summary["texts"]))
    for name, entry in summary["metrics"].items():
        low, high = map(_short, entry["interval"])
        interval = "-" if entry["interval"][0] is None else f"{low} to {high}"
        constants = [_short(entry.get("constant_texts", {}).get(text, {}).get("value")) for text in texts]
        counts = str(entry["scored"]), str(entry["unscorable"])
        overview.add_row(name, _short(entry["value"]), interval, *constants, *counts)
        if entry["scored"] and entry["value"] is None:
            notes.append("-: undefined on these reports; CRG needs a positive and a negative reference label")
        if "labels" in entry:
            tables.append(_label_grid(name, entry))
        elif any(mean is not None for mean in entry["means"].values()):
            tables.append(_parts_grid(f"{name}, mean of a report", entry["means"]))
        if "corpus" in entry:
            tables.append(_parts_grid(f"{name}, of the corpus", entry["corpus"]))
        tables.append(entry["signature"])
    overview.caption = "\n".join(dict.fromkeys(notes)) or None
    return tables


def constant_names(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the texts in ``constant_texts`` of any metric of a summary."""
    return list(dict.fromkeys(text for entry in metrics.values() for text in entry.get("constant_texts", {})))


def _label_grid(name: str, entry: Mapping[str, Any]) -> Grid:
    grid = Grid(title=f"{name} by label", title_justify="left", show_footer=True)
    grid.add_column("label", footer="all, pooled")
    pooled = {**entry["counts"], **entry["statistics"], "crg": entry["value"]}
    statistics = [column for column in entry["labels"][0] if column != "label"]
    for column in statistics:
        grid.add_column(column.replace("_", " "), footer=_short(pooled.get(column)), justify="right")
    for row in entry["labels"]:
        grid.add_row(row["label"], *(_short(row[column]) for column in statistics))
    best = entry["best_constant"]
    named = ", ".join(best["labels"]) or "any text"
    means = (f"{name} {_short(entry['statistics'][f'macro_{name}'])}" for name in ("precision", "recall", "f1"))
    captions = [f"mean over labels: {', '.join(means)}"]
    if "levels" in entry:
        levels = (f"{level} {_short(value)}" for level, value in entry["levels"].items())
        captions.append(f"{name} by level: {', '.join(levels)}")
    captions.append(f"best text that is the same for every study: {_short(best['value'])} ({named})")
    grid.caption = "\n".join(captions)
    return grid


def _parts_grid(title: str, parts: Mapping[str, float | None]) -> Grid:
    """Return a table of the parts of a score, without zeros except those of the unread words."""
    shown = ((name, value) for name, value in parts.items() if value or (value == 0 and name.startswith("unread_")))
    return printed_table(title, ("part", "value"), [[(name.replace("_", " "), _short(value)) for name, value in shown]])


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def vlm3d_grids(found: "VLM3DEvaluation") -> "list[RenderableType]":
    """Return an evaluation of the VLM3D challenge as tables of rich: the metrics, and the statistics of each label."""
    metrics, counts = found.metrics, found.counts
    macro = {f"{name}, mean over labels": value for name, value in metrics["classification"]["macro"].items()}
    values = {**metrics["generation"], **macro, "CRG": metrics["crg"]["CRG"]}
    title = f"{counts.scored_texts} of {counts.references} reports"
    overview = printed_table(title, ("metric", "value"), [[(name, _short(value)) for name, value in values.items()]])
    entries = metrics["classification"]["per_pathology"]
    names = [name for name in entries[0] if name != "name"]
    rows = [(entry["name"], *(_short(entry[name]) for name in names)) for entry in entries]
    numbers = (f"{name} {_short(metrics['crg'][name])}" for name in ("TP", "FN", "FP", "X", "A"))
    caption = f"all labels: {', '.join(numbers)}"
    labels = printed_table(f"{counts.labelled_studies} labelled studies", ("label", *names), [rows], caption=caption)
    return [overview, labels, f"labels of predictions: {found.labeler}"]


_HEADINGS = ("metric", "system", "value", "difference", "p", "p, Holm", "p, bootstrap", "wins/ties/losses")
# In short lines, so that the columns of numbers are not wrapped.
_NARROW = (*_HEADINGS[:5], "p\nHolm", "p\nboot-\nstrap", "wins/\nties/\nlosses")
_LEVEL = 0.05


def comparison_grids(result: SystemComparison) -> "list[RenderableType]":
    """Return a comparison as tables of rich, one for each group of reports, and the signatures of the metrics."""
    grids: list[RenderableType] = []
    for group in result.groups:
        sections = [list(_rows(one)) for one in group.metrics]
        grid = printed_table(_title(group), _NARROW, sections, texts=2, whole=(4, 5, 6), caption=_left_out(group))
        grid.caption_justify = "left"
        grids.append(grid)
    return [*grids, *_signatures(result)]


def comparison_markdown(result: SystemComparison) -> str:
    """Return a comparison as Markdown: a table for each group of reports, and the signatures of the metrics."""
    blocks = []
    for group in result.groups:
        rows = [_HEADINGS, ("---", "---", *["---:"] * (len(_HEADINGS) - 2))]
        rows += [tuple(map(_markdown, row)) for one in group.metrics for row in _rows(one)]
        lines = [f"**{_markdown(_title(group))}**", "", *(f"| {' | '.join(row)} |" for row in rows)]
        blocks.append("\n".join([*lines, *(["", note] if (note := _left_out(group)) else [])]))
    notes = [f"- `{signature}`" for signature in _signatures(result)]
    return "\n\n".join([*blocks, "\n".join(notes)]).rstrip() + "\n"


def comparison_latex(result: SystemComparison) -> str:
    r"""Return a comparison as a LaTeX ``tabular`` with the rules of the package ``booktabs``.

    There is one row for each system, one column for each metric, and one block for each group of reports. The best
    value of a column is bold. A dagger marks a value whose corrected p-value of randomisation lies below 0.05.
    """
    blocks = []
    for group in result.groups:
        titles = [latex_text(one.metric) + _arrow(one) for one in group.metrics]
        lines = [latex_row([latex_text("" if group.by is None else f"{group.by} {group.group}"), *titles]), r"\midrule"]
        lines += [
            latex_row([latex_text(system), *(_latex_cell(one, place) for one in group.metrics)])
            for place, system in enumerate(result.systems)
        ]
        blocks.append("\n".join(lines))
    notes = "".join(f"% {signature}\n" for signature in _signatures(result))
    return _tabular(blocks, len(result.all_reports.metrics)) + notes


def text_grids(entries: Mapping[str, Any]) -> "list[RenderableType]":
    """Return the distinct texts of systems, and the values of constant texts, as lines and a table of rich.

    Args:
        entries: Result of :meth:`~rrg_rewards.analysis.TableComparison.text_entries`, or a summary with them.
    """
    lines: list[RenderableType] = [
        f"{name}: {describe_texts(entry)}" for name, entry in entries.get("texts", {}).items()
    ]
    constants = entries.get("constant_texts", {})
    metrics = list(dict.fromkeys(metric for values in constants.values() for metric in values))
    if not metrics:
        return lines
    rows = [
        (
            text.replace("_", " ", 1),
            *(_short(values[metric]["value"]) if metric in values else "-" for metric in metrics),
        )
        for text, values in constants.items()
    ]
    return [*lines, printed_table("the same text for every study", ("text", *metrics), [rows])]


def _title(group: GroupComparison) -> str:
    return f"{group.rows} reports" if group.by is None else f"{group.by} {group.group}: {group.rows} reports"


def _left_out(group: GroupComparison) -> str | None:
    """Say how many reports are left out, by metric."""
    counts = [f"{one.left_out} for {one.metric}" for one in group.metrics if one.left_out]
    return f"left out, because a score is missing: {', '.join(counts)}" if counts else None


def _rows(one: MetricComparison) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the systems of a metric."""
    found = {difference.system: difference for difference in one.differences}
    for place, system in enumerate(one.systems):
        name = system.system if len(system.runs) == 1 else f"{system.system} ({len(system.runs)} runs)"
        metric = "" if place else one.metric + (" (lower is better)" if one.higher_is_better is False else "")
        yield (metric, name, _value(system), *_difference(found.get(system.system)))


def _value(system: SystemValue) -> str:
    spread = f" ± {statistics.stdev(system.runs):.3f}" if len(system.runs) > 1 and _known(system.value) else ""
    return number_text(system.value) + spread + _interval(system.low, system.high)


def _difference(difference: SystemDifference | None) -> tuple[str, ...]:
    if difference is None:
        return ("baseline", "", "", "", "")
    counts = (difference.wins, difference.ties, difference.losses)
    value = f"{difference.value:+.3f}" if _known(difference.value) else "-"
    p_values = (difference.randomisation_p, difference.randomisation_p_holm, difference.bootstrap_p)
    shown = "/".join("-" if count is None else str(count) for count in counts)
    return (value + _interval(difference.low, difference.high), *map(p_text, p_values), shown)


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)


def _interval(low: float | None, high: float | None) -> str:
    return f" ({low:.3f} to {high:.3f})" if _known(low) else ""


def _signatures(result: SystemComparison) -> list[str]:
    return [one.signature or f"{one.metric}: a column of scores" for one in result.all_reports.metrics]


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _arrow(one: MetricComparison) -> str:
    return {True: r" $\uparrow$", False: r" $\downarrow$", None: ""}[one.higher_is_better]


def _latex_cell(one: MetricComparison, place: int) -> str:
    system = one.systems[place]
    is_marked = place and one.differences[place - 1].randomisation_p_holm < _LEVEL
    column = [other.value for other in one.systems]
    mark = r"$^\dagger$" if is_marked else ""
    return _latex_number(system.value, system.low, system.high, column, one.higher_is_better, mark)


def _latex_number(
    value: float | None,
    low: float | None,
    high: float | None,
    column: Sequence[float | None],
    higher_is_better: bool | None,
    mark: str = "",
) -> str:
    """Return a number with a mark and its interval, bold if it is the best of its column."""
    if not _known(value):
        return "--"
    known = list(filter(_known, column))
    is_best = higher_is_better is not None and value == (max(known) if higher_is_better else min(known))
    shown = rf"\textbf{{{value:.3f}}}" if is_best else f"{value:.3f}"
    return shown + mark + (f" [{low:.3f}, {high:.3f}]" if _known(low) else "")


def settings_text(result: SystemComparison) -> str:
    """Return how intervals and p-values were computed, in one line."""
    return (
        f"baseline: {result.baseline}; intervals: {result.confidence:.0%} of {result.num_resamples} bootstrap draws; "
        f"p: approximate randomisation, {result.num_permutations} permutations, and corrected by Holm over the "
        f"comparisons of a table; seed {result.seed}"
    )


def sensitivity_grid(found: "Sensitivity") -> Grid:
    """Return the share of reports that score worse with each change, and the order of scores, by metric."""
    sections = []
    for group in found.comparison.groups:
        reports = [len(one.rows) for one in group.metrics]
        rows = [
            (one[0].system, *(_share(difference.losses, count) for difference, count in zip(one, reports, strict=True)))
            for one in zip(*(one.differences for one in group.metrics), strict=True)
        ]
        if order := found.order.get(str(group.group)):
            rows.append(("order", *map(number_text, order.values())))
        sections.append(rows)
    metrics = [one.metric for one in found.comparison.all_reports.metrics]
    return printed_table("share of reports that score worse than clean", ("version", *metrics), sections)


def _share(count: int | None, reports: int) -> str:
    return "-" if count is None or not reports else f"{count / reports:.0%}"


_LATEX_TITLES = {"kendall": r"Kendall's $\tau_b$", "spearman": r"Spearman's $\rho$", "pearson": "Pearson's $r$"}


def _judgements(result: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield group, human column and agreement."""
    for group, entry in result["groups"].items():
        for human, found in entry["human"].items():
            yield group, human, found


def agreement_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one record for each group, judgement, statistic, and score or difference of two scores.

    Args:
        result: Dict of :class:`~rrg_rewards.analysis.AgreementResult`.
    """
    rows = []
    for group, human, found in _judgements(result):
        place = {"group": group, "human": human, "rows": found["rows"]}
        for statistic, scores in found["agreement"].items():
            rows += [
                {**place, "statistic": statistic, "score": name, "minus": None, **entry}
                for name, entry in scores.items()
            ]
        for difference in found["differences"]:
            entry = {key: value for key, value in difference.items() if key not in ("first", "second")}
            named = {"score": difference["first"], "minus": difference["second"]}
            rows.append({**place, **named, "chance_low": None, "chance_high": None, **entry})
    return rows


def agreement_grids(result: Mapping[str, Any]) -> "list[RenderableType]":
    """Return the dict of an agreement as tables of rich: values and differences."""
    grids: list[RenderableType] = []
    for group, human, found in _judgements(result):
        where = "" if group == ALL_ROWS else f", {result['group']} {group}"
        grids.append(_agreement_grid(f"{human}{where}: {found['rows']} rows{_units_text(result, found)}", found))
        if found["differences"]:
            grids.append(_difference_grid(f"{human}{where}: differences", found["differences"]))
    return grids


def _units_text(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return "" if result["unit"] is None else f" of {found['units']} {result['unit']}"


def _agreement_grid(title: str, found: Mapping[str, Any]) -> Grid:
    sections = [
        [
            ("" if place else statistic, name, _with_interval(entry), p_text(entry["p_value"]))
            for place, (name, entry) in enumerate(scores.items())
        ]
        for statistic, scores in found["agreement"].items()
    ]
    return printed_table(title, ("statistic", "score", "value", "p"), sections, texts=2, whole=(2, 3))


def _difference_grid(title: str, differences: Sequence[Mapping[str, Any]]) -> Grid:
    rows = [
        (f"{entry['first']} - {entry['second']}", entry["statistic"], _with_interval(entry), p_text(entry["p_value"]))
        for entry in differences
    ]
    return printed_table(title, ("difference", "statistic", "value", "p"), [rows], texts=2, whole=(2, 3))


def _with_interval(entry: Mapping[str, Any]) -> str:
    return number_text(entry["value"]) + _interval(entry["low"], entry["high"])


def agreement_latex(result: Mapping[str, Any]) -> str:
    r"""Return the dict of an agreement as a LaTeX ``tabular`` with the rules of the package ``booktabs``.

    There is one row for each score, one column for each human column and statistic, and one block for each group. The
    highest value of a column is bold.

    Example:
        >>> one = {"value": 0.5, "low": 0.25, "high": 0.75}
        >>> human = {"rating": {"rows": 9, "agreement": {"kendall": {"crg_1": one}}}}
        >>> print(agreement_latex({"groups": {"all": {"human": human}}}))
        \begin{tabular}{lr}
        \toprule
         & \multicolumn{1}{c}{rating (N = 9)} \\
         & Kendall's $\tau_b$ \\
        \midrule
        crg\_1 & \textbf{0.500} [0.250, 0.750] \\
        \bottomrule
        \end{tabular}
        <BLANKLINE>
    """
    blocks = []
    for group, entry in result["groups"].items():
        humans = [
            rf"\multicolumn{{{len(found['agreement'])}}}{{c}}{{{latex_text(human)} (N = {found['rows']})}}"
            for human, found in entry["human"].items()
        ]
        columns = [column for found in entry["human"].values() for column in found["agreement"].items()]
        titles = [_LATEX_TITLES.get(statistic, statistic) for statistic, _ in columns]
        lines = [latex_row(["", *humans]), latex_row(["" if group == ALL_ROWS else latex_text(group), *titles])]
        lines.append(r"\midrule")
        for name in columns[0][1]:
            lines.append(latex_row([latex_text(name), *(_agreement_cell(scores, name) for _, scores in columns)]))
        blocks.append("\n".join(lines))
    return _tabular(blocks, len(columns))


def _tabular(blocks: Sequence[str], numbers: int) -> str:
    """Return a LaTeX table of blocks of rows, with a column of names and some of numbers."""
    body = "\n\\midrule\n".join(blocks)
    return f"\\begin{{tabular}}{{l{'r' * numbers}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _agreement_cell(scores: Mapping[str, Mapping[str, Any]], name: str) -> str:
    entry, column = scores[name], [other["value"] for other in scores.values()]
    return _latex_number(entry["value"], entry["low"], entry["high"], column, higher_is_better=True)


def number_text(value: float | None) -> str:
    """Return a number with three decimals, ``-`` for ``None`` and NaN.

    Example:
        >>> number_text(0.12345), number_text(None)
        ('0.123', '-')
    """
    return f"{value:.3f}" if _known(value) else "-"


def p_text(value: float | None) -> str:
    """Return a p-value with four decimals, ``-`` for ``None`` and NaN.

    Example:
        >>> p_text(0.0123), p_text(0.00001), p_text(None)
        ('0.0123', '<0.0001', '-')
    """
    if not _known(value):
        return "-"
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def latex_row(cells: Sequence[str]) -> str:
    r"""Return a row of a LaTeX table.

    Example:
        >>> print(latex_row(["crg", "0.4"]))
        crg & 0.4 \\
    """
    return " & ".join(cells) + r" \\"


def latex_text(text: str) -> str:
    r"""Escape the special characters of LaTeX.

    Example:
        >>> print(latex_text("crg_1"))
        crg\_1
    """
    special: dict[str, str | int | None] = {mark: f"\\{mark}" for mark in "&%$#_{}"}
    special |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    return text.translate(str.maketrans(special))
