"""The work of questions and answers grows linearly with the length of a report."""

import pytest

from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.stated import schema_findings
from tests.helpers.operations import count_operations

ITEMS = build_items("A 5 mm solid nodule in the right upper lobe, unchanged since the prior CT.")
# Twice the text may take little more than twice the work. The square of the length would be four times.
MOST = 2.3

TEXTS = {
    "one word": "nodule ",
    "a list": "nodule, effusion, ",
    "a chain": "nodule and effusion ",
    "denials": "no nodule, ",
    "places": "right upper lobe anterior, ",
    "statements": "a nodule of 5 mm is seen in the left lung, ",
    "sentences": "A nodule of 5 mm is seen in the left lung. The largest is in the right lung. ",
    "lines": "nodule\n",
}


def operations(text: str, answer: bool) -> int:
    # A new engine has no sentence in its memory.
    schema_findings.cache_clear()
    build_items("Clear.")
    return count_operations((lambda: answer_items(text, ITEMS)) if answer else (lambda: build_items(text)))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("answer", [False, True], ids=["items", "answers"])
def test_schema_findings_twice_the_text_takes_twice_the_work(name: str, answer: bool) -> None:
    # Both texts are shorter than the longest sentence, at which longer ones are cut.
    text = TEXTS[name]
    short, long = text * (900 // len(text)), text * (2 * (900 // len(text)))
    # The first run also fills the tables of phrases.
    operations(long, answer)
    assert operations(long, answer) < MOST * operations(short, answer)
