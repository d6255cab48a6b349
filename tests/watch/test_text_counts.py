"""Counts of a text compared with values computed by hand."""

import pytest

from rrg_rewards.findings import read_findings
from rrg_rewards.watch.text_counts import _count_findings, _is_hedged, count_text, sentence_frame


def counted(text, series):
    return count_text(text, n_gram=2).sums[series]


def test_count_text_counts_words_sentences_and_reports():
    counts = count_text("No effusion. No effusion. Nodule of 2.5 mm.", n_gram=2)
    assert counts.sums["words"] == (8, 1)
    # The point in 2.5 does not end a sentence.
    assert counts.sums["repeated_sentences"] == (1, 3)
    assert counts.sums["instructions"] == (0, 1)
    assert (len(counts.distinct["distinct_ngrams"]), len(set(counts.distinct["distinct_ngrams"]))) == (8, 7)
    # Two sentences, and the report; the frames "no _" (twice) and "_ of #".
    assert sorted(counts.items["sentences"].values()) == [1, 1, 1]
    assert sorted(counts.items["frames"].values()) == [1, 2]


def test_count_text_counts_the_words_that_rules_have_not_read():
    assert counted("No effusion. The aorta is plondric.", "unread_words") == (1, 4)
    assert counted("No effusion.", "findings") == (0, 1)


@pytest.mark.parametrize(
    ("text", "sizes", "bounds", "loose"),
    [
        ("Nodule of 5 x 8 mm.", 1, 0, 0),
        ("Nodules of 3 mm and 1.2 cm.", 2, 0, 0),
        ("Nodules of less than 100 mm and at least 2 mm.", 2, 2, 2),
        ("Nodules <5mm, up to about 10 cm, and of 10 millimeters or more.", 3, 3, 1),
        ("Not exceeding ten mm, no larger than 3 mm, \u2265 2 cm.", 3, 3, 0),
        ("No larger than 30 mm, not smaller than 2 x 3 mm, 5 cm or less.", 3, 3, 3),
        ("More than 3 nodules at T12.", 0, 0, 0),
    ],
)
def test_count_text_counts_sizes_and_bounds(text, sizes, bounds, loose):
    assert counted(text, "sizes") == (sizes, 1)
    assert counted(text, "bounds/reports") == (bounds > 0, 1)
    assert counted(text, "bounds/sizes") == (bounds, sizes)
    assert counted(text, "bounds/loose") == (loose, sizes)


@pytest.mark.parametrize(
    ("text", "vague"),
    [
        ("Nodules of various sizes. Masses of different shapes.", 2),
        ("Nodules of any size.", 1),
        ("Something in the chest, and so on.", 1),
        ("Multiple nodules, some of them calcified. Free of any effusion. Differential diagnosis: edema.", 0),
    ],
)
def test_count_text_counts_vague_sentences(text, vague):
    assert counted(text, "vague_sentences") == (vague, 1)


def test_count_text_counts_the_letter_case_of_first_and_of_other_words():
    shares = {
        name.removeprefix("letter_case/"): value
        for name, value in count_text("The CT is normal. no Effusion. pH \u80ba.", n_gram=2).sums.items()
        if name.startswith("letter_case/")
    }
    assert shares == {
        **{"first_lower": (1, 3), "first_capital": (1, 3), "first_upper": (0, 3), "first_mixed": (1, 3)},
        **{"other_lower": (2, 4), "other_capital": (1, 4), "other_upper": (1, 4), "other_mixed": (0, 4)},
    }


@pytest.mark.parametrize(
    ("text", "any_", "at_once", "many"),
    [
        ("A. B. C.", 0, 0, 0),
        ("A. B. C. D. E. a.", 1, 0, 0),
        ("A. B. B. C. D. E.", 1, 1, 0),
        ("A. B. A. C. B.", 1, 0, 1),
        ("A. B. C. D. B. C. D. E. F.", 1, 1, 0),
        ("", 0, 0, 0),
    ],
)
def test_count_text_counts_reports_that_repeat_sentences(text, any_, at_once, many):
    kinds = {"any": any_, "at_once": at_once, "many": many}
    assert {kind: counted(text, f"repeating_reports/{kind}") for kind in kinds} == {
        kind: (value, 1) for kind, value in kinds.items()
    }


def test_count_findings_counts_findings_and_hedges():
    report = "Granuloma versus edema, 5 x 8 mm. No emphysema or effusion."
    assert _count_findings(report, read_findings(report).findings) == (2, 2)
    assert _count_findings("", ()) == (0, 0)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The heart may be enlarged", True),
        ("Or this is not the case", True),
        ("Suspicious for metastasis", True),
        ("No effusion or pneumothorax", False),
        ("Cardiomegaly", False),
        ("The maya filter is seen", False),
    ],
)
def test_is_hedged_knows_words_of_uncertainty(sentence, expected):
    assert _is_hedged(sentence) is expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("There is a small nodule in the right upper lobe", "There is a severe stenosis in the aorta"),
        ("Nodules of 5 x 8 mm in the liver", "Calcified granuloma of 12 cm in the left lung"),
        ("No effusion or pneumothorax", "No bivelurate or pulmonary edema"),
    ],
)
def test_sentence_frame_is_that_of_other_findings_places_and_sizes(first, second):
    assert sentence_frame(first.lower().split()) == sentence_frame(second.lower().split())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("There is a nodule", "There is no nodule"),
        ("A nodule is seen in the lung", "The lung shows a nodule"),
        ("Nodules of 5 mm", "Nodules of various sizes"),
    ],
)
def test_sentence_frame_differs_between_statements(first, second):
    assert sentence_frame(first.lower().split()) != sentence_frame(second.lower().split())
