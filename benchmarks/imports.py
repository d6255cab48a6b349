"""Compare the time to start of commands and imports with that of importing the libraries that they need.

    python benchmarks/imports.py
    python benchmarks/imports.py --quick          # two starts each

Each side is a new Python process. The sides run in turn, so that other load affects all of them, and the minimum is
reported. `label` labels one report, and `score` scores one pair. All metrics are classes of torchmetrics, so that what
scores waits for `import torchmetrics`. It imports matplotlib, scipy and transformers itself, where they are installed.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmark_data import write_results
from timing import Took, machine

from rrg_rewards.version import __version__

COMMAND = "import sys; from rrg_rewards.cli.main import main; sys.exit(main(sys.argv[1:]))"
LABEL = ("label", "reports.csv", "--text-column", "report", "--output", "-", "--quiet")
SCORE = ("score", "pairs.csv", "--quiet", "--metrics")

# Name of each side: its library, the code, and arguments.
SIDES: dict[str, tuple[str | None, str, tuple[str, ...]]] = {
    "python": (None, "pass", ()),
    "import torch": (None, "import torch", ()),
    "import torchmetrics": (None, "import torchmetrics", ()),
    "import rrg_rewards": ("python", "import rrg_rewards", ()),
    "rrg-rewards --help": ("python", COMMAND, ("--help",)),
    "rrg-rewards label": ("import torch", COMMAND, LABEL),
    "from rrg_rewards.labelers import RuleLabeler": (
        "import torch",
        "from rrg_rewards.labelers import RuleLabeler",
        (),
    ),
    "rrg-rewards score --metrics crg": ("import torchmetrics", COMMAND, (*SCORE, "crg")),
    "rrg-rewards score --metrics crimson": ("import torchmetrics", COMMAND, (*SCORE, "crimson")),
    "from rrg_rewards.metrics import ReportCRG": (
        "import torchmetrics",
        "from rrg_rewards.metrics import ReportCRG",
        (),
    ),
    "from rrg_rewards.rewards import make_reward": (
        "import torchmetrics",
        "from rrg_rewards.rewards import make_reward",
        (),
    ),
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="starts of each side")
    parser.add_argument("--quick", action="store_true", help="two starts each; writes only to --output")
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/imports.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repeats = 2
    return arguments


def start(code: str, options: tuple[str, ...], folder: str) -> Took:
    """Run code in a new process; return its seconds of wall clock and processor, with those of its threads."""
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, *options], cwd=folder, capture_output=True, text=True)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{code} {' '.join(options)} failed:\n{done.stderr}")
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(repeats: int) -> dict[str, dict[str, Any]]:
    """Return the least seconds of each side, and their ratio to those of its library."""
    took: dict[str, list[Took]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "reports.csv").write_text("report\nCardiomegaly. No effusion.\n", encoding="utf-8")
        pair = "prediction,reference\nCardiomegaly. No effusion.,Small left effusion.\n"
        (Path(folder) / "pairs.csv").write_text(pair, encoding="utf-8")
        for _ in range(repeats):
            for name, (_, code, options) in SIDES.items():
                took[name].append(start(code, options, folder))
    least = {name: Took(*map(min, zip(*each, strict=True))) for name, each in took.items()}
    return {
        name: {
            "wall": round(least[name].wall, 3),
            "processor": round(least[name].processor, 3),
            **(
                {}
                if library is None
                else {
                    "beside": library,
                    "wall_ratio": round(least[name].wall / least[library].wall, 2),
                    "processor_ratio": round(least[name].processor / least[library].processor, 2),
                }
            ),
        }
        for name, (library, _, _) in SIDES.items()
    }


def main() -> None:
    """Measure, print and write the figures."""
    arguments = parse_arguments()
    figures = measure(arguments.repeats)
    print(f"{'seconds':46}{'wall':>8}{'processor':>11}   ratios to")
    for name, row in figures.items():
        ratio = f"   {row['wall_ratio']} {row['processor_ratio']}  {row['beside']}" if "beside" in row else ""
        print(f"{name:46}{row['wall']:>8}{row['processor']:>11}{ratio}")
    result = {"version": __version__, "machine": machine(), "starts": arguments.repeats, "figures": figures}
    write_results(result, arguments, "imports")


if __name__ == "__main__":
    main()
