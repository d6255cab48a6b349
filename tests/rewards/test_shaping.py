"""Rewards of form: tables of texts and their rewards."""

import string

import pytest

from rrg_rewards.rewards import FormatReward, OverlongPenalty, RepetitionPenalty, make_reward


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0), (6, 0), (7, -0.25), (8, -0.5), (9, -0.75), (10, -1), (11, -1), (50, -1)]
)
def test_overlong(length, expected):
    reward = OverlongPenalty(max_length=10, buffer=4)
    assert reward([" ".join(["word"] * length)]) == [expected]
    tokens = OverlongPenalty(max_length=10, buffer=4, unit="tokens")
    assert tokens(["one word"], completion_ids=[[5] * length]) == [expected]


@pytest.mark.parametrize("separator", [" ", ",", ", ", "/", "-", "_", ";", "|", "\n", "\u200b", "\u00a0", "+", "."])
def test_shaping_rewards_words_are_counted_whatever_separates_them(separator):
    text = separator.join(["nodule", "effusion", "hernia"] * 100)
    reward = OverlongPenalty(max_length=400, buffer=200)
    assert reward([text]) == [-0.5]
    assert OverlongPenalty(max_length=299)([text]) == [-1.0]
    assert OverlongPenalty(max_length=300)([text]) == [0.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5 mm", 2),
        ("5mm", 2),
        ("3.5 mm", 2),
        ("ground-glass opacity.", 3),
        ("...", 0),
        ("Zysten-\u00d6dem", 2),
        ("O\u0308dem", 1),
    ],
)
def test_shaping_rewards_what_a_word_is(text, words):
    assert OverlongPenalty(max_length=100, buffer=100)([text]) == [-words / 100 if words else 0]


def test_overlong_without_a_buffer_is_a_step():
    assert OverlongPenalty(max_length=2)(["a b", "a b c"]) == [0.0, -1.0]


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("", 1, 0),
        ("one", 2, 0),
        ("No effusion. No effusion.", 2, 2 / 3 - 1),
        ("a a a a", 1, 1 / 4 - 1),
        ("a b c d a b c d", 4, 4 / 5 - 1),
        ("A b. a B", 2, 2 / 3 - 1),
        ("all words here differ", 1, 0),
    ],
)
def test_repetition(text, n, expected):
    assert RepetitionPenalty(n_gram=n)([text]) == [pytest.approx(expected)]


COUNTERS = {
    "numbers": [str(number) for number in range(26)],
    "decimals": [f"{number}.5" for number in range(26)],
    "numbered": [f"{number}." for number in range(26)],
    "brackets": [f"({letter})" for letter in string.ascii_lowercase],
    "letters": [f"{letter})" for letter in string.ascii_lowercase],
    "letters of a list": [f"\n{letter}." for letter in string.ascii_lowercase],
    "roman": ["i)", "ii)", "iii)", "iv)", "v)", "vi)", "vii)", "viii)", "ix)", "x)"],
    "words": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    "ordinals": ["First,", "second,", "third:", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"],
    "joined": [f"{number}_" for number in range(26)],
}


@pytest.mark.parametrize("kind", COUNTERS)
def test_repetition_sees_through_counters(kind):
    reward = RepetitionPenalty()
    counters = COUNTERS[kind]
    plain = " ".join(["No effusion."] * len(counters))
    counted = " ".join(f"{counter} No effusion." for counter in counters)
    assert reward([counted]) == reward([plain])
    assert reward([plain])[0] < -0.85


@pytest.mark.parametrize("separator", [" ", ".", ",", "/", "_", " - ", "\n"])
def test_repetition_sees_through_punctuation(separator):
    text = separator.join(["no effusion"] * 20)
    assert RepetitionPenalty()([text]) == [pytest.approx(2 / 37 - 1)]


def test_shaping_rewards_different_sentences_with_numbers_do_not_repeat():
    text = (
        "Nodule of 5 mm in the left apex. Two cysts of 12 mm at the hilum. IV contrast was given. A vein. I see none."
    )
    assert RepetitionPenalty()([text]) == [0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Findings: Clear. \nImpression: Normal.", 1.0),
        ("Findings: .\nImpression: -", 0.0),
        ("Findings: 1 2 3\nImpression: ___", 0.0),
        ("Findings: Impression\nImpression: Findings", 0.0),
        ("Findings: Findings: Findings:\nImpression: Normal.", 0.5),
        ("Findings:\n\n\nClear lungs.\nImpression:\n-", 0.5),
        ("FINDINGS:\nClear.\n\n  impression : Normal.", 1.0),
        ("Impression: Normal.\nFindings: Clear.", 0.5),
        ("Findings: Clear.", 0.5),
        ("Findings:\nImpression: Normal.", 0.5),
        ("Findings: Clear.\nImpression:", 0.5),
        ("The findings: clear. The impression: normal.", 0.0),
        ("Findings: a\nFindings: b\nImpression: c", 1.0),
        ("", 0.0),
    ],
)
def test_format(text, expected):
    assert FormatReward(["Findings", "Impression"])([text]) == [expected]


def test_format_wants_different_words():
    reward = FormatReward(["Findings", "Impression"], min_words=3)
    assert reward(["Findings: The lungs are clear.\nImpression: normal normal normal"]) == [0.5]
    assert reward(["Findings: The lungs are clear.\nImpression: No acute disease."]) == [1.0]
    assert "|min_words:3|" in reward.signature


def test_shaping_rewards_a_section_whose_name_begins_another():
    reward = FormatReward(["Finding", "Finding list"])
    assert reward(["Finding: Clear.\nFinding list: Cyst."]) == [1.0]


def test_shaping_rewards_the_longest_sequence_in_order_counts():
    reward = FormatReward(["A", "B", "C"])
    assert reward(["B: x\nA: x\nC: x"]) == [pytest.approx(2 / 3)]
    assert reward(["C: x\nB: x\nA: x"]) == [pytest.approx(1 / 3)]


def test_shaping_rewards_a_completion_without_an_answer_is_unscorable():
    logged = {}
    conversations = [[{"role": "user", "content": "x"}], [{"role": "assistant", "content": "a a"}]]
    reward = RepetitionPenalty(n_gram=1)
    assert reward(conversations, log_metric=logged.__setitem__) == [None, -0.5]
    assert logged == {"repetition/unscorable": 0.5, "repetition/extracted": 0.0, "repetition/empty": 0.0}
    tokens = OverlongPenalty(max_length=1, unit="tokens")
    assert tokens(conversations, completion_ids=[[1, 2, 3], [4]]) == [None, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OverlongPenalty(4, 5), r"buffer must be in \[0, max_length\], got 4, 5"),
        (lambda: OverlongPenalty(4, unit="letters"), "unit must be"),
        (lambda: OverlongPenalty(4, unit="tokens")(["x"]), "was given no completion_ids"),
        (lambda: OverlongPenalty(4, unit="tokens")(["x"], completion_ids=[]), "completion_ids"),
        (lambda: RepetitionPenalty(0), "n_gram must be positive"),
        (lambda: FormatReward([]), "sections must be a list"),
        (lambda: FormatReward(["A"], min_words=0), "min_words must be positive, got 0"),
        (lambda: FormatReward(["Findings", " findings"]), "sections must differ"),
    ],
)
def test_shaping_rewards_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_shaping_rewards_by_name_with_and_without_a_reference_column():
    assert make_reward("repetition", n_gram=2).columns == ()
    assert make_reward("overlong", max_length=3)(["a b c d"]) == [-1.0]
