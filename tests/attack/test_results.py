"""Results of an attack."""

import json
import math

import pytest

from rrg_rewards.attack import attack_reward
from rrg_rewards.attack.results import AttackResult


def words_reward(completions, reference, **_):
    return [float(len(text.split())) for text in completions]


@pytest.fixture(scope="module")
def attack():
    references = {"reference": [f"Nodule of {size} mm in the right upper lobe." for size in range(20)]}
    return attack_reward(words_reward, references, families=["normal", "reports"], budget=2000)


def test_attack_result_is_read_as_it_was_written(attack):
    read = AttackResult.from_dict(json.loads(json.dumps(attack.to_dict(quotes=False))))
    assert read.to_dict(quotes=False) | {"families": []} == attack.to_dict(quotes=False) | {"families": []}
    assert [family.gain for family in read.families] == [family.gain for family in attack.families]
    assert read.check == attack.check
    assert attack.to_dict()["check"]["failures"] == list(attack.check.failures) != []
    assert AttackResult.from_dict({**attack.to_dict(), "check": None}).check is None
    broken = attack.to_dict() | {"blank": None}
    assert math.isnan(AttackResult.from_dict(broken).blank)
