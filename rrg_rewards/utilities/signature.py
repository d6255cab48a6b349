"""Signatures, which identify in one line how a score was computed, as in sacrebleu."""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import packages_distributions, version
from typing import Any

from rrg_rewards.version import __version__

# Number of hexadecimal digits of a digest.
_DIGITS = 12


def format_signature(name: str, **fields: object) -> str:
    """Join a name, its settings and the package version as ``name|key:value|...|version:x``.

    Example:
        >>> format_signature("crg", labeler="rules").startswith("crg|labeler:rules|version:")
        True
    """
    parts = [name, *(f"{key}:{value}" for key, value in fields.items()), f"version:{__version__}"]
    return "|".join(parts)


def describe_code(function: Callable[..., Any]) -> dict[str, str]:
    """Return the name of a function and the version of its code, as fields of a signature.

    Args:
        function: A function, a ``functools.partial``, or an object that can be called.

    Returns:
        - ``function``: module and name of the function.
        - ``arguments``: arguments of a partial.
        - ``signature``: the attribute ``signature`` of an object that has one.
        - ``package``: the installed package that contains the function, with its version.
        - ``source``: if no package contains it, a digest of its source text, which changes when the function is edited;
          ``unknown`` if there is no source text.

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
