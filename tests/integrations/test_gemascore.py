"""The package of GEMA-Score with a scripted model, where it is installed."""

import importlib
import json
import pickle
import sys
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest
import torch

from rrg_rewards.integrations.gemascore import GemaScoreMetric

needs_gemascore = pytest.mark.skipif(find_spec("gemascore") is None, reason="gemascore is not installed")
ANSWER = {
    "entity_name false_prediction": 1,
    "location omission": 2,
    "completeness_score": 0.5,
    "weighted_final_score": 0.75,
}


class Model:
    """Answers every prompt but those with an unreadable report."""

    device = torch.device("cpu")

    def eval(self) -> None: ...

    def generate(self, input_ids: torch.Tensor, **settings: Any) -> torch.Tensor:
        assert settings["repetition_penalty"] == 1.2
        return input_ids


class Processor:
    """Keeps the texts, of which tokens are the numbers."""

    texts: ClassVar[list[str]] = []

    def __call__(self, text: str, return_tensors: str) -> dict[str, torch.Tensor]:
        self.texts.append(text)
        return {"input_ids": torch.tensor([[len(self.texts) - 1]])}

    def batch_decode(self, tokens: torch.Tensor, skip_special_tokens: bool) -> list[str]:
        prompt = self.texts[int(tokens)]
        answer = "I cannot." if "unreadable" in prompt else f"output: {json.dumps(ANSWER)}"
        return [f"{prompt} {answer}"]


@needs_gemascore
def test_gema_score_metric_has_the_scores_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def load(**settings: Any) -> tuple[Model, Processor]:
        loads.append(settings)
        return Model(), Processor()

    for name in ("model", "evaluator"):
        module = importlib.import_module(f"gemascore.{name}")
        monkeypatch.setattr(module, "load_model_and_processor", load)
        monkeypatch.setattr(module, "resolve_model_dir", lambda **_: "folder")
    metric = GemaScoreMetric("ct-qwen", device="cpu")
    assert loads == []
    scores = metric.score(["Effusion.", "unreadable", "Mass."], ["Effusion."] * 3)
    assert loads == [{"model_dir": "folder", "device": "cpu", "dtype": None}]
    evaluator = importlib.import_module("gemascore.evaluator")
    own = evaluator.evaluate_report_json(
        candidate_report="Effusion.", reference_report="Effusion.", model_path="folder"
    )
    assert scores.value.nan_to_num(-1).tolist() == [own["weighted_final_score"], -1, own["weighted_final_score"]]
    # The prompts are those of the package, too.
    assert Processor.texts[0] == Processor.texts[-1]
    details = {name: value[0].item() for name, value in scores.details.items()}
    assert (details["entity_name_false_prediction"], details["location_omission"]) == (1, 2)
    assert details["completeness_score"] == 0.5
    assert scores.details["severity_omission"].isnan().all()
    assert "model:ct-qwen" in metric.signature
    assert len(pickle.dumps(metric)) < 10_000
    with pytest.raises(ValueError, match="Unknown model 'ct-gwen'"):
        GemaScoreMetric("ct-gwen")


def test_gema_score_metric_names_the_extra_if_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gemascore", "gemascore.registry"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[gemascore\]"):
        GemaScoreMetric()
