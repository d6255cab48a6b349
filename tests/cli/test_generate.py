"""``rrg-rewards generate``: the model's own reports, kept when a run is interrupted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_ct_chat import save_tiny_ct_chat, save_volumes
from tiny_image_text import save_images, save_tiny_image_text
from tiny_policy import WORDS, save_tiny_policy
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from rrg_rewards.data import read_table
from rrg_rewards.training import CausalLMGenerator

COUNT = 7


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_tiny_policy(tmp_path / "policy")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    rows = [{"id": row, "findings": f"{WORDS[row]} {WORDS[row + 1]}" if row != 3 else " "} for row in range(COUNT)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(table: Path, model: Path, output: Path, *more: Any) -> list[Any]:
    return ["generate", table, "--model", model, "--output", output, "--max-new-tokens", 5, "--batch-size", 2, *more]


def by_hand(model_folder: Path, prompts: list[str]) -> list[str]:
    """Greedy reports, one prompt at a time."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    reports = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        tokens = model.generate(ids, do_sample=False, max_new_tokens=5, pad_token_id=0, eos_token_id=2)[
            :, ids.shape[1] :
        ]
        reports.append(tokenizer.decode(tokens[0], skip_special_tokens=True))
    return reports


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_greedy_reports(run: Any, table: Path, policy: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / f"out.{ending}"
    options = [
        "--prompt-template",
        "report {input} {id}",
        "--system-prompt",
        "heart",
        "--json",
        tmp_path / "summary.json",
    ]
    result = run(*command(table, policy, output, *options))
    assert result.code == 0
    assert "6 reports" in result.err
    assert "1 rows without input or volume have none" in result.err
    written = read_table(output)
    used = [row for row in range(COUNT) if row != 3]
    texts = [f"{WORDS[row]} {WORDS[row + 1]} {row}" for row in used]
    expected = by_hand(policy, [f"system heart user report {text} assistant " for text in texts])
    assert [written.column("prediction")[row] for row in used] == expected
    assert written.optional_texts("prediction")[3] is None
    assert len(set(expected)) > 2
    assert not list(tmp_path.glob("*.partial.jsonl"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["rows"], summary["generated"]) == (7, 6)
    assert summary["truncated"] == sum(str(cell).lower() == "true" for cell in written.column("truncated"))


def test_a_plain_prompt(run: Any, table: Path, policy: Path, tmp_path: Path) -> None:
    assert run(*command(table, policy, tmp_path / "out.jsonl", "--plain", "--limit", 2)).code == 0
    found = read_table(tmp_path / "out.jsonl")
    assert found.column("prediction") == by_hand(policy, ["edema effusion", "effusion nodule"])


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_an_interrupted_run_goes_on(
    run: Any, table: Path, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    options = ["--temperature", temperature, "--seed", 4]
    assert run(*command(table, policy, whole, *options)).code == 0
    sample, calls = CausalLMGenerator.sample, []

    def interrupted(self: Any, batch: Any, *, greedy: bool = False) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(batch["prompt"]))
        return sample(self, batch, greedy=greedy)

    monkeypatch.setattr(CausalLMGenerator, "sample", interrupted)
    assert run(*command(table, policy, output, *options)).code == 130
    assert not output.exists()
    partial = tmp_path / "out.jsonl.partial.jsonl"
    held = partial.read_text().splitlines()
    assert len(held) == 4
    # A crash of the machine may leave a part of a line, and a part of a batch.
    partial.write_text("\n".join(held[:3]) + "\n" + held[3][:20])
    monkeypatch.setattr(CausalLMGenerator, "sample", sample)
    refused = run(*command(table, policy, output, "--seed", 5))
    assert refused.code == 2
    assert "is of an interrupted run with other settings or rows" in refused.err
    result = run(*command(table, policy, output, *options))
    assert result.code == 0
    assert "contains 3 reports; the others are generated now" in result.err
    assert output.read_bytes() == whole.read_bytes()
    assert not partial.exists()


def test_volumes(run: Any, tmp_path: Path) -> None:
    model = save_tiny_ct_chat(tmp_path / "model")
    paths = [str(Path(path).relative_to(tmp_path)) for path in save_volumes(tmp_path / "features", 3)]
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps({"image": path}) + "\n" for path in [*paths, None]))
    options = ["--image-column", "image", "--prompt-template", "Report <report_generation>"]
    assert run(*command(table, model, tmp_path / "out.jsonl", *options)).code == 0
    processor, generator = AutoProcessor.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    expected = []
    for path in paths:
        volume = {"type": "image", "image": str(tmp_path / path)}
        content = [volume, {"type": "text", "text": "Report <report_generation>"}]
        inputs = processor.apply_chat_template(
            [[{"role": "user", "content": content}]],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            tokens = generator.generate(**inputs, do_sample=False, max_new_tokens=5)[:, inputs["input_ids"].shape[1] :]
        expected.append(processor.decode(tokens[0], skip_special_tokens=True))
    assert read_table(tmp_path / "out.jsonl").column("prediction") == [*expected, None]
    assert len(set(expected)) > 1
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "uses_system_prompt": True}))
    for system, is_warned in (([], True), (["--system-prompt", "Be brief."], False)):
        result = run(*command(table, model, tmp_path / f"system{is_warned}.jsonl", *options, *system))
        assert ("trained with a system prompt in every conversation" in result.err) is is_warned
    torn = tmp_path / paths[1]
    torn.write_bytes(torn.read_bytes()[:-30])
    result = run(*command(table, model, tmp_path / "other.jsonl", *options))
    assert result.code == 1
    assert "study_1" in result.err


def test_images(run: Any, tmp_path: Path) -> None:
    model = save_tiny_image_text(tmp_path / "model")
    names = save_images(tmp_path, 3)
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps({"png": name, "findings": "edema"}) + "\n" for name in [*names, None]))
    options = ["--image-column", "png", "--prompt-template", "report {findings}", "--system-prompt", "heart"]
    assert run(*command(table, model, tmp_path / "out.jsonl", *options)).code == 0
    processor, generator = AutoProcessor.from_pretrained(model), AutoModelForImageTextToText.from_pretrained(model)
    expected = []
    for name in names:
        content = [{"type": "image", "image": Image.open(tmp_path / name)}, {"type": "text", "text": "report edema"}]
        system = {"role": "system", "content": [{"type": "text", "text": "heart"}]}
        inputs = processor.apply_chat_template(
            [system, {"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            tokens = generator.generate(**inputs, do_sample=False, max_new_tokens=5)[:, inputs["input_ids"].shape[1] :]
        expected.append(processor.decode(tokens[0], skip_special_tokens=True))
    assert read_table(tmp_path / "out.jsonl").column("prediction") == [*expected, None]
    assert len(set(expected)) > 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--output", "-"], 2, "must be a file, because an interrupted run is resumed from it"),
        (["--temperature", "-1"], 2, "argument --temperature: must be a number, at least 0"),
        (["--temperature", "nan"], 2, "argument --temperature: must be a number, at least 0"),
        (["--model", "./nowhere"], 1, "error: model: ./nowhere: no such folder"),
        (["--input-column", "text"], 1, "unknown column 'text'"),
        (["--image-column", "findings"], 1, "there is no such image, which row 1 of"),
    ],
)
def test_what_is_wrong_is_told(
    run: Any, table: Path, policy: Path, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    given = {"--model": str(policy), "--output": str(tmp_path / "out.jsonl"), **dict([options])}
    result = run("generate", table, *(part for pair in given.items() for part in pair))
    assert result.code == code
    assert message in result.err


def test_models_that_cannot_be_used(run: Any, table: Path, policy: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "volume.npz", arr=np.zeros((1, 2, 3, 4, 24), np.float16))
    images = tmp_path / "images.jsonl"
    images.write_text(json.dumps({"findings": "heart", "image": "volume.npz"}) + "\n")
    result = run(*command(images, policy, tmp_path / "out.jsonl", "--image-column", "image"))
    assert result.code == 2
    assert "argument --image-column: needs an image-text or CT-CHAT model" in result.err
    (policy / "adapter_config.json").write_text("{}")
    result = run(*command(table, policy, tmp_path / "out.jsonl"))
    assert result.code == 2
    assert "is a LoRA adapter; merge it first: rrg-rewards convert lora" in result.err


def test_help_teaches(run: Any) -> None:
    text = run("generate", "--help").out
    for word in ("--image-column", "partial", "--temperature", "rrg-rewards score"):
        assert word in text


def test_a_tokenizer_without_a_chat_template_needs_plain_prompts(
    run: Any, table: Path, policy: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(policy)
    (policy / "chat_template.jinja").unlink(missing_ok=True)
    result = run(*command(table, policy, tmp_path / "out.jsonl"))
    assert result.code == 2
    assert f"argument --plain: is necessary, because the tokenizer of {policy} has no chat template" in result.err
    assert run(*command(table, policy, tmp_path / "out.jsonl", "--plain", "--limit", 1)).code == 0
