"""Check the package on a GPU, and compare CT-CHAT 8B with the plan of ct_chat_plan.py.

    python benchmarks/gpu.py                # checks, then measurements; writes results/gpu.json
    python benchmarks/gpu.py --no-checks
    python benchmarks/gpu.py --decode       # ways to decode, none begun after 6 minutes; writes results/gpu_decode.json
    python benchmarks/gpu.py --cpu          # the same measurements of a small model on the CPU, to test this script

The checks are the tests with the marker `gpu` (`python -m pytest -m gpu tests/gpu`). The measurements need about 40 GB
of GPU memory; --layers 8 needs about 15. Weights and volumes are random, and nothing is downloaded. Estimates are those
of an H100; the measured rates of the device are written beside them.

Exit codes: 0 if all checks passed or were skipped; 1 if a check failed; 2 for wrong arguments; 3 if there is no GPU.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NO_GPU = 3
# Seconds after which --decode begins nothing more.
DECODE_SECONDS = 360
# Needed if this file is imported from another folder.
sys.path.insert(0, str(Path(__file__).parent))


def run_checks() -> list[dict[str, str]]:
    """Run the tests with the marker `gpu`; return their names, outcomes, and the reasons of those not passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["-m", "pytest", "-m", "gpu", "tests/gpu", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
        if not report.is_file():
            return [{"check": "pytest", "outcome": "failed", "reason": f"pytest ended with code {done.returncode}"}]
        return outcomes(report)


def outcomes(report: Path) -> list[dict[str, str]]:
    """Read the outcomes of tests from a JUnit file."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        entry = {"check": case.get("name", ""), "outcome": "passed"}
        for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            if (result := case.find(kind)) is not None:
                entry |= {"outcome": outcome, "reason": (result.get("message") or "").splitlines()[0]}
        found.append(entry)
    return found


def describe(device: torch.device) -> dict[str, Any]:
    """Describe the device and the versions."""
    about = {"torch": torch.__version__, "python": platform.python_version()}
    if device.type != "cuda":
        return {"device": platform.processor() or platform.machine(), **about}
    properties = torch.cuda.get_device_properties(device)
    cuda = {"cuda": torch.version.cuda, "capability": f"{properties.major}.{properties.minor}"}
    return {"device": properties.name, "gb": round(properties.total_memory / 1e9, 1), **cuda, **about}


def measure(device: torch.device, layers: int) -> dict[str, Any]:
    """Return rates, attention kernels, and the phases of a step beside their estimates."""
    from ct_chat_cost import count
    from ct_chat_plan import host_seconds, reward_rates, settings
    from gpu_measures import Size, attention, phases, rates

    run, adapter = settings("DDP", 1, 1, full=False)
    run = replace(run, accumulation=4, steps_per_generation=4)
    counts = count(adapter)
    small = device.type == "cpu"
    size = Size.small() if small else Size.published(layers, adapter.r)
    measured_run = replace(run, batch=2, completion=8, rank=size.rank) if small else run
    of_device, of_attention = rates(device, size), attention(device, size, measured_run)
    found = phases(device, size, measured_run, replace(adapter, r=size.rank))
    return {
        "layers": size.layers,
        "completions": measured_run.batch * measured_run.accumulation,
        "rates": of_device,
        "attention": of_attention,
        "phases": compare(found, estimate(run, counts, host_seconds(run), reward_rates(), size.layers)),
    }


def measure_decoding(device: torch.device, layers: int, tokens: int) -> dict[str, Any]:
    """Return the rates, and the time of a token in each way to decode."""
    from ct_chat_plan import settings
    from gpu_decode import decode
    from gpu_measures import Size, rates

    run, adapter = settings("DDP", 1, 1, full=False)
    run = replace(run, accumulation=4, steps_per_generation=4)
    small = device.type == "cpu"
    size = Size.small() if small else Size.published(layers, adapter.r)
    run = replace(run, batch=2, rank=size.rank) if small else run
    found = rates(device, size)
    adapter = replace(adapter, r=size.rank)
    rate = found["copy_gb_per_second"]
    return {"layers": size.layers, "rates": found, **decode(device, size, run, adapter, rate, tokens, DECODE_SECONDS)}


def estimate(run: Any, counts: Any, host: float, rewards: dict[str, float], layers: int) -> dict[str, dict[str, Any]]:
    """Return the plan's seconds ``[fast, slow]`` and GB of each phase, for a part of the layers."""
    from ct_chat_cost import LLAMA, memory, seconds

    # Embeddings and head are counted as layers are: an approximation unless all layers are measured.
    part = layers / LLAMA["num_hidden_layers"]
    planned = seconds(run, counts, host, rewards)
    gigabytes = memory(run, counts)
    both = [a + b for a, b in zip(planned["prefill"], planned["decoding"], strict=True)]
    times = {"generation": both, "reference": planned["reference"], "training": planned["training"]}
    sizes = {"generation": gigabytes["generation"], "reference": None, "training": gigabytes["training"]}
    return {
        name: {"seconds": [part * end for end in ends], "gb": None if sizes[name] is None else part * sizes[name]}
        for name, ends in times.items()
    }


def compare(
    measured: dict[str, tuple[float, float | None]], estimated: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return each phase's measured and estimated seconds and GB, and whether the time lies in the estimate."""
    return {
        name: {
            "seconds": taken,
            "estimated_seconds": estimated[name]["seconds"],
            "within_estimate": estimated[name]["seconds"][0] <= taken <= estimated[name]["seconds"][1],
            "gb": gigabytes,
            "estimated_gb": estimated[name]["gb"],
        }
        for name, (taken, gigabytes) in measured.items()
    }


def main() -> int:
    """Check, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32, help="decoder layers of the measured model (default: 32)")
    parser.add_argument("--no-checks", action="store_true", help="measure only")
    parser.add_argument("--cpu", action="store_true", help="measure a small model on the CPU, without checks")
    parser.add_argument("--decode", action="store_true", help="measure the ways to decode, without checks")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a completion with --decode (default: 128)")
    parser.add_argument("--output", type=Path, help="default: results/gpu.json or gpu_decode.json; with --cpu none")
    arguments = parser.parse_args()
    if not (arguments.cpu or torch.cuda.is_available()):
        built = f"built with CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        print(f"no GPU: torch.cuda.is_available() is False (torch {torch.__version__}, {built}); nothing was measured")
        return NO_GPU
    # Before DeepSpeed, whose estimators the plan uses, and its report that there is no GPU.
    os.environ.setdefault("DS_ACCELERATOR", "cpu" if arguments.cpu else "cuda")
    warnings.simplefilter("ignore", FutureWarning)
    device = torch.device("cpu" if arguments.cpu else "cuda")
    checks = [] if arguments.cpu or arguments.no_checks or arguments.decode else run_checks()
    measured = (
        measure_decoding(device, arguments.layers, arguments.tokens)
        if arguments.decode
        else measure(device, arguments.layers)
    )
    result = {"machine": describe(device), "checks": checks, **measured}

    from ct_chat_plan import rounded

    from rrg_rewards.data import write_json

    result = rounded(result)
    show(result)
    output = arguments.output or (None if arguments.cpu else RESULTS / f"gpu{'_decode' * arguments.decode}.json")
    if output is not None:
        write_json(result, output, overwrite=True)
    return int(any(check["outcome"] == "failed" for check in checks))


def show(result: dict[str, Any]) -> None:
    """Print the result."""
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()))
    for check in result["checks"]:
        print(f"{check['outcome']:8} {check['check']}" + (f": {check['reason']}" if "reason" in check else ""))
    for name, value in result["rates"].items():
        print(f"{name}: {value:.1f}")
    for name, row in result.get("ways", {}).items():
        figures = (f"{figure} {value:.3g}" for figure, value in row.items() if isinstance(value, float))
        print(f"{name}: " + (", ".join(figures) or f"not run: {row['not_run']}"))
    if "bound_ms" in result:
        print(f"bound of the memory: {result['bound_ms']:.3g} ms a token of {result['rows']} rows")
        return
    for name, found in result["attention"].items():
        print(f"{name}: " + (f"{found['seconds']:.4f} s" if "seconds" in found else f"not run: {found['not_run']}"))
    for name, row in result["phases"].items():
        fast, slow = row["estimated_seconds"]
        memory = "" if row["gb"] is None else f"; {row['gb']:.1f} GB, estimate {row['estimated_gb'] or 0:.1f}"
        print(f"{name}: {row['seconds']:.2f} s, estimate {fast:.2f} to {slow:.2f}{memory}")


if __name__ == "__main__":
    sys.exit(main())
