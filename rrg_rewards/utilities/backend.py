"""What metrics and rewards hold besides their own state: labelers, judges, encoders."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Backend"]

T = TypeVar("T")


def _rebuild(cls: Callable[..., T], arguments: dict[str, Any]) -> T:
    return cls(**arguments)


class Backend:
    """An object that is shared by copies and pickled by the arguments it was made from.

    A metric is cloned once per data loader and pickled to worker processes; the model or memory behind it must be
    neither duplicated nor written. Subclasses return their constructor's keyword arguments from :meth:`arguments`.

    Example:
        >>> import copy, pickle
        >>> class Lowercase(Backend):
        ...     def arguments(self):
        ...         return {}
        >>> backend = Lowercase()
        >>> copy.deepcopy([backend])[0] is backend
        True
    """

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this object; they must pickle."""
        raise NotImplementedError(f"{type(self).__name__} must return its constructor's arguments")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.arguments())
