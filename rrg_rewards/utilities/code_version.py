"""Versions of functions of other packages, for signatures."""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import packages_distributions, version
from typing import Any

__all__ = ["describe_code"]

_DIGITS = 12


def describe_code(function: Callable[..., Any]) -> dict[str, str]:
    """Return which code a function is, as fields of a signature.

    Args:
        function: A function, a ``functools.partial``, or an object that can be called.

    Returns:
        ``function``: its module and name; ``arguments``: those of a partial; ``signature``: the attribute of this name
        of an object, if it has one; and the version of the code: ``package``, the installed package with its version,
        or, if no package contains the module, ``source``, a digest of the source text, so that an edited function has
        another signature. Code without a package and a source text has ``source`` ``unknown``.

    Example:
        >>> from torchmetrics.functional.text import char_error_rate
        >>> describe_code(char_error_rate)
        {'function': 'torchmetrics.functional.text.cer:char_error_rate', 'package': 'torchmetrics==...'}
    """
    fields = {}
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        fields["arguments"] = ",".join(given)
        function = function.func
    code: Any = function if hasattr(function, "__qualname__") else type(function)
    signature = getattr(function, "signature", None)
    return {
        "function": f"{code.__module__}:{code.__qualname__}",
        **fields,
        **({"signature": f"{{{signature}}}"} if isinstance(signature, str) else {}),
        **_version(code),
    }


def _version(code: Any) -> dict[str, str]:
    packages = _packages().get((code.__module__ or "").partition(".")[0], ())
    if packages:
        return {"package": ",".join(f"{package}=={version(package)}" for package in sorted(set(packages)))}
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        return {"source": "unknown"}
    return {"source": hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}


@cache
def _packages() -> dict[str, list[str]]:
    """Return the installed packages of each top-level module, which takes tens of milliseconds."""
    return dict(packages_distributions())
