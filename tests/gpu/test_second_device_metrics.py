"""Every metric on the second device: states, values and copies stay there and equal those on the CPU."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.fabric.utilities import move_data_to_device
from metric_harness import SUBJECTS, Subject, save_models
from second_device import DEVICE, OTHER, second_device
from torchmetrics import Metric

import rrg_rewards.metrics
from rrg_rewards.metrics import make_metric

NAMES = ["cider", "coco_bleu", "coco_rouge"]
ALL = {**SUBJECTS, **{name: lambda _, name=name: Subject(lambda: make_metric(name)) for name in NAMES}}
# Their models stay on the device, wherever the states are.
for _name in ("bertscore", "crepe", "er2score"):
    ALL[_name] = lambda models, name=_name: Subject(
        lambda: make_metric(name, model=models[name], device=str(DEVICE)), relative=1e-5
    )
# It starts a Java program.
WITHOUT_TEST = {"CocoMETEOR"}


@pytest.fixture(scope="module", autouse=True)
def emulated() -> Iterator[None]:
    """Use the device in a gloo group of one process, so that each value is synchronised."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with second_device():
        yield
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
def test_metric_on_the_second_device_has_its_value_on_the_cpu(models: dict[str, str], name: str) -> None:
    subject = ALL[name](models)
    metric = feed(subject.make(), subject, slice(0, 2), torch.device("cpu")).to(DEVICE)
    feed(metric, subject, slice(2, 4), DEVICE)
    metric = pickle.loads(pickle.dumps(metric))
    feed(metric, subject, slice(4, None), DEVICE)
    check_value(metric, subject, DEVICE)
    metric.persistent(True)
    restored = subject.make().to(DEVICE)
    restored.load_state_dict(metric.state_dict())
    restored._update_count = 1
    check_value(restored, subject, DEVICE)
    check_value(metric.to(OTHER), subject, OTHER)
    metric.reset()
    check_value(feed(metric, subject, slice(None), OTHER), subject, OTHER)
    args, kwargs = move_data_to_device(subject.batches[0], OTHER)
    assert float(metric(*args, **kwargs)) == pytest.approx(subject.value(subject.batches[:1]), rel=1e-5, nan_ok=True)


def test_every_metric_is_tested(models: dict[str, str]) -> None:
    tested = {kind.__name__ for make in ALL.values() for kind in type(make(models).make()).__mro__}
    exported = {name for name in rrg_rewards.metrics.__all__ if _is_metric(getattr(rrg_rewards.metrics, name))}
    assert exported - tested == WITHOUT_TEST


def _is_metric(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Metric)
