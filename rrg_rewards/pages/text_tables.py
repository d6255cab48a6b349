"""Tables of the distinct texts of systems, for pages of results."""

from collections.abc import Iterator, Mapping
from typing import Any

from rrg_rewards.utilities.markup import Markup, element, shown_number, table

HEADING = "Distinct texts"
"""Heading of the section with the tables."""

_FEW = "Far fewer distinct texts than the references have: "


def distinct_tables(texts: Mapping[str, Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield a table of the distinct texts of systems, and a note on those with far fewer than the references.

    Args:
        texts: For each system :meth:`~rrg_rewards.analysis.DistinctTexts.to_dict`.

    Example:
        >>> from rrg_rewards.analysis import count_texts
        >>> found = count_texts(["Normal."] * 30, [f"Nodule of {size} mm." for size in range(30)])
        >>> len(list(distinct_tables({"model": found.to_dict()})))
        2
    """
    few = [name for name, entry in texts.items() if entry["are_few"]]
    if few:
        note = "A text that is nearly the same for every study can score well."
        yield element("p", f"{_FEW}{', '.join(few)}. {note}", class_="note")
    heads = ["System", "Studies", "Distinct texts", "Commonest text", "Distinct references"]
    rows = [
        [
            name,
            str(entry["studies"]),
            _counted(entry["distinct"], entry["share"]),
            _counted(entry["commonest"], entry["commonest_share"]),
            _counted(entry["distinct_references"], entry["reference_share"]),
        ]
        for name, entry in texts.items()
    ]
    if rows:
        yield table(heads, rows, "Distinct texts, apart from white space, and studies with the commonest one")


def _counted(number: int | None, share: float | None) -> str:
    return shown_number(number) if share is None else f"{number} ({100 * share:.1f} %)"


def constant_tables(constants: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Markup]:
    """Yield a table of the values of metrics by text that is the same for every study.

    Args:
        constants: Value and number of scored studies by metric, by text.
    """
    rows = [
        [metric, text.replace("_", " ", 1), shown_number(entry["value"]), str(entry["scored"])]
        for text, values in constants.items()
        for metric, entry in values.items()
    ]
    if rows:
        yield table(["Metric", "Text", "Value", "Scored"], rows, "Values if every study had the same text")
