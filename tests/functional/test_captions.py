"""Formulas of the COCO caption evaluation, against values of pycocoevalcap 1.2 and by hand."""

import math

import pytest
import torch

from rrg_rewards.functional.captions import (
    BleuCounts,
    DocumentFrequencies,
    bleu_counts,
    caption_bleu,
    cider,
    combined_rouge,
    n_gram_counts,
)

PAIRS = [
    (
        "Findings: Small left effusion.No mass.The heart is normal.",
        "Findings: Small left pleural effusion.No mass.The heart is of normal size.",
    ),
    ("Clear lungs.", "Clear lungs."),
    ("", "Normal."),
    ("nodule", "Large opacity in the right lung."),
    ("No acute abnormality. No acute abnormality.", "No acute abnormality."),
    ("small  left   effusion", "small left  pleural effusion"),
]
# Values of pycocoevalcap 1.2.
CORPUS_BLEU = [0.5285160672361835, 0.4727191414124429, 0.3854400786417039, 0.2664982671824113]
BLEU_2 = [0.5433498829577935, 0.9999999987500011, 0.0, 0.0, 0.44721359541796896, 0.5066641482592128]
CIDER = [4.26979634, 5.0, 0.0, 0.0, 3.04384833, 3.42195413]


def counts_of(pairs: list[tuple[str, str]]) -> BleuCounts:
    found = [bleu_counts(pred.split(), target.split()) for pred, target in pairs]
    return BleuCounts(*(torch.stack(column) for column in zip(*found, strict=True)))


def test_caption_bleu_has_the_values_of_pycocoevalcap() -> None:
    counts = counts_of(PAIRS)
    assert caption_bleu(counts)[:, 1].tolist() == pytest.approx(BLEU_2, abs=1e-12)
    corpus = caption_bleu(BleuCounts(*(column.sum(0) for column in counts)))
    assert corpus.tolist() == pytest.approx(CORPUS_BLEU, abs=1e-12)
    assert caption_bleu(BleuCounts(*(column.expand(3, *column.shape) for column in counts))).shape == (3, 6, 4)


def test_bleu_counts_are_clipped_by_the_reference() -> None:
    found = bleu_counts(["a", "a", "a", "b"], ["a", "a", "c", "c", "c", "c"])
    assert found.correct.tolist() == [2, 1, 0, 0]
    assert found.guessed.tolist() == [4, 3, 2, 1]
    assert (int(found.length), int(found.reference_length)) == (4, 6)


def test_combined_rouge_is_that_of_the_equation() -> None:
    precision, recall, beta = 2 / 3, 2 / 4, 1.2
    expected = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    assert combined_rouge(precision, recall) == pytest.approx(expected)
    assert combined_rouge(0.0, 0.0) == 0


def test_cider_has_the_values_of_pycocoevalcap() -> None:
    frequencies = DocumentFrequencies()
    for _, target in PAIRS:
        frequencies.add(n_gram_counts(target.split()))
    found = [cider(n_gram_counts(p.split()), n_gram_counts(t.split()), frequencies) for p, t in PAIRS]
    assert found == pytest.approx(CIDER, abs=1e-8)


def test_cider_is_that_of_the_equation_for_one_word_in_common() -> None:
    frequencies = DocumentFrequencies()
    documents = ["no mass", "no nodule", "edema edema"]
    for text in documents:
        frequencies.add(n_gram_counts(text.split()))
    assert frequencies.counts[0]["edema",] == 1, "a document counts once"
    common, rare = math.log(3 / 2), math.log(3)
    # Of the words "no" is common, of equal lengths; no bigram is.
    expected = 10 / 4 * common**2 / (common**2 + rare**2)
    no_mass, no_nodule = (n_gram_counts(text.split()) for text in documents[:2])
    assert cider(no_mass, no_nodule, frequencies) == pytest.approx(expected)
    # A text of another length: 3 bigrams more, and a word that occurs twice is clipped.
    longer = n_gram_counts(["no", "no", "no", "no", "mass"])
    words = 4 * common * common + rare * rare
    clipped = common * common + rare * rare
    assert words > clipped
    norm = math.sqrt((4 * common) ** 2 + rare**2) * math.sqrt(common**2 + rare**2)
    bigrams = rare**2 / (math.sqrt((3 * rare) ** 2 + rare**2) * rare)
    penalty = math.exp(-(3**2) / (2 * 6**2))
    assert cider(longer, no_mass, frequencies) == pytest.approx(10 / 4 * penalty * (clipped / norm + bigrams))
    assert cider(n_gram_counts([]), no_mass, frequencies) == 0
