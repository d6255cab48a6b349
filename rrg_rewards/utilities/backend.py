"""Base class of the labelers, judges and encoders that metrics and rewards use."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Backend"]

T = TypeVar("T")


def _rebuild(cls: Callable[..., T], arguments: dict[str, Any]) -> T:
    return cls(**arguments)


class Backend:
    """Base class of objects that are shared by copies and pickled as their constructor's arguments.

    Metrics are cloned for each data loader and pickled to worker processes, but their models and caches must be neither
    copied nor pickled. Subclasses return the keyword arguments of their constructor from :meth:`arguments`.

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
        """Return the keyword arguments that rebuild this object; they must be picklable."""
        raise NotImplementedError(f"{type(self).__name__} must return its constructor's arguments")

    def __repr__(self) -> str:
        try:
            arguments = self.arguments()
        except (NotImplementedError, TypeError):
            return f"{type(self).__name__}(...)"
        parameters = inspect.signature(type(self)).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        # The first argument says what the object is. Objects and mappings may be long, or contain a key.
        shown = [
            f"{name}={value!r}"
            for place, (name, value) in enumerate(arguments.items())
            if isinstance(value, str | int | float) and (place == 0 or defaults.get(name) != value)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Backend":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.arguments())
