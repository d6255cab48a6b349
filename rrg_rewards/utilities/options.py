"""Declare keyword arguments once, as the fields of frozen dataclasses."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["takes_options"]

F = TypeVar("F", bound=Callable[..., Any])


def takes_options(**groups: Any) -> Callable[[F], F]:
    """Decorate a function to accept the fields of dataclasses as keyword arguments.

    The function declares one keyword-only parameter for each dataclass, and callers pass the fields directly.
    ``inspect.signature``, ``help`` and jsonargparse list each field with its type and default. If the function has
    ``**kwargs``, it receives the other keyword arguments there, except misspelled fields.

    Args:
        groups: For each parameter, an instance of a frozen dataclass with the default values of the fields.

    Raises:
        TypeError: When the function is called with an unknown keyword argument; the message names the nearest known
            one. ValueError if the function ends in ``**kwargs``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Schedule:
        ...     learning_rate: float
        ...     warmup_ratio: float = 0.1
        >>> @takes_options(schedule=Schedule(learning_rate=1e-4))
        ... def train(model: str, *, schedule: Schedule) -> Schedule:
        ...     return schedule
        >>> train("mine", warmup_ratio=0.2)
        Schedule(learning_rate=0.0001, warmup_ratio=0.2)
        >>> train("mine", warmup=0.2)
        Traceback (most recent call last):
        ...
        TypeError: unknown argument 'warmup'; did you mean 'warmup_ratio'? Known: learning_rate, model, warmup_ratio
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [parameter for name, parameter in signature.parameters.items() if name not in groups]
        rest = [parameter for parameter in own if parameter.kind is parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(group, field.name), annotation=field.type
            )
            for group in groups.values()
            for field in fields(group)
        ]
        parameters = [*(parameter for parameter in own if parameter not in rest), *added, *rest]
        known = {parameter.name for parameter in parameters if parameter not in rest} - {"self"}

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for name in options:
                if name not in known and (not rest or get_close_matches(name, known, cutoff=0.8)):
                    # torchmetrics, which receives the other arguments, raises ValueError for unknown ones.
                    raise (ValueError if rest else TypeError)(unknown_name_message("argument", name, known))
            filled = {
                name: replace(group, **{f.name: options.pop(f.name) for f in fields(group) if f.name in options})
                for name, group in groups.items()
            }
            return function(*args, **options, **filled)

        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
