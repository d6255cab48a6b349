"""Send pairs of reports to servers with and without a prefix cache, for ``judge_cost.py``."""

import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from rrg_rewards.judges import JudgeFailure, JudgeTask, OpenAIJudge, ReportPair
from rrg_rewards.judges.base import Message
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.judges.tasks.crimson import CrimsonTask

TASKS: dict[str, Callable[[], JudgeTask[Any, Any]]] = {"counting": CountingTask, "crimson": CrimsonTask}
START_SECONDS = 240
# The servers share the cores with each other and with this process. Their threads are therefore not bound to cores, and
# there is one of each server, because threads that wait for one another use processor time.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
OPTIONS = (
    "--dtype bfloat16 --max-model-len 3584 --enable-prompt-tokens-details --generation-config vllm --enforce-eager"
)
BLOCK_TOKENS = 32


class Side(NamedTuple):
    """A running server.

    Args:
        url: Its address.
        model: Name of the model.
        process: Its process; ``None`` if it was not started here.
    """

    url: str
    model: str
    process: int | None = None

    def processor_seconds(self) -> float | None:
        """Return the processor time of the server's processes; ``None`` if it is not known."""
        if self.process is None or not Path("/proc/self/stat").is_file():
            return None
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                # The process has ended.
                continue
            # Fields 5, 14 and 15 of proc(5): process group, user time and system time.
            if int(fields[2]) == self.process:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class Started(NamedTuple):
    """A process of vLLM with its address and the file of its output."""

    process: subprocess.Popen[bytes]
    address: str
    log: IO[str]


class Sent(JudgeTask[ReportPair, Any]):
    """A task whose prompts begin with a line of their own, and that may be sent in the order of the items.

    Args:
        task: The task.
        line: First line of the prompts, with which a prefix cache has nothing of earlier runs.
        is_grouped: Whether pairs of a reference are sent together.
    """

    def __init__(self, task: JudgeTask[ReportPair, Any], line: str, is_grouped: bool) -> None:
        self.name, self._task, self._line, self._is_grouped = task.name, task, line, is_grouped

    @property
    def prompt_hash(self) -> str:  # type: ignore[override]
        """Hash of the task's prompt."""
        return self._task.prompt_hash

    @property
    def schema(self) -> Mapping[str, Any]:
        """Schema of the task."""
        return self._task.schema

    def messages(self, item: ReportPair) -> list[Message]:
        """Return the task's messages after the line."""
        first, *others = self._task.messages(item)
        return [{**first, "content": f"{self._line}\n{first['content']}"}, *others]

    def shared_part(self, item: ReportPair) -> Hashable:
        """Return what the task's pairs share, or nothing."""
        return self._task.shared_part(item) if self._is_grouped else None

    def parse(self, item: ReportPair, answer: str) -> Any:
        """Return the task's result."""
        return self._task.parse(item, answer)


@contextmanager
def external_server(url: str, model: str) -> Iterator[dict[str, Side]]:
    """Return a server that is already running."""
    yield {"server": Side(url, model)}


@contextmanager
def vllm_servers(python: str, model: str, few_tokens: int) -> Iterator[dict[str, Side]]:
    """Start vLLM without and with a prefix cache, and with a small one unless ``few_tokens`` is 0."""
    sides = {"no cache": ["--no-enable-prefix-caching"], "cache": ["--enable-prefix-caching"]}
    if few_tokens:
        blocks = ["--num-gpu-blocks-override", str(few_tokens // BLOCK_TOKENS)]
        sides[f"cache of {few_tokens} tokens"] = ["--enable-prefix-caching", *blocks]
    with ExitStack() as stack:
        # Start all of them before waiting for the first.
        started = {name: stack.enter_context(started_vllm(python, model, options)) for name, options in sides.items()}
        for name, server in started.items():
            _wait(server, sides[name])
        yield {name: Side(f"{server.address}/v1", "judge", server.process.pid) for name, server in started.items()}


@contextmanager
def started_vllm(python: str, model: str, options: Sequence[str]) -> Iterator[Started]:
    """Start vLLM's server in a process group of its own, and end it after the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(Path(model).resolve())]
    command += ["--served-model-name", "judge", "--host", "127.0.0.1", "--port", str(port), *OPTIONS.split()]
    command += ["--block-size", str(BLOCK_TOKENS), *options]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, env={**ENVIRONMENT, **os.environ}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield Started(process, f"http://127.0.0.1:{port}", log)
        finally:
            _end(process)


def _wait(server: Started, options: Sequence[str]) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{server.address}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    server.log.seek(0)
    raise SystemExit(f"vLLM did not start with {' '.join(options)}; it wrote:\n{server.log.read()[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(20)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def send(
    side: Side, task: JudgeTask[ReportPair, Any], pairs: list[ReportPair], limits: dict[str, int]
) -> dict[str, Any]:
    """Send each pair once, and return the server's counts and the time.

    Raises:
        SystemExit: If a request is not answered. Malformed answers are expected.
    """
    judge = OpenAIJudge(
        side.model,
        base_url=side.url,
        max_reasks=0,
        max_retries=0,
        timeout=600.0,
        # A constraint of the answer would be computed by the server as well, and has no part in the prompt.
        response_format="text",
        **limits,
    )
    before, start = side.processor_seconds(), time.perf_counter()
    results = judge.evaluate_now(task, pairs)
    wall, after = time.perf_counter() - start, side.processor_seconds()
    for result in results:
        if isinstance(result, JudgeFailure) and result.kind not in ("malformed", "inconsistent"):
            raise SystemExit(f"{side.url}: a request was not answered ({result.kind}): {result.reason}")
    usage = judge.usage
    cached = usage.cached_prompt_tokens
    return {
        "calls": usage.calls,
        "prompt_tokens": usage.prompt_tokens,
        "cached_prompt_tokens": cached,
        "cached_share": None if cached is None else round(cached / usage.prompt_tokens, 3),
        "completion_tokens": usage.completion_tokens,
        "wall_seconds": round(wall, 2),
        "processor_seconds": None if before is None or after is None else round(after - before, 2),
    }


def compared(
    sides: Mapping[str, Side], task: str, pairs: list[ReportPair], repeats: int, limits: dict[str, int]
) -> dict[str, Any]:
    """Measure all servers in turn, in both orders, and return the fastest run of each with the ratios.

    Args:
        sides: The servers. The others are compared with ``no cache``, if there is one.
        task: Name of the task.
        pairs: The pairs, those of a reference together.
        repeats: Number of runs of each order on each server.
        limits: ``max_tokens`` and ``concurrency``.
    """
    shuffled = random.Random(0).sample(pairs, len(pairs))
    orders = {"grouped": (pairs, True), "shuffled": (shuffled, False)}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {order: {name: [] for name in sides} for order in orders}
    number = count(int(time.time()))
    for side in sides.values():
        # The first requests are slower than others, of one sequence as of several.
        send(side, Sent(TASKS[task](), f"Run {next(number)}.", True), pairs[: limits["concurrency"]], limits)
    for _ in range(repeats):
        for order, (ordered, is_grouped) in orders.items():
            for name, side in sides.items():
                sent = Sent(TASKS[task](), f"Run {next(number)}.", is_grouped)
                runs[order][name].append(send(side, sent, ordered, limits))
    figures: dict[str, Any] = {
        order: {name: min(found, key=lambda run: float(run["wall_seconds"])) for name, found in by_side.items()}
        for order, by_side in runs.items()
    }
    for by_side in figures.values():
        slow = by_side.get("no cache")
        for name, run in by_side.items():
            if slow is None or name == "no cache":
                continue
            for kind in ("wall", "processor"):
                seconds = run[f"{kind}_seconds"], slow[f"{kind}_seconds"]
                run[f"{kind}_ratio"] = None if None in seconds else round(seconds[1] / seconds[0], 2)
    return figures


def printed(figures: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Print the figures of :func:`compared`."""
    for order, by_side in figures.items():
        for name, run in by_side.items():
            cached = "not stated" if run["cached_share"] is None else f"{run['cached_share']:.1%}"
            ratio = ""
            if "wall_ratio" in run:
                ratio = f"; without a cache {run['wall_ratio']} and {run['processor_ratio']} times as long"
            print(
                f"{order:9} {name:22} {run['calls']} calls, {run['prompt_tokens']:,} prompt tokens, from the cache "
                f"{cached}, {run['wall_seconds']} s of wall time, {run['processor_seconds']} s of processor time{ratio}"
            )
