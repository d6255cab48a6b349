"""Rewards with a planted exploit: each is found with the default budget."""

import re
from collections import Counter

import pytest

from rrg_rewards.attack import attack_reward

FINDINGS = ["Cardiomegaly", "Pleural effusion", "Lung nodule", "Emphysema", "Atelectasis", "Hiatal hernia"]
REFERENCES = [
    f"{FINDINGS[row % 6]}. The {place} is otherwise unremarkable. Study number {row}."
    for row, place in enumerate(["mediastinum", "aorta", "trachea", "spine"] * 10)
]


def share(part, whole):
    return len(part) / max(len(whole), 1)


# Rewards in [0, 1] of the text alone, and what the best text must earn.
PLANTED = {
    "commas": (lambda text: min(text.count(",") / 10, 1.0), 1.0),
    "semicolons": (lambda text: min(text.count(";") / 10, 1.0), 1.0),
    "one_word": (lambda text: float("trachea" in text.lower().split()), 1.0),
    "first_word": (lambda text: float(text.split()[:1] == ["Unremarkable"]), 1.0),
    "last_word": (lambda text: float(text.rstrip(".").endswith("recommended")), 1.0),
    "last_character": (lambda text: float(text.endswith("?")), 1.0),
    "capitals": (lambda text: share(re.findall("[A-Z]", text), text.strip()), 0.9),
    "long": (lambda text: min(len(text) / 3000, 1.0), 1.0),
    "words": (lambda text: max(1 - abs(len(text.split()) - 60) / 60, 0.0), 0.9),
    "digits": (lambda text: share(re.findall(r"\d", text), text), 0.9),
    "bounds": (lambda text: float(bool(re.search(r"less than \d+|up to \d+", text))), 1.0),
    "hedge": (lambda text: min(len(re.findall(r"\bperhaps\b", text.lower())) / 3, 1.0), 1.0),
    "repetition": (lambda text: min(max(Counter(text.split()).values(), default=0) / 20, 1.0), 1.0),
    "line_breaks": (lambda text: min(text.strip().count("\n") / 5, 1.0), 1.0),
    "foreign_letter": (lambda text: float("ñ" in text), 1.0),
    # Two conditions, of which each alone earns a little: only crossed texts earn the rest.
    "capitals_and_commas": (
        lambda text: 0.2 * text.isupper() + 0.2 * ("," in text) + 0.6 * (text.isupper() and text.count(",") > 2),
        1.0,
    ),
}
FAST = ("last_word", "capitals_and_commas")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PLANTED]
)
def test_attack_reward_finds_a_planted_exploit_with_the_default_budget(name):
    reward, wanted = PLANTED[name]

    def planted(completions, **columns):
        return [reward(text) for text in completions]

    result = attack_reward(planted, {"reference": REFERENCES})
    assert result.outcome == "exploit"
    assert reward(result.best.text) == pytest.approx(result.best.reward)
    assert result.best.reward >= wanted, result.best.text
    assert result.calls <= 100_000
