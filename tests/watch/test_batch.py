"""Counts of a batch compared with values computed by hand."""

import math

import pytest
from words import WordLabeler

from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.watch import RewardWatch
from rrg_rewards.watch.batch import count_pairs, count_values
from rrg_rewards.watch.counts import Counts


def test_observe_counts_a_text_as_often_as_it_occurs():
    watch = RewardWatch(labeler=None, block_reports=4, baseline_reports=12, window_reports=12)
    text = "No effusion. No effusion. Nodule of 2.5 mm."
    watch.observe([text, "no effusion", None, text, ""], ["Hernia."] * 5)
    watch.step(0)
    (block,) = watch.blocks
    closed = block.sums
    assert closed["completions/words"] == (18, 4)
    assert closed["completions/repeated_sentences"] == (2, 7)
    # no effusion, effusion no, effusion nodule, nodule of, of 2, 2 5, 5 mm.
    assert closed["completions/distinct_ngrams"] == (7, 17)
    assert closed["completions/distinct_reports"] == (3, 4)
    assert closed["references/unread_words"] == (0, 5)
    assert block.reports == 4
    # "no _" five times, "_ of #" and the whole report twice, the other reports once.
    assert sorted(block.frames["completions"].values()) == [1, 1, 2, 2, 5]


def test_count_pairs_counts_labels_and_returns_their_f1():
    counts = Counts()
    completions = ["effusion", "normal", None, "normal", "nodule"]
    references = ["effusion nodule", "nodule", "hernia", "normal", None]
    scores = count_pairs(counts, WordLabeler(), completions, references)
    assert scores == [pytest.approx(2 / 3), 0.0, None, 1.0, None]
    assert counts.sums["completions/normal_reports"] == (1, 2)
    assert counts.sums["completions/positives"] == (2, 4)
    assert counts.sums["references/positives"] == (4, 4)
    assert counts.sums["completions/positives/effusion"] == (1, 4)


def test_count_pairs_leaves_out_the_label_no_finding():
    counts = Counts()
    count_pairs(counts, RuleLabeler("chexbert"), ["No acute abnormality."], ["Cardiomegaly."])
    assert counts.sums["completions/normal_reports"] == (1, 1)
    assert counts.sums["completions/positives"] == (0, 1)
    assert "completions/positives/No Finding" not in counts.sums


def test_count_values_leaves_out_missing_values():
    counts = Counts()
    count_values(counts, {"r": [1.0, None, 3.0, math.nan]}, {"m": [0.5, 0.5, None, 1.0]})
    assert counts.sums["rewards/r"] == (4, 2)
    assert counts.sums["rewards_squared/r"] == (10, 2)
    assert counts.sums["completions/unscorable/r"] == (2, 4)
    assert counts.sums["metrics/m"] == (2, 3)
