"""Random and adversarial texts at everything that reads texts: no exception, no value out of range, linear work."""

from pathlib import Path

import pytest

from tests.helpers.adversarial_texts import REPEATED, adversarial_texts, repeated_text
from tests.helpers.operations import count_operations
from tests.helpers.text_entry_points import ENTRY_POINTS, REPORT, check_tables

# CRIMSON says which references its rules cannot read.
pytestmark = pytest.mark.filterwarnings(
    "ignore::rrg_rewards.metrics.UnreadWarning", "ignore::rrg_rewards.utilities.texts.PlaceholderWarning"
)

# All kinds of texts, each twice.
FEW = 28
MANY = 300
# Twice the text may take little more than twice the work. The square of the length would be four times.
MOST = 2.5


def check_all(name: str, texts: list[str]) -> None:
    check = ENTRY_POINTS[name]
    for number, text in enumerate(texts):
        try:
            check(text, texts[number - 1])
        except Exception as error:
            raise AssertionError(f"{name}: text {number} raises {type(error).__name__}: {text[:200]!r}") from error


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_no_text_raises_or_leaves_the_range(name: str) -> None:
    check_all(name, adversarial_texts(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_none_of_many_texts_raises_or_leaves_the_range(name: str) -> None:
    check_all(name, adversarial_texts(MANY))


def test_tables_of_the_texts_are_written_and_read(tmp_path: Path) -> None:
    check_tables(adversarial_texts(MANY), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("unit", REPEATED)
def test_a_repetition_of_20_000_characters_raises_nothing(unit: str) -> None:
    for check in ENTRY_POINTS.values():
        check(repeated_text(unit, 20_000), REPORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRY_POINTS)
@pytest.mark.parametrize("unit", ["nodule ", "no nodule, ", "effusion and ", "(", ". ", "\n", "1,5-", "a"])
def test_twice_the_text_takes_twice_the_work(name: str, unit: str) -> None:
    check = ENTRY_POINTS[name]
    short, long = repeated_text(unit, 2_500), repeated_text(unit, 5_000)
    # The first run also fills tables and caches.
    check(long, REPORT)
    check(short + "1", REPORT)
    assert count_operations(lambda: check(long + "2", REPORT)) < MOST * count_operations(
        lambda: check(short + "2", REPORT)
    )
