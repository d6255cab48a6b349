"""Judges by name, for command lines and YAML files."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rrg_rewards.judges.base import Judge
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["get_judge"]

_JUDGES = {
    "rules": ("rrg_rewards.judges.rules", "RuleJudge"),
    "openai": ("rrg_rewards.judges.server.judge", "OpenAIJudge"),
    "local": ("rrg_rewards.judges.local", "LocalJudge"),
}


def get_judge(judge: str | Mapping[str, Any] | Judge, **further: Any) -> Judge:
    """Return the judge that a name or a mapping describes.

    Args:
        judge: ``"rules"``; ``"openai:MODEL"`` or ``"local:MODEL"``; a mapping such as ``{"name": "openai", "model":
            "...", "base_url": "http://localhost:8000/v1"}`` with the judge's arguments; or a judge, which is returned
            unchanged.
        **further: Arguments of the judge; they override those of the mapping.

    Raises:
        ValueError: For an unknown name, or a mapping without ``name``.
        TypeError: For an object that is not a judge, for an unknown argument, or for ``further`` arguments with a judge
            object.

    Example:
        >>> get_judge("rules").is_immediate
        True
    """
    if isinstance(judge, Judge):
        if further:
            raise TypeError(f"{', '.join(further)} cannot be set on a judge object")
        return judge
    if isinstance(judge, str):
        name, _, model = judge.partition(":")
        arguments: dict[str, Any] = {"model": model} if model else {}
    elif isinstance(judge, Mapping):
        arguments = dict(judge)
        if "name" not in arguments:
            # Only the keys, because the settings may contain the key of a server.
            keys = ", ".join(map(str, judge)) or "nothing"
            raise ValueError(f"a judge's settings must have a name, one of {', '.join(_JUDGES)}; got {keys}")
        name = arguments.pop("name")
    else:
        raise TypeError(f"judge must be a name, a mapping or a judge, got {type(judge).__name__}")
    if name not in _JUDGES:
        raise ValueError(unknown_name_message("judge", name, _JUDGES))
    module, cls = _JUDGES[name]
    made: Judge = getattr(import_module(module), cls)(**{**arguments, **further})
    return made
