"""Races between policies."""

from rrg_rewards.attack.calls import PolicyTable, RewardCalls
from rrg_rewards.attack.families import Policy
from rrg_rewards.attack.search import cross, cross_edits, race


def test_race_keeps_the_best_and_its_budget():
    values = {str(number): number for number in range(64)}
    calls = RewardCalls(lambda completions, **columns: [values[text] for text in completions], {}, 10_000)
    table = PolicyTable(calls, list(range(40)), None, Policy(("0",)))
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


def table_of(reward, rows=8, honest=None):
    calls = RewardCalls(lambda completions, **columns: [reward(text) for text in completions], {}, 100_000)
    blank, report = Policy(("",)), Policy(("{report}",), edit="report")
    table = PolicyTable(calls, list(range(rows)), honest, blank)
    table.evaluate([blank] if honest is None else [blank, report], rows)
    return table


def test_race_compares_many_policies_on_few_rows_first():
    table = table_of(lambda text: float(text or 0))
    ranked = race(table, [Policy((str(number),)) for number in range(40)], 10_000, first=2)
    assert ranked[0].text == "39"
    assert [table.compared_rows(policy) for policy in ranked[:10]] == [8] * 10
    assert {table.compared_rows(policy) for policy in ranked[10:]} == {2}


def test_cross_joins_texts_and_changes_their_form():
    table = table_of(lambda text: float("a" in text) + float(text.endswith("b")))
    texts = [Policy(("a",)), Policy(("b",)), Policy(("c",))]
    table.evaluate(texts, 8)
    assert cross(table, texts, 10_000)[0].text == "a b"
    shouting = table_of(lambda text: float(text.isupper()))
    shouting.evaluate(texts, 8)
    assert cross(shouting, texts, 10_000)[0].text.isupper()


def test_cross_edits_applies_one_edit_after_another():
    table = table_of(lambda text: float(text.startswith("Nodule")) * text.isupper() + float(text.endswith("end")), 8,
                     honest=["Nodule."] * 8)  # fmt: skip
    edits = [Policy(("{report:upper}",), edit="report"), Policy(("{report} end",), edit="report")]
    table.evaluate(edits, 8)
    best = cross_edits(table, [*edits, Policy(("{sentence} x",), edit="sentence")], 10_000)[0]
    assert (best.text, best.completion("Nodule.")) == ("{report:upper} end", "NODULE. end")
