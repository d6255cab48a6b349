"""Small grammar: participles, denied changes, alternatives, exchanges, adjectives in a series, answers."""

import re
from itertools import chain

import pytest

from rrg_rewards.findings import extract_findings
from tests.helpers.tables import read_tables

_MARKS = {"present": "+", "absent": "-", "uncertain": "?"}
TABLES = read_tables(__file__)


@pytest.mark.parametrize(("sentence", "expected"), list(chain.from_iterable(TABLES.values())))
def test_small_grammar_of_each_kind(sentence, expected):
    for report in (sentence, f"The trachea is midline. {sentence} No acute findings.", sentence.upper()):
        findings = extract_findings(report)
        for mark, concept, stated in re.findall(r"([+\-?0])(\w+)(?:\((.*?)\))?", expected):
            named = [found for found in findings if found.concept == concept]
            assert {_MARKS[found.presence] for found in named} == ({mark} - {"0"}), (report, findings)
            values = set(
                chain.from_iterable(
                    (*found.attributes[:1], *found.location, *found.attributes[2:4], found.change) for found in named
                )
            )
            for value in stated.split():
                assert (value.lstrip("!") in values) is not value.startswith("!"), (report, value, findings)
