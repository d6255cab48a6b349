"""Judges by name, for command lines and YAML files."""

import inspect
from collections.abc import Mapping
from typing import Any

from rrg_rewards.judges.base import Judge
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.plugins import Registry
from rrg_rewards.utilities.yaml_files import is_yaml_path, parse_yaml, read_user_yaml

_JUDGES = {
    "rules": "rrg_rewards.judges.rules:RuleJudge",
    "openai": "rrg_rewards.judges.server.judge:OpenAIJudge",
    "local": "rrg_rewards.judges.local:LocalJudge",
    "cascade": "rrg_rewards.judges.cascade:CascadeJudge",
}

JUDGES = Registry("judge", "rrg_rewards.judges", _JUDGES)
"""The judges of this package and of the entry points ``rrg_rewards.judges``."""


def get_judge(judge: str | Mapping[str, Any] | Judge, **further: Any) -> Judge:
    """Return the judge that a name or a mapping describes.

    Args:
        judge: ``"rules"``; ``"openai:MODEL"`` or ``"local:MODEL"``; ``"cascade:JUDGE"`` for rules and a second judge,
            a name or a YAML file; a mapping such as ``{"name": "openai", "model":
            "...", "base_url": "http://localhost:8000/v1"}`` with the judge's arguments, its text in YAML, as in
            ``"{name: openai, model: ..., cache: judge_cache}"``, or the path of a YAML file that contains it; or a
            judge, which is returned unchanged. The arguments are those of :class:`RuleJudge`, :class:`LocalJudge`,
            :class:`CascadeJudge` or :class:`rrg_rewards.judges.server.requests.ServerSettings`. ``"NAME"`` and
            ``"NAME:ARGUMENT"`` of an entry point in the group ``rrg_rewards.judges`` call its object, a judge class or
            a function that returns a judge, without arguments or with this text as the first one.
        **further: Arguments of the judge; they override those of the mapping.

    Raises:
        ValueError: For an unknown name, a mapping without ``name``, or a text in braces or a file that is not YAML.
        FileNotFoundError: If the YAML file does not exist.
        TypeError: For an object that is not a judge, for an unknown argument, or for ``further`` arguments with a judge
            object.
        ImportError: If a plug-in cannot be imported.

    Example:
        >>> get_judge("rules").is_immediate
        True
        >>> get_judge("{name: openai, model: medgemma-4b, temperature: 0.7}").settings.temperature
        0.7
    """
    if isinstance(judge, Judge):
        if further:
            raise TypeError(f"{', '.join(further)} cannot be set on a judge object")
        return judge
    arguments, first = _settings(judge)
    name = arguments.pop("name")
    maker = JUDGES.load(name)
    known = inspect.signature(maker).parameters
    # The text after the colon is the first argument, which has another name in each judge.
    arguments = {**dict(zip(known, first, strict=False)), **arguments, **further}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    if unknown := [argument for argument in arguments if argument not in known and not takes_all]:
        raise TypeError(unknown_name_message(f"argument of the judge {name!r}", unknown[0], known))
    made = maker(**arguments)
    if not isinstance(made, Judge):
        raise TypeError(f"judge {name!r} must be a judge, or a function that returns one, got {type(made).__name__}")
    return made


def _settings(judge: str | Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the name and the named arguments of a judge, and the text after its name, if there is one."""
    if isinstance(judge, str) and judge.lstrip().startswith("{"):
        try:
            judge = parse_yaml(judge)
        except ValueError:
            # Neither the settings nor YAML's message, which may contain the key of a server.
            raise ValueError("cannot read a judge's settings as a mapping: the text in braces is not YAML") from None
    if isinstance(judge, str):
        name, _, rest = judge.partition(":")
        if name not in JUDGES and is_yaml_path(judge):
            return _with_name(_read_file(judge), f"{judge}: "), []
        return {"name": name}, [rest] if rest else []
    if not isinstance(judge, Mapping):
        raise TypeError(f"judge must be a name, a mapping or a judge, got {type(judge).__name__}")
    return _with_name(judge), []


def _read_file(path: str) -> dict[str, Any]:
    try:
        return read_user_yaml(path)
    except ValueError as error:
        # Without YAML's message, which quotes the file.
        mark = getattr(error.__cause__, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = "the settings of a judge must be a mapping in YAML without repeated keys"
        raise ValueError(f"{path}{place}: {problem}") from None


def _with_name(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    if "name" not in settings:
        # Only the keys, because the settings may contain the key of a server.
        keys = shown(", ".join(map(str, settings))) if settings else "nothing"
        raise ValueError(f"{where}a judge's settings must have a name, one of {', '.join(JUDGES.names())}; got {keys}")
    return dict(settings)
