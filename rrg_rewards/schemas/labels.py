"""Label sets: ordered names of abnormality labels."""

from dataclasses import dataclass

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.package_data import package_yaml

__all__ = ["CHEXBERT", "CT_RATE", "LABEL_SCHEMAS", "MERLIN", "LabelSchema", "get_label_schema", "is_no_abnormality"]

_NO_ABNORMALITY = frozenset({"no finding", "no findings", "normal"})


@dataclass(frozen=True)
class LabelSchema:
    """An ordered set of abnormality labels.

    Args:
        name: Name of the label set.
        labels: Label names in the published column order.
        modality: Imaging modality and body region, for messages and documentation.
        source: Publication of the label set.

    Example:
        >>> from rrg_rewards.schemas import CT_RATE
        >>> CT_RATE.num_labels, CT_RATE.labels[2]
        (18, 'Cardiomegaly')
    """

    name: str
    labels: tuple[str, ...]
    modality: str
    source: str

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.labels)


LABEL_SCHEMAS: dict[str, LabelSchema] = {
    name: LabelSchema(name, tuple(entry["labels"]), entry["modality"], entry["source"])
    for name, entry in package_yaml("rrg_rewards.schemas", "labels").items()
}
"""The label sets that come with the package, by name."""

CT_RATE, CHEXBERT, MERLIN = (LABEL_SCHEMAS[name] for name in ("ct_rate", "chexbert", "merlin"))


def get_label_schema(name: str) -> LabelSchema:
    """Return a label set by name.

    Args:
        name: One of ``ct_rate``, ``chexbert``, ``merlin``.

    Raises:
        ValueError: If the name is unknown. The message names the nearest known one.

    Example:
        >>> get_label_schema("chexbert").num_labels
        14
    """
    if name not in LABEL_SCHEMAS:
        raise ValueError(unknown_name_message("label schema", name, LABEL_SCHEMAS))
    return LABEL_SCHEMAS[name]


def is_no_abnormality(label: str) -> bool:
    """Return whether a label states that there is no abnormality, by its name: "No Finding" or "Normal".

    Example:
        >>> [label for label in CHEXBERT.labels if is_no_abnormality(label)]
        ['No Finding']
    """
    return " ".join(label.casefold().replace("_", " ").split()) in _NO_ABNORMALITY
