"""Measure a step of PolicyModule and of TRL with rewards in the background, for rules and for a judge on a server.

python benchmarks/policy_overlap.py --mini runs/mini_ct_chat [--steps 6] [--rounds 3] [--latency 0.2] [--quick]

``--mini`` is as in ``policy_throughput.py``. ``rules`` are CRG, the reward of the recipe, and CRIMSON by rules.
``judge`` is CRG with CRIMSON by a judge on a local server, a process of its own that answers each request after
``--latency`` seconds. Each round runs the settings of ``overlap_rewards`` in turn with both trainers, each run in a
process of its own. The time of a step is the median after the first steps, in which processes start. A ratio is the
time of a step without the option over the time with it, of the fastest runs; the rewards of both must be equal.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from benchmark_data import write_results
from policy_runs import COMMON, GRPO, mini_generator, options, read, with_lightning, with_trl
from timing import machine

from rrg_rewards.functional import CrimsonEvaluation
from rrg_rewards.judges import Judge
from rrg_rewards.judges.registry import _JUDGES as JUDGES
from rrg_rewards.recipes._catalog import recipe_path
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.rewards import make_reward
from rrg_rewards.training import PolicyModule

NOT_MEASURED = 2
TRAINERS = ("lightning", "trl")
# Settings of overlap_rewards by case, the first one without overlap.
SETTINGS = {"judge": ("none", "thread"), "rules": ("none", "process")}


class ServerJudge(Judge):
    """A judge that sends one request for each pair of reports, all at once, and finds no error.

    Args:
        port: Port of the server on this machine.
    """

    has_independent_rows = True
    signature = "benchmark"

    def __init__(self, port: int) -> None:
        self.port = port

    def arguments(self) -> dict[str, Any]:
        """Return the port."""
        return {"port": self.port}

    async def evaluate(self, task: Any, items: Sequence[Any]) -> list[Any]:  # noqa: ARG002 (of all judges)
        """Wait for the answers about all pairs."""
        return list(await asyncio.gather(*map(self._ask, items)))

    async def _ask(self, pair: Any) -> CrimsonEvaluation:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{json.dumps([pair.reference, pair.candidate])}\n".encode())
        answer = await reader.readline()
        writer.close()
        return CrimsonEvaluation(**json.loads(answer))


def serve(latency: float) -> None:
    """Answer each line after ``latency`` seconds."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(latency)
        writer.write(b"{}\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def server(latency: float) -> Iterator[int]:
    """Start the server in a process; yield its port."""
    command = [sys.executable, __file__, "--serve", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def second_reward(case: str, port: int) -> dict[str, Any]:
    """Return the settings of the reward beside CRG."""
    return {"name": "crimson", "judge": "rules" if case == "rules" else {"name": "benchmark", "port": port}}


def run(trainer: str, case: str, overlap: str, arguments: Any) -> list[dict[str, float]]:
    """Return the log of each step of a run in this process."""
    second = second_reward(case, arguments.port)
    with TemporaryDirectory() as output:
        if trainer == "lightning":
            data, crg = read(arguments.mini, Path(output), heldout_rows=0)
            kept = None if overlap == "none" else overlap
            rewards = [crg, make_reward(second["name"], judge=second["judge"], reference_column="impression")]
            module = PolicyModule(mini_generator(arguments.mini), rewards, overlap_rewards=kept, **GRPO, **COMMON)
            return with_lightning(module, data.train, arguments.steps, 0)
        recipe = yaml.safe_load(recipe_path("ct_chat/mini_grpo_crg").read_text(encoding="utf-8"))
        config = Path(output) / "recipe.yaml"
        config.write_text(yaml.safe_dump({**recipe, "rewards": [*recipe["rewards"], second]}), encoding="utf-8")
        more = {"config": config, "heldout_rows": 0, "max_steps": arguments.steps, "overlap_rewards": overlap}
        return with_trl(options(arguments.mini, Path(output), **more))


def measure(trainer: str, case: str, overlap: str, arguments: Any, port: int) -> tuple[float, list[float]]:
    """Run in a new process; return the median time of a step, and the mean reward of each step."""
    given = ["--mini", str(arguments.mini), "--steps", str(arguments.steps), "--port", str(port)]
    command = [sys.executable, __file__, *given, "--run", trainer, case, overlap]
    steps = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    ended = [step["ended"] for step in steps[NOT_MEASURED - 1 :]]
    return statistics.median(b - a for a, b in pairwise(ended)), [step["reward"] for step in steps]


def compare(trainer: str, case: str, arguments: Any, port: int) -> dict[str, Any]:
    """Run the settings of a case in turn with one trainer."""
    times: dict[str, list[float]] = {overlap: [] for overlap in SETTINGS[case]}
    rewards = {}
    for _ in range(arguments.rounds):
        for overlap in SETTINGS[case]:
            seconds, rewards[overlap] = measure(trainer, case, overlap, arguments, port)
            times[overlap].append(round(seconds, 3))
            print(case, trainer, overlap, times[overlap][-1], flush=True)
    plain, overlapped = (min(values) for values in times.values())
    if len({str(values) for values in rewards.values()}) > 1:
        raise RuntimeError(f"the settings give different rewards: {rewards}")
    return {"seconds_per_step": times, "speed_up": round(plain / overlapped, 3)}


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", type=Path, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=6, help="steps of a run (default: 6)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each setting (default: 3)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of an answer (default: 0.2)")
    parser.add_argument("--quick", action="store_true", help="one round of 4 steps; writes only to --output")
    parser.add_argument("--output", type=Path, help="file to write (default: in results)")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    if arguments.mini is None:
        parser.error("--mini is required")
    if arguments.run:
        # As a plug-in does.
        JUDGES["benchmark"] = ("policy_overlap", "ServerJudge")
        print(json.dumps(run(*arguments.run, arguments)))
        return
    if arguments.quick:
        arguments.rounds, arguments.steps = 1, 4
    with server(arguments.latency) as port:
        result = {case: {trainer: compare(trainer, case, arguments, port) for trainer in TRAINERS} for case in SETTINGS}
    print(json.dumps(result, indent=2))
    described = {"machine": machine(), "versions": versions(), "latency": arguments.latency}
    write_results({**described, **result}, arguments, "policy_overlap")


if __name__ == "__main__":
    main()
