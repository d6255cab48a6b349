"""Distinct texts: numbers, the rule of the warning, and what it says of real systems."""

import tracemalloc
from collections import Counter

import pytest

from rrg_rewards.analysis import count_texts
from rrg_rewards.analysis.distinct import FEW_SHARE, LEAST_STUDIES, TextCounter
from rrg_rewards.data import read_table

NODULES = [f"Nodule of {size} mm." for size in range(1, 101)]


def test_count_texts_equals_a_count_of_the_normalised_texts():
    texts = ["Clear lungs.", "Effusion.", " Clear\n lungs. ", "effusion.", "Effusion.", "Clear\tlungs."]
    found = count_texts(texts, NODULES[:6])
    counts = Counter(" ".join(text.split()) for text in texts)
    assert (found.studies, found.distinct, found.references) == (6, len(counts), 6)
    assert (found.commonest, found.commonest_row) == (counts["Clear lungs."], 0)
    assert (found.share, found.commonest_share, found.reference_share) == (0.5, 0.5, 1.0)


def test_count_texts_leaves_out_studies_without_a_report_or_reference():
    """Both numbers are of the same studies; a blank report is a text, a blank reference is none."""
    predictions = [None, "A.", "B.", "B.", "", "B."]
    found = count_texts(predictions, ["R1.", " ", "R2.", "R3.", "R3.", None])
    assert (found.studies, found.distinct, found.references) == (3, 2, 2)
    assert (found.commonest, found.commonest_row) == (2, 2)
    alone = count_texts(predictions)
    assert (alone.studies, alone.distinct, alone.references, alone.reference_share) == (5, 3, None, None)
    assert (alone.commonest, alone.commonest_row) == (3, 2)
    assert not alone.are_few


@pytest.mark.parametrize("references", [[], ["R."], None])
def test_count_texts_without_studies_has_no_shares(references):
    found = count_texts([None] if references else [], references)
    assert (found.studies, found.share, found.commonest_row, found.are_few) == (0, None, None, False)
    assert str(found) == "0 distinct texts for 0 studies"


def test_count_texts_refuses_other_lengths():
    with pytest.raises(ValueError, match="references must have 2 entries, got 1"):
        count_texts(["A.", "B."], ["R."])


def test_text_counter_is_the_same_in_batches():
    texts = [f"Text {number % 7}." for number in range(100)]
    counter = TextCounter()
    for start in range(0, 100, 9):
        counter.add(texts[start : start + 9], NODULES[start : start + 9])
        counter.result()
    assert counter.result() == count_texts(texts, NODULES)


def test_text_counter_keeps_hashes_and_no_texts():
    counter = TextCounter()
    tracemalloc.start()
    try:
        for number in range(500):
            counter.add([f"{number} " * 500], [f"{number} reference " * 300])
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 16 bytes for each study, with the spare room of two arrays; the texts have some 4 MB.
    assert grown < 100_000
    assert counter.result().distinct == 500


@pytest.mark.parametrize(
    ("studies", "distinct", "references", "few"),
    [
        (100, 24, 100, True),
        (100, 25, 100, False),
        (100, 1, 4, False),
        (100, 1, 5, True),
        (LEAST_STUDIES, 1, LEAST_STUDIES, True),
        (LEAST_STUDIES - 1, 1, LEAST_STUDIES - 1, False),
    ],
)
def test_are_few_is_a_quarter_of_the_references(studies, distinct, references, few):
    predictions = [f"Text {row % distinct}." for row in range(studies)]
    found = count_texts(predictions, [f"Reference {row % references}." for row in range(studies)])
    assert (found.distinct, found.references) == (distinct, references)
    assert found.are_few is few
    assert (found.warning("model") is not None) is few
    assert found.to_dict()["are_few"] is few


def test_distinct_texts_modality_is_that_of_the_references():
    texts = ["No effusion."] * 12
    assert count_texts(texts, ["The cardiomediastinal silhouette is normal."] * 12).modality == "xray"
    assert count_texts(texts, ["Both main bronchi are open. No lymph node."] * 12).modality == "ct"
    assert count_texts(texts, ["No effusion."] * 12).modality is None


def column_counts(shared_data, path, prediction, reference):
    table = read_table(shared_data / path)
    return count_texts(table.texts(prediction), table.texts(reference))


def test_are_few_of_the_public_leaderboard_entry(shared_data):
    path = "iu_xray_rexrank/systems.csv"
    found = column_counts(shared_data, path, "moerad", "section_findings")
    assert (found.studies, found.distinct, found.commonest, found.references) == (590, 25, 259, 398)
    assert found.warning("moerad").startswith("moerad has 25 distinct texts for 590 studies (4.2 %), the commonest 259")
    assert column_counts(shared_data, path, "aamn", "section_findings").distinct == 1
    # Impressions repeat more than findings.
    assert column_counts(shared_data, path, "moerad", "section_impression").are_few


@pytest.mark.parametrize(
    ("path", "prediction", "reference"),
    [
        ("reg2rg_ctrg/pairs.csv", "Pred_whole_report", "GT_whole_report"),
        ("reg2rg_ct_rate/pairs.csv", "prediction", "reference"),
        ("iu_xray/systems.csv", "sft_model", "reference"),
        ("iu_xray/systems.csv", "retrieval_oracle", "reference"),
    ],
)
def test_are_few_is_silent_on_systems_that_describe_studies(shared_data, path, prediction, reference):
    found = column_counts(shared_data, path, prediction, reference)
    assert found.distinct > 2 * FEW_SHARE * found.references
    assert found.warning(prediction) is None
