"""Phrases are found by their rarest words, and tables of the words of reports are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading import modifiers, phrases
from rrg_rewards.findings.reading.phrases import CompoundTable, PhraseCompiler, match_end, union


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


@given(st.lists(st.sampled_from(["in", "the", "past", "lower", "lobe", "seen", ",", "not"]), max_size=12))
def test_compound_table_finds_the_first_of_overlapping_phrases(tokens):
    compiler = PhraseCompiler({}, ",")
    texts = ["not <2> seen", "in the past", "in <1> past", "lower <1> lobe|past", "the lower", "seen|in not <2> past"]
    phrases = [compiler.phrase(text, text) for text in texts]
    codes = [compiler.words[token] for token in tokens]
    expected, start = [], 0

    def end_of(phrase, start):
        return match_end(codes, start, phrase.rest) if codes[start] & phrase.first else 0

    while start < len(tokens):
        ends = ((end_of(phrase, start), phrase) for phrase in phrases)
        # A phrase begins at the last of its possible first words.
        later = range(start + 1, len(tokens))
        found = (each for each in ends if each[0] and each[0] not in [end_of(each[1], i) for i in later])
        end, phrase = next(found, (0, None))
        expected += [(start, end, phrase)] if end else []
        start = end or start + 1
    assert CompoundTable(phrases, compiler).find(tokens, codes, union(codes)) == expected


def test_stems_of_one_letter_and_of_many_are_found_in_words_that_begin_with_them():
    words = phrases.WordBits()
    for bit, word in enumerate(["a*", "aort*", "aorta", "aorticopulmon*", "lung", "not"]):
        words.add(word, 1 << bit)
    assert [words[word] for word in ("aorta", "aorticopulmonary", "a", "lungs", "clear", "nt")] == [7, 11, 1, 16, 0, 32]
    # A stem that is added later is found, too.
    words.add("cle*", 64)
    assert words["cleft"] == 64
