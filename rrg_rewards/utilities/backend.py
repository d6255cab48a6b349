"""Base class of the labelers, judges and encoders that metrics and rewards use."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MODEL_REFUSAL = (
    "each worker would load a copy of the model, which uses all cores or a GPU in one process; leave out `workers`"
)
""":attr:`Backend.worker_refusal` of models."""


def _rebuild(cls: Callable[..., T], arguments: dict[str, Any]) -> T:
    return cls(**arguments)


class Backend:
    """Base class of objects that are shared by copies and pickled as their constructor's arguments.

    Metrics are cloned for each data loader and pickled to worker processes, but their models and caches must be neither
    copied nor pickled. A subclass whose constructor takes arguments returns them from :meth:`arguments`. To be pickled,
    a class must be defined at the top level of a module.

    Example:
        >>> import copy
        >>> class Keywords(Backend):
        ...     def __init__(self, words):
        ...         self.words = words
        ...     def arguments(self):
        ...         return {"words": self.words}
        >>> backend = Keywords(["nodule"])
        >>> copy.deepcopy([backend])[0] is backend
        True
    """

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this object; they must be picklable.

        Raises:
            NotImplementedError: If the constructor takes arguments and the class does not implement this method. The
                message contains an implementation.
        """
        if not inspect.signature(type(self)).parameters:
            return {}
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: {_remedy(type(self))}")

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each, as an error says it; ``None`` if they may."""
        return None

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
        arguments = self.arguments()
        _check_arguments(type(self), arguments)
        return _rebuild, (type(self), arguments)


def _check_arguments(cls: type[Backend], arguments: dict[str, Any]) -> None:
    """Raise a TypeError if the constructor of a class cannot be called with the result of its method ``arguments``."""
    signature = inspect.signature(cls)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise TypeError(f"{cls.__name__} cannot be rebuilt from arguments(): {error}; {_remedy(cls)}") from error
    # A subclass whose own constructor has more arguments than the method that it inherits would lose them.
    lost = [name for name in _named(cls) if name not in arguments]
    if lost and _depth(cls, "__init__") < _depth(cls, "arguments"):
        raise TypeError(f"{cls.__name__} cannot be rebuilt: arguments() lacks {', '.join(lost)}; {_remedy(cls)}")


def _depth(cls: type, method: str) -> int:
    """Return the place in the method resolution order of the class that defines a method."""
    return next(i for i, base in enumerate(cls.__mro__) if method in vars(base))


def _named(cls: type) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    return [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


def _remedy(cls: type) -> str:
    """Return what the author of a class has to implement, for messages."""
    entries = ", ".join(f"{name!r}: self.{name}" for name in _named(cls))
    return (
        "implement the method arguments, which returns the keyword arguments of the constructor, for example "
        f"def arguments(self): return {{{entries}}}"
    )
