"""Tables of the words of reports are bounded."""

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading import modifiers, phrases


def test_tables_of_a_reader_are_bounded(monkeypatch):
    monkeypatch.setattr(phrases, "_MAX_WORDS", 5)
    reader = modifiers.ModifierReader(load_knowledge("attributes"))
    found = [reader.modifiers([f"word{number}", "small"]) for number in range(20)]
    assert len({tuple(modifiers) for modifiers in found}) == 1
    assert len(reader._phrases._table) == 5


def test_word_bits_are_bounded(monkeypatch):
    monkeypatch.setattr(phrases, "_MAX_WORDS", 5)
    words = phrases.WordBits()
    words.add("nodul*", 1)
    assert [words[f"nodule{number}"] for number in range(20)] == [1] * 20
    assert len(words) == 5
