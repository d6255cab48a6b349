"""The families of image-free policies."""

import pytest

from rrg_rewards.attack.families import STYLES, Policy, family_names, make_families, read_material

FINDINGS = ["Cardiomegaly", "Pleural effusion", "Lung nodule", "Emphysema", "Atelectasis", "Hiatal hernia"]


def test_make_families_makes_texts_of_every_family():
    material = read_material([f"{finding}. Study number {row}." for row, finding in enumerate(FINDINGS)])
    families = make_families(material)
    assert [family.name for family in families] == list(family_names())
    for family in families:
        assert family.about
        if not family.combine:
            assert family.texts or family.phrases, family.name
        for phrase in family.phrases:
            assert "{" not in phrase.text or family.name == "characters", (family.name, phrase.text)
        for policy in family.common():
            assert len(policy.sentences) >= 1
    assert material.findings[0] in {name.lower() for name in FINDINGS}
    assert "No Finding" not in material.labels
    assert {"pneumothorax", "granuloma"} <= set(material.findings)


def test_slots_are_filled_from_the_users_lexicon(tmp_path):
    lexicon = tmp_path / "mine.yaml"
    lexicon.write_text(
        "name: mine\nextends: chest_ct\nconcepts:\n  dracunculus: [dracunculus]\nlabels:\n  Worm: [dracunculus]\n"
    )
    material = read_material(["Dracunculus of the lung.", "Dracunculus."], lexicon)
    assert material.findings[0] == "dracunculus"
    assert material.labels[0] == "Worm"
    assert "lung" in material.organs
    assert "dracunculus" in material.words
    assert "dracunculus" not in read_material(["No effusion."]).findings
    families = {family.name: family for family in make_families(material)}
    assert families["bounds"].phrases[0].text == "Dracunculus of less than 100 mm."
    assert families["labels"].phrases[0].text == "Worm."
    assert "There is an abnormality of the lung." in [phrase.text for phrase in families["vague"].phrases]


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("upper", "NODULE, 3.5 MM. NO EFFUSION."),
        ("title", "Nodule, 3.5 Mm. No Effusion."),
        ("uncapitalised", "nodule, 3.5 mm. No effusion."),
        ("semicolons", "Nodule, 3.5 mm; No effusion"),
        ("exclamations", "Nodule, 3.5 mm! No effusion!"),
        ("lines", "Nodule, 3.5 mm.\nNo effusion."),
        ("word_commas", "Nodule,, 3.5, mm., No, effusion."),
        ("last_sentence", "No effusion."),
    ],
)
def test_a_report_is_written_in_another_form(style, expected):
    policy = Policy((f"{{report:{style}}}", "End."), edit="report")
    assert policy.completion("Nodule, 3.5 mm. No effusion.") == f"{expected} End."
    for name in STYLES:
        Policy((f"{{report:{name}}}",), edit="report").completion("")


def test_a_users_report_with_a_brace_is_a_constant_text():
    material = read_material(["Nodule {report}.", "Nodule {report:upper}."])
    families = {family.name: family for family in make_families(material)}
    assert [policy.edit for policy in families["reports"].texts] == ["", ""]
    assert [policy.completion("x") for policy in families["reports"].texts] == [*material.reports]


def test_words_of_a_single_report_are_not_searched():
    words = read_material(["Nodule of Zebedee.", "Nodule of the lung.", "Lung."]).words
    assert "zebedee" not in words
    assert words[0] == "lung"
