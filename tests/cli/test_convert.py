"""``rrg-rewards convert``: published checkpoints and adapters to Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_ct_chat import CHANNELS, save_tiny_ct_chat, tiny_ct_chat, tiny_processor, volume
from tiny_policy import tiny_model
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoProcessor, PreTrainedTokenizerFast

from rrg_rewards.cli.main import main
from rrg_rewards.data import read_table
from rrg_rewards.models import CTChatForConditionalGeneration, CTChatProcessor


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, Path]:
    """A base model with its tokenizer, and a projector that was trained with it."""
    base, folder = tmp_path / "base", tmp_path / "checkpoint"
    model = tiny_model()
    model.save_pretrained(base)
    # Like the tokenizer of Llama, without a token <pad>.
    words = [f"word{index}" for index in range(model.config.vocab_size - 3)]
    vocabulary = {word: index for index, word in enumerate(["<unk>", "<bos>", "<eos>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(base)
    folder.mkdir()
    projector = tiny_ct_chat(tiny_processor()).model.mm_projector
    state = {f"model.mm_projector.{name}": tensor for name, tensor in projector.state_dict().items()}
    torch.save(state, folder / "mm_projector.bin")
    return base, folder


def test_ct_chat(checkpoint: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, folder = checkpoint
    output = tmp_path / "converted"
    command = ["convert", "ct-chat", str(folder), "--base-model", str(base), "--output", str(output)]
    assert main([*command, "--pooler-heads", "4", "--chat-format", "llama3", "--dtype", "bfloat16"]) == 0
    assert "in bfloat16" in capsys.readouterr().err
    model, processor = AutoModelForCausalLM.from_pretrained(output), AutoProcessor.from_pretrained(output)
    assert isinstance(model, CTChatForConditionalGeneration)
    assert isinstance(processor, CTChatProcessor)
    assert model.config.pooler_heads == 4
    message = {"role": "user", "content": [{"type": "image", "image": volume(0)}, {"type": "text", "text": "edema"}]}
    inputs = processor.apply_chat_template(
        [[message]], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    assert model(**inputs).logits.isfinite().all()
    assert main(command) == 1
    assert "exists; choose another --output" in capsys.readouterr().err


def test_ct_chat_example_is_a_checkpoint_to_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = tmp_path / "example"
    for code, message in ((0, f"--base-model {example / 'base'}"), (2, "exists; choose another folder")):
        assert main(["convert", "ct-chat", "--example", str(example)]) == code
        printed = capsys.readouterr()
        assert message in printed.err
        assert ("mm_projector.attn_pool.query  16 x 96" in printed.out) == (code == 0)
    model = CTChatForConditionalGeneration.from_llava_checkpoint(example / "checkpoint", example / "base")
    stored = torch.load(example / "checkpoint" / "non_lora_trainables.bin", weights_only=True)
    for name, tensor in model.model.mm_projector.state_dict().items():
        assert torch.equal(stored[f"base_model.model.model.mm_projector.{name}"], tensor)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere", "--base-model", "base"], 2, "nowhere: no such folder"),
        (["checkpoint", "--base-model", "./basis"], 1, "./basis: no such folder"),
        (["checkpoint", "--base-model", "ct_chat"], 1, "ct_chat is a CT-CHAT model; pass the language model"),
        (["ct_chat", "--base-model", "base"], 1, "ct_chat is converted already"),
        (["checkpoint"], 1, "pass base_model, which it was trained from"),
        (["checkpoint", "--base-model", "base", "--pooler-heads", "5"], 1, "pooler_heads (5) must divide"),
        (["checkpoint", "--base-model", "base", "--chat-format", "chatml"], 2, "invalid choice: 'chatml'"),
        (["checkpoint", "--base-model", "base", "--pooler-heads", "4"], 1, "choose --chat-format: llama3"),
    ],
)
def test_ct_chat_says_what_is_wrong(
    checkpoint: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny_ct_chat(tmp_path / "ct_chat")
    assert main(["convert", "ct-chat", *arguments, "--output", "converted"]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize("named", [True, False])
def test_lora_is_merged_with_what_was_trained_beside_it(
    tmp_path: Path, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = save_tiny_ct_chat(tmp_path / "base")
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    config = LoraConfig(r=2, target_modules=["q_proj", "up_proj"], modules_to_save=["mm_projector"])
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if weights.requires_grad:
                weights += torch.randn(weights.shape, generator=torch.Generator().manual_seed(len(name)))
    processor = AutoProcessor.from_pretrained(base)
    inputs = processor(text=["<image> edema"], images=[volume(0)], return_tensors="pt")
    expected = adapted.eval()(**inputs).logits
    adapted.save_pretrained(tmp_path / "adapter")
    processor.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter" / "run.json").write_text('{"config": {"input_column": "text", "dataset": "/secret.csv"}}')
    command = ["convert", "lora", str(tmp_path / "adapter"), "--output", str(tmp_path / "merged")]
    assert main([*command, *(["--base-model", str(base)] if named else [])]) == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(merged(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(AutoModelForCausalLM.from_pretrained(base)(**inputs).logits, expected, atol=0.1)
    assert AutoProcessor.from_pretrained(tmp_path / "merged").feature_size == CHANNELS
    # The prompts of the training, for `generate`, and no path.
    assert json.loads((tmp_path / "merged" / "run.json").read_text()) == {"config": {"input_column": "text"}}


def test_lora_needs_an_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "lora", str(tmp_path), "--output", str(tmp_path / "merged")]) == 2
    assert "no LoRA adapter (there is no adapter_config.json)" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["rexrank", "vlm3d", "vlm3d-predictions"])
def test_reports_are_written_as_a_document_that_score_reads(run, write_csv, tmp_path, layout):
    rows = [("a", "Normal.", "Normal."), ("b", "Small nodule.", "Nodule.")]
    table = write_csv("p.csv", ["study", "prediction", "reference"], *rows)
    output = tmp_path / "reports.json"
    options = ["--layout", layout, "--study-column", "study", "--output", output]
    assert run("convert", "reports", table, *options).code == 0
    assert "exists already" in run("convert", "reports", table, *options).err
    column, key = ("model_prediction", "study_id") if layout == "rexrank" else ("report", "input_image_name")
    truth = write_csv("truth.csv", ["study", "reference"], *((study, report) for study, _, report in rows))
    joined = [] if layout == "rexrank" else ["--references", truth, "--key", f"{key}=study"]
    result = run("score", output, "--metrics", "rouge", "--prediction-column", column, *joined)
    assert result.code == 0, result.err
    assert result.out == run("score", table, "--metrics", "rouge").out


def test_reports_are_joined_from_sections(run, write_csv, tmp_path):
    table = write_csv(
        "p.csv", ["volume", "findings", "impression"], ["v/s1.nii.gz", "Clear.", "Normal."], ["s2", "", ""]
    )
    output = tmp_path / "ground_truth.json"
    options = ["--layout", "vlm3d", "--study-column", "volume", "--output", output]
    template = ["--prediction-column", "Findings: {findings} Impression: {impression}"]
    missing = run("convert", "reports", table, *options, *template)
    assert "data row 2 (line 3), column 'Findings: {findings} Impression: {impression}': is missing" in missing.err
    plain = run("convert", "reports", table, *options, "--missing-section", "None")
    assert "argument --missing-section: needs a template" in plain.err
    assert run("convert", "reports", table, *options, *template, "--missing-section", "None").code == 0
    assert read_table(output).columns == {
        "input_image_name": ["s1", "s2"],
        "report": ["Findings: Clear. Impression: Normal.", "Findings: None Impression: None"],
    }
