"""Optional dependencies: imported late, and named with the pip command that installs them."""

from importlib import import_module
from types import ModuleType

__all__ = ["require"]


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say which extra installs it.

    Args:
        module: Dotted name of the module.
        extra: The extra of this package that installs it.

    Raises:
        ModuleNotFoundError: If the module is not installed, naming the pip command.

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
            f"{module} is not installed; run: python -m pip install 'rrg-rewards[{extra}]'", name=error.name
        ) from error
