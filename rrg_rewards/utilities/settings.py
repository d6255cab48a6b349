"""Settings that are declared once, as fields of dataclasses, for Python, YAML and the command line."""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from numbers import Integral
from typing import Any, Literal, get_args, get_origin


class SettingError(ValueError):
    """A setting with an invalid value, or one that contradicts another.

    The command line shows it as an error of the option with the name of the setting.

    Args:
        setting: Name of the setting, such as ``reference_column``; ``None`` if the problem names it.
        problem: What is wrong.

    Example:
        >>> str(SettingError("reference_column", "must name a column"))
        'reference_column: must name a column'
    """

    def __init__(self, setting: str | None, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        return self.problem if self.setting is None else f"{self.setting}: {self.problem}"


def setting(
    default: Any = MISSING,
    help: str = "",  # noqa: A002 (as in argparse)
    *,
    metavar: str | None = None,
    minimum: int | None = None,
    separator: str | None = None,
    form: str | None = None,
) -> Any:
    """Return a field of a settings dataclass, with what the command line needs to make an option of it.

    Args:
        default: Default value; a mapping is copied for each object. Without one, the setting is required.
        help: Help of the option. The command line shows no option without it.
        metavar: Name of the value in the help.
        minimum: Smallest integer. :func:`check_settings` checks it.
        separator: Separator of the values of a sequence on the command line. Without one the option is repeated.
        form: Form of an assignment, such as ``NAME=COLUMN``, if the setting is a mapping.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Bootstrap:
        ...     bootstrap: int = setting(1000, "resamples (default: 1000)", metavar="N", minimum=0)
        >>> Bootstrap().bootstrap
        1000
    """
    option = {"help": help, "metavar": metavar, "minimum": minimum, "separator": separator, "form": form}
    metadata = {name: value for name, value in option.items() if value is not None}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def setting_choices(hint: Any) -> tuple[Any, ...]:
    """Return the values of a setting whose type is a ``Literal``, or is one or ``None``; otherwise none.

    Example:
        >>> setting_choices(Literal["ct", "xray"] | None), setting_choices(str)
        (('ct', 'xray'), ())
    """
    return next((get_args(kind) for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal), ())


def check_settings(settings: Any) -> None:
    """Check the values of a settings object that the command line checks by their options.

    Args:
        settings: An instance of a dataclass whose fields are made by :func:`setting`.

    Raises:
        SettingError: If a number is below its minimum or no integer, a value is not among the choices, or a sequence
            of texts is a single text.
    """
    for one in fields(settings):
        value = getattr(settings, one.name)
        if value is None:
            continue
        minimum, choices = one.metadata.get("minimum"), setting_choices(one.type)
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        if minimum is not None and not (is_integer and value >= minimum):
            raise SettingError(one.name, f"must be a number from {minimum}, got {value!r}")
        if choices and value not in choices:
            raise SettingError(one.name, f"must be one of {', '.join(map(str, choices))}, got {value!r}")
        if "separator" in one.metadata and isinstance(value, str):
            raise SettingError(one.name, f"must be a sequence of texts, got the text {value!r}")
