"""Count how often a training step of PolicyModule and a metric's update wait for the device.

python benchmarks/gpu_syncs.py [--places]

Without a GPU, the counts are those of the second device of ``tests/helpers/second_device.py``, which computes on the
CPU. A read is a number, list or shape that the host needs from the device: each ends the overlap of host and device. An
upload is a copy of pageable memory to the device. A step is one rollout of 16 completions and one training step on it,
the second step of a run. ``--places`` also prints the lines of code that wait.

On a machine with a GPU, it counts there what torch reports as synchronising (``torch.cuda.set_sync_debug_mode``): reads
and uploads together, in the column of reads. It also prints the milliseconds of a step that is not counted.
"""

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from second_device import DEVICE, IS_EMULATED, Syncs, count_syncs, lightning_settings, second_device
from tiny_generator import tiny_generator, tiny_rows, word_value

from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy
from rrg_rewards.training import PolicyDataModule, PolicyModule
from rrg_rewards.training.metrics.crepe import CountCorrelation
from rrg_rewards.training.policy.options import ALGORITHMS

TOKENS = (4, 16, 64)


class _Steps(Callback):
    """Keeps the counts at the end of each step."""

    def __init__(self, syncs: Syncs) -> None:
        self.syncs = syncs
        self.ends: list[tuple[Counter[Any], Counter[str]]] = []
        self.times: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        """Copy the counts."""
        self.ends.append((self.syncs.reads.copy(), self.syncs.uploads.copy()))
        self.times.append(time.perf_counter())


@contextmanager
def count_cuda_syncs() -> Iterator[Syncs]:
    """Count what synchronises with the GPU, by the line of Python code that asks for it."""
    syncs, before = Syncs(), torch.cuda.get_sync_debug_mode()

    def note(message: Any, _: Any, file: str, line: int, *__: Any) -> None:
        if "synchronizing CUDA operation" in str(message):
            syncs.reads["wait", f"{'/'.join(Path(file).parts[-3:])}:{line}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield syncs
        finally:
            torch.cuda.set_sync_debug_mode(before)


def train_tiny(algorithm: str, tokens: int, device: torch.device, decoding: Any, steps: _Steps, number: int) -> None:
    """Train for a number of steps with 16 completions of at most ``tokens`` tokens."""
    torch.manual_seed(0)
    generator = tiny_generator(tokens)
    generator.decoding = decoding
    module = PolicyModule(generator, word_value, algorithm=algorithm, num_generations=8)
    data = PolicyDataModule(tiny_rows(), batch_size=2, collate=generator.collate)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    settings = {**quiet, **lightning_settings(device=device), "enable_model_summary": False}
    Trainer(max_steps=number, callbacks=[steps], **settings).fit(module, data)


def count_step(algorithm: str, tokens: int, device: torch.device = DEVICE, decoding: str = "eager") -> Syncs:
    """Return the waits of the second training step with 16 completions of at most ``tokens`` tokens."""
    with _available(device), (count_syncs if device == DEVICE else count_cuda_syncs)() as syncs:
        steps = _Steps(syncs)
        train_tiny(algorithm, tokens, device, decoding, steps, 2)
    (first, second), step = steps.ends, Syncs()
    step.reads, step.uploads = second[0] - first[0], second[1] - first[1]
    return step


def _available(device: torch.device) -> Any:
    return second_device() if device == DEVICE else nullcontext()


def milliseconds(algorithm: str, tokens: int, device: torch.device, decoding: str) -> float:
    """Return the median time of a training step after the first."""
    steps = _Steps(Syncs())
    train_tiny(algorithm, tokens, device, decoding, steps, 8)
    return 1000 * statistics.median(end - begin for begin, end in pairwise(steps.times))


def count_update(name: str, device: torch.device = DEVICE) -> Syncs:
    """Return the waits of the second update of a metric whose inputs are tensors."""
    labels, counts, numbers = torch.eye(3).long(), torch.rand(3, 3), torch.arange(3)
    metric, inputs = {
        "CRGScore": (CRGScore(3), (labels, labels.flip(0))),
        "MultiLevelCRGScore": (MultiLevelCRGScore([3]), ([labels], [labels.flip(0)])),
        "CountCorrelation": (CountCorrelation(["a", "b", "c"]), (counts, counts.flip(0))),
        "PreferenceAccuracy": (PreferenceAccuracy(["a", "b", "c"]), (counts, counts.flip(0), numbers)),
    }[name]
    with _available(device):
        moved = torch.utils._pytree.tree_map(lambda one: one.to(device), inputs)
        metric.to(device).update(*moved)
        with (count_syncs if device == DEVICE else count_cuda_syncs)() as syncs:
            metric.update(*moved)
    return syncs


METRICS = ("CRGScore", "MultiLevelCRGScore", "CountCorrelation", "PreferenceAccuracy")


def _print(what: str, syncs: Syncs, places: bool) -> None:
    print(f"{what:50} {sum(syncs.reads.values()):6} {sum(syncs.uploads.values()):8}")
    if places:
        for (kind, place), count in syncs.reads.most_common():
            print(f"    {count:3} {kind:20} {place}")
        for place, count in syncs.uploads.most_common():
            print(f"    {count:3} {'upload':20} {place}")


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", action="store_true", help="print the lines of code that wait")
    places = parser.parse_args().places
    device = DEVICE if IS_EMULATED else torch.device("cuda", 0)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{'':50} {'reads':>6} {'uploads':>8}")
    # The second device has no graphs.
    decodings = ("eager",) if device == DEVICE else ("eager", "graph")
    for algorithm, tokens, decoding in product(ALGORITHMS, TOKENS, decodings):
        name = f"step of {algorithm}, at most {tokens} tokens, {decoding}"
        if device != DEVICE:
            name += f", {milliseconds(algorithm, tokens, device, decoding):.0f} ms"
        _print(name, count_step(algorithm, tokens, device, decoding), places)
    for name in METRICS:
        _print(f"update of {name}", count_update(name, device), places)


if __name__ == "__main__":
    main()
