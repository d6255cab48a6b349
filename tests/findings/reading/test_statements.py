"""Where a statement ends, and whether it is about another organ."""

import pytest

from rrg_rewards.findings.reading.statements import elsewhere_tokens, statement_numbers


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
def test_elsewhere_tokens_of_one_statement(text: str, expected: bool) -> None:
    tokens = text.split()
    assert elsewhere_tokens(tokens, {1}) == (set(range(len(tokens))) if expected else set())


def test_elsewhere_tokens_of_one_of_two_statements() -> None:
    first, second = "a nodule is seen in the lung , and", "a cyst is seen in the liver"
    tokens = f"{first} {second}".split()
    assert elsewhere_tokens(tokens, {1, 10}) == set(range(len(first.split()), len(tokens)))
