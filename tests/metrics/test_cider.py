"""CIDEr: updates, document frequencies of a corpus and of other reports. tests/metrics/test_coco.py has its oracle."""

import csv
import pickle
from pathlib import Path

import pytest
import torch
from caption_texts import PREDS, TARGET

from rrg_rewards.metrics import CIDEr
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.texts import PlaceholderWarning


def test_cider_of_several_updates_is_that_of_one_call() -> None:
    whole, parts = CIDEr(), CIDEr()
    whole.update(PREDS, TARGET)
    for start in range(0, 6, 2):
        parts.update(PREDS[start : start + 2], TARGET[start : start + 2])
    assert float(parts.compute()) == pytest.approx(float(whole.compute()), rel=1e-12)
    assert float(whole.compute()) == pytest.approx(float(whole.score(PREDS, TARGET).value.mean()), rel=1e-12)
    copy = pickle.loads(pickle.dumps(parts))
    assert float(copy.compute()) == float(parts.compute())
    parts.reset()
    parts.update(PREDS[:3], TARGET[:3])
    assert float(parts.compute()) == pytest.approx(float(CIDEr().score(PREDS[:3], TARGET[:3]).value.mean()))
    # Frequencies of the corpus, counted in advance, give the same scores batch by batch.
    fixed = whole.in_corpus([(PREDS[:4], TARGET[:4]), (PREDS[4:], TARGET[4:]), ([None], ["a"])])
    batches = [fixed.score(PREDS[start : start + 2], TARGET[start : start + 2]).value for start in range(0, 6, 2)]
    assert torch.cat(batches).tolist() == pytest.approx(whole.score(PREDS, TARGET).value.tolist(), rel=1e-12)
    assert whole.depends_on_corpus
    assert not fixed.depends_on_corpus


def test_cider_with_documents_scores_each_report_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = CIDEr(documents=TARGET)
    together = metric.score(PREDS, TARGET).value
    alone = torch.cat([metric.score([pred], [target]).value for pred, target in zip(PREDS, TARGET, strict=True)])
    assert together.tolist() == alone.tolist() == pytest.approx(CIDEr().score(PREDS, TARGET).value.tolist(), rel=1e-12)
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["report"], *([text] for text in TARGET), [""]])
    monkeypatch.chdir(tmp_path)
    read = CIDEr(documents=Path(path.name), documents_column="report")
    monkeypatch.undo()
    assert read.score(PREDS, TARGET).value.tolist() == alone.tolist()
    assert read.signature == metric.signature
    assert "documents:6@" in metric.signature
    assert CIDEr(documents=TARGET[:5]).signature != metric.signature
    with pytest.warns(PlaceholderWarning, match="1 of 7 texts in .* of documents"):
        assert CIDEr(documents=["Not given.", *TARGET]).signature == metric.signature
    assert len(pickle.dumps(read)) < 10_000
    reward = make_reward("cider", documents=TARGET)
    assert reward(completions=PREDS, reference=TARGET) == pytest.approx(alone.tolist())
    with pytest.raises(ValueError, match=r"cider cannot be a reward: .* set documents to the references"):
        make_reward("cider")
    with pytest.raises(ValueError, match="documents contain no report"):
        CIDEr(documents=[" "]).score(["a"], ["a"])
