"""Every metric on the second device and on a GPU: states, values and copies stay there and equal those on the CPU."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.fabric.utilities import move_data_to_device
from metric_harness import SUBJECTS, Subject, save_models
from second_device import CPU, KINDS, devices_of
from torchmetrics import Metric

import rrg_rewards.metrics
from rrg_rewards.metrics import make_metric

NAMES = ("cider", "coco_bleu", "coco_rouge")
MODELS = ("bertscore", "crepe", "er2score")
ALL = sorted({*SUBJECTS, *NAMES, *MODELS})
# It starts a Java program.
WITHOUT_TEST = {"CocoMETEOR"}


def subject_of(name: str, models: dict[str, str], device: torch.device) -> Subject:
    """Return a metric's subject; a model stays on the device, wherever the states are."""
    if name in MODELS:
        return Subject(lambda: make_metric(name, model=models[name], device=str(device)), relative=1e-5)
    return Subject(lambda: make_metric(name)) if name in NAMES else SUBJECTS[name](models)


@pytest.fixture(scope="module", autouse=True, params=KINDS)
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[torch.device, torch.device]]:
    """Return the devices, in a group of one process, so that each value is synchronised."""
    with devices_of(request.param) as pair:
        backend = "gloo" if request.param != "cuda" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        yield pair
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_models(Path(tmp_path_factory.mktemp("models")))


def feed(metric: Metric, subject: Subject, batches: slice, device: torch.device) -> Metric:
    for args, kwargs in move_data_to_device(subject.batches[batches], device):
        metric.update(*args, **kwargs)
    return metric


def check_places(metric: Metric, device: torch.device) -> None:
    for name, value in metric.metric_state.items():
        for part in value if isinstance(value, list) else [value]:
            assert part.device == device, name


def check_value(metric: Metric, subject: Subject, device: torch.device) -> None:
    check_places(metric, device)
    value = metric.compute()
    assert value.device == device
    metric.sync()
    check_places(metric, device)
    metric.unsync()
    assert float(value) == pytest.approx(subject.total, rel=max(subject.relative, 1e-9), nan_ok=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_metric_on_a_device_has_its_value_on_the_cpu(
    models: dict[str, str], name: str, devices: tuple[torch.device, torch.device]
) -> None:
    device, other = devices
    subject = subject_of(name, models, device)
    metric = feed(subject.make(), subject, slice(0, 2), CPU).to(device)
    feed(metric, subject, slice(2, 4), device)
    metric = pickle.loads(pickle.dumps(metric))
    feed(metric, subject, slice(4, None), device)
    check_value(metric, subject, device)
    metric.persistent(True)
    restored = subject.make().to(device)
    restored.load_state_dict(metric.state_dict())
    restored._update_count = 1
    check_value(restored, subject, device)
    check_value(metric.to(other), subject, other)
    metric.reset()
    check_value(feed(metric, subject, slice(None), other), subject, other)
    args, kwargs = move_data_to_device(subject.batches[0], other)
    assert float(metric(*args, **kwargs)) == pytest.approx(subject.value(subject.batches[:1]), rel=1e-5, nan_ok=True)


def test_every_metric_is_tested(models: dict[str, str], devices: tuple[torch.device, torch.device]) -> None:
    made = [subject_of(name, models, devices[0]).make() for name in ALL]
    tested = {kind.__name__ for metric in made for kind in type(metric).__mro__}
    exported = {name for name in rrg_rewards.metrics.__all__ if _is_metric(getattr(rrg_rewards.metrics, name))}
    assert exported - tested == WITHOUT_TEST


def _is_metric(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Metric)
