"""Import optional dependencies, with an error that gives the pip command, and names of a package on first use."""

import ast
import json
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

# Extras with other versions than those of constraints.txt.
_OWN_VERSIONS = frozenset({"ppo", "radeval", "unsloth", "vllm"})


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra from where this package was installed.

    A checkout is given by its folder, with the versions that it was tested with, a wheel by its address, and a package
    of an index by its name. The source is that of ``direct_url.json``, which pip writes (PEP 610).

    Args:
        extra: Extra of this package, or several with commas between them.

    Example:
        >>> install_command("plot").startswith("python -m pip install ")
        True
    """
    # Their imports take longer than those of this package without torch, and few runs need them.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        source = json.loads(distribution("rrg-rewards").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        source = {}
    url = source.get("url")
    arguments = [f"rrg-rewards[{extra}]" + (f" @ {url}" if url else "")]
    if "dir_info" in source:
        folder = url2pathname(urlsplit(url).path)
        arguments = [*(["-e"] if source["dir_info"].get("editable") else []), f"{folder}[{extra}]"]
        tested = Path(folder) / "constraints.txt"
        if tested.is_file() and _OWN_VERSIONS.isdisjoint(extra.split(",")):
            arguments = ["-c", str(tested), *arguments]
    return f"python -m pip install {shlex.join(arguments)}"


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
        alone = "" if package is None else f"python -m pip install --no-deps {package}, or, with its dependencies: "
        raise ModuleNotFoundError(
            f"{package or error.name} is not installed; run: {alone}{install_command(extra)}", name=error.name
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
