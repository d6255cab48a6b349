"""Reports with injected errors: the claimed errors are those that the finding engine reads."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.findings import InjectedReport, compare_findings, extract_findings, inject_errors
from rrg_rewards.findings.editing.report_view import compares, read_sentences
from rrg_rewards.findings.reading.plain_text import plain_text

EFFUSION = "Small left pleural effusion, unchanged from the prior exam. "
NODULE = "There is an 8 mm nodule in the right upper lobe. "
REPORT = f"{EFFUSION}{NODULE}Mild cardiomegaly. No pneumothorax. The osseous structures are intact."


def only(letter, **options) -> InjectedReport:
    injected = inject_errors(REPORT, {letter: 1}, harmless=0, **options)
    assert injected is not None
    assert injected.counts == tuple(int(letter == other) for other in "ABCDEF")
    return injected


class TestInjectErrors:
    def test_invented(self):
        found = only("A", seed=0)
        assert len(found.candidate) > len(REPORT) / 2
        comparison = compare_findings(REPORT, found.candidate)
        (false,) = comparison.false
        assert comparison.candidate[false].concept == found.edits[0].detail
        assert not comparison.missing

    def test_what_denies_an_invention_goes(self):
        texts = {inject_errors("No pneumothorax. No effusion.", {"A": 1}, seed=seed).candidate for seed in range(60)}
        with_pneumothorax = [text for text in texts if "pneumothorax is present" in text or "apical pneumo" in text]
        assert with_pneumothorax
        assert not any("No pneumothorax" in text for text in with_pneumothorax)

    @pytest.mark.parametrize(
        ("category", "edits"),
        [
            ("B", [(sentence, "") for sentence in (EFFUSION, NODULE, "Mild cardiomegaly. ")]),
            ("C", [("left", "right"), ("right upper", "left upper"), ("right upper", "right lower")]),
        ],
    )
    def test_dropped_and_moved(self, category, edits):
        assert {only(category, seed=seed).candidate for seed in range(12)} == {REPORT.replace(*edit) for edit in edits}

    def test_dropped_wherever_it_is_told(self):
        report = "Small effusion. Cardiomegaly. 1. Small effusion. 2. Mild cardiomegaly."
        texts = {inject_errors(report, {"B": 1}, seed=seed, harmless=0).candidate for seed in range(12)}
        assert texts == {"Cardiomegaly. 1. Mild cardiomegaly.", "Small effusion. 1. Small effusion."}

    def test_no_finding_is_dropped_out_of_a_list(self):
        assert inject_errors("There is cardiomegaly, a small hiatal hernia and scoliosis.", {"B": 1}, seed=0) is None

    def test_graded(self):
        texts = {only("D", seed=seed).candidate for seed in range(30)}
        sizes = {REPORT.replace("an 8 mm", f"a {size} mm") for size in (3, 16, 20, 24)}
        severities = {REPORT.replace("Small", "Large"), REPORT.replace("Mild", "Severe")}
        assert severities < texts <= severities | sizes
        assert texts & sizes

    def test_graded_and_moved_keep_the_article_right(self):
        size = inject_errors("An 8 mm nodule.", {"D": 1}, seed=0).candidate
        level = inject_errors("Nodule in an upper lobe.", {"C": 1}, seed=0).candidate
        assert size.startswith("A ")
        assert level.startswith("Nodule in a lower lobe.")

    def test_compared(self):
        for seed in range(12):
            found = only("E", seed=seed)
            (added,) = set(found.candidate.split(". ")).difference(found.reference.split(". "))
            assert compares(added)
            assert not compares(found.reference[slice(*found.edits[0].reference)])

    def test_uncompared(self):
        assert only("F", seed=0).candidate == REPORT.replace(", unchanged from the prior exam", "")

    @pytest.mark.parametrize(
        ("report", "letter", "significant"),
        [
            ("New effusion.", "F", {True}),
            ("Unchanged effusion.", "F", {False}),
            ("Small effusion.", "E", {True, False}),
        ],
    )
    def test_what_is_compared_is_a_temporal_error(self, report, letter, significant):
        found = [inject_errors(report, {letter: 1}, seed=seed, harmless=0).candidate for seed in range(12)]
        comparisons = [compare_findings(report, candidate) for candidate in found]
        errors = [error for found in comparisons for match in found.matches for error in match.discrepancies]
        assert {error.type for error in errors} == {"temporal"}
        assert {error.significant for error in errors} == significant

    def test_what_goes_with_a_finding_is_no_error_of_its_own(self):
        report = "Cardiomegaly, unchanged from the prior exam. Scoliosis."
        counts = {inject_errors(report, {"B": 2}, seed=seed, harmless=0).counts for seed in range(3)}
        assert counts == {(0, 2, 0, 0, 0, 0)}

    def test_one_finding_takes_one_error(self):
        report = "Small left pleural effusion."
        found = inject_errors(report, {"B": 1, "C": 1, "D": 1}, seed=0, harmless=0)
        assert sum(found.counts) == 1
        assert sum(found.declined) == 2


class TestInjectErrorsDeclines:
    @pytest.mark.parametrize(
        ("report", "letter"),
        [
            ("The heart is normal. Lungs are clear.", "B"),
            ("The heart is normal. Lungs are clear.", "D"),
            ("Cardiomegaly.", "C"),
            ("Small effusion.", "F"),
            # A severity one step away is not clearly wrong.
            ("Moderate cardiomegaly.", "Z"),
            # One finding under two names.
            ("Right lower lobe opacity. Clear otherwise. Right lower lobe pneumonia.", "B"),
            # Present in one sentence, absent in another.
            ("Small right effusion. Complete resolution of the right pleural effusion.", "B"),
            # The next sentence would refer to nothing.
            ("A nodule is seen. It may represent a granuloma.", "B"),
            # A possible finding is not certain enough to be removed.
            ("Possible cardiomegaly.", "B"),
        ],
    )
    def test_what_is_not_sure_is_not_made(self, report, letter):
        if letter == "Z":
            texts = {inject_errors(report, {"D": 1}, seed=seed, harmless=0).candidate for seed in range(5)}
            assert texts == {"Minimal cardiomegaly."}
        else:
            assert inject_errors(report, {letter: 1}, seed=0) is None

    def test_fewer_errors_than_asked_for(self):
        found = inject_errors("Cardiomegaly. Lungs are clear.", {"A": 1, "B": 3, "F": 1}, seed=0)
        assert found.counts == (1, 1, 0, 0, 0, 0)
        assert found.declined == (0, 2, 0, 0, 0, 1)
        assert len([edit for edit in found.edits if edit.category]) == 2

    @pytest.mark.parametrize("report", ["", " \n", "... 12 ..."])
    def test_no_report(self, report):
        assert inject_errors(report, seed=0) is None

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"report": None}, TypeError, "report must"),
            ({"modality": "mri"}, ValueError, "unknown modality 'mri'"),
            ({"harmless": -1}, ValueError, "harmless must not be negative"),
            ({"seed": -1}, ValueError, "seed must not be negative"),
            ({"counts": {"a": 1}}, ValueError, "unknown error category 'a'; did you mean 'A'"),
        ],
    )
    def test_bad_arguments(self, options, error, message):
        with pytest.raises(error, match=message):
            inject_errors(**{"report": REPORT, "seed": 0, **options})


def claimed(found: InjectedReport) -> tuple[int, ...]:
    made = Counter(edit.category for edit in found.edits if edit.category)
    return tuple(made[letter] for letter in "ABCDEF")


def shown(reference: str, candidate: str, comparisons: int = 0) -> tuple[int, ...]:
    """Errors A to D by the comparison of the reports; at most ``comparisons`` findings differ in change."""
    comparison = compare_findings(reference, candidate)
    errors = [error for match in comparison.matches for error in match.discrepancies]
    assert all(error.significant or error.type == "temporal" for error in errors)
    types = Counter(error.type for error in errors)
    assert types.pop("temporal", 0) <= comparisons
    moved, severe = types.pop("location", 0), types.pop("severity", 0) + types.pop("measurement", 0)
    assert not types
    return len(comparison.false), len(comparison.missing), moved, severe


def comparing(report: str) -> int:
    sentences = read_sentences(report, extract_findings(report))
    return sum(compares(sentence.text) for sentence in sentences)


@pytest.fixture(scope="module")
def real_reports(shared_data) -> list[str]:
    lines = (shared_data / "iu_xray" / "train_reports.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["report"] for line in lines[:300]]


class TestInjectErrorsInRealReports:
    def test_claims_are_what_the_comparison_shows(self, real_reports):
        total = Counter()
        for report in real_reports:
            found = inject_errors(report, seed=0)
            if found is None:
                continue
            assert found.counts == claimed(found)
            assert found.counts[:4] == shown(report, found.candidate, sum(found.counts[4:]))
            assert all(made <= asked for made, asked in zip(found.counts, found.requested, strict=True))
            if not found.counts[1]:
                assert comparing(found.candidate) - comparing(report) <= found.counts[4]
            total.update(dict(zip("ABCDEF", found.counts, strict=True)))
        assert all(total[letter] >= 4 for letter in "ABCDEF")

    def test_harmless_edits_count_nothing(self, real_reports):
        kinds = Counter()
        for report in real_reports:
            found = inject_errors(report, {}, seed=1, harmless=3)
            assert found.counts == (0,) * 6
            assert shown(report, found.candidate) == (0, 0, 0, 0)
            assert comparing(found.candidate) == comparing(report)
            kinds.update(edit.action for edit in found.edits)
        assert set(kinds) == {"synonym", "normal statement", "denial dropped", "reordered"}
        assert min(kinds.values()) > 25

    def test_yields_do_not_fall(self, real_reports):
        # docs/measurements.md has the yields of all reports.
        lowest = {"A": 0.95, "B": 0.40, "C": 0.12, "D": 0.15, "E": 0.75, "F": 0.08}
        for letter, least in lowest.items():
            made = sum(inject_errors(report, {letter: 1}, seed=0) is not None for report in real_reports)
            assert made >= least * len(real_reports), letter


@given(st.lists(st.sampled_from([*REPORT.split(), "1.", "\n", ";", "and", "-", "é"]), max_size=30), st.integers(0, 5))
def test_inject_errors_edits_or_declines_any_text(words, seed):
    report = " ".join(words)
    found = inject_errors(report, seed=seed)
    if found is not None:
        assert found.reference == plain_text(report).text
        assert found.counts == claimed(found)
        assert found.counts[:4] == shown(found.reference, found.candidate, sum(found.counts[4:]))


def test_inject_errors_is_the_same_in_every_process():
    program = (
        "from rrg_rewards.findings import inject_errors\n"
        f"print([inject_errors({REPORT!r}, seed=seed) for seed in range(30)])"
    )
    # This process has another seed.
    other = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    )
    assert other.stdout == f"{[inject_errors(REPORT, seed=seed) for seed in range(30)]}\n"
