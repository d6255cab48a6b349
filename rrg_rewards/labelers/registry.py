"""Get labelers by name or settings, for command lines and YAML files."""

from collections.abc import Mapping
from typing import Any

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.plugins import Registry
from rrg_rewards.utilities.yaml_files import is_yaml_path

LabelerSetting = str | Mapping[str, Any] | Labeler
"""A labeler, or its name or settings as :func:`get_labeler` accepts them."""

_JUDGE = "judge"
_LABELERS = {
    "rules": "rrg_rewards.labelers.rules:RuleLabeler",
    "radbert": "rrg_rewards.labelers.radbert:RadBertLabeler",
    _JUDGE: "rrg_rewards.labelers.judge:JudgeLabeler",
}

LABELERS = Registry("labeler", "rrg_rewards.labelers", _LABELERS)
"""The labelers of this package and of the entry points ``rrg_rewards.labelers``."""


def get_labeler(labeler: LabelerSetting, **further: Any) -> Labeler:
    """Return the labeler that a name or a mapping describes; a labeler is returned unchanged.

    Args:
        labeler: ``"rules:ct_rate"``, ``"rules:chexbert"``, the path of a ``.yaml`` file with a lexicon of your own
            (see :class:`RuleLabeler`), ``"radbert:CHECKPOINT"`` (a folder, file or Hub id), ``"judge:SCHEMA"`` with the
            argument ``judge`` (:class:`JudgeLabeler`), ``"NAME"`` or ``"NAME:ARGUMENT"`` of an entry point in the group
            ``rrg_rewards.labelers``, which is called with the argument if there is one; a mapping with ``name`` and the
            labeler's arguments, such as ``{"name": "judge", "schema": "ct_rate", "judge": "openai:my-model"}``; or an
            object that is a labeler.
        **further: Arguments of the labeler; they override those of the mapping.

    Raises:
        ValueError: If the name is unknown or an argument is missing, or an entry of the file is wrong.
        FileNotFoundError: If the file does not exist.
        TypeError: If the object is not a labeler, or the labeler does not take an argument.
        ImportError: If a plug-in cannot be imported.

    Example:
        >>> get_labeler("rules:ct_rate").labels[0]
        'Medical material'
        >>> get_labeler("judge:chexbert", judge="openai:my-model").labels[0]
        'Enlarged Cardiomediastinum'
    """
    if isinstance(labeler, Mapping):
        keys, further = list(labeler), {**labeler, **further}
        labeler = further.pop("name", None)
        if not isinstance(labeler, str):
            # Only the keys, because the settings of a judge may contain a key of a server.
            given = shown(", ".join(map(str, keys))) if keys else "nothing"
            raise ValueError(f"a labeler's settings must have a name, one of {', '.join(_LABELERS)}; got {given}")
    elif not isinstance(labeler, str):
        # Not isinstance, which reads the signature before Python 3.12 and may load a model.
        if not callable(labeler) or any(attribute not in dir(labeler) for attribute in ("labels", "signature")):
            raise TypeError(f"labeler must be a name, a mapping or a labeler, got {type(labeler).__name__}")
        if further:
            raise TypeError(f"{', '.join(further)} cannot be set on a labeler object")
        return labeler
    name, argument = _name_and_argument(labeler)
    if not argument and not further and name in _LABELERS:
        raise ValueError(f"labeler {labeler!r} needs an argument, as in 'rules:ct_rate' or 'radbert:CHECKPOINT'")
    if name == _JUDGE and "judge" not in further:
        raise ValueError(
            f"labeler {labeler!r} needs a judge, beside it as in get_labeler('judge:ct_rate', judge='openai:MODEL'), "
            "or as the key `judge` of its mapping"
        )
    make: Any = LABELERS.load(name)
    return get_labeler(make(argument, **further) if argument else make(**further))


def needs_judge(labeler: LabelerSetting | None) -> bool:
    """Whether a labeler is described by a name of :class:`JudgeLabeler` without its judge.

    Example:
        >>> needs_judge("judge:ct_rate"), needs_judge("rules:ct_rate")
        (True, False)
    """
    if isinstance(labeler, Mapping):
        return "judge" not in labeler and needs_judge(labeler.get("name"))
    return isinstance(labeler, str) and _name_and_argument(labeler)[0] == _JUDGE


def with_joined_judge(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a metric or reward, in which a labeler that needs a judge has got the option ``judge``.

    Example:
        >>> list(with_joined_judge({"labeler": "judge:ct_rate", "judge": {"name": "openai", "model": "m"}}))
        ['labeler']
    """
    joined = dict(options)
    if "judge" in joined and needs_judge(joined.get("labeler")):
        joined["labeler"] = get_labeler(joined["labeler"], judge=joined.pop("judge"))
    return joined


def _name_and_argument(labeler: str) -> tuple[str, str]:
    if is_yaml_path(labeler) and ":" not in labeler:
        return "rules", labeler
    name, _, argument = labeler.partition(":")
    return name, argument
