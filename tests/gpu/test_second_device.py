"""The second device itself: what it refuses, what it allows, what it counts, and mismatches that it finds."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from second_device import CPU, DEVICE, OTHER, WITHOUT_GPU, count_syncs, lightning_settings, second_device
from tiny_generator import PlainSteps, tiny_generator, train, word_value
from torch import Tensor, nn
from torchmetrics import Metric

from rrg_rewards.training import Completions, TokenScores

pytestmark = WITHOUT_GPU

MIXED = (
    "Expected all tensors to be on the same device|convert emulated:0 device type tensor to numpy|"
    "Encountered different devices in metric calculation"
)


@pytest.fixture(scope="module", autouse=True)
def emulated() -> Iterator[None]:
    with second_device():
        yield


def ours(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=DEVICE)


def theirs(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


REFUSED: dict[str, Callable[[], Any]] = {
    "a tensor of the CPU": lambda: ours(1, 2) + theirs(1, 2),
    "a tensor of another index": lambda: ours(1, 2) + theirs(1, 2).to(OTHER),
    "a number of the device with a tensor of the CPU": lambda: theirs(1, 2) * ours(1, 2).sum(),
    "into a number of the CPU": lambda: torch.tensor(0.0).add_(ours(1).sum()),
    "a number that is no operand of an elementwise operation": lambda: torch.stack([ours(1).sum(), theirs(1).sum()]),
    "indices of the device for the CPU": lambda: theirs(1, 2)[ours(0).long()],
    "index_select by the CPU": lambda: ours(1, 2).index_select(0, theirs(0).long()),
    "cat": lambda: torch.cat([ours(1), theirs(1)]),
    "isin": lambda: torch.isin(ours(1), theirs(1)),
    "weights of the CPU": lambda: nn.Linear(1, 1)(ours(1)),
    "numpy": lambda: np.asarray(ours(1)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=MIXED):
        REFUSED[case]()


def test_refuses_a_generator_of_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'emulated' device type for generator but found 'cpu'"):
        torch.rand(2, device=DEVICE, generator=torch.Generator())


def test_allows_what_cuda_allows() -> None:
    values = ours(1, 2)
    assert (values + torch.tensor(1.0)).tolist() == [2, 3]
    assert values[theirs(1).long()].tolist() == [2]
    values[:1] = theirs(5)
    assert values.tolist() == [5, 2]
    values[values > 4] = 7
    assert values.cpu().tolist() == [7, 2]
    assert theirs(0, 0).copy_(values).tolist() == [7, 2]


def test_copies_stay_on_the_device_and_loads_follow_map_location() -> None:
    layer = nn.Linear(2, 1).to(OTHER)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(copied.weight, nn.Parameter)
        assert copied.weight.device == OTHER
        assert torch.equal(copied.weight, layer.weight)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    for location, expected in ((None, OTHER), ("cpu", CPU), (lambda storage, _: storage, CPU)):
        file.seek(0)
        assert torch.load(file, map_location=location, weights_only=True)["weight"].device == expected


def test_autocast_computes_in_the_types_of_cuda() -> None:
    layer, values = nn.Linear(2, 1).to(DEVICE), ours(1, 2)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        output = layer(values)
        assert output.dtype == torch.bfloat16
        assert output.softmax(-1).dtype == torch.float32
        output.sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    expected = nn.functional.linear(values.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16())
    assert torch.equal(output, expected)


def test_counts_waits() -> None:
    values, layer = ours(1, 2), nn.Linear(2, 1).to(DEVICE)
    with count_syncs() as syncs:
        layer(values).sum().backward()
        values[:] = values * values.cumsum(0) + torch.arange(2, device=DEVICE)
        values[values > 0] = 1
        values.clone().masked_fill_(values > 1, 3)
        theirs(1).to(DEVICE, non_blocking=True)
    assert not syncs.reads
    assert not syncs.uploads
    with count_syncs() as syncs:
        reads = (float(values.sum()), bool(values.any()), int(values[0]), values.tolist(), values.cpu())
        assert len(reads) == 5
        values[values > 0], values.nonzero(), values.unique(), torch.equal(values, values)
        torch.multinomial(values, 1)
        ours(1), theirs(1).to(DEVICE), values[torch.tensor([0])]
    kinds = {kind: count for (kind, _), count in syncs.reads.items()}
    once = dict.fromkeys(("tolist", "cpu", "boolean index", "nonzero", "_unique2", "equal"), 1)
    assert kinds == {"_local_scalar_dense": 3, "multinomial": 2, **once}
    assert sum(syncs.uploads.values()) == 3
    assert {place.split(":")[0] for place in syncs.uploads} == {"tests/gpu/test_second_device.py"}


# --- Planted mismatches: each runs on the CPU and fails on the device -------------------------------------------------


class CountingMetric(Metric):
    """Adds a vector that its update makes on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(2), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        self.counts += torch.tensor([len(values), 1])

    def compute(self) -> Tensor:
        return self.counts[0] / self.counts[1]


class PlacedModel(nn.Module):
    """Adds positions that its forward pass makes on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        output: Tensor = self.layer(values + torch.arange(3))
        return output


class ModelReward:
    """Gives its model inputs of the CPU."""

    __name__ = "model"

    def __init__(self, device: torch.device) -> None:
        self.model = nn.Embedding(8, 1).to(device)

    def __call__(self, completions: list[str], **columns: Any) -> list[float | None]:
        lengths = torch.tensor([min(len(text.split()), 7) for text in completions])
        rewards: list[float | None] = self.model(lengths).squeeze(1).tolist()
        return rewards


class Shortened(PlainSteps):
    """Leaves its advantages on the CPU."""

    def _set_advantages(self, rollout: Any, *arguments: Any) -> None:
        super()._set_advantages(rollout, *arguments)
        rollout.advantages = rollout.advantages.cpu()


class Averages(Callback):
    """Adds values of the device to a vector of the CPU."""

    def __init__(self) -> None:
        self.sums = torch.zeros(1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.sums += outputs["loss"].reshape(1)


def train_tiny(device: torch.device, kind: type[PlainSteps] = PlainSteps, *callbacks: Callback) -> None:
    settings = lightning_settings() if device == DEVICE else {}
    train(kind(tiny_generator(), word_value, num_generations=2), 1, callbacks=[*callbacks], batch_size=2, **settings)


PLANTED: dict[str, Callable[[torch.device], Any]] = {
    "metric": lambda device: CountingMetric().to(device).update(torch.ones(2, device=device)),
    "model": lambda device: PlacedModel().to(device)(torch.ones(2, 3, device=device)),
    "reward": lambda device: ModelReward(device)(completions=["edema", "normal heart"]),
    "policy": lambda device: train_tiny(device, Shortened),
    "callback": lambda device: train_tiny(device, PlainSteps, Averages()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PLANTED)
def test_finds_a_planted_mismatch(kind: str) -> None:
    PLANTED[kind](CPU)
    with pytest.raises(RuntimeError, match=MIXED):
        PLANTED[kind](DEVICE)


class OtherIndex(nn.Module):
    """A generator of one token whose samples always lie on the first device."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))

    def sample(self, batch: Any, *, greedy: bool = False) -> Completions:
        tokens = torch.zeros(len(batch["row"]), 1, dtype=torch.long, device=DEVICE)
        return Completions(tokens, torch.ones_like(tokens))

    def scores(self, completions: Completions) -> Tensor:
        logits = self.logits.expand(len(completions), 1, 2)
        return TokenScores.from_logits(logits, completions).log_probs


def test_finds_a_wrong_index() -> None:
    generator = OtherIndex().to(DEVICE)
    completions = generator.sample({"row": [0, 1]})
    assert generator.scores(completions).device == DEVICE
    with pytest.raises(RuntimeError, match="emulated:0 and emulated:1"):
        generator.to(OTHER).scores(completions)
