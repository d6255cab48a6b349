"""Types of errors in a candidate report, and their weights."""

from typing import Literal, get_args

SIGNIFICANCE_WEIGHTS = {
    "urgent": 1.0,
    "actionable_not_urgent": 0.5,
    "not_actionable_not_urgent": 0.25,
    "benign_expected": 0.0,
}
"""Clinical significance of a finding and its weight (CRIMSON, Eq. 1)."""

ATTRIBUTE_WEIGHTS = {"significant": 0.5, "negligible": 0.0}
"""Severity of an attribute error and its weight (CRIMSON, Section 3.2)."""

UNKNOWN_WEIGHT = 0.25
"""Weight of an unknown significance or severity, as in CRIMSON's published code."""

AttributeErrorType = Literal[
    "location",
    "severity",
    "descriptor",
    "measurement",
    "certainty",
    "unspecific",
    "overinterpretation",
    "temporal",
]

ATTRIBUTE_ERROR_TYPES: tuple[AttributeErrorType, ...] = get_args(AttributeErrorType)
"""Types of attribute errors of a finding that both reports contain (CRIMSON, Section 3.2)."""

ErrorCategory = Literal[
    "false_finding",
    "omitted_finding",
    "wrong_location",
    "wrong_severity",
    "false_comparison",
    "omitted_comparison",
]

ERROR_CATEGORIES: tuple[str, ...] = get_args(ErrorCategory)
"""Categories of errors in a candidate report, in the order A to F of ReXVal and CREPE (Section 3.1)."""

REXVAL_ERRORS = {
    "A": "False prediction of finding",
    "B": "Omission of finding",
    "C": "Incorrect location or position of finding",
    "D": "Incorrect severity of finding",
    "E": "Mention of comparison not present in the reference impression",
    "F": "Omission of comparison describing a change from a previous study",
}
"""The same categories by letter, with the wording of ReXVal's protocol (Yu et al., 2023)."""
