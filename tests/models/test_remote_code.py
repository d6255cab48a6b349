"""Code that comes with a model is never executed: not without a terminal, nor if somebody types "y"."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_crepe import save_tiny_crepe
from tiny_labeler import save_tiny_labeler

from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.metrics import CREPE, BERTScore

CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel, BertTokenizer
Path(__file__).with_name("executed").touch()
Path({marker!r}).touch()
class Config(BertConfig):
    model_type = "own_code"
class Model(BertModel):
    config_class = Config
class Tokenizer(BertTokenizer):
    pass
"""
CLASSES = {
    "AutoConfig": "own_code.Config",
    "AutoModel": "own_code.Model",
    "AutoTokenizer": ["own_code.Tokenizer", None],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose classes are defined in a Python file beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "own_code.py").write_text(CODE.format(marker=str(tmp_path / "executed")))
    (folder / "config.json").write_text(json.dumps({"model_type": "own_code", "auto_map": CLASSES}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Tokenizer", "auto_map": CLASSES}))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return folder


def _bertscore_model(folder: Path) -> None:
    BERTScore(str(folder)).encoder.model  # noqa: B018


def _bertscore(folder: Path) -> None:
    BERTScore(str(folder)).score(["a"], ["a"])


def _radbert(folder: Path) -> None:
    weights = save_tiny_labeler(folder.parent / "labeler")
    RadBertLabeler(next(weights.glob("*.safetensors")), encoder=str(folder))(["a"])


def _crepe_tokenizer(folder: Path) -> None:
    crepe = save_tiny_crepe(folder.parent / "crepe")
    for file in ("own_code.py", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(folder / file, crepe)
    CREPE(model=str(crepe), tokenizer=str(folder)).score(["a"], ["a"])


@pytest.mark.parametrize("answer", ["y", None])
@pytest.mark.parametrize("load", [_bertscore, _bertscore_model, _radbert, _crepe_tokenizer])
def test_code_of_a_model_is_not_executed(
    load: Callable[[Path], None], answer: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = []

    def ask(*prompt: Any) -> str:
        questions.append(prompt)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", ask)
    with pytest.raises(ValueError, match="contains custom code"):
        load(folder)
    assert questions == []
    assert not (folder.parent / "executed").exists()
