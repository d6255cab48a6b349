"""Where a statement ends, and whether it is about another organ."""

import pytest

from rrg_rewards.findings.reading.statements import is_elsewhere, statement_numbers


@pytest.mark.parametrize(
    ("text", "named", "expected"),
    [
        ("nodule , the larger is big , hila are normal", "nodule", "nodule , the larger is big ,"),
        ("nodule is seen , the larger one is left", "nodule", "nodule is seen , the larger one is left"),
        ("nodules are seen , effusion is seen", "nodules effusion", "nodules are seen ,"),
        ("in both lungs , nodules are seen", "nodules", "in both lungs , nodules are seen"),
        ("opacity is seen , lower lobes are affected", "opacity", "opacity is seen , lower lobes are affected"),
        ("nodule of the lung", "nodule", "nodule of the lung"),
        ("nodule is seen ,", "nodule", "nodule is seen ,"),
        (", nodule is seen", "nodule", ", nodule is seen"),
    ],
)
def test_statement_numbers_of_the_first_statement(text: str, named: str, expected: str) -> None:
    tokens = text.split()
    numbers = statement_numbers(tokens, {i for i, token in enumerate(tokens) if token in named.split()})
    assert len(numbers) == len(tokens)
    assert " ".join(tokens[: numbers.count(0)]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low density in the liver", True),
        ("nodule of the thyroid gland", True),
        ("nodule in the lung base next to the liver", False),
        ("a nodule is seen", False),
    ],
)
def test_is_elsewhere(text: str, expected: bool) -> None:
    assert is_elsewhere(text.split()) is expected
