"""Names of a package that are imported at their first use, for what they need may not be installed."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's ``__getattr__``.

    Args:
        package: The package's ``__name__``.
        modules: For each name, the module of the package that defines it.

    Example:
        >>> get = lazy_names("rrg_rewards.utilities", {"require": "imports"})
        >>> get("require").__name__
        'require'
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
