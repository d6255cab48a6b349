"""Counts compared with values computed by hand, and their sums."""

import json
import math

import pytest
from words import WordLabeler

from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.watch.counting import _count_pairs, _count_texts, _count_values
from rrg_rewards.watch.counts import Block, Counts


def test_texts():
    counts = Counts()
    _count_texts(counts, "completions", ["No effusion. No effusion. Nodule of 2.5 mm.", "no effusion", ""], n_gram=2)
    closed = counts.closed()
    assert closed["completions/words"] == (10, 3)
    # The point in 2.5 does not end a sentence.
    assert closed["completions/repeated_sentences"] == (1, 4)
    # no effusion (3 times), effusion no, effusion nodule, nodule of, of 2, 2 5, 5 mm.
    assert closed["completions/distinct_ngrams"] == (7, 9)
    assert closed["completions/distinct_reports"] == (3, 3)
    assert closed["completions/instructions"] == (0, 3)
    assert counts.reports == 3


def test_unknown_words():
    counts = Counts()
    _count_texts(counts, "completions", ["Effusion of 3 cm, EFFUSIVEL.", "effusivel"], n_gram=2)
    _count_texts(counts, "references", ["Effusion, 5 cm."], n_gram=2)
    block = Block.of(1, counts)
    # effusion, of, cm, effusivel twice; numbers are not counted.
    assert block.with_unknown_words(counts.words["references"]).sums["completions/unknown_words"] == (3, 5)
    assert block.with_unknown_words(block.words).sums["completions/unknown_words"] == (0, 5)


def test_labels_and_their_f1():
    counts = Counts()
    completions = ["effusion", "normal", None, "normal", "nodule"]
    references = ["effusion nodule", "nodule", "hernia", "normal", None]
    scores = _count_pairs(counts, WordLabeler(), completions, references)
    assert scores == [pytest.approx(2 / 3), 0.0, None, 1.0, None]
    assert counts.sums["completions/normal_reports"] == (1, 2)
    assert counts.sums["completions/positives"] == (2, 4)
    assert counts.sums["references/positives"] == (4, 4)
    assert counts.sums["completions/positives/effusion"] == (1, 4)


def test_no_finding_is_no_finding():
    counts = Counts()
    _count_pairs(counts, RuleLabeler("chexbert"), ["No acute abnormality."], ["Cardiomegaly."])
    assert counts.sums["completions/normal_reports"] == (1, 1)
    assert counts.sums["completions/positives"] == (0, 1)
    assert "completions/positives/No Finding" not in counts.sums


def test_values_without_the_missing_ones():
    counts = Counts()
    _count_values(counts, {"r": [1.0, None, 3.0, math.nan]}, {"m": [0.5, 0.5, None, 1.0]})
    assert counts.sums["rewards/r"] == (4, 2)
    assert counts.sums["rewards_squared/r"] == (10, 2)
    assert counts.sums["completions/unscorable/r"] == (2, 4)
    assert counts.sums["metrics/m"] == (2, 3)
    assert counts.sums["agreement/r/m"] == (1, 1, 0.5, 1, 0.25, 0.5)


def test_parts_add_up_to_the_whole():
    texts = ["No effusion. No effusion.", "Nodule.", "no effusion", "Nodule. Hernia."]
    whole, first, second = Counts(), Counts(), Counts()
    _count_texts(whole, "completions", texts, 2)
    _count_texts(first, "completions", texts[:1], 2)
    _count_texts(second, "completions", texts[1:], 2)
    first.merge(second)
    first.merge(Counts())
    assert first.closed() == whole.closed()
    again = Counts.from_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again == first
    block = Block.of(3, whole)
    assert block.words
    assert Block.from_state_dict(json.loads(json.dumps(block.state_dict()))) == block
