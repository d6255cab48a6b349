"""CREPE and ER²Score keep transformers' habits: types, devices, shards, the Hub's cache, and uploads with the card."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from tiny_crepe import save_tiny_crepe
from tiny_er2score import LORA, save_tiny_er2score

from rrg_rewards.models import CrepeModel, ER2ScoreModel, model_card
from rrg_rewards.utilities.settings import SettingError

MODELS = {"crepe": CrepeModel, "er2score": ER2ScoreModel}
BODIES = {"crepe": "encoder", "er2score": "backbone"}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    return save_tiny_crepe(tmp_path / "crepe") if name == "crepe" else save_tiny_er2score(tmp_path)


def in_cache(folder: Path, cache: Path, repository: str) -> Path:
    """Put a folder into a cache as the Hub's client does."""
    snapshot = cache / f"models--{repository.replace('/', '--')}" / "snapshots" / "abc"
    shutil.copytree(folder, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    return cache


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_models_load_from_the_hubs_cache_and_pass_its_token_on(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = in_cache(folder, tmp_path / "cache", "owner/metric")
    given: list[dict[str, Any]] = []
    download = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda model, **hub: given.append(hub) or download(model, **hub)
    )
    model = MODELS[name].from_pretrained(
        "owner/metric", cache_dir=cache, local_files_only=True, token="t", revision="main"
    )
    assert same_weights(model, MODELS[name].from_pretrained(folder))
    assert [(one["token"], one["revision"]) for one in given] == [("t", "main")]


def test_er2score_finds_the_backbone_of_an_adapter_in_the_same_cache(tmp_path: Path) -> None:
    folder = save_tiny_er2score(tmp_path, lora=LORA)
    cache = in_cache(tmp_path / "llama", tmp_path / "cache", "owner/llama")
    expected = ER2ScoreModel.from_pretrained(folder)
    (tmp_path / "llama").rename(tmp_path / "moved")
    given = {"backbone": "owner/llama", "cache_dir": cache, "local_files_only": True}
    assert same_weights(ER2ScoreModel.from_pretrained(folder, **given), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_models_have_the_type_and_the_device_that_are_asked_for(name: str, folder: Path, dtype: Any) -> None:
    model = MODELS[name].from_pretrained(folder, dtype=dtype, device_map={"": "cpu"})
    body = getattr(model, BODIES[name])
    assert {value.dtype for value in body.parameters()} == {torch.bfloat16}
    heads = [value for key, value in model.named_parameters() if key.startswith(("error_", "head."))]
    ids = torch.tensor([[2, 5, 3, 6, 3]])
    outputs, plain = (one(ids, torch.ones_like(ids))[0] for one in (model, MODELS[name].from_pretrained(folder)))
    assert {value.dtype for value in (*heads, outputs)} == {torch.float32}
    assert 0 < (outputs - plain).abs().max() < 0.1 * plain.abs().max()
    on_meta = MODELS[name].from_pretrained(folder, device_map="meta")
    assert {value.device.type for value in on_meta.parameters()} == {"meta"}
    for option, value in {"dtype": "int8", "device_map": {"encoder": "cpu", "heads": "cpu"}}.items():
        with pytest.raises(SettingError, match=option):
            MODELS[name].from_pretrained(folder, **{option: value})


def test_models_save_their_weights_in_shards(name: str, folder: Path, tmp_path: Path) -> None:
    model = MODELS[name].from_pretrained(folder)
    model.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    assert len(list((tmp_path / "shards").rglob("model-*.safetensors"))) > 1
    assert same_weights(MODELS[name].from_pretrained(tmp_path / "shards"), model)


@pytest.mark.parametrize("has_card", [True, False])
def test_models_are_uploaded_with_their_card(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_card: bool
) -> None:
    calls: list[Any] = []

    class Hub:
        def __init__(self, token: Any) -> None:
            calls.append(token)

        def create_repo(self, repo_id: str, **options: Any) -> Any:
            calls.append(options)
            return SimpleNamespace(repo_id=f"owner/{repo_id}")

        def create_branch(self, repo_id: str, **options: Any) -> None:
            calls.append(options["branch"])

        def file_exists(self, repo_id: str, path: str, **options: Any) -> bool:
            return has_card

        def upload_folder(self, *, repo_id: str, folder_path: str, **options: Any) -> Any:
            calls.append(options)
            shutil.copytree(folder_path, tmp_path / "hub")
            return SimpleNamespace(commit_url=f"hub/{repo_id}")

    monkeypatch.setattr(model_card, "HfApi", Hub)
    (folder / "README.md").write_text("# The card")
    model = MODELS[name].from_pretrained(folder)

    url = model.push_to_hub("metric", private=True, token="t", revision="dev", max_shard_size="40KB")

    commit = {"commit_message": "Upload model", "revision": "dev"}
    assert url == "hub/owner/metric"
    assert calls == ["t", {"private": True, "exist_ok": True}, "dev", commit]
    cards = [path.read_text() for path in (tmp_path / "hub").glob("README.md")]
    assert cards == ([] if has_card else ["# The card"])
    assert same_weights(MODELS[name].from_pretrained(tmp_path / "hub"), model)

    shutil.rmtree(tmp_path / "hub")
    monkeypatch.chdir(folder)
    MODELS[name](model.config).push_to_hub("made-here")
    assert not (tmp_path / "hub" / "README.md").exists()
