"""Embeddings of reports: means of the token states, in every batch the same."""

from pathlib import Path

import pytest
import torch
from tiny_crepe import tiny_bert_tokenizer
from transformers import BertConfig, BertModel

from rrg_rewards.analysis.candidates import ReportEncoder

REPORTS = ["edema.", "left effusion, nodule, edema", "normal heart", "nodule " * 9, ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("encoder")
    tokenizer = tiny_bert_tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=8, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_report_encoder_embeddings_are_normalised_means_of_the_tokens(folder: str) -> None:
    model, tokenizer = BertModel.from_pretrained(folder).eval(), tiny_bert_tokenizer()
    found = ReportEncoder(folder, device="cpu", batch_size=2)(REPORTS)
    for report, embedding in zip(REPORTS, found, strict=True):
        # The model has 8 positions.
        inputs = tokenizer(report, truncation=True, max_length=8, return_tensors="pt")
        with torch.no_grad():
            mean = model(**inputs).last_hidden_state[0].mean(0)
        assert torch.allclose(embedding, mean / mean.norm(), atol=1e-5)


def test_report_encoder_no_report_and_no_folder(folder: str) -> None:
    assert ReportEncoder(folder, device="cpu")([]).numel() == 0
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ReportEncoder("./nowhere")
