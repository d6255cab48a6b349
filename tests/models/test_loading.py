"""Frozen models are shared and complete under ZeRO-3, and loading does not affect the training."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_labeler import save_tiny_labeler
from torch import Tensor, nn

from rrg_rewards.models.loading import load_frozen, process_device
from tests.distributed.helpers import run_distributed

builds: list[tuple[Any, ...]] = []


def build(*arguments: Any) -> nn.Module:
    builds.append(arguments)
    # Long enough for a second thread to start.
    time.sleep(0.05)
    return nn.Sequential(nn.Linear(4, 2), nn.Dropout())


@pytest.fixture(autouse=True)
def no_builds() -> None:
    builds.clear()


def test_load_frozen_is_frozen_and_of_the_type_asked_for() -> None:
    model = load_frozen(build, dtype=torch.bfloat16, device="cpu")
    assert not any(module.training for module in model.modules())
    assert not any(value.requires_grad for value in model.parameters())
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}
    assert load_frozen(build, device="cpu")[0].weight.dtype == torch.float32


def test_load_frozen_same_settings_share_and_others_do_not() -> None:
    first = load_frozen(build, "a")
    assert load_frozen(build, "a") is first
    assert load_frozen(build, "a", device=process_device()) is first
    others = [load_frozen(build, "b"), load_frozen(build, "a", dtype=torch.float64)]
    assert len({id(model) for model in (first, *others)}) == 3
    assert builds == [("a",), ("b",), ("a",)]


def test_load_frozen_lives_as_long_as_it_is_held() -> None:
    held = [load_frozen(build, number) for number in range(20)]
    assert all(load_frozen(build, number) is held[number] for number in range(20))
    gone = weakref.ref(held.pop())
    gc.collect()
    assert gone() is None
    load_frozen(build, 19)
    assert len(builds) == 21


def test_load_frozen_threads_load_once() -> None:
    found: list[nn.Module] = []
    threads = [threading.Thread(target=lambda: found.append(load_frozen(build, "threads"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 8
    assert len({id(model) for model in found}) == len(builds) == 1


def test_load_frozen_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    code = """
import os, threading
from torch import nn
from rrg_rewards.models.loading import load_frozen

started, over = threading.Event(), threading.Event()
def slow():
    started.set()
    over.wait(30)
    return nn.Linear(1, 1)
thread = threading.Thread(target=load_frozen, args=(slow,))
thread.start()
started.wait(30)
child = os.fork()
if child == 0:
    os._exit(7 if load_frozen(nn.Linear, 2, 1).in_features == 2 else 1)
_, status = os.waitpid(child, 0)
over.set()
thread.join()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=25).returncode == 7


def test_load_frozen_random_numbers_of_the_training_stay_as_they_were() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    model = load_frozen(build, "random")
    assert model[0].weight.std() > 0
    assert torch.equal(torch.rand(3), expected)


def test_load_frozen_may_be_loaded_in_inference_mode_and_used_outside() -> None:
    with torch.inference_mode():
        model = load_frozen(build, "inference")
    inputs = torch.ones(1, 4, requires_grad=True)
    model(inputs).sum().backward()
    assert torch.equal(inputs.grad, model[0].weight.sum(0, keepdim=True))


def test_load_frozen_a_build_that_fails_is_tried_again() -> None:
    def fails() -> nn.Module:
        raise FileNotFoundError("no weights")

    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="no weights"):
            load_frozen(fails)


def test_load_frozen_an_empty_parameter_is_refused() -> None:
    def partitioned() -> nn.Module:
        model = nn.Linear(4, 2)
        model.weight.data = torch.empty(0)
        return model

    with pytest.raises(RuntimeError, match=r"Linear was partitioned while it was loaded.* left empty, weight\."):
        load_frozen(partitioned)


def test_load_frozen_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_device("cuda:3") == torch.device("cuda", 3)
    assert process_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert process_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for current, local_rank, expected in ((0, None, 0), (2, None, 2), (0, "3", 3), (1, "3", 1), (0, "5", 1)):
        monkeypatch.setattr(torch.cuda, "current_device", lambda current=current: current)
        if local_rank is not None:
            monkeypatch.setenv("LOCAL_RANK", local_rank)
        assert process_device() == process_device("cuda") == torch.device("cuda", expected)


def test_load_frozen_importing_it_imports_neither_transformers_nor_deepspeed() -> None:
    code = (
        "import sys, torch; from rrg_rewards.models.loading import load_frozen; load_frozen(torch.nn.Linear, 1, 1)\n"
        "sys.exit('transformers' in sys.modules or 'deepspeed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ZERO3 = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


def encoder(folder: Path) -> nn.Module:
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(folder)
    return model


def encoder_with_another(folder: Path) -> nn.Module:
    model = encoder(folder)
    model.inner = load_frozen(encoder, folder, device="cpu")
    model.late = nn.Linear(3, 2)
    return model


def fails() -> nn.Module:
    raise ValueError("no weights")


def embed(model: nn.Module) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(torch.tensor([[0, 5, 7, 2]])).last_hidden_state
    return found


def sizes(model: nn.Module) -> set[bool]:
    return {value.numel() > 0 for value in model.parameters()}


@contextlib.contextmanager
def trainers_zero3() -> Iterator[None]:
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, is_deepspeed_zero3_enabled

    config = HfDeepSpeedConfig(ZERO3)
    yield
    # transformers keeps a weak reference.
    assert is_deepspeed_zero3_enabled()
    del config


def load_under(surrounding: Any, witness: Callable[[], nn.Module], folder: Path) -> dict[str, Any]:
    """Load in a context that partitions new models."""
    expected = load_frozen(encoder, folder, device="cpu")
    with surrounding:
        before = witness()
        model = load_frozen(encoder_with_another, folder, device="cpu")
        with contextlib.suppress(ValueError):
            load_frozen(fails)
        after = witness()
        with pytest.raises(RuntimeError) as refused:
            load_frozen(lambda: before)
    return {
        "partitioned": [sizes(before), sizes(after)],
        "whole": [sizes(model), sizes(nn.Linear(3, 2))],
        "nested": model.inner is expected,
        "equal": torch.equal(embed(model), embed(expected)),
        "refused": str(refused.value),
    }


def load_under_zero3(rank: int, world_size: int, folder: Path) -> list[dict[str, Any]]:
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=str(rank))
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    return [
        load_under(trainers_zero3(), lambda: encoder(folder), folder),
        load_under(deepspeed.zero.Init(config_dict_or_path=ZERO3), lambda: nn.Linear(3, 2), folder),
    ]


@pytest.mark.distributed
def test_load_frozen_is_whole_where_all_else_is_partitioned(tmp_path: Path) -> None:
    save_tiny_labeler(tmp_path)
    for results in run_distributed(load_under_zero3, 2, tmp_path):
        assert len(results) == 2
        for found in results:
            assert found["partitioned"] == [{False}, {False}]
            assert found["whole"] == [{True}, {True}]
            assert found["nested"]
            assert found["equal"]
            assert "was partitioned while it was loaded" in found["refused"]
