"""Get labelers by name, for command lines and YAML files."""

from typing import Any

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.utilities.plugins import Registry
from rrg_rewards.utilities.user_yaml import is_yaml_path

__all__ = ["LABELERS", "get_labeler"]

_LABELERS = {
    "rules": "rrg_rewards.labelers.rules:RuleLabeler",
    "radbert": "rrg_rewards.labelers.radbert:RadBertLabeler",
}

LABELERS = Registry("labeler", "rrg_rewards.labelers", _LABELERS)
"""The labelers of this package and of the entry points ``rrg_rewards.labelers``."""


def get_labeler(labeler: str | Labeler) -> Labeler:
    """Return the labeler with a name such as ``rules:ct_rate``; a labeler is returned unchanged.

    Args:
        labeler: ``"rules:ct_rate"``, ``"rules:chexbert"``, the path of a ``.yaml`` file with a lexicon of your own
            (see :class:`RuleLabeler`), ``"radbert:CHECKPOINT"`` (a folder, file or Hub id), ``"NAME"`` or
            ``"NAME:ARGUMENT"`` of an entry point in the group ``rrg_rewards.labelers``, which is called with the
            argument if there is one, or an object that is a labeler.

    Raises:
        ValueError: If the name is unknown or the argument is missing, or an entry of the file is wrong.
        FileNotFoundError: If the file does not exist.
        TypeError: If the object is not a labeler.
        ImportError: If a plug-in cannot be imported.

    Example:
        >>> get_labeler("rules:ct_rate").labels[0]
        'Medical material'
    """
    if not isinstance(labeler, str):
        # Not isinstance, which reads the signature before Python 3.12 and may load a model.
        if not callable(labeler) or any(attribute not in dir(labeler) for attribute in ("labels", "signature")):
            raise TypeError(f"labeler must be a name or a labeler, got {type(labeler).__name__}")
        return labeler
    name, _, argument = (
        ("rules", "", labeler) if is_yaml_path(labeler) and ":" not in labeler else labeler.partition(":")
    )
    if not argument and name in _LABELERS:
        raise ValueError(f"labeler {labeler!r} needs an argument, as in 'rules:ct_rate' or 'radbert:CHECKPOINT'")
    make: Any = LABELERS.load(name)
    return get_labeler(make(argument) if argument else make())
