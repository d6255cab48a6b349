"""The families of image-free policies."""

from rrg_rewards.watch.attack.families import family_names, make_families, read_material

FINDINGS = ["Cardiomegaly", "Pleural effusion", "Lung nodule", "Emphysema", "Atelectasis", "Hiatal hernia"]


def test_make_families_makes_texts_of_every_family():
    material = read_material([f"{finding}. Study number {row}." for row, finding in enumerate(FINDINGS)])
    families = make_families(material)
    assert [family.name for family in families] == list(family_names())
    for family in families:
        assert family.about
        if family.name != "evolved" and not family.appends:
            assert family.texts or family.phrases, family.name
        for phrase in family.phrases:
            assert "{" not in phrase.text, (family.name, phrase.text)
        for policy in family.common():
            assert len(policy.sentences) >= 1
    assert material.findings[0] in {name.lower() for name in FINDINGS}
    assert "No Finding" not in material.labels
    assert {"pneumothorax", "granuloma"} <= set(material.findings)
