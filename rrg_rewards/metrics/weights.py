"""Weights of sub-scores by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.schemas.criteria import is_number
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["named_weights"]


def named_weights(given: Mapping[str, Any], known: Sequence[str], kind: str, default: float) -> tuple[float, ...]:
    """Return weights in the order of all names.

    Args:
        given: Weights by name.
        known: All names.
        kind: Kind of the names, for messages.
        default: Weight of the names that are not in ``given``.

    Raises:
        ValueError: If a name is unknown, or a weight is not a finite number of at least 0.

    Example:
        >>> named_weights({"wrong_location": 2}, ["false_finding", "wrong_location"], "error category", 1.0)
        (1.0, 2.0)
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"weights must be numbers by {kind}, got {type(given).__name__}")
    for name, weight in given.items():
        if name not in known:
            raise ValueError(unknown_name_message(kind, str(name), known))
        if not is_number(weight) or not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {name!r} must be finite and at least 0, got {weight!r}")
    return tuple(float(given.get(name, default)) for name in known)
