"""BLEU, ROUGE and BERTScore of report pairs against their equations."""

import math
import pickle
from collections import Counter
from pathlib import Path

import pytest
import torch
from tiny_crepe import tiny_bert_tokenizer
from torchmetrics.functional.text import bert_score
from transformers import BertConfig, BertModel

from rrg_rewards.metrics import make_metric
from rrg_rewards.metrics.nlg import BLEU, ROUGE, BERTScore

PAIRS = [
    ("Small left effusion.", "Small left pleural effusion."),
    ("The heart is normal. No effusion, no mass.", "No mass. The heart is of normal size."),
    ("Clear lungs.", "Clear lungs."),
    ("nodule", "Large opacity in the right lung"),
    ("", "Normal."),
]
PREDS, TARGET = [pred for pred, _ in PAIRS], [target for _, target in PAIRS]


def _words(text: str) -> list[str]:
    return text.lower().replace(".", " .").replace(",", " ,").split()


def _bleu(pred: str, target: str, n_gram: int) -> float:
    ours, theirs = _words(pred), _words(target)
    if not ours:
        return 0.0
    precisions = []
    for n in range(1, n_gram + 1):
        grams = [Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (ours, theirs)]
        total = sum(grams[0].values())
        precisions.append(sum((grams[0] & grams[1]).values()) / total if total else 0.0)
    if min(precisions) == 0:
        return 0.0
    brevity = min(1.0, math.exp(1 - len(theirs) / len(ours)))
    return brevity * math.exp(sum(map(math.log, precisions)) / n_gram)


@pytest.mark.parametrize("n_gram", [1, 2, 4])
def test_bleu_is_that_of_the_equation(n_gram):
    found = BLEU(n_gram=n_gram).score(PREDS, TARGET).value.tolist()
    assert found == pytest.approx([_bleu(*pair, n_gram) for pair in PAIRS], abs=1e-6)


def _lcs(a: list[str], b: list[str]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a):
        for j, two in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if one == two else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_rouge_is_that_of_the_equation():
    expected = []
    for pred, target in PAIRS:
        ours, theirs = ([word for word in _words(text) if word.isalnum()] for text in (pred, target))
        common = _lcs(ours, theirs)
        expected.append(2 * common / (len(ours) + len(theirs)))
    assert ROUGE().score(PREDS, TARGET).value.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    tokenizer = tiny_bert_tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("layer", [None, 1])
def test_bertscore_is_that_of_the_equation(encoder, layer):
    metric = BERTScore(encoder, num_layers=layer, batch_size=2)
    found = metric.score(PREDS, TARGET).value.tolist()
    model, tokenizer = metric.encoder.model, metric.encoder.tokenizer

    def embed(text: str) -> torch.Tensor:
        hidden = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        return torch.nn.functional.normalize(hidden[-1 if layer is None else layer][0, 1:-1], dim=1)

    for (pred, target), value in zip(PAIRS[:4], found[:4], strict=True):
        similarity = embed(pred) @ embed(target).T
        precision, recall = similarity.amax(1).mean(), similarity.amax(0).mean()
        assert value == pytest.approx((2 * precision * recall / (precision + recall)).item(), abs=1e-5)
    assert found[2] == pytest.approx(1.0)
    assert found[4] == 0.0


def test_bertscore_is_torchmetrics_own_of_single_pairs(encoder):
    found = BERTScore(encoder).score(PREDS[:4], TARGET[:4]).value.tolist()
    for pair, value in zip(PAIRS[:4], found, strict=True):
        theirs = bert_score([pair[0]], [pair[1]], model_name_or_path=encoder, truncation=True, max_length=32)
        assert value == pytest.approx(float(theirs["f1"]), abs=1e-5)


def test_bertscore_pickles_by_name_and_says_what_it_is(encoder):
    metric = BERTScore(encoder)
    before = metric.score(PREDS, TARGET).value
    assert len(pickle.dumps(metric)) < 20_000
    torch.testing.assert_close(pickle.loads(pickle.dumps(metric)).score(PREDS, TARGET).value, before)
    assert encoder in metric.signature


@pytest.mark.parametrize("name", ["bleu", "rouge"])
def test_the_corpus_value_is_the_mean_and_missing_reports_are_counted(name):
    metric = make_metric(name)
    metric.update(PREDS[:2], TARGET[:2])
    metric.update([*PREDS[2:], None, "x"], [*TARGET[2:], "Normal.", None])
    torch.testing.assert_close(metric.compute(), metric.score(PREDS, TARGET).value.mean())
    assert int(metric.num_unscorable) == 2


def test_a_single_pair_and_none():
    assert ROUGE().score(["Normal."], ["Normal."]).value.tolist() == [1.0]
    assert ROUGE().score([], []).value.tolist() == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BLEU(n_gram=5), "n_gram must be 1, 2, 3 or 4"),
        (lambda: ROUGE("rougeLsum"), "variant must be one of"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_columns_that_nobody_reads_are_refused():
    with pytest.raises(TypeError, match="bleu takes no column age"):
        BLEU().score(["x"], ["x"], age=[1])


def test_an_encoder_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="no such folder"):
        BERTScore("./nowhere")
