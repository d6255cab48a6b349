"""Label sets, error categories and scoring systems."""

from rrg_rewards.schemas.errors import (
    ATTRIBUTE_ERROR_TYPES,
    ATTRIBUTE_WEIGHTS,
    ERROR_CATEGORIES,
    REXVAL_ERRORS,
    SIGNIFICANCE_WEIGHTS,
    UNKNOWN_WEIGHT,
    AttributeErrorType,
)
from rrg_rewards.schemas.labels import CHEXBERT, CT_RATE, LABEL_SCHEMAS, MERLIN, LabelSchema, get_label_schema
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system

__all__ = [
    "ATTRIBUTE_ERROR_TYPES",
    "ATTRIBUTE_WEIGHTS",
    "CHEXBERT",
    "CT_RATE",
    "ERROR_CATEGORIES",
    "LABEL_SCHEMAS",
    "MERLIN",
    "REXVAL_ERRORS",
    "SIGNIFICANCE_WEIGHTS",
    "UNKNOWN_WEIGHT",
    "AttributeErrorType",
    "Criterion",
    "LabelSchema",
    "ScoringSystem",
    "get_label_schema",
    "get_scoring_system",
]
