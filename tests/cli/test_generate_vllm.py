"""``rrg-rewards generate --backend vllm``: the reports of transformers."""

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_ct_chat import save_tiny_ct_chat, save_volumes
from tiny_policy import WORDS, tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rrg_rewards.cli.main import main
from rrg_rewards.data import read_table
from rrg_rewards.utilities.imports import install_command

COUNT = 9


@pytest.fixture
def run(capfdbinary: Any) -> Any:
    """Run the command line with the files of the process as output, which vLLM needs."""

    def run_main(*arguments: Any) -> SimpleNamespace:
        code = main([str(argument) for argument in arguments])
        return SimpleNamespace(code=code, err=capfdbinary.readouterr().err.decode())

    return run_main


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of prompts and volumes, one of them missing."""
    folder = tmp_path_factory.mktemp("volumes")
    paths = save_volumes(folder / "features", COUNT)
    rows = [
        {"image": path if row != 3 else None, "findings": " ".join(WORDS[: row + 1])} for row, path in enumerate(paths)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


@pytest.fixture(scope="module")
def ct_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 64, "max_position_embeddings": 256, "initializer_range": 0.15}
    return save_tiny_ct_chat(tmp_path_factory.mktemp("ct_chat"), **sizes)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that reads text."""
    folder = tmp_path_factory.mktemp("policy")
    config = LlamaConfig(
        vocab_size=14,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Options of the command on a CPU, with the engine in the process of the test."""
    pytest.importorskip("vllm", reason="vLLM has an environment of its own")
    import vllm_engine

    monkeypatch.setattr("vllm.LLM", vllm_engine.kept_engine)
    return ["--backend", "vllm", "--vllm-option", "enforce_eager=true", "--vllm-option", "max_model_len=128"]


def command(table: Path, model: Path, output: Path, *more: Any) -> list[Any]:
    return ["generate", table, "--model", model, "--output", output, "--max-new-tokens", 8, *more]


@pytest.mark.vllm
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_volumes(run: Any, volumes: Path, ct_chat: Path, tmp_path: Path, vllm: list[Any], ending: str) -> None:
    options = ["--image-column", "image", "--prompt-template", "Report {findings}", "--system-prompt", "heart"]
    first, second = tmp_path / f"transformers.{ending}", tmp_path / f"vllm.{ending}"
    assert run(*command(volumes, ct_chat, first, *options)).code == 0
    result = run(*command(volumes, ct_chat, second, *options, *vllm, "--json", tmp_path / "summary.json"))
    assert result.code == 0
    assert "8 reports" in result.err
    expected, found = read_table(first), read_table(second)
    assert found.columns == expected.columns
    assert found.optional_texts("prediction")[3] is None
    assert len(set(found.column("prediction"))) > 3
    assert len(set(map(str, found.column("truncated")))) > 1
    assert json.loads((tmp_path / "summary.json").read_text())["backend"] == "vllm"


@pytest.mark.vllm
@pytest.mark.parametrize("options", [[], ["--plain"]])
def test_text(run: Any, volumes: Path, policy: Path, tmp_path: Path, vllm: list[Any], options: list[str]) -> None:
    found = []
    for number, backend in enumerate(([], vllm)):
        output = tmp_path / f"{number}.jsonl"
        assert run(*command(volumes, policy, output, *options, *backend)).code == 0
        found.append(read_table(output).columns)
    assert found[0] == found[1]
    assert len(set(found[0]["prediction"])) > 3


@pytest.mark.vllm
def test_an_interrupted_run_goes_on(
    run: Any, volumes: Path, policy: Path, tmp_path: Path, vllm: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples do not depend on the other reports, so that they are the same in batches of any size."""
    from rrg_rewards.integrations.vllm.reports import VLLMReports

    options = ["--temperature", 1.5, "--seed", 4, *vllm]
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run(*command(volumes, policy, whole, *options)).code == 0
    generate, calls = VLLMReports.generate, []

    def interrupted(self: Any, rows: Any, seeds: Any) -> Any:
        if calls:
            raise KeyboardInterrupt
        calls.append(len(rows))
        return generate(self, rows, seeds)

    monkeypatch.setattr(VLLMReports, "generate", interrupted)
    assert run(*command(volumes, policy, output, *options, "--batch-size", 4)).code == 130
    assert len((tmp_path / "out.jsonl.partial.jsonl").read_text().splitlines()) == 4
    monkeypatch.setattr(VLLMReports, "generate", generate)
    result = run(*command(volumes, policy, output, *options, "--batch-size", 4))
    assert "contains 4 reports; the others are generated now" in result.err
    assert output.read_bytes() == whole.read_bytes()
    assert len(set(read_table(output).column("prediction"))) > 3


@pytest.mark.vllm
def test_volumes_need_ct_chat(run: Any, volumes: Path, policy: Path, tmp_path: Path, vllm: list[Any]) -> None:
    result = run(*command(volumes, policy, tmp_path / "out.jsonl", "--image-column", "image", *vllm))
    assert result.code == 2
    assert "needs a CT-CHAT model" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backend", "vllm", "--device", "cpu"], "vLLM runs on the device that it was installed for"),
        (["--backend", "vllm", "--vllm-option", "max_model_len"], "--vllm-option: must be NAME=VALUE"),
        (["--vllm-option", "max_model_len=8"], "--vllm-option: needs"),
    ],
)
def test_what_is_wrong_is_told(
    run: Any, volumes: Path, policy: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    result = run(*command(volumes, policy, tmp_path / "out.jsonl", *options))
    assert result.code == 2
    assert message in result.err


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm(run: Any, volumes: Path, policy: Path, tmp_path: Path) -> None:
    result = run(*command(volumes, policy, tmp_path / "out.jsonl", "--backend", "vllm"))
    assert result.code == 1
    assert f"run: {install_command('vllm')}" in result.err
