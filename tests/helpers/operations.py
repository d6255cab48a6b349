"""Count the operations of a function, for tests of how its work grows with its input."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count_operations"]


def count_operations(run: Callable[[], object]) -> int:
    """Return the number of lines that a function executes, loops included. Unlike a time, it is always the same."""
    count = 0

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
