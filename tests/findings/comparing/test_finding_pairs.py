"""Findings that no concept of the lexicon names, and findings in different organs."""

import pytest

from rrg_rewards.findings import Finding, compare_findings
from rrg_rewards.findings.reading.finding import Attributes


def finding(organ, *words, concept="other_finding", **attributes):
    return Finding(concept, "present", 0, 0, 0, " ".join(words), Attributes(**attributes), organ=organ, words=words)


@pytest.mark.parametrize(
    ("reference", "candidate", "kind"),
    [
        (("liver", "low", "density"), ("liver", "low", "density"), None),
        (("liver", "low", "density"), ("liver", "hypodense", "focus"), "descriptor"),
        (("kidney", "stones"), ("kidney", "calculus"), "descriptor"),
        (("brain", "old", "infarct"), ("brain", "lacune"), "descriptor"),
        (("spleen", "enlarged"), ("spleen", "increased", "size", "large"), "descriptor"),
        (("breast", "nodule"), ("breast", "abnormality"), "unspecific"),
        (("breast", "abnormality"), ("breast", "cyst"), "overinterpretation"),
        (("lung", "patchy", "shadow"), ("lung", "abnormality"), "unspecific"),
        # no word of a class: equal words
        (("gut", "intussusception"), ("gut", "intussusceptions"), "descriptor"),
        # an unknown organ: most words
        (("brain", "white", "matter", "lesions"), (None, "white", "matter", "lesion"), "descriptor"),
    ],
)
def test_open_findings_match_by_organ_and_words(reference, candidate, kind):
    found = compare_findings([finding(*reference)], [finding(*candidate)])
    assert [error.type for match in found.matches for error in match.discrepancies] == ([kind] if kind else [])
    assert (found.false, found.missing) == ((), ())


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (("liver", "low", "density"), ("spleen", "low", "density")),
        (("lung", "thick", "septum"), ("pleura", "thick")),
        (("liver", "low", "density"), ("liver", "calcification")),
        (("liver", "enlarged"), ("liver", "small")),
        (("kidney", "stone"), ("kidney", "atrophy")),
        # words of a place and of a number say nothing
        (("bone", "multiple", "right", "rib", "fractures"), ("bone", "multiple", "right", "rib", "spurs")),
        (("brain", "atrophy"), (None, "atrophy", "pancreas")),
    ],
)
def test_open_findings_that_do_not_match(reference, candidate):
    found = compare_findings([finding(*reference)], [finding(*candidate)])
    assert (found.matches, found.false, found.missing) == ((), (0,), (0,))


@pytest.mark.parametrize(
    ("ours", "theirs", "matches"),
    [
        ("lung", "lung", True),
        ("lung", None, True),
        ("lung", "liver", False),
        # "hilar" and "mediastinal" are one region, the heart and the aorta are two
        ("mediastinum", "hilum", True),
        ("heart", "aorta", False),
    ],
)
def test_named_findings_of_two_organs_do_not_match(ours, theirs, matches):
    nodules = [[finding(organ, concept="lung_nodule")] for organ in (ours, theirs)]
    assert bool(compare_findings(*nodules).matches) is matches


def test_an_open_finding_matches_a_named_one_by_its_words():
    named = Finding("breast_lesion", "present", 0, 6, 0, "nodule", organ="breast")
    found = compare_findings([named], [finding("breast", "nodular", "shadow")])
    assert [error.type for error in found.matches[0].discrepancies] == ["descriptor"]
    assert not compare_findings([named], [finding("breast", "skin", "thickening")]).matches


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("Right apical pneumothorax.", "Lucency at the right apex."),
        ("Pulmonary edema.", "Congestive heart failure."),
    ],
)
def test_related_concepts_of_two_organs_match(reference, candidate):
    assert compare_findings(reference, candidate).matches
