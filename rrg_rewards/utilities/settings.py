"""Settings that are declared once, as fields of dataclasses, for Python, YAML and the command line."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rrg_rewards.utilities.names import shown

MAX_SEED = 2**32 - 1
"""The largest seed that all libraries accept."""

MAX_WORKERS = 512
"""The largest number of worker processes."""

_MOST, _MOST_INTEGER = 1e18, 10**15


class SettingError(ValueError):
    """A setting with an invalid value, or one that contradicts another.

    The command line shows it as an error of the option with the name of the setting.

    Args:
        setting: Name of the setting, such as ``reference_column``; ``None`` if the problem names it.
        problem: What is wrong. It names other settings in backticks: "needs `key`", "requires `labeler=judge`".

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
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    separator: str | None = None,
    form: str | None = None,
) -> Any:
    """Return a field of a settings dataclass, with what the command line needs to make an option of it.

    Args:
        default: Default value; a mapping is copied for each object. Without one, the setting is required.
        help: Help of the option. The command line shows no option without it.
        metavar: Name of the value in the help.
        minimum: Smallest number.
        maximum: Largest number; default: 1e18, or 10**15 for an integer. Without a minimum, the smallest number
            is the negative of these.
        above: A number that is smaller than all values.
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
    numbers = {"minimum": minimum, "maximum": maximum, "above": above}
    option = {"help": help, "metavar": metavar, **numbers, "separator": separator, "form": form}
    metadata = {name: value for name, value in option.items() if value is not None}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def setting_kinds(hint: Any) -> set[Any]:
    """Return the type of a setting without its parameters, or the types of a union.

    Example:
        >>> setting_kinds(list[str]), setting_kinds(int | None) == {int, type(None)}
        ({<class 'list'>}, True)
    """
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return {get_origin(member) or member for member in members}


def setting_choices(hint: Any) -> tuple[Any, ...]:
    """Return the values of a setting whose type is a ``Literal``, or is one or ``None``; otherwise none.

    Example:
        >>> setting_choices(Literal["ct", "xray"] | None), setting_choices(str)
        (('ct', 'xray'), ())
    """
    return next((get_args(kind) for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal), ())


def setting_problem(declared: "Field[Any]", value: Any) -> str:
    """Return what is wrong with the value of a setting made by :func:`setting`; an empty text if nothing is."""
    choices, kinds, limits = setting_choices(declared.type), setting_kinds(declared.type), declared.metadata
    if "separator" in limits and isinstance(value, str):
        return f"must be a sequence of texts, got the text {shown(value)}"
    if value is None or {bool, str} & kinds:
        return ""
    if choices:
        return "" if value in choices else f"must be one of {', '.join(map(str, choices))}, got {shown(value)}"
    if not {int, float} & kinds:
        return ""
    is_number = isinstance(value, Real if float in kinds else Integral) and not isinstance(value, bool)
    most = _MOST if float in kinds else _MOST_INTEGER
    low, high, above = limits.get("minimum"), limits.get("maximum"), limits.get("above")
    if is_number and low is None and value < -most:
        low = -most
    if is_number and high is None and value > most:
        high = most
    # Before isfinite, which fails for integers that no float can represent.
    in_range = is_number and (low is None or value >= low) and (high is None or value <= high)
    if in_range and math.isfinite(value) and (above is None or value > above):
        return ""
    words = {"at least": low, "above": above, "at most": high}
    ranges = "".join(f", {word} {number:,}" for word, number in words.items() if number is not None)
    return f"must be {'a number' if float in kinds else 'an integer'}{ranges}, got {shown(value)}"


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass that are made by :func:`setting` with limits.

    Raises:
        SettingError: See :class:`Settings`.
    """
    for declared in fields(settings):
        problem = setting_problem(declared, getattr(settings, declared.name)) if declared.metadata else ""
        if problem:
            raise SettingError(declared.name, problem)


class Settings:
    """Base class of settings, which are dataclasses: their fields, made by :func:`setting`, are checked and documented.

    Representation and equality are those of a dataclass. Subclasses with ``eq=False, repr=False`` take them from here,
    because ``dataclass`` compiles code for each class, which is most of the time of ``--help``.

    Raises:
        SettingError: If a number is no finite one or out of its range, a value is not among the choices, or a sequence
            of texts is a single text.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Draws(Settings):
        ...     bootstrap: int = setting(1000, "resamples", minimum=0)
        >>> Draws(bootstrap=-1)
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.settings.SettingError: bootstrap: must be an integer, at least 0, got -1
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = getattr(cls, "__dataclass_fields__", {}) | vars(cls)
        helps = {name: one.metadata.get("help") for name, one in declared.items() if isinstance(one, Field)}
        arguments = "".join(f"\n        {name}: {text}." for name, text in helps.items() if text)
        if arguments:
            cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Settings:{arguments}\n"

    def __repr__(self) -> str:
        values = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(values)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, one.name) == getattr(other, one.name) for one in fields(self))  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_settings(self)
