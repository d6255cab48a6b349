"""Phantom studies with injected errors: the claimed errors are those of the true findings."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from rrg_rewards.data import PhantomFinding, PhantomStudy, inject_phantom_errors, phantom_studies
from rrg_rewards.findings import error_counts
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.schemas import CT_RATE

PAIRS = 1000
# Suspected causes are part of their finding.
CAUSES = {
    *("infection", "aspiration", "edema", "reactive nodes", "malignancy", "metastasis", "bronchitis", "congestion"),
    "small airway disease",
}
STATIONS = {"Lymphadenopathy", "Arterial wall calcification"}


def findings_of(stated) -> dict[tuple[str, str], PhantomFinding]:
    """Return the findings that are not absent, by concept and presence. A study states each of them once."""
    found = [finding for finding in stated if finding.presence != "absent" and finding.concept not in CAUSES]
    by_name = {(finding.concept, finding.presence): finding for finding in found}
    assert len(by_name) == len(found)
    return by_name


def true_counts(reference, candidate) -> tuple[int, ...]:
    """Return the errors A to F of a candidate by its findings, without reading its text."""
    ours, theirs = findings_of(reference), findings_of(candidate)
    both = [(ours[name], theirs[name]) for name in ours if name in theirs]
    moved = sum(
        (first.side, first.lobe) != (second.side, second.lobe)
        or (first.concept in STATIONS and first.kind != second.kind)
        for first, second in both
    )
    severe = sum((a.severity, a.size_mm) != (b.severity, b.size_mm) for a, b in both)
    added = sum(first.change is None and second.change is not None for first, second in both)
    left_out = sum(first.change is not None and second.change is None for first, second in both)
    return (
        len(theirs.keys() - ours.keys()),
        len(ours.keys() - theirs.keys()),
        moved,
        severe,
        added,
        left_out,
    )


@pytest.fixture(scope="module", params=["full", "compact"])
def studies(request: pytest.FixtureRequest) -> list[PhantomStudy]:
    return phantom_studies(PAIRS, seed=7, style=request.param)


def test_inject_phantom_errors_claimed_counts_are_those_of_the_true_findings(studies):
    # Twice a thousand pairs.
    total = Counter()
    for study in studies:
        injected = inject_phantom_errors(study, seed=1)
        assert injected.report.counts == true_counts(study.findings, injected.findings), study.study_id
        assert all(made <= asked for made, asked in zip(injected.report.counts, injected.report.requested, strict=True))
        total.update(dict(zip("ABCDEF", injected.report.counts, strict=True)))
    # Compact reports state no changes, so none can be added or dropped.
    assert all(total[letter] > 30 for letter in ("ABCDEF" if studies[0].style == "full" else "ABCD"))


def test_inject_phantom_errors_retelling_is_no_error(studies):
    for study in studies[:300]:
        injected = inject_phantom_errors(study, [0] * 6, seed=2)
        assert injected.report.counts == (0,) * 6 == true_counts(study.findings, injected.findings)
    # Not the same words, or nothing would be shown.
    assert sum(inject_phantom_errors(s, [0] * 6, seed=2).report.candidate != s.report for s in studies[:300]) > 150


def test_inject_phantom_errors_text_says_what_the_findings_are(studies):
    # The labeler reads the candidates: their labels are those of their findings.
    injected = [inject_phantom_errors(study, seed=3) for study in studies[:300]]
    expected = [
        [any(f.concept == label and f.presence == "present" for f in one.findings) for label in CT_RATE.labels]
        for one in injected
    ]
    assert RuleLabeler("ct_rate")([one.report.candidate for one in injected]).tolist() == expected


def test_inject_phantom_errors_edits_say_what_was_done_where(studies):
    for study in studies[:200]:
        report = inject_phantom_errors(study, {"A": 1, "B": 1, "C": 1, "D": 1, "E": 1, "F": 1}, seed=4).report
        made = Counter(edit.category for edit in report.edits if edit.category)
        assert tuple(made[letter] for letter in "ABCDEF") == report.counts
        for edit in report.edits:
            if edit.category == "D" and edit.action == "severity":
                new, _, old = edit.detail.partition(": ")[2].partition(" for ")
                assert new in report.candidate.lower()
                assert old in report.reference[slice(*edit.reference)].lower()


def test_inject_phantom_errors_places_of_findings_are_their_sentences(studies):
    for study in studies[:100]:
        assert len(study.places) == len(study.findings)
        for start, end in study.places:
            assert study.findings_text[start:end].endswith(".")
            assert start == 0 or study.findings_text[start - 1] == " "


def test_inject_phantom_errors_as_many_as_a_study_takes():
    study = next(study for study in phantom_studies(50) if sum(study.labels) == 1)
    injected = inject_phantom_errors(study, {"B": 9}, seed=0)
    held = len(findings_of(study.findings))
    assert injected.report.counts[1] == held
    assert injected.report.declined == (0, 9 - held, 0, 0, 0, 0)


def test_inject_phantom_errors_same_in_every_process():
    program = (
        "from rrg_rewards.data import inject_phantom_errors as inject, phantom_studies\n"
        "import hashlib\n"
        "texts = [inject(study, seed=5).report.candidate for study in phantom_studies(40, seed=5)]\n"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_inject_phantom_errors_seeds_differ():
    study = phantom_studies(1, seed=3)[0]
    assert inject_phantom_errors(study, seed=0) == inject_phantom_errors(study, seed=0)
    assert len({inject_phantom_errors(study, {"A": 1}, seed=seed).report.candidate for seed in range(5)}) > 3


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ({"G": 1}, ValueError, "unknown error category 'G'"),
        ({"A": -1}, ValueError, "must not be negative"),
        ({"A": 1.5}, TypeError, "must be an integer"),
        ([1, 2], ValueError, "must hold 6 numbers"),
        (3, TypeError, "must be a mapping by letter or a sequence"),
        ("ABCDEF", TypeError, "must be a mapping by letter or a sequence"),
    ],
)
def test_inject_phantom_errors_bad_counts(counts, error, message):
    with pytest.raises(error, match=message):
        inject_phantom_errors(phantom_studies(1)[0], counts, seed=0)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), ("0", TypeError), (True, TypeError), (0.5, TypeError)])
def test_inject_phantom_errors_bad_seed(seed, error):
    with pytest.raises(error, match="seed"):
        inject_phantom_errors(phantom_studies(1)[0], seed=seed)


def test_inject_phantom_errors_names_are_categories_too():
    study = phantom_studies(2, style="compact")[1]
    by_name = inject_phantom_errors(study, {"omitted_finding": 1}, seed=0)
    assert by_name == inject_phantom_errors(study, {"B": 1}, seed=0)


def test_inject_phantom_errors_drawn_counts_are_mostly_false_and_missing_findings():
    generator = np.random.default_rng(0)
    drawn = np.array([error_counts(generator) for _ in range(4000)])
    assert 2.2 < drawn.sum(axis=1).mean() < 2.6
    assert drawn.sum(axis=1).max() == 6
    assert 0.6 < drawn[:, :2].sum() / drawn.sum() < 0.7
    assert (drawn[:, 2:].sum(axis=0) > 0.06 * drawn.sum()).all()
