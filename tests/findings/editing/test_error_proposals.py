"""What is proposed is read as it is meant."""

import pytest

from rrg_rewards.findings import compare_findings
from rrg_rewards.findings.editing.report_view import compares
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.modality import MODALITIES


class TestProposedSentences:
    @pytest.mark.parametrize("entry", load_knowledge("errors")["invented"], ids=lambda entry: entry["concept"])
    def test_inventions_are_read_as_their_concept(self, entry):
        for sentence in (text for key in ("any", *MODALITIES) for text in entry.get(key, ())):
            found = compare_findings("", sentence).candidate
            assert [finding.concept for finding in found] == [entry["concept"]], sentence

    @pytest.mark.parametrize("entry", load_knowledge("errors")["normal"], ids=lambda entry: str(entry["concept"]))
    def test_normal_statements_name_nothing_present(self, entry):
        for sentence in entry["sentences"]:
            assert not compare_findings("", sentence).candidate

    def test_inventions_compare_nothing(self):
        sentences = [
            s for e in load_knowledge("errors")["invented"] for k in ("any", *MODALITIES) for s in e.get(k, ())
        ]
        assert not any(map(compares, sentences))

    def test_what_is_added_compares(self):
        rules = load_knowledge("errors")["comparison"]
        assert all(map(compares, [*rules["added"], *rules["added_sentences"]]))
