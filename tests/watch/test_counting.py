"""Counts of a batch compared with values computed by hand."""

import math

import pytest
from words import WordLabeler

from rrg_rewards.findings import read_findings
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.watch.counting import (
    _count_findings,
    _count_found,
    _count_pairs,
    _count_texts,
    _count_values,
    _is_hedged,
)
from rrg_rewards.watch.counts import Counts


def test_count_texts_counts_words_sentences_and_reports():
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


def test_count_pairs_counts_labels_and_returns_their_f1():
    counts = Counts()
    completions = ["effusion", "normal", None, "normal", "nodule"]
    references = ["effusion nodule", "nodule", "hernia", "normal", None]
    scores = _count_pairs(counts, WordLabeler(), completions, references)
    assert scores == [pytest.approx(2 / 3), 0.0, None, 1.0, None]
    assert counts.sums["completions/normal_reports"] == (1, 2)
    assert counts.sums["completions/positives"] == (2, 4)
    assert counts.sums["references/positives"] == (4, 4)
    assert counts.sums["completions/positives/effusion"] == (1, 4)


def test_count_pairs_leaves_out_the_label_no_finding():
    counts = Counts()
    _count_pairs(counts, RuleLabeler("chexbert"), ["No acute abnormality."], ["Cardiomegaly."])
    assert counts.sums["completions/normal_reports"] == (1, 1)
    assert counts.sums["completions/positives"] == (0, 1)
    assert "completions/positives/No Finding" not in counts.sums


def test_count_values_leaves_out_missing_values():
    counts = Counts()
    _count_values(counts, {"r": [1.0, None, 3.0, math.nan]}, {"m": [0.5, 0.5, None, 1.0]})
    assert counts.sums["rewards/r"] == (4, 2)
    assert counts.sums["rewards_squared/r"] == (10, 2)
    assert counts.sums["completions/unscorable/r"] == (2, 4)
    assert counts.sums["metrics/m"] == (2, 3)
    assert counts.sums["agreement/r/m"] == (1, 1, 0.5, 1, 0.25, 0.5)


def test_count_findings_counts_findings_hedges_and_sizes():
    report = "Granuloma versus edema, 5 x 8 mm. No emphysema or effusion."
    assert _count_findings(report, read_findings(report).findings) == (2, 2, 1)
    assert _count_findings("Nodules of 3 mm and 1.2 cm.", ())[2] == 2
    assert _count_findings("", ()) == (0, 0, 0)


def test_count_found_counts_the_words_that_rules_have_not_read():
    counts = Counts()
    _count_found(counts, "completions", ["No effusion. The aorta is plondric.", "No effusion.", "No effusion."])
    # no effusion (3 times), aorta, plondric
    assert counts.sums["completions/unread_words"] == (1, 8)
    assert counts.sums["completions/findings"] == (0, 3)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The heart may be enlarged", True),
        ("Or this is not the case", True),
        ("Suspicious for metastasis", True),
        ("No effusion or pneumothorax", False),
        ("Cardiomegaly", False),
        ("The maya filter is seen", False),
    ],
)
def test_is_hedged_knows_words_of_uncertainty(sentence, expected):
    assert _is_hedged(sentence) is expected
