"""Races between policies."""

from rrg_rewards.watch.attack.calls import PolicyTable, RewardCalls
from rrg_rewards.watch.attack.families import Policy
from rrg_rewards.watch.attack.search import race


def test_race_keeps_the_best_and_its_budget():
    values = {str(number): number for number in range(64)}
    calls = RewardCalls(lambda completions, **columns: [values[text] for text in completions], {}, 10_000)
    table = PolicyTable(calls, list(range(40)), None, Policy(("0",)), Policy(("0",)))
    calls.columns = {"reference": ["a"] * 40}
    table.evaluate([Policy(("0",))], 40)
    policies = [Policy((text,)) for text in values]
    ranked = race(table, policies, 2000)
    assert [policy.text for policy in ranked[:4]] == ["63", "62", "61", "60"]
    assert len(ranked) == 64
    assert calls.spent - 40 <= 2000
    before = calls.spent
    assert race(table, [Policy((text,)) for text in values], 0)[0].text == "63"
    assert calls.spent == before
