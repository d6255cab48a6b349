"""Counts of a text compared with values computed by hand."""

import pytest

from rrg_rewards.watch.text_counts import count_text, sentence_frame


def test_count_text_counts_words_sentences_and_reports():
    counts = count_text("No effusion. No effusion. Nodule of 2.5 mm.")
    # The point in 2.5 does not end a sentence.
    repeated = {"repeated_sentences": (1, 3), "repeating_reports": (1, 1)}
    assert counts.sums == {"words": (8, 1), **repeated, "unread_words": (0, 7)}
    assert (len(counts.distinct["distinct_ngrams"]), len(set(counts.distinct["distinct_ngrams"]))) == (8, 7)
    # The frames "no _" (twice) and "_ of #", and the report.
    assert sorted(counts.frames.values()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("text", "repeated", "at_once"),
    [
        ("A. B. C.", 0, False),
        ("A. B. C. D. E. a.", 1, False),
        ("A. B. B. C. D. E.", 1, True),
        ("A. B. A. C. B.", 2, False),
        ("A. B. C. D. B. C. D. E. F.", 3, True),
        ("", 0, False),
    ],
)
def test_count_text_counts_repeated_sentences_and_those_that_follow_themselves(text, repeated, at_once):
    sums = count_text(text).sums
    assert sums["repeated_sentences"][0] == repeated
    assert sums["repeating_reports"] == (at_once, 1)


def test_count_text_counts_the_words_that_rules_have_not_read():
    text = "No effusion. The aorta is plondric."
    assert count_text(text).sums["unread_words"] == (1, 4)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("There is a small nodule in the right upper lobe", "There is a severe stenosis in the aorta", True),
        ("Nodules of 5 x 8 mm in the liver", "Calcified granuloma of 12 cm in the left lung", True),
        ("No effusion or pneumothorax", "No bivelurate or pulmonary edema", True),
        ("There is a nodule", "There is no nodule", False),
        ("A nodule is seen in the lung", "The lung shows a nodule", False),
        ("Nodules of 5 mm", "Nodules of various sizes", False),
    ],
)
def test_sentence_frame_is_that_of_other_findings_places_and_sizes(first, second, same):
    frames = [sentence_frame(sentence.lower().split()) for sentence in (first, second)]
    assert (frames[0] == frames[1]) is same


def test_count_text_compares_whole_reports_without_the_values_of_numbers():
    frames = [set(count_text(text).frames) for text in ("Nodule of 5 mm.", "nodule of 8 mm", "Mass of 5 mm")]
    assert frames[0] == frames[1]
    assert len(frames[0] & frames[2]) == 1
