"""Objects by name: those of this package, of other packages by their entry points, and any by ``module:attribute``."""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from rrg_rewards.utilities.names import unknown_name_message

NO_PLUGINS_VARIABLE = "RRG_REWARDS_NO_PLUGINS"
"""Environment variable that, unless it is empty or 0, refuses objects by path, also in processes that are started."""


class Registry:
    """Objects of one kind by name.

    The name of an entry point of an installed package is a name as those of this package. Nothing is imported before
    its first use.

    Args:
        kind: Kind of the objects, for messages.
        group: Group of entry points.
        own: ``module:attribute`` of each object of this package.
        other: Registry whose names an entry point must not have either.
        remedy: Text after the message about an unknown name.

    Example:
        >>> registry = Registry("number", "rrg_rewards.numbers", {"pi": "math:pi"})
        >>> registry.load("pi")
        3.14159...
        >>> registry.load("pie")
        Traceback (most recent call last):
        ...
        ValueError: unknown number 'pie'; did you mean 'pi'? Known: pi
    """

    def __init__(
        self, kind: str, group: str, own: Mapping[str, str], other: "Registry | None" = None, remedy: str = ""
    ) -> None:
        self._kind = kind
        self._group = group
        self._own = own
        self._other = other
        self._remedy = remedy
        self._added: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self._own, *_plugins(self._group), *self._added})

    def __contains__(self, name: str) -> bool:
        return name in self._own or name in _plugins(self._group) or name in self._added

    def add(self, name: str, added: Any) -> None:
        """Give an object a name in this process; a name that was added before gets the new object.

        Raises:
            ValueError: If the name is no identifier, or belongs to an object of this package or of an entry point.
        """
        if not name.isidentifier():
            raise ValueError(f"name of a {self._kind} must be a word of letters, digits and _, got {name!r}")
        if name in self and name not in self._added:
            raise ValueError(f"{self._kind} {name!r} exists already; choose another name")
        self._added[name] = added

    def has_added(self, name: str) -> bool:
        """Whether a name was added in this process."""
        return name in self._added

    def load(self, name: str) -> Any:
        """Import the object with a name.

        Raises:
            ValueError: If the name is unknown, naming the nearest one; or if an entry point has the name of another
                object.
            ImportError: If the object of an entry point cannot be imported.
        """
        if name in self._added:
            return self._added[name]
        plugins = _plugins(self._group).get(name, ())
        self._check_unique(name, plugins)
        if plugins:
            return self._load_plugin(plugins[0])
        if name not in self._own:
            raise ValueError(unknown_name_message(self._kind, name, self.names()) + self._remedy)
        module, _, attribute = self._own[name].partition(":")
        return getattr(import_module(module), attribute)

    def _check_unique(self, name: str, plugins: tuple[EntryPoint, ...]) -> None:
        own = name in self._own or (self._other is not None and name in self._other._own)
        if plugins and own:
            raise ValueError(
                f"{self._kind} {name!r} of {_place(plugins[0])} has the name of one of this package; rename the entry "
                f"point, or uninstall its package"
            )
        if len(plugins) > 1:
            places = " and of ".join(map(_place, plugins))
            raise ValueError(f"{self._kind} {name!r} is an entry point of {places}; uninstall one of the packages")

    def _load_plugin(self, plugin: EntryPoint) -> Any:
        try:
            return plugin.load()
        # A module can fail in any way while it is imported.
        except Exception as error:
            raise ImportError(
                f"{self._kind} {plugin.name!r} of {_place(plugin)} cannot be imported: {type(error).__name__}: {error}"
            ) from error


@cache
def _plugins(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name, without importing them."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for plugin in entry_points(group=group):
        # A package that is found in two folders of the import path is one package.
        if all(_place(plugin) != _place(one) for one in found.get(plugin.name, ())):
            found[plugin.name] = (*found.get(plugin.name, ()), plugin)
    return found


def _place(plugin: EntryPoint) -> str:
    package = "an unknown package" if plugin.dist is None else f"package {plugin.dist.name}"
    return f"{package} ({plugin.value})"


def _is_own(owner: Any, name: str) -> bool:
    """Whether an attribute is public and, if of a module, was not imported into it."""
    if name.startswith("_") or not isinstance(owner, ModuleType):
        return not name.startswith("_")
    value = getattr(owner, name)
    return not isinstance(value, ModuleType) and getattr(value, "__module__", None) in (None, owner.__name__)


def refuse_paths() -> None:
    """Let :func:`import_object` raise from now on, in this process and in those that it starts."""
    os.environ[NO_PLUGINS_VARIABLE] = "1"


def import_object(path: str, kind: str) -> Any:
    """Import an object by its path ``module:attribute``, which runs the code of the module.

    Args:
        path: The path; the attribute may be dotted.
        kind: Kind of the object, for messages.

    Raises:
        ImportError: If the module cannot be imported.
        ValueError: If the module lacks the attribute, naming the nearest one, or paths are refused
            (:func:`refuse_paths`).

    Example:
        >>> import_object("math:pi", "number")
        3.14159...
        >>> import_object("math:po", "number")
        Traceback (most recent call last):
        ...
        ValueError: unknown number in math 'po'; did you mean 'pow'? Known: ...
    """
    if os.environ.get(NO_PLUGINS_VARIABLE, "0") not in ("", "0"):
        raise ValueError(
            f"{kind} {path!r} is a path, which runs code of its own, and paths are refused (`no_plugins`, or the "
            f"environment variable {NO_PLUGINS_VARIABLE})"
        )
    module, _, attribute = path.partition(":")
    try:
        found = import_module(module)
    # A module can fail in any way while it is imported.
    except Exception as error:
        raise ImportError(
            f"{kind} {path!r}: cannot import {module!r}: {type(error).__name__}: {error}; the folder of the module "
            "must be the working folder or on the import path (PYTHONPATH)"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = getattr(found, "__all__", None) or [known for known in dir(found) if _is_own(found, known)]
            raise ValueError(unknown_name_message(f"{kind} in {module}", name, known))
        found = getattr(found, name)
    return found
