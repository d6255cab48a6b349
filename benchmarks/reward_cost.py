"""Measure the processor time that rewards by rules take for the completions of a step, for 16 to 512 completions.

    python benchmarks/reward_cost.py
    python benchmarks/reward_cost.py --pairs FILE --sizes 16 128

The completions are reports of a real system (Reg2RG on CT-RATE, about 140 words), eight for each reference. Each size
runs in a process of its own:

- first: no sentence is known yet, as in the first step of a training;
- later: the texts are new, and their sentences are known. The steps of a training are between the two.

The rewards are fitted on all references before. The figures are seconds of one core.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmark_data import RESULTS, SHARED, need
from timing import machine

from rrg_rewards.data import write_json
from rrg_rewards.rewards import make_reward
from rrg_rewards.version import __version__

REWARDS = {
    "recommended": {},
    "crimson": {"form": "training"},
    "crg": {"average": "macro", "labeler": "rules:ct_rate"},
    "ct_finebench": {"mode": "f1"},
}
GROUP = 8
REFERENCES = 64


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=SHARED / "reg2rg_ct_rate/pairs.csv", help="reports of a system")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--only", nargs=2, metavar=("REWARD", "SIZE"), help="one cell, in this process")
    parser.add_argument("--output", type=Path, default=RESULTS / "reward_cost.json")
    return parser.parse_args()


def later_texts(texts: list[str]) -> list[str]:
    """Return new texts of known sentences: every second sentence of two reports."""
    parts = [re.split(r"(?<=\.)\s+", text) for text in texts]
    return [" ".join([*own[::2], *other[1::2]]) for own, other in zip(parts, parts[1:] + parts[:1], strict=True)]


def measure(pairs: Path, name: str, size: int) -> dict[str, float]:
    """Return the seconds of processor time of a first and of a later step."""
    with pairs.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    references, reports = ([row[column] for row in rows] for column in ("reference", "prediction"))
    reward = make_reward(name, **REWARDS[name]).fit(reference=references)
    target = [references[row // GROUP % REFERENCES] for row in range(size)]
    found = {}
    for step, texts in {"first": reports[:size], "later": later_texts(reports[:size])}.items():
        start = time.process_time()
        reward(texts, reference=target)
        found[step] = time.process_time() - start
    return found


def main() -> None:
    """Measure all rewards and sizes, each in a new process."""
    arguments = parse_arguments()
    need(arguments.pairs, "reference reports and those of a real system")
    if arguments.only:
        print(json.dumps(measure(arguments.pairs, arguments.only[0], int(arguments.only[1]))))
        return
    seconds: dict[str, dict[str, dict[str, float]]] = {}
    for name in REWARDS:
        for size in arguments.sizes:
            command = [sys.executable, __file__, "--pairs", str(arguments.pairs), "--only", name, str(size)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds.setdefault(name, {})[str(size)] = {step: round(value, 3) for step, value in found.items()}
            print(
                f"{name:13}  {size:4} completions  first {found['first']:.2f} s  later {found['later']:.2f} s",
                flush=True,
            )
    write_json({"version": __version__, "machine": machine(), "seconds": seconds}, arguments.output, overwrite=True)


if __name__ == "__main__":
    main()
