"""The places that findings of one sentence share."""

import pytest

from rrg_rewards.findings import extract_findings


@pytest.mark.parametrize(
    ("sentence", "places"),
    [
        (
            "Bronchiectasis is seen in the upper lobe of the right lung, and volume loss is seen in this localization.",
            {"bronchiectasis": ("right", ("upper",)), "volume_loss": ("right", ("upper",))},
        ),
        (
            "Traction bronchiectasis accompanied by atelectasis was observed in the left lung lower lobe.",
            {"bronchiectasis": ("left", ("lower",)), "atelectasis": ("left", ("lower",))},
        ),
        (
            "In both lungs, there are ground glass densities, and septal thickenings in the lower lobes.",
            {"ground_glass_opacity": ("bilateral", ()), "septal_thickening": ("bilateral", ("lower",))},
        ),
        (
            "In the left lung lower lobe and right lung upper lobe, ground glass areas followed by nodules are seen.",
            {
                "ground_glass_opacity": ("bilateral", ("lower", "upper")),
                "lung_nodule": ("bilateral", ("lower", "upper")),
            },
        ),
        (
            "There is a 4 mm nodule in the left lung with a ground-glass halo in its periphery.",
            {"lung_nodule": ("left", ()), "ground_glass_opacity": ("left", ("peripheral",))},
        ),
        # The place of one finding is not that of the next without a word that ties them.
        (
            "There is an effusion on the right and there are emphysematous changes.",
            {"pleural_effusion": ("right", ()), "emphysema": (None, ())},
        ),
        # The tip of a device is in no lung.
        (
            "In the right lung there is consolidation, and the tip of the central venous catheter is in the svc.",
            {"consolidation": ("right", ()), "central_line": (None, ("svc",))},
        ),
    ],
)
def test_attributes_findings_share_a_place(sentence, places):
    found = {finding.concept: finding.attributes for finding in extract_findings(sentence)}
    assert {concept: (found[concept].laterality, found[concept].location) for concept in places} == places


def test_attributes_guess_in_parentheses_has_the_side_of_the_finding_before():
    consolidation, pneumonia = extract_findings("Consolidation is seen in the left lung lower lobe (pneumonia?).")
    assert (consolidation.location, pneumonia.location) == (("lower",), ())
    assert (consolidation.laterality, pneumonia.laterality) == ("left", "left")


def test_attributes_adjectives_of_a_noun_have_its_place():
    found = extract_findings(
        "Peribronchial ground-glass-like centriacinar nodular areas are seen in the right upper lobe."
    )
    assert {finding.laterality for finding in found} == {"right"}
