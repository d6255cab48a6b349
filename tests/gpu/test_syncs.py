"""How often training steps and metrics wait for the device, counted on the second device."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from second_device import KINDS, WITHOUT_GPU, devices_of
from torch import Tensor

from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy
from rrg_rewards.training.metrics.crepe import CountCorrelation
from rrg_rewards.training.policy import graphs, hf_generators

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_syncs.py"


@pytest.fixture(scope="module")
def counting() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@WITHOUT_GPU
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("algorithm", "decoding", "reads", "uploads"),
    [("grpo", "eager", 18, 32), ("grpo", "graph", 18, 32), ("ppo", "eager", 24, 40)],
)
def test_a_step_waits_seldom_and_hardly_more_for_longer_completions(
    counting: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    decoding: str,
    reads: int,
    uploads: int,
) -> None:
    # Steps in graphs run one by one, because the second device has no graphs.
    monkeypatch.setattr(hf_generators, "reason_against_graphs", lambda _: None)
    monkeypatch.setattr(graphs, "compiled", lambda step, _: step)
    short, long = (counting["count_step"](algorithm, tokens, decoding=decoding) for tokens in (4, 36))
    assert 0 < sum(short.reads.values()) <= reads
    assert 0 < sum(short.uploads.values()) <= uploads
    # Sampling reads once in 16 tokens which rows have ended.
    assert sum(long.reads.values()) <= sum(short.reads.values()) + 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["CRGScore", "MultiLevelCRGScore", "CountCorrelation", "PreferenceAccuracy"])
def test_update_of_tensors_never_waits(counting: dict[str, Any], name: str, kind: str) -> None:
    assert name in counting["METRICS"]
    syncs = counting["count_update"](name, torch.device(kind, 0))
    assert not syncs.reads
    assert not syncs.uploads


def wrong_inputs(name: str) -> tuple[Any, tuple[Any, ...], str]:
    """Return a metric, wrong inputs of its update, and the error."""
    labels, numbers = torch.tensor([[1.0, 0.5], [0.0, 1.0]]), torch.tensor([0, 1])
    binary = "must hold 0 and 1 only"
    return {
        "labels": (CRGScore(2), (labels.long() + 1, labels.round()), binary),
        "probabilities": (CRGScore(2, per_label=True), (labels.round(), labels), binary),
        "NaN": (CRGScore(2, average="macro"), (labels.round() * torch.nan, labels.round()), binary),
        "levels": (MultiLevelCRGScore([2]), ([labels], [labels.bool()]), binary),
        "counts": (CountCorrelation("AB"), (labels - torch.inf, labels), "preds must be finite"),
        "rewards": (PreferenceAccuracy("AB"), (labels / 0, labels, numbers), "rewards must be finite"),
        "reference": (PreferenceAccuracy("AB"), (labels, labels, numbers - 1), "reference must lie from 0"),
    }[name]


@pytest.mark.gpu
def test_waits_for_a_gpu_are_counted(counting: dict[str, Any]) -> None:
    values = torch.ones(2, device="cuda")
    with counting["count_cuda_syncs"]() as syncs:
        values + values
        assert not syncs.reads
        values.sum().item(), values.cpu()
    assert sum(syncs.reads.values()) == 2
    assert {place.split(":")[0] for _, place in syncs.reads} == {"tests/gpu/test_syncs.py"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["labels", "probabilities", "NaN", "levels", "counts", "rewards", "reference"])
def test_wrong_values_raise_in_update_on_the_cpu_and_in_compute_on_a_device(name: str, kind: str) -> None:
    metric, inputs, message = wrong_inputs(name)
    with pytest.raises(ValueError, match=message):
        metric.update(*inputs)
    with devices_of(kind) as (device, _):
        metric.reset()
        metric.to(device).update(*_moved(inputs, device))
        with pytest.raises(ValueError, match=message):
            metric.compute()
        metric.reset()
        assert metric.metric_state


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else type(value)(_moved(part, device) for part in value)
