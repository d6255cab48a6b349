"""The small policy on the phantom corpus: its tokenizer, its corpus and its warm start."""

import json
import random
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from rrg_rewards.data import phantom_studies
from rrg_rewards.recipes.phantom.corpus import abridge
from rrg_rewards.recipes.phantom.policy import compact_tokenizer
from rrg_rewards.recipes.phantom.warm_start import main

IMPRESSION = "Cardiomegaly. Nodule of 8 mm in the left upper lobe. Hiatal hernia."


def test_compact_tokenizer_reads_and_writes_every_report() -> None:
    tokenizer = compact_tokenizer()
    for study in phantom_studies(300, seed=5, style="compact"):
        text = f"{study.findings_text} {study.impression_text}"
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


def test_abridged_impressions_keep_whole_statements() -> None:
    rng = random.Random(0)
    statements = IMPRESSION.replace(". ", ".|").split("|")
    drawn = [abridge(IMPRESSION, 0.4, rng) for _ in range(2000)]
    kept = [[statement for statement in statements if statement in text] for text in drawn]
    assert all(" ".join(some) == text for some, text in zip(kept, drawn, strict=True))
    assert all(kept)
    # A statement is kept with probability 0.6, or as the only one of three if all are dropped: 0.6 + 0.4**3 / 3.
    assert sum(map(len, kept)) / 6000 == pytest.approx(0.6 + 0.4**3 / 3, abs=0.02)
    assert abridge(IMPRESSION, 0.0, rng) == IMPRESSION


@pytest.mark.slow
def test_warm_start_writes_a_corpus_and_a_policy(tmp_path: Path) -> None:
    main(["--output", str(tmp_path), "--train-rows", "64", "--heldout-rows", "8", "--steps", "2", "--seed", "3"])
    train, heldout = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "heldout")
    )
    assert (len(train), len(heldout)) == (64, 8)
    assert {**train[0], "abridged": 0} == {**phantom_studies(1, seed=3, style="compact")[0].to_row(), "abridged": 0}
    assert {**heldout[0], "abridged": 0} == {**phantom_studies(1, seed=4, style="compact")[0].to_row(), "abridged": 0}
    assert any(row["abridged"] != row["impression"] for row in train)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    assert policy.config.vocab_size == len(tokenizer)
    assert tokenizer.decode(tokenizer(IMPRESSION)["input_ids"]) == IMPRESSION
