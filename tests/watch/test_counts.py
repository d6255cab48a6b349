"""Sums of counts, and blocks."""

import json

from rrg_rewards.watch.counting import Batch
from rrg_rewards.watch.counts import Block, Counts


def test_counts_of_parts_add_up_to_those_of_the_whole():
    texts = ["No effusion. No effusion.", "Nodule.", "no effusion", "Nodule. Hernia."]
    whole, first, second = Counts(), Counts(), Counts()
    for counts, part in ((whole, texts), (first, texts[:1]), (second, texts[1:])):
        Batch(part).count(counts, None, 2)
    first.merge(second)
    first.merge(Counts())
    assert first.closed() == whole.closed()
    again = Counts.from_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again == first
    block = Block.of(3, whole)
    assert Block.from_state_dict(json.loads(json.dumps(block.state_dict()))) == block
