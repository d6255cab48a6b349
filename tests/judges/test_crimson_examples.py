"""CRIMSON by rules on the examples of the paper and of the published prompt, as docs/measurements.md counts them."""

import runpy
from pathlib import Path

import pytest

from rrg_rewards.schemas import ATTRIBUTE_ERROR_TYPES, ATTRIBUTE_WEIGHTS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "crimson_examples.py"))
KINDS = ("levels", "errors", "scores")
# Examples by kind: a smaller number means that some were lost.
NUMBERS = {"levels": 79, "errors": 95, "scores": 11}


def test_crimson_examples_are_complete():
    assert {kind: len(examples) for kind, examples in SCRIPT["read_examples"]().items()} == NUMBERS


@pytest.mark.parametrize("kind", KINDS)
def test_crimson_examples_without_a_note_are_judged_as_published(kind):
    others = [example for example, verdict in SCRIPT["verdicts"](kind) if verdict.outcome != SCRIPT["EQUAL"]]
    assert others == [example for example in SCRIPT["read_examples"]()[kind] if "note" in example]


def test_crimson_examples_are_counted_on_the_page():
    found = [verdict.outcome for kind in KINDS for _, verdict in SCRIPT["verdicts"](kind)]
    counts = "; ".join(str(found.count(SCRIPT[name])) for name in ("EQUAL", "SAME_SCORE", "DIFFERENT"))
    row = f"| {len(found)} examples of paper and prompt | yes | {counts} | `crimson_examples.py`"
    assert row in (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")


def test_crimson_examples_have_the_published_words():
    words = {"urgent", "actionable", "not actionable", "benign"}
    for example in SCRIPT["read_examples"]()["levels"]:
        level = example["level"]
        assert words.issuperset([level] if isinstance(level, str) else level)
    for example in SCRIPT["read_examples"]()["errors"]:
        for error in example["error"].split(", "):
            severity, _, kind = error.partition(" ")
            assert error == "none" or (severity in ATTRIBUTE_WEIGHTS and kind in ATTRIBUTE_ERROR_TYPES)
