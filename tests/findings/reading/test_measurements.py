"""Sizes as reports write them."""

import pytest

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.reading.measurements import size_at
from rrg_rewards.findings.reading.modifiers import modifier_reader
from rrg_rewards.findings.reading.tokens import normalise, tokenise
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.questions.engine import build_items
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def sizes(text: str) -> list[dict[str, float]]:
    stated = (dict(found.values) for found in modifier_reader().modifiers(tokenise(text)))
    return [values for values in stated if "size_mm" in values]


@pytest.mark.parametrize(("text", "size", "second"), TABLES["sizes"])
def test_size_at(text: str, size: float, second: float | None) -> None:
    (stated,) = sizes(f"A nodule of {text} in the lung")
    assert (stated["size_mm"], stated.get("short_axis_mm")) == (size, second)


@pytest.mark.parametrize("text", TABLES["no_sizes"])
def test_size_at_finds_no_size(text: str) -> None:
    assert sizes(text) == []


@pytest.mark.parametrize(
    "report", ["Nodule in the right lung. It measures 8, 3 and 5 mm.", "Nodules in the apex. 8, 3 and 5 mm, left base."]
)
def test_a_list_of_sizes_in_the_next_sentence(report: str) -> None:
    assert extract_findings(report)[-1].size_mm == 8.0


def test_size_at_a_word_that_ends_like_a_unit_is_no_size() -> None:
    assert size_at(["diameter", "is", "roanlm"], 2) is None
    assert extract_findings("Thoracic aorta diameter is roanlm.") == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("nodule increased from 4 mm to 6 mm", 6.0),
        ("nodule increased from 4 to 6 mm", 6.0),
        ("nodule decreased from 9 mm to 6 mm", 6.0),
        ("nodule was 4 mm, now it is 6 mm", 6.0),
        ("nodule was 6 mm in the current examination and 4 mm in the previous examination", 6.0),
        ("the aorta was 39 mm", 39.0),
    ],
)
def test_size_at_the_current_examination(text: str, size: float) -> None:
    (stated,) = sizes(text)
    assert stated["size_mm"] == size


@pytest.mark.parametrize("text", ["6 * 4mm", "3-6 mm", "1,5 cm", "3 \u2013 6 mm", "* Nodule, 2,3", "T4-5", "-"])
def test_normalise_keeps_the_length(text: str) -> None:
    assert len(normalise(text)) == len(text)


@pytest.mark.parametrize("digits", [101, 400, 5_000])
def test_size_at_a_number_longer_than_any_measure(digits: int) -> None:
    number = "9" * digits
    report = f"Nodule of {number} mm. Nodule of 4 x {number} cm. Density of {number} HU."
    assert [finding.size_mm for finding in extract_findings(report)] == [None, None]
    assert size_at([number, "mm"], 0) is None
    for item in build_items(f"Cardiomegaly, cardiothoracic ratio 0.{number}. {report}"):
        assert number not in item.answer
    assert CRIMSON().score([report], [report]).value.tolist() == [1.0]
