"""The page of an attack."""

from rrg_rewards.attack import attack_reward
from rrg_rewards.pages import attack_page


def found_and_missed():
    """An attack on a reward that pays one word."""

    def reward(completions, **columns):
        return [float("granuloma" in text.lower()) for text in completions]

    references = {"reference": [f"Cardiomegaly. Study number {row}." for row in range(48)]}
    return attack_reward(reward, references, families=["findings", "normal"], budget=12_000, max_references=48)


def test_attack_page_shows_each_family_by_its_gain():
    page = attack_page(found_and_missed())
    (drawing,) = page.sections["Gains"]
    assert [kind for kind in ("exploit", "unclear", "none") if f'class="{kind}"' in drawing] == ["exploit", "none"]
    assert page.rows.names == ["findings", "normal"]
