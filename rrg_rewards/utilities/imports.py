"""Import optional dependencies, with an error that gives the pip command."""

from importlib import import_module
from types import ModuleType

__all__ = ["require"]


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or raise an error that gives the pip command.

    Args:
        module: Dotted name of the module.
        extra: Extra of this package that installs the module.

    Raises:
        ModuleNotFoundError: If the module is not installed. The message gives the pip command.

    Example:
        >>> require("math", extra="plot").pi > 3
        True
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ModuleNotFoundError(
            f"{error.name} is not installed; run: python -m pip install 'rrg-rewards[{extra}]'", name=error.name
        ) from error
