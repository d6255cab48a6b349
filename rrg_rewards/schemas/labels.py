"""Label sets: ordered names of abnormality labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.yaml_files import is_yaml_path, package_yaml, read_user_yaml

SUPPORT_DEVICES = "Support Devices"
"""The label that a report without abnormality may have."""

_NO_ABNORMALITY = frozenset({"no finding", "no findings", "normal"})


@dataclass(frozen=True)
class LabelSchema:
    """An ordered set of abnormality labels.

    Args:
        name: Name of the label set.
        labels: Label names in the published column order.
        modality: Imaging modality and body region.
        definitions: Of each label, when it is positive; ``""`` if its name says it. Empty for no definitions.

    Raises:
        ValueError: If there is no label, a label is blank or occurs twice, or there are definitions for another number
            of labels.

    Example:
        >>> from rrg_rewards.schemas import CT_RATE
        >>> CT_RATE.num_labels, CT_RATE.labels[2]
        (18, 'Cardiomegaly')
    """

    name: str
    labels: tuple[str, ...]
    modality: str
    definitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"label schema {self.name!r}"
        if not self.labels or not all(isinstance(label, str) and label.strip() for label in self.labels):
            raise ValueError(f"{where}: labels must be one or more names, got {list(self.labels)}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"{where}: labels must differ, got {', '.join(self.labels)}")
        if self.definitions and len(self.definitions) != len(self.labels):
            raise ValueError(f"{where}: {len(self.definitions)} definitions for {len(self.labels)} labels")

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.labels)


def _shipped(name: str, entry: Mapping[str, Any]) -> LabelSchema:
    given: Mapping[str, str] = entry.get("definitions", {})
    definitions = tuple(given.get(label, "") for label in entry["labels"]) if given else ()
    return LabelSchema(name, tuple(entry["labels"]), entry["modality"], definitions)


LABEL_SCHEMAS: dict[str, LabelSchema] = {
    name: _shipped(name, entry) for name, entry in package_yaml("rrg_rewards.schemas", "labels").items()
}
"""The label sets that come with the package, by name."""

CT_RATE, CHEXBERT, MERLIN = (LABEL_SCHEMAS[name] for name in ("ct_rate", "chexbert", "merlin"))


def get_label_schema(name: str | Path | LabelSchema) -> LabelSchema:
    """Return the label set with a name, or of a YAML file; a label set is returned unchanged.

    Args:
        name: ``ct_rate``, ``chexbert``, ``merlin``, or the path of a ``.yaml`` file. The file has the key ``labels``, a
            list of names, or a mapping from each name to its definition; and optionally ``name`` (default: the name of
            the file) and ``modality``. A lexicon file of ``docs/labelers.md`` that has ``labels`` is also a
            label set; its lists of concepts are not definitions.

    Raises:
        ValueError: If the name is unknown (the message names the nearest known one), or the file lacks labels or has a
            wrong entry (the message names the file).
        FileNotFoundError: If the file does not exist.

    Example:
        >>> get_label_schema("chexbert").num_labels
        14
    """
    if isinstance(name, LabelSchema):
        return name
    if is_yaml_path(name):
        return _read_file(name)
    if name not in LABEL_SCHEMAS:
        raise ValueError(unknown_name_message("label schema", str(name), LABEL_SCHEMAS))
    return LABEL_SCHEMAS[str(name)]


def _read_file(path: str | Path) -> LabelSchema:
    content = read_user_yaml(path)
    given = content.get("labels")
    if not isinstance(given, list | Mapping):
        raise ValueError(f"{path}, labels: must be a list of names, or a mapping of names and definitions")
    if wrong := [label for label in given if not isinstance(label, str)]:
        raise ValueError(f"{path}, labels: must be names, got {wrong[0]!r}; put each name in quotes")
    entries = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    if len(entries) < len(given):
        raise ValueError(f"{path}, labels: a name occurs twice")
    for label, entry in entries.items():
        # The labels of a lexicon file have lists of concepts.
        if not isinstance(entry, str | list | None):
            raise ValueError(f"{path}, label {label!r}: the definition must be a text, got {shown(entry)}")
    definitions = tuple(entry if isinstance(entry, str) else "" for entry in entries.values())
    name = str(content.get("name", Path(path).stem))
    try:
        modality = str(content.get("modality", ""))
        return LabelSchema(name, tuple(entries), modality, definitions if any(definitions) else ())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def is_no_abnormality(label: str) -> bool:
    """Return whether a label states that there is no abnormality, by its name: "No Finding" or "Normal".

    Example:
        >>> [label for label in CHEXBERT.labels if is_no_abnormality(label)]
        ['No Finding']
    """
    return " ".join(label.casefold().replace("_", " ").split()) in _NO_ABNORMALITY
