"""Sums of counts, and blocks."""

import json

from rrg_rewards.watch.counts import Block, Counts
from rrg_rewards.watch.text_counts import count_text

TEXTS = ["No effusion. No effusion.", "Nodule.", "no effusion", "Nodule. Hernia."]


def counted(texts):
    counts = Counts()
    counts.add_texts("completions", ((count_text(text), 1) for text in texts))
    return counts


def test_counts_of_parts_add_up_to_those_of_the_whole():
    whole, first = counted(TEXTS), counted(TEXTS[:1])
    first.merge(counted(TEXTS[1:]))
    first.merge(Counts())
    assert first.closed(3) == whole.closed(3)
    again = Counts.from_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again == first
    block = whole.closed(3)
    assert Block.from_state_dict(json.loads(json.dumps(block.state_dict()))) == block


def test_joined_blocks_have_the_sums_of_both_and_no_frames():
    first, second = counted(TEXTS[:1]).closed(3), counted(TEXTS[1:]).closed(5)
    joined = first.joined(second)
    assert (joined.step, joined.reports, joined.frames) == (5, 4, {})
    assert joined.ratio("completions/words") == (9, 4)
    assert second.frames
    assert second.without_frames() == Block(5, 3, second.sums)
