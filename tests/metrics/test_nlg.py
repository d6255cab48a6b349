"""BLEU, ROUGE, chrF and BERTScore of report pairs against their equations and torchmetrics."""

import math
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_crepe import tiny_bert_tokenizer
from torchmetrics.functional.text import bert_score, chrf_score, rouge_score
from transformers import BertConfig, BertModel

from rrg_rewards.data import read_table
from rrg_rewards.metrics import ChrF, ReXrankBLEU, make_metric
from rrg_rewards.metrics.nlg import BLEU, ROUGE, BERTScore, longest_common_subsequence, rouge_f
from tests.helpers.operations import count_operations

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
def test_bleu_and_rouge_are_means_and_count_missing_reports(name):
    metric = make_metric(name)
    metric.update(PREDS[:2], TARGET[:2])
    metric.update([*PREDS[2:], None, "x"], [*TARGET[2:], "Normal.", None])
    torch.testing.assert_close(metric.compute(), metric.score(PREDS, TARGET).value.mean())
    assert int(metric.num_unscorable) == 2


def test_bleu_and_rouge_a_single_pair_and_none():
    assert ROUGE().score(["Normal."], ["Normal."]).value.tolist() == [1.0]
    assert ROUGE().score([], []).value.tolist() == []


@pytest.mark.parametrize(
    "text", ["Очаги в лёгких.", "폐에 결절이 없다.", "لا توجد عُقَيدات.", "Δεν υπάρχει συλλογή.", "फेफड़ों में गाँठ है।", "No."]
)
@pytest.mark.parametrize("name", ["rouge", "chrf"])
def test_rouge_and_chrf_of_equal_texts_are_1_in_any_alphabet(name, text):
    assert make_metric(name).score([text], [text]).value.tolist() == [1.0]


def test_rouge_tells_words_apart_that_differ_in_marks():
    assert ROUGE().score(["बायीं ओर की गाँठ", "की"], ["बायाँ ओर का गाँठ", "का"]).value.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BLEU(n_gram=5), "n_gram must be 1, 2, 3 or 4"),
        (lambda: ROUGE("rougeLsum"), "variant must be one of"),
    ],
)
def test_nlg_metrics_refuse_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bleu_refuses_columns_that_nobody_reads():
    with pytest.raises(TypeError, match="bleu takes no column age"):
        BLEU().score(["x"], ["x"], age=[1])


def test_bertscore_names_an_encoder_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="no such folder"):
        BERTScore("./nowhere")


words = st.lists(st.sampled_from(["a", "b", "c", "No", "mm", "12", "é.", "-", "\n"]), max_size=40)


def table_lcs(first: list[str], second: list[str]) -> int:
    row = [0] * (len(second) + 1)
    for one in first:
        above = row
        row = [0]
        for j, two in enumerate(second):
            row.append(above[j] + 1 if one == two else max(above[j + 1], row[j]))
    return row[-1]


@given(words, words)
def test_longest_common_subsequence_is_that_of_the_dynamic_program(first: list[str], second: list[str]) -> None:
    assert longest_common_subsequence(first, second) == table_lcs(first, second)


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
@given(words, words)
def test_rouge_is_that_of_torchmetrics(variant: str, first: list[str], second: list[str]) -> None:
    pred, target = " ".join(first), " ".join(second)
    expected = float(rouge_score(pred, target, rouge_keys=variant)[f"{variant}_fmeasure"])
    assert rouge_f(pred, target, variant) == pytest.approx(expected, abs=1e-6)


def test_longest_common_subsequence_of_twice_the_words_takes_twice_the_operations() -> None:
    work = {}
    for size in (2_000, 4_000):
        pred, target = "a b c d " * size, "d a c b " * size
        work[size] = count_operations(lambda pred=pred, target=target: ROUGE().score([pred], [target]))
    assert work[4_000] < 2.1 * work[2_000]


def test_longest_common_subsequence_counts_frequent_and_rare_words_alike() -> None:
    # Masks are kept for words with 64 or more occurrences.
    draw = random.Random(0)
    first, second = (draw.choices(["a", "b", *map(str, range(50))], [20, 20] + [1] * 50, k=400) for _ in range(2))
    assert first.count("a") > 64
    assert longest_common_subsequence(first, second) == table_lcs(first, second)


CHRF_PAIRS = [
    ("Small left pleural effusion.", "Small right pleural effusion."),
    ("No nodule.", "Nodule of 8 mm."),
    ("Normal.", "Normal."),
]


WORDS = ["small", "left", "effusion.", "(new)", "No", "8", "mm,", "-", "a", "effusion"]


@pytest.mark.parametrize(("char_order", "word_order", "beta"), [(6, 0, 2.0), (6, 2, 2.0), (3, 1, 1.0)])
def test_chrf_equals_torchmetrics(char_order: int, word_order: int, beta: float) -> None:
    rng = random.Random(3)
    drawn = [tuple(" ".join(rng.choices(WORDS, k=rng.randint(0, 8))) for _ in range(2)) for _ in range(20)]
    metric = ChrF(char_order, word_order, beta)
    for candidate, reference in [*CHRF_PAIRS, *drawn]:
        if reference.strip():
            expected = float(chrf_score([candidate], [[reference]], char_order, word_order, beta))
            assert metric.score([candidate], [reference]).value.item() == pytest.approx(expected, abs=1e-6)


def test_chrf_scores_each_pair_by_itself() -> None:
    metric = make_metric("chrf", word_order=2)
    together = metric.score(*map(list, zip(*CHRF_PAIRS, strict=True))).value
    assert together.tolist() == [float(metric.score([one], [other]).value) for one, other in CHRF_PAIRS]
    assert together[2].item() == pytest.approx(1.0, abs=1e-12)
    assert metric.score([""], ["Normal."]).value.tolist() == [0.0]
    assert "char_order:6|word_order:2|beta:2.0" in metric.signature
    with pytest.raises(ValueError, match="char_order must be at least 1"):
        ChrF(char_order=0)


# From a run of add_bleu_col (CXR-Report-Metric, with fast_bleu 0.0.90). It gives 0 for a blank reference, which is
# unscorable here.
REXRANK = [
    ("Small effusion.", "Small left effusion.", 0.5066641486392106),
    ("Lungs clear.", "No effusion.", 0.12909944487358058),
    ("a b c d", "a x b y", 0.12909944487358058),
    ("a a b a b", "a b a c", 0.5477225575051661),
    ("", "Normal.", 0.0),
    ("One", "One", 0.3162277660168379),
    ("Clear.\nNormal heart, lungs.", "clear. normal heart, lungs.", 0.5178107940302672),
    ("x y z", "a b c", 0.0),
]


def test_rexrank_bleu_is_that_of_the_official_code():
    candidates, references, expected = zip(*REXRANK, strict=True)
    found = ReXrankBLEU().score(candidates, references).value
    assert found.tolist() == pytest.approx(expected, abs=1e-15)


def test_rexrank_bleu_published_scores_of_a_system(shared_data):
    """590 reports of MoERad for IU X-Ray, whose scores its authors published; the references are the findings."""
    table = read_table(shared_data / "iu_xray_rexrank" / "systems.csv")
    found = make_metric("rexrank_bleu").score(table.required_texts("moerad"), table.required_texts("section_findings"))
    published = torch.tensor(table.numbers("moerad_bleu"), dtype=torch.float64)
    assert len(published) == 590
    torch.testing.assert_close(found.value, published, rtol=0, atol=1e-12)


def test_rexrank_bleu_corpus_value_is_the_mean_of_scorable_pairs():
    metric = ReXrankBLEU()
    metric.update(["One", None, "Small effusion."], ["One", "x", ""])
    assert metric.compute().item() == pytest.approx(0.3162277660168379)
    assert "rexrank_bleu" in metric.signature
