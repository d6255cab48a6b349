"""Paraphrased reports."""

import re
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.data import phantom_studies, read_table
from rrg_rewards.findings import paraphrase_report
from rrg_rewards.labelers import RuleLabeler


def real_reports(folder):
    return read_table(folder / "ct_rate_labels" / "reports.csv").texts("report_text")[200:350]


PHANTOMS = [study.report for style in ("full", "compact") for study in phantom_studies(40, seed=11, style=style)]
MEASURE = re.compile(r"((?:\d+(?:\.\d+)?(?:\s*(?:x|-|,|and|or|to)\s*)?)+)\s*(mm|millimeters?|cm)\b", re.IGNORECASE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def paraphrased(report, seed=0):
    return paraphrase_report(report, seed=seed).candidate


def all_of(report, number=30):
    """Return the paraphrases of a report for several seeds."""
    return {paraphrased(report, seed) for seed in range(number)}


def measures(text):
    """Return all sizes of a text in mm, exactly."""
    return Counter(
        Fraction(number) * (10 if unit == "cm" else 1)
        for numbers, unit in MEASURE.findall(text)
        for number in NUMBER.findall(numbers)
    )


def other_numbers(text):
    """Return the numbers that are not sizes."""
    return Counter(NUMBER.findall(MEASURE.sub(" ", text)))


def test_paraphrase_report_forms_of_a_statement():
    assert all_of("A nodule is seen in the spleen.") == {
        "CT shows a nodule in the spleen.",
        "Imaging reveals a nodule in the spleen.",
        "The scan demonstrates a nodule in the spleen.",
        "In the spleen, there is a nodule.",
        "In the spleen, a nodule is visible.",
    }


def test_paraphrase_report_forms_of_a_denial():
    made = all_of("Fractures were not observed.")
    assert made == {
        "CT shows no fractures.",
        "The scan reveals no fractures.",
        "There are no fractures.",
        "No fractures can be seen.",
    }


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("Nodule of 12 mm.", {"1.2 cm"}),
        ("Nodule of 2.3 cm.", {"23 mm"}),
        ("Nodules of 2.3 and 3 mm.", {"0.23 and 0.3 cm"}),
        ("Mass of 13x9.3 mm.", {"1.3x0.93 cm"}),
        ("Effusion of 40 millimeters.", {"4 cm"}),
        (f"Nodule of {'9' * 40} mm.", {f"{'9' * 39}.9 cm"}),
    ],
)
def test_paraphrase_report_units_change_exactly(report, words):
    assert all(any(word in made for word in words) for made in all_of(report, 5))


@pytest.mark.parametrize(
    "report",
    [
        # A sentence with several statements keeps its form.
        "The effusion on the left, which was observed before, was not detected today.",
        "A nodule is seen in the spleen and no mass was detected in the pancreas.",
        "It is seen that the mass extends to the bronchus.",
        "Compared with the earlier imaging, no fracture was observed.",
    ],
)
def test_paraphrase_report_meaning_is_not_lost_in_a_form(report):
    for made in all_of(report):
        assert ("not" in made.split() or "no" in made.split()) == bool(re.search(r"\bnot?\b", report))
        assert not re.search(r"(?:shows|reveals|demonstrates|there is) (?:no )?the effusion", made)


def test_paraphrase_report_sentences_stay_in_their_part_and_behind_what_they_speak_of():
    report = (
        "Findings: The spleen is large. A cyst is seen in the liver. It is simple. The aorta is wide. Lungs: Clear.\n"
        "Impression: Cyst."
    )
    for made in all_of(report):
        findings, _, rest = made.partition(" Lungs: ")
        assert findings.startswith("Findings: ")
        assert rest == "Clear.\nImpression: Cyst." or rest.startswith("Clear.\nImpression: ")
        assert re.search(r"cyst[^.]*\. It is simple\.", findings)
    starts = {made[10:20] for made in all_of(report)}
    assert len(starts) > 2


def test_paraphrase_report_articles_and_capitals_fit():
    for made in all_of("A pleural effusion is seen. CTR is normal. Bochdalek hernia is observed."):
        assert " a effusion" not in made
        assert not re.search(r"\b(?:is|are|shows|reveals) (?:A|An|The)\b", made)
        assert "bochdalek" not in made
        assert "cTR" not in made
        assert all(sentence[:1].isupper() for sentence in re.split(r"(?<=\.) ", made))


number = st.decimals("0.1", "400", places=1).map(lambda value: f"{value.normalize():f}")


@given(number, number, st.sampled_from(["mm", "cm"]), st.integers(0, 50))
def test_paraphrase_report_sizes_are_the_same(first, second, unit, seed):
    report = f"A {first} x {second} {unit} nodule is seen in series 4 image {seed}. A cyst of {second} {unit}."
    made = paraphrased(report, seed)
    assert measures(made) == measures(report)
    assert other_numbers(made) == other_numbers(report)


@given(st.text(max_size=200), st.integers(0, 9))
@settings(max_examples=50)
def test_paraphrase_report_any_text_has_a_version_and_that_has_one(text, seed):
    once = paraphrased(text, seed)
    assert once == paraphrased(text, seed)
    paraphrased(once, seed)


def test_paraphrase_report_bad_input_is_told():
    with pytest.raises(TypeError, match="report must"):
        paraphrase_report(None, seed=0)
    with pytest.raises(ValueError, match="seed must not be negative"):
        paraphrase_report("Clear.", seed=-1)


def bigrams(text):
    words = re.findall(r"\w+", text.lower())
    return Counter(pairwise(words))


def same_bigrams(report, made):
    before, after = bigrams(report), bigrams(made)
    return (before & after).total() / max(1, before.total())


def check(reports, most_changed, most_kept):
    labeler = RuleLabeler("ct_rate")
    once = [paraphrased(report) for report in reports]
    twice = [paraphrased(report, 1) for report in once]
    before = labeler(reports)
    for made in (once, twice):
        changed = int((before ^ labeler(made)).sum())
        assert changed <= most_changed * int(before.sum())
        for report, text in zip(reports, made, strict=True):
            assert measures(text) == measures(report)
            assert other_numbers(text) == other_numbers(report)
    shares = [same_bigrams(report, made) for report, made in zip(reports, once, strict=True)]
    assert sum(shares) / len(shares) < most_kept


def test_paraphrase_report_phantom_reports_say_the_same_in_other_words():
    check(PHANTOMS, most_changed=0, most_kept=0.6)


@pytest.mark.slow
def test_paraphrase_report_real_reports_say_the_same_in_other_words(shared_data):
    check(real_reports(shared_data), most_changed=0.02, most_kept=0.6)
