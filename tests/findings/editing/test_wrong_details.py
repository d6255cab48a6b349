"""Reports with wrong details."""

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.data import phantom_studies, read_table
from rrg_rewards.findings import corrupt_report
from rrg_rewards.labelers import RuleLabeler
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)


def real_reports(folder):
    return read_table(folder / "ct_rate_labels" / "reports.csv").texts("report_text")[200:350]


PHANTOMS = [study.report for style in ("full", "compact") for study in phantom_studies(40, seed=11, style=style)]


def corrupted(report, seed=0):
    return corrupt_report(report, seed=seed).candidate


@pytest.mark.parametrize(("report", "expected"), TABLES["changed"])
def test_corrupt_report_details_become_others(report, expected):
    assert expected in corrupted(report)


@pytest.mark.parametrize("report", TABLES["kept"])
def test_corrupt_report_names_denials_and_findings_stay(report):
    assert corrupted(report) == report


def test_corrupt_report_details_told_twice_are_changed_alike():
    made = corrupted("Nodule of 7 mm in both lungs. Moderate effusion.\nImpression: 7 mm nodule in both lungs.", seed=3)
    sides = re.findall(r"the (right|left) lung", made)
    sizes = re.findall(r"(\d+) mm", made)
    assert len(sides) == len(sizes) == 2
    assert len(set(sides)) == len(set(sizes)) == 1


number = st.decimals("0.1", "400", places=1).map(lambda value: f"{value.normalize():f}")


@given(number, number, st.sampled_from(["mm", "cm", "HU"]), st.integers(0, 50))
def test_corrupt_report_sizes_are_off_by_half_at_least(first, second, unit, seed):
    made = corrupted(f"Nodule of {first} x {second} {unit} in series 4.", seed)
    changed = re.fullmatch(rf"Nodule of ([\d.]+) x ([\d.]+) {unit} in series 4\.", made)
    for before, after in zip((first, second), changed.groups(), strict=True):
        ratio = Fraction(after) / Fraction(before)
        assert max(ratio, 1 / ratio) >= Fraction(3, 2)


@pytest.mark.parametrize("size", ["9" * 29, "12." + "3" * 30, "0." + "0" * 40 + "1", "9" * 1900])
def test_corrupt_report_size_of_many_digits_is_changed_exactly(size):
    made = corrupted(f"Nodule of {size} mm.")
    ratio = Decimal(re.fullmatch(r"Nodule of ([\d.]+) mm\.", made)[1]) / Decimal(size)
    assert max(ratio, 1 / ratio) >= Decimal("1.49")


def test_corrupt_report_zero_and_a_bare_number_stay():
    assert corrupted("Calculus of 0 mm, grade 3, 50 %.") == "Calculus of 0 mm, grade 3, 50 %."


@given(st.text(max_size=200), st.integers(0, 9))
@settings(max_examples=50)
def test_corrupt_report_any_text_has_a_version_and_that_has_one(text, seed):
    once = corrupt_report(text, seed=seed)
    assert once.candidate == corrupted(text, seed)
    corrupted(once.candidate, seed)


def test_corrupt_report_record_tells_what_was_done():
    made = corrupt_report("Small left effusion.", seed=0)
    assert [tuple(change) for change in made.changes] == [("severity", "Small", "Large"), ("side", "left", "right")]
    assert made.counts == {"severity": 1, "side": 1}


def test_corrupt_report_seeds_differ_and_bad_input_is_told():
    report = "Nodules of 3 mm in both lungs, of 4 mm in the middle lobe."
    assert len({corrupted(report, seed) for seed in range(10)}) > 1
    with pytest.raises(TypeError, match="report must"):
        corrupt_report(3, seed=0)
    with pytest.raises(ValueError, match="seed must not be negative"):
        corrupt_report(report, seed=-1)


def kept_labels(reports, rewrite):
    labeler = RuleLabeler("ct_rate")
    before, after = labeler(reports), labeler([rewrite(report) for report in reports])
    return int((before & after).sum()), int((before ^ after).sum())


def kept_words(report, made):
    words = made.split()
    return sum(word in words for word in report.split()) / len(report.split())


def test_corrupt_report_phantom_findings_stay_and_most_words_do():
    kept, changed = kept_labels(PHANTOMS, corrupted)
    assert (kept > 200, changed) == (True, 0)
    assert min(kept_words(report, corrupted(report)) for report in PHANTOMS) > 0.5
    # Every report with a place, a size or a degree has one that is wrong.
    assert all(corrupted(report) != report for report in PHANTOMS if re.search(r" mm|right|left|mild", report))


@pytest.mark.slow
def test_corrupt_report_real_findings_stay_and_most_words_do(shared_data):
    reports = real_reports(shared_data)
    kept, changed = kept_labels(reports, corrupted)
    assert changed <= 0.02 * kept
    shares = [kept_words(report, corrupted(report)) for report in reports]
    assert sum(shares) / len(shares) > 0.85
