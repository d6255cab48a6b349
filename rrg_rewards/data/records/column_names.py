"""Names of the columns of annotated data sets, which a user may replace."""

from collections.abc import Collection, Mapping, Sequence

from rrg_rewards.data.tables.table import TableError
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["check_names", "column_names"]


def column_names(defaults: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the names of columns by what they contain, with the user's names in place of the defaults.

    Raises:
        ValueError: If ``given`` has a key that ``defaults`` lacks.

    Example:
        >>> column_names({"reference": "gt", "candidate": "pred"}, {"candidate": "output"})
        {'reference': 'gt', 'candidate': 'output'}
    """
    for key in given or {}:
        if key not in defaults:
            raise ValueError(unknown_name_message("key of columns", key, defaults))
    return {**defaults, **(given or {})}


def check_names(found: Collection[str], required: Sequence[str], where: str, advice: str) -> None:
    """Check that all columns (or keys) of a layout exist.

    Args:
        found: Names in the file.
        required: Names that the layout has.
        where: The file, for messages.
        advice: What the user can do, for messages.

    Raises:
        TableError: If a name is missing. The message lists all missing names and all names of the file.

    Example:
        >>> check_names(["gt", "output"], ["gt", "pred"], "pairs.csv", "pass columns")
        Traceback (most recent call last):
        ...
        rrg_rewards.data.tables.table.TableError: pairs.csv: lacks pred; it has gt, output; pass columns
    """
    if missing := [name for name in required if name not in found]:
        raise TableError(f"{where}: lacks {', '.join(missing)}; it has {', '.join(map(str, found))}; {advice}")
