"""Import optional dependencies, with an error that gives the pip command, and names of a package on first use."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def require(module: str, extra: str, package: str | None = None) -> ModuleType:
    """Import an optional module, or raise an error that gives the pip command.

    Args:
        module: Dotted name of the module.
        extra: Extra of this package that installs the module.
        package: Package that has the module, if pip can install it alone, without its dependencies.

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
        alone = "" if package is None else f"--no-deps {package}, or, with its dependencies: python -m pip install "
        raise ModuleNotFoundError(
            f"{package or error.name} is not installed; run: python -m pip install {alone}'rrg-rewards[{extra}]'",
            name=error.name,
        ) from error


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports each name on first use.

    The names are the imports in the stub ``__init__.pyi`` of the package, which type checkers also read.

    Args:
        package: The package's ``__name__``.
        file: The package's ``__file__``.

    Example:
        >>> import rrg_rewards
        >>> get, _, names = lazy_names("rrg_rewards", rrg_rewards.__file__)
        >>> "make_reward" in names, get("make_reward").__name__
        (True, 'make_reward')
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, lambda: sorted(modules), sorted(modules)
