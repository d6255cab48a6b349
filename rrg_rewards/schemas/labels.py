"""Label sets: names, order and published prevalences, as typed data."""

from dataclasses import dataclass

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["CHEXBERT", "CT_RATE", "LABEL_SCHEMAS", "MERLIN", "LabelSchema", "get_label_schema"]


@dataclass(frozen=True)
class LabelSchema:
    """An ordered set of abnormality labels.

    Args:
        name: Name by which the schema is looked up.
        labels: Label names in the published column order.
        modality: What is imaged, for messages and docs.
        source: Where the label set was published.

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


CT_RATE = LabelSchema(
    name="ct_rate",
    labels=(
        "Medical material",
        "Arterial wall calcification",
        "Cardiomegaly",
        "Pericardial effusion",
        "Coronary artery wall calcification",
        "Hiatal hernia",
        "Lymphadenopathy",
        "Emphysema",
        "Atelectasis",
        "Lung nodule",
        "Lung opacity",
        "Pulmonary fibrotic sequela",
        "Pleural effusion",
        "Mosaic attenuation pattern",
        "Peribronchial thickening",
        "Consolidation",
        "Bronchiectasis",
        "Interlobular septal thickening",
    ),
    modality="chest CT",
    source="Hamamci et al., CT-RATE, arXiv:2403.17834",
)

CHEXBERT = LabelSchema(
    name="chexbert",
    labels=(
        "Enlarged Cardiomediastinum",
        "Cardiomegaly",
        "Lung Opacity",
        "Lung Lesion",
        "Edema",
        "Consolidation",
        "Pneumonia",
        "Atelectasis",
        "Pneumothorax",
        "Pleural Effusion",
        "Pleural Other",
        "Fracture",
        "Support Devices",
        "No Finding",
    ),
    modality="chest X-ray",
    source="Smit et al., CheXbert, EMNLP 2020",
)

MERLIN = LabelSchema(
    name="merlin",
    labels=(
        "Submucosal edema",
        "Renal hypodensities",
        "Aortic valve calcification",
        "Coronary calcification",
        "Thrombosis",
        "Metastatic disease",
        "Pancreatic atrophy",
        "Renal cyst",
        "Osteopenia",
        "Surgically absent gallbladder",
        "Atelectasis",
        "Abdominal aortic aneurysm",
        "Anasarca",
        "Hiatal hernia",
        "Lymphadenopathy",
        "Prostatomegaly",
        "Biliary ductal dilation",
        "Cardiomegaly",
        "Splenomegaly",
        "Hepatomegaly",
        "Atherosclerosis",
        "Ascites",
        "Pleural effusion",
        "Hepatic steatosis",
        "Appendicitis",
        "Gallstones",
        "Hydronephrosis",
        "Bowel obstruction",
        "Free air",
        "Fracture",
    ),
    modality="abdominal CT",
    source="Blankemeier et al., Merlin, Research Square 2024",
)

LABEL_SCHEMAS: dict[str, LabelSchema] = {schema.name: schema for schema in (CT_RATE, CHEXBERT, MERLIN)}


def get_label_schema(name: str) -> LabelSchema:
    """Look a label schema up by name.

    Args:
        name: One of ``ct_rate``, ``chexbert``, ``merlin``.

    Raises:
        ValueError: For an unknown name, with the nearest known one.

    Example:
        >>> get_label_schema("chexbert").num_labels
        14
    """
    if name not in LABEL_SCHEMAS:
        raise ValueError(unknown_name_message("label schema", name, LABEL_SCHEMAS))
    return LABEL_SCHEMAS[name]
