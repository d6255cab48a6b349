"""Impressions that leave statements out at random, as clinical impressions do."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["abridge", "with_abridged"]


def abridge(impression: str, omission: float, rng: random.Random) -> str:
    """Leave each statement of an impression out with probability ``omission``, but not all.

    Args:
        impression: Statements that end in a full stop.
        omission: Probability, in [0, 1).
        rng: Where chance comes from.

    Example:
        >>> abridge("Cardiomegaly. Hiatal hernia.", 0.0, random.Random(0))
        'Cardiomegaly. Hiatal hernia.'
    """
    statements = [f"{statement.strip(' .')}." for statement in impression.split(". ")]
    kept = [statement for statement in statements if rng.random() >= omission]
    return " ".join(kept or [rng.choice(statements)])


def with_abridged(rows: Iterable[Mapping[str, Any]], omission: float, rng: random.Random) -> list[dict[str, Any]]:
    """Rows with a column ``abridged``: their ``impression``, abridged.

    Args:
        rows: Rows with an ``impression``.
        omission: As for :func:`abridge`.
        rng: Where chance comes from.
    """
    return [{**row, "abridged": abridge(row["impression"], omission, rng)} for row in rows]
