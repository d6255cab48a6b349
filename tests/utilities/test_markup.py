"""HTML elements."""

from rrg_rewards.utilities.markup import element


def test_element_escapes_texts_and_attributes():
    assert element("p", "<b>", title='"<') == '<p title="&quot;&lt;">&lt;b&gt;</p>'
