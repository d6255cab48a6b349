"""Preferences between completions."""

import random

import pytest

from rrg_rewards.analysis import PreferenceSettings, make_preferences
from rrg_rewards.analysis.preference_pairs import label_desirable, pair_completions
from rrg_rewards.data import Table
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

LONGER = pytest.mark.filterwarnings("ignore:chosen completions are")
BOTH = "Cardiomegaly. Hiatal hernia."
SAMPLES = Table({
    "prompt": ["A", "A", "A", "B", "B", "C"],
    "completion": ["Cardiomegaly.", BOTH, "Emphysema.", "Emphysema.", "Emphysema. No effusion.", None],
    "reference": [BOTH, BOTH, BOTH, "Emphysema.", "Emphysema.", ""],
    "image": ["a", "a", "a", "b", "b", "c"],
})  # fmt: skip


def test_best_over_worst_and_so_on():
    rewards = [0.5, 0.9, 0.1, 0.7, 0.3]
    found = [pair_completions(["a"] * 5, list("vwxyz"), rewards, per_prompt=count).pairs for count in (1, 2, 3)]
    assert found == [[(1, 2)], [(1, 2), (3, 4)], [(1, 2), (3, 4)]]


def test_margins_and_ties():
    groups = ["a", "a", "b", "b", "c", "c", "d"]
    rewards = [0.5, 0.25, 0.5, 0.5, 1.0, 0.0, 1.0]
    found = pair_completions(groups, list("tuvwxyz"), rewards, margin=0.5)
    assert found.pairs == [(4, 5)]
    assert (found.prompts, found.declined) == (4, {"single": 1, "tied": 2})
    # A difference of just the margin is enough, and without one none of nothing.
    assert pair_completions(groups, list("tuvwxyz"), rewards, margin=0.25).pairs == [(0, 1), (4, 5)]
    assert pair_completions(["b", "b"], ["x", "y"], [0.5, 0.5]).pairs == []


def test_unscorable_missing_and_repeated_completions_are_in_no_pair():
    found = pair_completions(["a"] * 5, ["x", "y", None, "x", "z"], [1.0, None, 0.0, 0.2, 0.5], per_prompt=9)
    assert found.pairs == [(0, 4)]
    assert pair_completions(["a"] * 2, ["x", "x"], [1.0, 0.0]).declined == {"single": 1, "tied": 0}


def test_what_holds_of_any_pairs():
    draw = random.Random(0)
    groups = [draw.randrange(20) for _ in range(200)]
    completions = [f"report {draw.randrange(60)}" for _ in groups]
    rewards = [draw.choice([None, *(tenth / 10 for tenth in range(11))]) for _ in groups]
    found = pair_completions(groups, completions, rewards, margin=0.3, per_prompt=3)
    used = [row for pair in found.pairs for row in pair]
    assert len(set(used)) == len(used) > 40
    for best, worst in found.pairs:
        assert groups[best] == groups[worst]
        assert completions[best] != completions[worst]
        assert rewards[best] - rewards[worst] >= 0.3
    by_group = [groups[best] for best, _ in found.pairs]
    assert max(map(by_group.count, by_group)) == 3
    assert len(set(by_group)) + sum(found.declined.values()) == found.prompts == len(set(groups))


def test_completions_on_their_own():
    assert label_desirable([0.5, 0.6, 0.4, None], threshold=0.5) == [None, True, False, None]
    assert label_desirable([0.5, 0.75, 0.25, 0.7], threshold=0.5, margin=0.25) == [None, True, False, None]


def test_wrong_arguments():
    with pytest.raises(ValueError, match="groups and rewards must have the same length, got 1 and 2"):
        pair_completions(["a"], ["x"], [1.0, 2.0])
    with pytest.raises(ValueError, match="margin must be at least 0"):
        pair_completions(["a"], ["x"], [1.0], margin=-1.0)
    with pytest.raises(ValueError, match="per_prompt positive"):
        pair_completions(["a"], ["x"], [1.0], per_prompt=0)


@LONGER
def test_make_preferences_for_dpo():
    reward = make_reward("crg", prior=0.2)
    data = make_preferences(SAMPLES, reward, PreferenceSettings(keep=["image"]))
    values = reward(completions=SAMPLES.column("completion")[:3], reference=[BOTH] * 3)
    assert data.table.columns == {
        "prompt": ["A"],
        "chosen": [BOTH],
        "rejected": ["Emphysema."],
        "score_chosen": [values[1]],
        "score_rejected": [values[2]],
        "image": ["a"],
    }
    told = data.to_dict()
    assert (told["rows"], told["prompts"], told["pairs"], told["unscorable"]) == (6, 3, 1, 1)
    assert told["prompts_without_pair"] == {"single": 1, "tied": 1}
    assert told["reward"] == reward.signature
    assert told["mean_difference"] == pytest.approx(values[1] - values[2])


@LONGER
def test_make_preferences_for_kto():
    reward = make_reward("crg", prior=0.2)
    pairs = make_preferences(SAMPLES, reward, PreferenceSettings(trainer="kto")).table
    assert pairs.column("completion") == [BOTH, "Emphysema."]
    assert pairs.column("label") == [True, False]
    settings = PreferenceSettings(trainer="kto", threshold=0.0, conversational=True, system_prompt="Be brief.")
    every = make_preferences(SAMPLES, reward, settings).table
    assert every.column("label") == [score > 0 for score in every.column("score")]
    assert every.column("prompt")[0] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "A"},
    ]
    assert every.column("completion")[0] == [{"role": "assistant", "content": BOTH}]


def test_make_preferences_warns_of_length():
    talk = f"{BOTH} Nothing else is seen in the whole examination of this patient."
    table = Table({"prompt": ["A"] * 2, "completion": [talk, "Normal."], "reference": [BOTH] * 2})
    with pytest.warns(RunWarning, match="chosen completions are .* times as long"):
        make_preferences(table, make_reward("crg", prior=0.2))


def test_make_preferences_says_what_is_wrong():
    reward = make_reward("crg", prior=0.2)
    with pytest.raises(SettingError, match="keep: 'prompt' is already a column"):
        make_preferences(SAMPLES, reward, PreferenceSettings(keep=["prompt"]))
    with pytest.raises(ValueError, match="no preference: of 3 prompts 2 tie and 1 have less than two"):
        make_preferences(SAMPLES, reward, PreferenceSettings(margin=9.0))
    with pytest.raises(ValueError, match="data row 1, column 'prompt': must be a prompt, got none"):
        make_preferences(Table({"prompt": [""], "completion": ["A."]}), reward)
