"""The order in which judges send the items of a task."""

import random

from fault_server import FaultServer, evaluate, make_judge
from tiny_task import LengthTask

from rrg_rewards.judges import ReportPair
from rrg_rewards.judges.base import in_request_order
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask
from rrg_rewards.judges.tasks.labels import LabelsTask


def test_in_request_order_puts_pairs_of_a_reference_together():
    grouped = [ReportPair(reference, candidate) for reference in ("a", "b", "c") for candidate in ("x", "y", "z")]
    assert in_request_order(CrimsonTask(), grouped) == grouped
    mixed = random.Random(0).sample(grouped, len(grouped))
    for task in (CrimsonTask(), CountingTask()):
        found = in_request_order(task, mixed)
        # References, and the candidates of each, in the order of their first pair.
        order = {reference: row for row, reference in enumerate(dict.fromkeys(pair.reference for pair in mixed))}
        assert found == sorted(mixed, key=lambda pair: order[pair.reference])
        assert found != mixed


def test_in_request_order_tells_patients_apart():
    old, young = (("age", "82"),), (("age", "21"),)
    pairs = [ReportPair("a", "x", old), ReportPair("a", "x", young), ReportPair("a", "y", old)]
    assert in_request_order(CrimsonTask(), pairs) == [pairs[0], pairs[2], pairs[1]]


def test_in_request_order_puts_tiers_of_a_reference_together():
    items = [GradingItem(reference, tier) for tier in ((-2.0, 0.0), (-4.0, -3.0)) for reference in ("a", "b")]
    assert [item.reference for item in in_request_order(GradingTask("radcliq"), items)] == ["a", "a", "b", "b"]


def test_in_request_order_keeps_the_order_of_items_that_share_nothing():
    reports = ["c", "a", "b"]
    assert in_request_order(LabelsTask(["Nodule"]), reports) == reports


class GroupedTask(LengthTask):
    """Items with an equal first letter share it."""

    def shared_part(self, item):
        return item[0]


def test_openai_judge_sends_items_that_share_a_part_together_and_returns_them_in_their_order():
    items = ["a1", "b1", "a22", "c1", "b22", "a333"]
    with FaultServer() as server:
        results = evaluate(make_judge(server, concurrency=1), items, GroupedTask())
        assert [request.item for request in server.requests] == ["a1", "a22", "a333", "b1", "b22", "c1"]
    assert results == [2, 2, 3, 2, 3, 4]
