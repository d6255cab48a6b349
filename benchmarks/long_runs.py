"""Look for what grows in long runs: memory, open files, threads, and the time of a unit.

    nice python benchmarks/long_runs.py
    python benchmarks/long_runs.py --only server judge --scale 0.01 --output /tmp/long_runs.json

Each part runs in a process of its own and is read 20 times in equal distances: resident memory, open file descriptors,
threads, and milliseconds of the processor for a unit. `server`, `score` and `judge` are read from outside, the last one
as the sum over its processes. The first fifth is the warm-up: `start` is the state after it, with the time of a unit in
the second fifth, and `end` the last state, with the time of a unit in the last fifth. Processor time is compared,
because other work on the machine hardly changes it.

No sentence occurs twice: findings, kinds, places, sizes and changes are drawn, some words are misspelt, and each
sentence has the number of an image. What still grows after the warm-up should be caches that are not full. For parts
that are read from inside, `caches` are the large ones that grew, with their entries after the warm-up and at the end,
and the limit; and those without a limit that grew at all, whose keys should be few, as are names of concepts.
"""

import argparse
import asyncio
import csv
import functools
import gc
import json
import logging
import multiprocessing
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import psutil
from benchmark_data import RESULTS, write_results
from openai_judge import Comparison, serve
from serve import serving, single_requests, until_ready
from timing import machine

from rrg_rewards.data import phantom_studies
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.phrases import Memo
from rrg_rewards.judges import JudgeFailure, OpenAIJudge
from rrg_rewards.rewards import make_reward
from rrg_rewards.version import __version__

READINGS, WARM_UP, LARGE = 20, 0.2, 1000
JUDGE_PROCESSES, CLIENTS, REPORT_SENTENCES = 8, 16, 3
# Of Lightning's trainer.
SILENT: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
                          "enable_model_summary": False, "num_sanity_val_steps": 0}  # fmt: skip
KINDS = ("small", "large", "calcified", "irregular", "ground-glass", "spiculated", "chronic", "patchy", "loculated")
PLACES = ("right upper lobe", "left lower lobe", "lingula", "right costophrenic angle", "mediastinum", "both lungs")
CHANGES = ("unchanged", "new", "increased since the prior examination", "smaller than before", "not seen before")
FRAMES = (
    "There is a {size} mm {kind} {finding} in the {place}, image {number}.",
    "{finding} of {size} x {other_size} mm in the {place} (image {number}), {change}.",
    "No {finding} or {other} on image {number}.",
    "The {place} shows {kind} {finding} and {other}, {change}; image {number}.",
    "{kind} {finding}, likely {other}, image {number}.",
)


def sentences() -> Iterator[str]:
    """Yield sentences of which no two are equal."""
    draw, names = random.Random(0), [name.replace("_", " ") for name in load_knowledge("concepts")["concepts"]]
    for number in count(1):
        finding = draw.choice(names)
        if draw.random() < 0.05:
            place = draw.randrange(len(finding))
            finding = f"{finding[:place]}{draw.choice('aenrst')}{finding[place:]}"
        drawn = {"kind": draw.choice(KINDS), "place": draw.choice(PLACES), "change": draw.choice(CHANGES)}
        sizes = {"size": draw.randrange(2, 90), "other_size": draw.randrange(2, 90), "number": number}
        yield draw.choice(FRAMES).format(finding=finding, other=draw.choice(names), **drawn, **sizes)


def pairs(size: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of reports of new sentences."""
    new = sentences()
    while True:
        yield " ".join(islice(new, size)), " ".join(islice(new, size))


def caches() -> dict[str, tuple[int, int | None]]:
    """Return the entries and the limit of each cache of the package in this process."""
    found = {}
    for one in gc.get_objects():
        # isinstance() would ask lazy objects of other packages.
        if type(one) is functools._lru_cache_wrapper:
            info, name = one.cache_info(), f"{getattr(one, '__module__', '?')}.{getattr(one, '__qualname__', '?')}"
            if name.startswith("rrg_rewards."):
                found[f"{name}#{id(one)}"] = info.currsize, info.maxsize
        elif issubclass(type(one), Memo):
            name = getattr(one._function, "__qualname__", "?")
            found[f"{type(one).__name__} of {name}#{id(one)}"] = len(one), one._most
        elif type(one) is FindingEngine:
            found[f"FindingEngine._masks#{id(one)}"] = len(one._masks), one._memory
    return found


class Meter:
    """Reads processes in equal distances of the work.

    Args:
        units: Number of units of the work.
        processes: The processes; this one by default, whose caches are then read, too.
    """

    def __init__(self, units: int, *processes: psutil.Process) -> None:
        self.units, self.processes, self.done = units, processes, 0
        self.readings: list[dict[str, float]] = []
        self.warm: dict[str, tuple[int, int | None]] = {}
        self.add(0)

    def add(self, units: int = 1) -> None:
        """Count finished units, and read where it is time."""
        self.done += units
        if self.done * READINGS < self.units * len(self.readings):
            return
        if not self.processes:
            gc.collect()
        read = self.processes or (psutil.Process(),)
        times = [one.cpu_times() for one in read]
        self.readings.append({
            "units": self.done,
            "rss_mib": round(sum(one.memory_info().rss for one in read) / 2**20, 1),
            "files": sum(one.num_fds() for one in read),
            "threads": sum(one.num_threads() for one in read),
            "ms": 1000 * sum(one.user + one.system for one in times),
        })  # fmt: skip
        if not self.processes and not self.warm and self.done >= WARM_UP * self.units:
            self.warm = caches()

    def result(self) -> dict[str, Any]:
        """Return the states after the warm-up and at the end, and what grew."""
        sides = []
        # Places of the state, and of the readings between which the time is measured.
        fifth = max(round(WARM_UP * (len(self.readings) - 1)), 1)
        for shown, first, last in ((fifth, fifth, 2 * fifth), (-1, -1 - fifth, -1)):
            ms, units = (self.readings[last][one] - self.readings[first][one] for one in ("ms", "units"))
            sides.append({**self.readings[shown], "ms": round(ms / units, 3)})
        result = {"start": sides[0], "end": sides[1], "rss_mib": [one["rss_mib"] for one in self.readings]}
        result["growth"] = {name: round(sides[1][name] / sides[0][name] - 1, 3) for name in ("rss_mib", "ms")}
        if not self.processes:
            grown = [(name, self.warm.get(name, (0,))[0], *one) for name, one in caches().items()]
            result["caches"] = [[name.split("#")[0], before, now, most] for name, before, now, most in grown
                                if now > before and (most is None or now > LARGE)]  # fmt: skip
        return result


def server(units: int) -> Meter:
    """Send single completions of one sentence from several clients to a reward server."""
    new = pairs(1)
    with serving("crimson", 1) as (process, url):
        asyncio.run(until_ready(url))
        meter = Meter(units, process)
        while meter.done < units:
            rows = list(islice(new, min(max(units // (5 * READINGS), CLIENTS), units - meter.done)))
            asyncio.run(single_requests(url, *zip(*rows, strict=True), CLIENTS))
            # Until the server has closed its connections.
            time.sleep(0.2)
            meter.add(len(rows))
    return meter


def score(units: int) -> Meter:
    """Score a table of reports of one sentence by the command, which writes its rows to standard output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(chain([("prediction", "reference")], islice(pairs(1), units)))
        command = [sys.executable, "-m", "rrg_rewards", "score", str(path), "--quiet", "--metrics", "crg,crimson"]
        command += ["--set", "crg.prior=0.2", "--bootstrap", "0", "--output", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            meter = Meter(units, psutil.Process(process.pid))
            for _ in islice(process.stdout, units):
                meter.add()
            process.communicate()
    return meter


def rules(name: str, units: int) -> Meter:
    """Compute a reward by rules, eight completions for a reference; units are sentences of both."""
    new = pairs(REPORT_SENTENCES)
    reward = make_reward(name, **({"prior": 0.2} if name == "crg" else {}))
    if name == "recommended":
        reward.fit(reference=[study.report for study in phantom_studies(8, seed=0)])
    meter = Meter(units)
    while meter.done < units:
        preds, target = zip(*islice(new, 8), strict=True)
        reward(preds, reference=target[:1] * 8)
        meter.add(9 * REPORT_SENTENCES)
    return meter


def tiny_policy() -> tuple[Any, Any, list[dict[str, str]]]:
    """Return a model of random weights, its tokenizer, and rows of prompts."""
    from rrg_rewards.recipes.phantom.policy import compact_policy, compact_tokenizer

    tokenizer, drawn = compact_tokenizer(), phantom_studies(64, seed=0)
    rows = [{"prompt": study.report.split(".")[0], "reference": study.report} for study in drawn]
    return compact_policy(tokenizer), tokenizer, rows


def policy_module(units: int) -> Meter:
    """Train with PolicyModule, watched, with a reward by rules."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import LambdaCallback

    from rrg_rewards.callbacks import RewardWatchCallback
    from rrg_rewards.training import CausalLMGenerator, PolicyDataModule, PolicyModule

    model, tokenizer, rows = tiny_policy()
    generator = CausalLMGenerator(model, tokenizer, max_new_tokens=32)
    module = PolicyModule(generator, make_reward("crimson"), num_generations=4)
    data = PolicyDataModule(rows, batch_size=2, collate=generator.collate)
    meter = Meter(units)
    callbacks = [RewardWatchCallback([make_reward("rouge")]), LambdaCallback(on_train_batch_end=lambda *_: meter.add())]
    Trainer(max_steps=units, callbacks=callbacks, **SILENT).fit(module, data)
    return meter


def trl_grpo(units: int) -> Meter:
    """Train with TRL's GRPO, watched, with a reward by rules."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rrg_rewards.callbacks import TrainerRewardWatchCallback

    class Steps(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            meter.add()

    model, tokenizer, rows = tiny_policy()
    watch = TrainerRewardWatchCallback([make_reward("rouge")])
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 32, "max_steps": units}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_steps": 10}
    with tempfile.TemporaryDirectory() as folder:
        options = GRPOConfig(folder, use_cpu=True, bf16=False, gradient_checkpointing=False, **sizes, **quiet)
        reward = watch.record([make_reward("crimson")])
        trainer = GRPOTrainer(
            model, reward, options, Dataset.from_list(rows), processing_class=tokenizer, callbacks=[watch, Steps()]
        )
        trainer.remove_callback(PrinterCallback)
        meter = Meter(units)
        trainer.train()
    return meter


def callback(units: int) -> Meter:
    """Validate 16 new reports in each step of a training, with tables and a page."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import LambdaCallback
    from lightning.pytorch.demos.boring_classes import BoringModel

    from rrg_rewards.callbacks import ReportMetricsCallback
    from rrg_rewards.metrics import CRIMSON, ReportCRG

    class Echo(BoringModel):
        def validation_step(self, *_: Any) -> dict[str, Any]:
            return dict(zip(("prediction", "reference"), zip(*islice(new, 8), strict=True), strict=True))

    new = pairs(REPORT_SENTENCES)
    with tempfile.TemporaryDirectory() as folder:
        metrics = {"crg": ReportCRG(prior=0.2), "crimson": CRIMSON(judge="rules")}
        scored = ReportMetricsCallback(metrics, table_dir=folder, html_dir=folder, html_text=True)
        callbacks = [scored, LambdaCallback(on_validation_end=lambda *_: meter.add())]
        meter = Meter(units)
        trainer = Trainer(max_steps=units, val_check_interval=1, callbacks=callbacks, **SILENT)
        trainer.fit(Echo(), val_dataloaders=range(2))
    return meter


@functools.cache
def _judge(url: str, folder: str) -> OpenAIJudge:
    return OpenAIJudge("stub", base_url=url, cache=folder)


def _failures(url: str, folder: str, items: list[str]) -> int:
    return sum(isinstance(one, JudgeFailure) for one in _judge(url, folder).evaluate_now(Comparison(), items))


def judge(units: int) -> Meter:
    """Ask for the same answers in eight processes at once, which share a cache; units are answers of one process."""
    context, new = multiprocessing.get_context("spawn"), sentences()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        answering = context.Process(target=serve, args=(listener,), daemon=True)
        answering.start()
        stack.callback(answering.terminate)
        pools = [stack.enter_context(ProcessPoolExecutor(1, context)) for _ in range(JUDGE_PROCESSES)]
        ask = functools.partial(_failures, f"http://127.0.0.1:{listener.getsockname()[1]}/v1", folder)
        # Starts the processes, and what they import.
        list(chain.from_iterable(pool.map(ask, [["warm-up"]]) for pool in pools))
        meter = Meter(units, *(psutil.Process(pid) for pool in pools for pid in pool._processes))
        while meter.done < units:
            items = list(islice(new, max(units // READINGS, 1)))
            if sum(one.result() for one in [pool.submit(ask, items) for pool in pools]):
                raise SystemExit("an answer failed")
            meter.add(len(items))
    return meter


PARTS: dict[str, tuple[Callable[[int], Meter], int]] = {
    "server": (server, 100_000),
    "score": (score, 200_000),
    **{
        f"rules_{name}": (functools.partial(rules, name), 300_000)
        for name in ("crg", "crimson", "ct_finebench", "label_f1", "recommended")
    },
    "policy_module": (policy_module, 500),
    "trl_grpo": (trl_grpo, 500),
    "callback": (callback, 200),
    "judge": (judge, 2_000),
}


def run(name: str, units: int) -> dict[str, Any]:
    """Run a part, and return what was read."""
    logging.getLogger("rrg_rewards.watch").setLevel(logging.ERROR)
    began = time.perf_counter()
    result = PARTS[name][0](units).result()
    return {"units": units, "seconds": round(time.perf_counter() - began), **result}


def main() -> None:
    """Run the parts in turn, print what was read and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the sizes (default: 1)")
    parser.add_argument("--output", type=Path, help="file of the figures, whose other parts are kept")
    arguments = parser.parse_args()
    arguments.quick = arguments.scale < 1
    path = arguments.output or RESULTS / "long_runs.json"
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.is_file() else {}
    print(f"{'part':20}{'units':>9}{'seconds':>9}{'RSS, MiB':>16}{'files':>11}{'threads':>11}{'ms per unit':>18}")
    for name in arguments.only:
        units = max(round(PARTS[name][1] * arguments.scale), READINGS)
        # A process of its own, whose memory holds nothing of the parts before.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = figures[name] = {**pool.submit(run, name, units).result(), "load": machine()["load_average"]}
        shown = [f"{found['start'][one]} - {found['end'][one]}" for one in ("rss_mib", "files", "threads", "ms")]
        print(f"{name:20}{units:>9}{found['seconds']:>9}{shown[0]:>16}{shown[1]:>11}{shown[2]:>11}{shown[3]:>18}")
        for cache, before, now, most in found.get("caches", ()):
            print(f"    {cache}: {before} - {now} of {most or 'any number'}", flush=True)
        write_results({"version": __version__, "machine": machine(), "figures": figures}, arguments, "long_runs")


if __name__ == "__main__":
    main()
